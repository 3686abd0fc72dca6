//! The life of a job: recorded, claimed, settled, swept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{EventId, FailureKind, HandlerName, Priority};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoredHeaders;

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

/// A worker's wish to run jobs of one handler.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// Whose jobs.
    pub handler: &'a HandlerName,
    /// Of which events.
    pub events: &'a [EventId],
    /// Who asks.
    pub worker: &'a str,
    /// How long the jobs are the worker's, unless it renews.
    pub lease: Duration,
    /// For a handler that keeps an order: what a dead letter means for the jobs behind it.
    pub ordering: Option<DeadLetters>,
    /// Only jobs with fewer runs that ended without a word; all if it does not say.
    pub crashes_below: Option<u32>,
}

/// What a dead letter means for the jobs behind it with the same ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetters {
    /// They wait until an operator replays or resolves it.
    Block,
    /// They go on.
    StepOver,
}

/// A job that is the worker's now.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The job.
    pub job: JobId,
    /// What proves that it is the worker's.
    pub token: Token,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many runs before this one ended without a word.
    pub crashes: u32,
    /// How urgent it is.
    pub priority: Priority,
    /// What happened.
    pub event: ClaimedEvent,
}

/// An event as a handler gets it.
#[derive(Debug, Clone)]
pub struct ClaimedEvent {
    /// The source it came to.
    pub source: String,
    /// What tells it from the source's other events.
    pub dedupe_key: String,
    /// What happened.
    pub event_type: String,
    /// Whose event it is.
    pub account: Option<String>,
    /// The thing that it is about.
    pub object_id: Option<String>,
    /// When it happened, by the provider's word.
    pub occurred_at: Option<OffsetDateTime>,
    /// When it arrived.
    pub received_at: OffsetDateTime,
    /// The URL it came to.
    pub url: String,
    /// The headers it came with.
    pub headers: StoredHeaders,
    /// Its bytes.
    pub body: Bytes,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The job.
    pub job: JobId,
    /// What proves that it is still the worker's.
    pub token: Token,
    /// The number of the attempt.
    pub attempt: u32,
    /// When it began, by the worker's clock.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration: Duration,
    /// Whose run it was.
    pub worker: Arc<str>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Succeeded,
    /// It is tried again.
    Failed {
        /// Why.
        kind: FailureKind,
        /// Why, for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        kind: FailureKind,
        /// Why, for people.
        message: String,
    },
    /// Something of ours went wrong: it is tried again, and the run does not count as an attempt.
    Interrupted {
        /// What.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
}

impl Outcome {
    /// The state that the job gets.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } | Self::Interrupted { .. } => "failed",
            Self::Dead { .. } => "dead_letter",
        }
    }

    /// Why the attempt failed, if it did.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        match self {
            Self::Succeeded => None,
            Self::Failed { kind, .. } | Self::Dead { kind, .. } => Some(kind.as_str()),
            Self::Interrupted { .. } => Some(FailureKind::Pipeline.as_str()),
        }
    }

    /// Why, for people: as much of it as is stored. A text in Postgres cannot hold a NUL.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Succeeded => None,
            Self::Failed { message, .. } | Self::Dead { message, .. } | Self::Interrupted { message, .. } => {
                Some(message.chars().filter(|character| *character != '\0').take(MESSAGE_CHARS).collect())
            }
        }
    }

    /// When it is tried again, if it is.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Failed { retry_in, .. } | Self::Interrupted { retry_in, .. } => Some(*retry_in),
            Self::Succeeded | Self::Dead { .. } => None,
        }
    }

    /// Whether the run counts as an attempt.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Interrupted { .. })
    }
}

/// The longest message that is stored: an attempt is a short row.
const MESSAGE_CHARS: usize = 2_000;

/// What a crashed attempt's message says.
pub(crate) const CRASHED: &str = "the process died or lost its lease";

/// What settling came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Jobs that were not the worker's any more: nothing was written for them.
    pub stale: Vec<JobId>,
    /// Jobs that waited for their turn behind one of these.
    pub next: Vec<Ready>,
}

/// A job that a worker could claim now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ready {
    /// The job.
    pub job: JobId,
    /// How urgent it is.
    pub priority: Priority,
}

/// What the sweeper asks for.
#[derive(Debug, Clone)]
pub struct Sweep<'a> {
    /// Whose jobs.
    pub handlers: &'a [HandlerName],
    /// How many at most.
    pub limit: u32,
    /// When a job that is dispatched now should be looked at again, should that get lost.
    pub look_again_in: Duration,
    /// The same for a job that crashed.
    pub look_at_suspects_in: Duration,
    /// So many runs in a row that ended without a word make a dead letter.
    pub crash_limit: u32,
}

/// What the sweeper found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many jobs were due.
    pub due: usize,
    /// Those to dispatch: all but the dead, the suspects and those that wait for their turn.
    pub ready: Vec<Ready>,
    /// Those that are dead if they crash once more: they must be run with nobody else, so that nobody dies for another's
    /// crashes.
    pub suspects: Vec<JobId>,
    /// Those whose lease had ended.
    pub crashed: Vec<JobId>,
    /// Those of them that are dead letters now.
    pub buried: Vec<JobId>,
}

/// How much there is to do. Counting stops at [`Backlog::COUNTED`], so that it stays cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Unfinished jobs and dead letters, by handler and state.
    pub jobs: Vec<(String, String, u64)>,
    /// For how long the job that is due longest has been due.
    pub oldest_due: Option<Duration>,
    /// How many jobs operators have replayed in all: the sum of `jobs` over the audit's rows with action `replay`.
    pub replayed: u64,
}

impl Backlog {
    /// How many unfinished jobs are counted at most, and how many dead letters.
    pub const COUNTED: u32 = 100_000;
}

/// A priority from its word in a table, which a constraint keeps to those that there are.
pub(crate) fn priority(word: &str) -> Priority {
    Priority::ALL.into_iter().find(|priority| priority.as_str() == word).unwrap_or_default()
}

/// A handler's name from a table.
pub(crate) fn handler(name: &str) -> Result<HandlerName, sqlx::Error> {
    HandlerName::new(name).map_err(|error| sqlx::Error::Decode(error.into()))
}
