//! The words of Hookfast, and the rules that need no I/O.
//!
//! A webhook goes through these types, each made only from the one before, so that what was not verified cannot be
//! recorded:
//!
//! ```text
//! Request ──verify──▶ Genuine ──read──▶ Event
//!    └────────────────▶ Refusal
//! ```
//!
//! The only way to a [`Proof`], and so to a [`Genuine`] request, is the comparison in [`signature`].

mod clock;
mod event;
mod genuine;
mod name;
mod provider;
mod refusal;
mod request;
mod secret;
pub mod signature;

#[cfg(feature = "testing")]
pub mod refusal_suite;

pub use clock::{Clock, FixedClock, SystemClock};
pub use event::{Arrival, DedupeKey, Delivery, Event, EventId, Label, RequestId, UNREADABLE};
pub use genuine::{Genuine, verify};
pub use name::{HandlerName, InvalidName, SourceName, is_name};
pub use provider::{Answer, Provider, Reading, Unreadable};
pub use refusal::Refusal;
pub use request::Request;
pub use secret::{BlankSecret, Secret, Secrets};
pub use signature::{Proof, SIGNATURE_CANDIDATES_MAX};
