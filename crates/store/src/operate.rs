//! What operators ask and do: which jobs, why they died, replay, resolve, and the audit of all that.

use std::fmt;

use hookfast_webhook::{EventId, FailureKind, HandlerName, Priority};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{JobId, NewJob};

/// Which jobs or events; all conditions that are set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of these events; all if there is none.
    pub events: Vec<EventId>,
    /// That came to this source.
    pub source: Option<String>,
    /// Of this handler.
    pub handler: Option<String>,
    /// Of this type, or of all that begin so if it ends in `*`.
    pub event_type: Option<String>,
    /// Of this account.
    pub account: Option<String>,
    /// That died of this.
    pub failure: Option<FailureKind>,
    /// Received at this time or later.
    pub since: Option<OffsetDateTime>,
    /// Received before this time.
    pub until: Option<OffsetDateTime>,
}

/// In which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Jobs that gave up.
    DeadLetters,
    /// Jobs that are done.
    Succeeded,
    /// Dead letters, succeeded and resolved jobs.
    Finished,
    /// Events that no handler has a job for. None of them is of a handler or died of something.
    Unhandled,
}

/// A job, or an event that nobody handles, as an operator sees it in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The event.
    pub event: EventId,
    /// The handler, if there is a job.
    pub handler: Option<HandlerName>,
    /// The job's state.
    pub state: Option<String>,
    /// Why it died, or how it was resolved.
    pub reason: Option<String>,
    /// What the last attempt that failed had to say.
    pub message: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it ended.
    pub finished_at: Option<OffsetDateTime>,
    /// The source.
    pub source: String,
    /// What happened.
    pub event_type: String,
    /// Whose event it is.
    pub account: Option<String>,
    /// When it arrived.
    pub received_at: OffsetDateTime,
    /// How urgent the job is.
    pub priority: Priority,
    /// The job's ordering key.
    pub ordering_key: Option<String>,
}

/// Where a list goes on: after this event and handler (empty for an event that nobody handles).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The event.
    pub event: EventId,
    /// The handler.
    pub handler: String,
}

/// A run of a job, as history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1; a replay starts again.
    pub number: u32,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration: std::time::Duration,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
    /// Whose run it was.
    pub worker: String,
}

/// The marker of a side effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The handler's name for it.
    pub key: String,
    /// The idempotency key for the outside.
    pub id: Uuid,
    /// How often it was begun.
    pub runs: u32,
    /// Whether it is done.
    pub is_done: bool,
    /// What came of it, as JSON.
    pub result: Option<String>,
    /// When it was done.
    pub done_at: Option<OffsetDateTime>,
}

/// How an operator resolves a dead letter without running it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It need not be done.
    Ignored,
    /// Somebody did it by hand.
    ManualFix,
}

impl Resolution {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::ManualFix => "manual_fix",
        }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an operator did, or is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Its id.
    pub id: Uuid,
    /// When it began.
    pub at: OffsetDateTime,
    /// Who did it.
    pub who: String,
    /// `replay` or `resolve`.
    pub action: String,
    /// Why.
    pub why: Option<String>,
    /// What it is done to, as JSON.
    pub filter: String,
    /// How many jobs it was done to so far.
    pub jobs: u64,
    /// How far it got, if it is not finished.
    pub next_after: Option<EventId>,
    /// Whether it is finished.
    pub is_done: bool,
}

/// A part of an operator's act: it is done, and noted in the audit, in one transaction.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    /// The act.
    pub audit: Uuid,
    /// What is done.
    pub act: Act<'a>,
    /// How far the act has got with this.
    pub next_after: Option<EventId>,
    /// Whether that was all.
    pub is_last: bool,
}

/// What is done to jobs.
#[derive(Debug, Clone)]
pub enum Act<'a> {
    /// Finished jobs become pending and due at once, with attempts from the start; jobs that are not there are made.
    /// Unfinished ones stay as they are.
    Replay {
        /// Which.
        jobs: &'a [(EventId, NewJob)],
        /// Forget that their effects were done.
        force_effects: bool,
    },
    /// Dead letters become resolved. Others stay as they are, but for the next job of a resolved one's ordering key, which is
    /// due at once.
    Resolve {
        /// Which.
        jobs: &'a [JobId],
        /// How.
        resolution: Resolution,
    },
}
