//! What working asks of a database: jobs are claimed, run, settled and swept, and their effects are written.

mod outcome;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hookfast_webhook::{EventId, HandlerName, Priority, ProofKind};
use time::OffsetDateTime;

pub(crate) use outcome::{CRASHED, LOST_LEASE};
pub use outcome::{Interruption, Outcome};

use crate::{
    BegunEffect, Check, EffectError, EffectKey, EffectWrite, JobId, Measure, StoreError, StoredHeaders, Token, Written,
};

/// What working asks of a database.
#[async_trait]
pub trait Work: Check + Measure {
    /// Makes those of the jobs the worker's that are pending and whose turn it is: state `processing`, one attempt more, a
    /// new token, due at the end of the lease. The others are left alone; the sweeper owns their future.
    async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<Claimed>, StoreError>;

    /// Writes how runs ended, with their attempts, for those jobs that are still the worker's.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError>;

    /// The body of an event. It may take as long as a body of this size takes over a narrow link. Nothing if there is no
    /// such event.
    async fn body(&self, event: EventId, size_bytes: usize) -> Result<Option<Bytes>, StoreError>;

    /// Moves the end of leases to `lease` from now, and says which jobs it could not do that for.
    async fn renew(&self, jobs: &[(JobId, Token)], lease: Duration) -> Result<Renewed, StoreError>;

    /// Gives jobs back that were claimed and not begun, as if they had not been claimed; due at once. Jobs that their token
    /// does not hold are left alone.
    async fn hand_back(&self, jobs: &[(JobId, Token)]) -> Result<(), StoreError>;

    /// Turns the crashes that the sweeper noted for these runs into interruptions, which cost the job nothing: their
    /// process has just said that it lives.
    async fn pardon(&self, runs: &[LostRun]) -> Result<(), StoreError>;

    /// Makes jobs pending whose retry is due or whose lease has ended, the longest due first. A lease that has ended is an
    /// attempt of its own kind.
    async fn sweep(&self, sweep: &Sweep<'_>) -> Result<Swept, StoreError>;

    /// The pending jobs of a handler that are due, the longest due first. Changes nothing.
    async fn due_jobs(&self, due: &DueJobs<'_>) -> Result<Vec<DueJob>, StoreError>;

    /// Writes the marker of an effect if the job is still the worker's, in a transaction that stays open.
    async fn begin_effect(&self, effect: &EffectKey<'_>) -> Result<BegunEffect, EffectError>;

    /// Writes that an effect outside, begun in this run, is done, and what came of it, if the job is still the worker's.
    async fn finish_effect(&self, effect: &EffectKey<'_>, result: Option<&str>) -> Result<(), EffectError>;

    /// Does effects of many jobs in one transaction: all that are new and whose jobs are still the worker's, or none.
    ///
    /// One that the database dislikes fails the whole batch with [`StoreError::Rejected`], of whatever kind its error is;
    /// then each is to be done in a transaction of its own, which says what is wrong with it.
    async fn write_effects(&self, writes: &[EffectWrite]) -> Result<Vec<Written>, StoreError>;

    /// Runs a handler's own `CREATE TABLE IF NOT EXISTS` statements, one process at a time.
    async fn prepare(&self, statements: &'static str) -> Result<(), StoreError>;
}

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
    /// What happened.
    pub event: ClaimedEvent,
}

impl Claimed {
    /// Bodies up to this size come with the claim. Larger ones are fetched with [`Work::body`] when the run begins.
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
