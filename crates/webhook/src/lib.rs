//! The types that all crates share, and the rules that need no I/O.
//!
//! A webhook goes through these types. Each can be made only from the one before, so unverified data cannot be
//! recorded:
//!
//! ```text
//! Request ──verify──▶ Genuine ──read──▶ Event
//!    ├───────────────▶ Handshake, answered at once
//!    └───────────────▶ Refusal
//! ```
//!
//! Only the comparison in [`signature`] makes evidence. The [`Proof`] of a request without evidence says that it has
//! none.

mod clock;
mod event;
mod explain;
mod failure;
pub mod form;
mod genuine;
mod job_state;
pub mod json;
pub mod moment;
mod name;
mod priority;
mod proof;
mod provider;
mod refusal;
mod request;
mod retry;
mod secret;
pub mod signature;
mod subscription;
pub mod vectors;
mod words;

#[cfg(feature = "testing")]
pub mod refusal_suite;

pub use clock::{Clock, FixedClock, SystemClock};
pub use event::{Arrival, DedupeKey, Delivery, Event, EventId, Label, RequestId, UNREADABLE, is_unprintable};
pub use explain::{Endpoint, explain};
pub use failure::{Failure, FailureKind};
pub use genuine::{Genuine, Verified, verify};
pub use job_state::JobState;
pub use name::{HandlerName, InvalidName, SourceName, is_name};
pub use priority::PriorityRules;
pub use proof::{Proof, ProofKind};
pub use provider::{Answer, NoSample, Priority, Proved, Provider, Reading, SampleOrder, Unreadable};
pub use refusal::Refusal;
pub use request::Request;
pub use retry::{Delays, LeastWait, Next, RetryPolicy};
pub use secret::{BlankSecret, Secret, Secrets};
pub use signature::SIGNATURE_CANDIDATES_MAX;
pub use subscription::{ComputeKey, Interest, KeyFacts, Ordering, Pattern, Subscription};
