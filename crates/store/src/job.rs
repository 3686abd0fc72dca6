//! The life of a job: recorded, claimed, settled, swept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{EventId, FailureKind, HandlerName, JobState, Priority, ProofKind};
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
    /// What will prove that the jobs are the worker's. The worker makes it, so that it knows what to hand back if the
    /// store's answer is lost.
    pub token: Token,
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
    /// How many runs before this one the gateway's own store has spoilt, in a row.
    pub interruptions: u32,
    /// How urgent it is.
    pub priority: Priority,
    /// What happened.
    pub event: ClaimedEvent,
}

impl Claimed {
    /// Bodies up to this size come with the claim. Larger ones are fetched with [`crate::Work::body`] when the run begins.
    pub const BODY_BYTES: usize = 16 * 1024;
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
    /// How the request was proved genuine.
    pub proof: ProofKind,
    /// The URL it came to.
    pub url: String,
    /// The headers it came with.
    pub headers: StoredHeaders,
    /// The size of its body.
    pub size_bytes: usize,
    /// Its bytes, unless there are more than [`Claimed::BODY_BYTES`] and they were not fetched yet.
    pub body: Option<Bytes>,
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
    /// The handler put it off: it is run again later, and the run counts neither as an attempt nor as an interruption.
    Snoozed {
        /// Until when and why, for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
    /// Something of ours went wrong: it is tried again, and the run does not count as an attempt.
    Interrupted {
        /// What: our store ([`Interruption::Store`]), which has a limit, or the end of this process.
        by: Interruption,
        /// The same for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
}

/// What cut a run short that is not the handler's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The gateway's own store failed under the run. Noted as [`FailureKind::Pipeline`].
    Store,
    /// The process was shut down, or the run lost its lease although the process lives. Noted as
    /// [`FailureKind::Interrupted`].
    Process,
}

impl Interruption {
    /// The kind of failure that the history shows.
    pub fn kind(self) -> FailureKind {
        match self {
            Self::Store => FailureKind::Pipeline,
            Self::Process => FailureKind::Interrupted,
        }
    }
}

impl Outcome {
    /// The state that the job gets.
    pub(crate) fn state(&self) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::Failed { .. } | Self::Snoozed { .. } | Self::Interrupted { .. } => JobState::Failed,
            Self::Dead { .. } => JobState::DeadLetter,
        }
    }

    /// Why the attempt failed, if it did.
    pub(crate) fn failure(&self) -> Option<FailureKind> {
        match self {
            Self::Succeeded => None,
            Self::Failed { kind, .. } | Self::Dead { kind, .. } => Some(*kind),
            Self::Snoozed { .. } => Some(FailureKind::Snoozed),
            Self::Interrupted { by, .. } => Some(by.kind()),
        }
    }

    /// Why, for people: as much of it as is stored. A text in Postgres cannot hold a NUL.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Succeeded => None,
            Self::Failed { message, .. }
            | Self::Dead { message, .. }
            | Self::Snoozed { message, .. }
            | Self::Interrupted { message, .. } => {
                Some(message.chars().filter(|character| *character != '\0').take(MESSAGE_CHARS).collect())
            }
        }
    }

    /// When it is tried again, if it is.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Failed { retry_in, .. } | Self::Snoozed { retry_in, .. } | Self::Interrupted { retry_in, .. } => {
                Some(*retry_in)
            }
            Self::Succeeded | Self::Dead { .. } => None,
        }
    }

    /// Whether the run counts as an attempt.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Snoozed { .. } | Self::Interrupted { .. })
    }

    /// Whether our own store has spoilt the run.
    pub(crate) fn is_spoilt(&self) -> bool {
        matches!(self, Self::Interrupted { by: Interruption::Store, .. })
    }
}

/// The longest message that is stored: an attempt is a short row.
const MESSAGE_CHARS: usize = 2_000;

/// What a crashed attempt's message says.
pub(crate) const CRASHED: &str = "the process died or lost its lease";

/// What the message of an attempt says whose process turned out to be alive.
pub(crate) const LOST_LEASE: &str = "the run lost its lease, although its process lived";

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

/// What came of renewing leases. Jobs that are in neither list are renewed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Jobs that are not the worker's any more.
    pub lost: Vec<JobId>,
    /// Jobs that are the worker's, and that one of its own effects holds at this moment: to be renewed again soon.
    pub passed_over: Vec<JobId>,
}

/// A run whose process lives, although the sweeper may have noted a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRun {
    /// The job.
    pub job: JobId,
    /// The number of the attempt.
    pub attempt: u32,
    /// Whose run it was.
    pub worker: Arc<str>,
}

/// Which jobs the sweeper makes pending: due retries, and jobs whose lease has ended.
#[derive(Debug, Clone)]
pub struct Sweep<'a> {
    /// Whose jobs.
    pub handlers: &'a [HandlerName],
    /// How many of each handler at most.
    pub limit: u32,
    /// This many runs in a row that ended without a word make a dead letter.
    pub crash_limit: u32,
    /// Leases that have ended count as crashes if the sweep could begin within this time; `None` leaves them alone. A sweep
    /// that had to wait for other writers shows that workers may not have been able to renew their leases.
    pub judge_leases_within: Option<Duration>,
}

/// What the sweeper changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Whether some handler may have more than the limit.
    pub has_more: bool,
    /// How many jobs were changed.
    pub changed: usize,
    /// The jobs among them whose lease had ended.
    pub crashed: Vec<Crash>,
    /// Whether leases were left alone because the sweep had to wait for too long.
    pub came_late: bool,
}

/// A run whose lease had ended when the sweeper came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// The job.
    pub job: JobId,
    /// The source of its event.
    pub source: String,
    /// Whether the job is a dead letter now.
    pub is_buried: bool,
}

/// A place in the pending jobs of a handler, in the order in which they are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DuePlace {
    /// When the job was due.
    pub due_at: OffsetDateTime,
    /// Its event.
    pub event: EventId,
}

/// Which pending jobs to read.
#[derive(Debug, Clone)]
pub struct DueJobs<'a> {
    /// Whose jobs.
    pub handler: &'a HandlerName,
    /// Those that come after this place.
    pub after: Option<DuePlace>,
    /// How many at most.
    pub limit: u32,
    /// For a handler that keeps an order: what a dead letter means for the jobs behind it.
    pub ordering: Option<DeadLetters>,
}

/// A pending job that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueJob {
    /// Where it stands.
    pub place: DuePlace,
    /// How urgent it is.
    pub priority: Priority,
    /// How many runs in a row ended without a word.
    pub crashes: u32,
    /// Whether it is its turn: no job of its ordering key is before it.
    pub is_ready: bool,
}

/// How much there is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Unfinished jobs and dead letters, by handler and state.
    pub jobs: Vec<(String, JobState, u64)>,
    /// For each handler with a due job that no worker has taken, for how long the first of them has been due.
    pub oldest_due: Vec<(String, Duration)>,
    /// How many jobs operators have replayed in all: the sum of `jobs` over the audit's rows with action `replay`.
    pub replayed: u64,
}
