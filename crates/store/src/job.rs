//! What a job is known by, and who holds it.

use hookfast_webhook::{EventId, HandlerName, Priority};
use uuid::Uuid;

use crate::faults::{Protection, is_off};

/// One event for one handler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The event.
    pub event: EventId,
    /// The handler.
    pub handler: HandlerName,
}

/// A job to record together with its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Whose job it is.
    pub handler: HandlerName,
    /// How urgent it is.
    pub priority: Priority,
    /// Jobs of one handler with the same key are done one at a time, in the order of their events.
    pub ordering_key: Option<String>,
}

/// Who holds a job: new and random at each claim, so that not even a restored backup hands the same one out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub Uuid);

impl Token {
    /// One that no other claim has, not even one in a backup that was restored.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        // Tests take the fence away: then every worker has the same token.
        Self(if is_off(Protection::Fence) { Uuid::nil() } else { Uuid::new_v4() })
    }
}
