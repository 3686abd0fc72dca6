//! What a backend team writes handlers with.
//!
//! - [`Handler`] is a name, what it subscribes to, a payload type, and one method that acts on an [`Event`];
//! - [`Effects`] make what a handler does happen once, however often its job is run;
//! - [`Handlers`] are those of a program, with their payload types erased;
//! - `testing`, behind the feature of this name, is what a team tests a handler with;
//! - `driver`, behind the feature of this name, is for a handler that needs the database's own driver.
//!
//! The processor runs handlers: it makes a [`Run`] for each job that it has claimed. Nothing here knows about queues,
//! leases or retries.

mod effects;
mod event;
mod form;
mod handler;
mod run;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;

pub use effects::{Effects, IdempotencyKey};
pub use event::{Anything, Event, LARGE_BODY};
pub use handler::{AnyHandler, Handled, Handler, Handlers};
pub use hookfast_store::Value;
#[cfg(feature = "driver")]
pub use hookfast_store::driver;
pub use run::{Hooks, NoHooks, Run, SharedCommits};
pub use transaction::Transaction;
