//! One contract for everything that runs in a process from its start to its end: receiving, the workers, a listener.
//!
//! - **start**: a part has a function that takes what the part needs, and a [`MustEnd`], and starts the part's [`Tasks`].
//!   The part then gives a [`Part`] to the process.
//! - **failed**: a part that cannot go on says why with [`MustEnd::because`]. A task that panics does so by itself.
//! - **shut down**: [`Parts`] is the list of what runs. It shuts the parts down in its order, each within its deadline.
//!
//! The process waits until [`MustEnd`] has a reason, or a signal asks it to end, and then shuts its [`Parts`] down. So
//! something new that runs is one more entry in that list.

mod must_end;
mod part;
mod tasks;

pub use must_end::MustEnd;
pub use part::{Part, Parts};
pub use tasks::{Tasks, describe as describe_metrics};
