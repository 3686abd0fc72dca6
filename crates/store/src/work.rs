//! What working asks of a database: jobs are claimed, run, settled and swept, and their effects are written.
//!
//! Before it, `Worker::claim` in `processor::worker` calls [`Work::claim`] for the hints that it pulled. After it,
//! `Worker::run_job` runs each claimed job. The run comes back here with its effects ([`Work::write_effects`],
//! [`Work::begin_effect`]) and its outcome ([`Work::settle`]). `sqlite::work` and `postgres::work` claim and settle.

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
    /// Claims the jobs that are pending and whose turn it is: their state becomes `processing`, they get one attempt more
    /// and the new token, and are due at the end of the lease. Other jobs do not change; the sweeper finds them later.
    async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<Claimed>, StoreError>;

    /// Writes how runs ended, with their attempts. Skips a job whose token has changed.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError>;

    /// The body of an event, or `None` if there is no such event. The time limit grows with the size, for slow
    /// connections.
    async fn body(&self, event: EventId, size_bytes: usize) -> Result<Option<Bytes>, StoreError>;

    /// Moves the end of leases to `lease` from now, and returns the jobs for which it could not.
    async fn renew(&self, jobs: &[(JobId, Token)], lease: Duration) -> Result<Renewed, StoreError>;

    /// Gives jobs back that were claimed and not begun, as if they had not been claimed. They are due at once. Skips a
    /// job whose token has changed.
    async fn hand_back(&self, jobs: &[(JobId, Token)]) -> Result<(), StoreError>;

    /// Turns the crashes that the sweeper noted for these runs into interruptions, which do not count: the process of
    /// these runs has reported that it lives.
    async fn pardon(&self, runs: &[LostRun]) -> Result<(), StoreError>;

    /// Makes jobs pending whose retry is due or whose lease has ended, the longest due first. A lease that has ended is
    /// noted as an attempt that crashed.
    async fn sweep(&self, sweep: &Sweep<'_>) -> Result<Swept, StoreError>;

    /// The pending jobs of a handler that are due, the longest due first. Changes nothing.
    async fn due_jobs(&self, due: &DueJobs<'_>) -> Result<Vec<DueJob>, StoreError>;

    /// Writes the marker of an effect if the token is still the job's, in a transaction that stays open.
    async fn begin_effect(&self, effect: &EffectKey<'_>) -> Result<BegunEffect, EffectError>;

    /// Writes that an outside effect of this run is done, and its result, if the token is still the job's.
    async fn finish_effect(&self, effect: &EffectKey<'_>, result: Option<&str>) -> Result<(), EffectError>;

    /// Does effects of many jobs in one transaction: all that are new and whose tokens are still current, or none.
    /// If one statement fails, the whole batch fails with [`StoreError::Rejected`]. The caller then writes each effect in
    /// a transaction of its own and gets its error.
    async fn write_effects(&self, writes: &[EffectWrite]) -> Result<Vec<Written>, StoreError>;

    /// Runs a handler's own `CREATE TABLE IF NOT EXISTS` statements, one process at a time.
    async fn prepare(&self, statements: &'static str) -> Result<(), StoreError>;
}

/// Which jobs of one handler a worker claims.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    /// Whose jobs.
    pub handler: &'a HandlerName,
    /// The events whose jobs are claimed.
    pub events: &'a [EventId],
    /// The process that claims, by host name and process id.
    pub worker: &'a str,
    /// Proves from now on that the jobs are the worker's. The worker makes it, so that it can hand the jobs back if the
    /// answer of the store is lost.
    pub token: Token,
    /// How long the lease is.
    pub lease: Duration,
    /// For a handler that keeps an order: what a dead letter means for the jobs behind it.
    pub ordering: Option<DeadLetters>,
    /// Claims only jobs with fewer crashes than this; `None` claims all.
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

/// A job that a worker has claimed.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The job.
    pub job: JobId,
    /// The token of the claim.
    pub token: Token,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many runs in a row before this one crashed.
    pub crashes: u32,
    /// How many runs in a row before this one were interrupted by a failure of our store.
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
    /// The token of the claim. If the job has another by now, nothing is written.
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
    /// Jobs whose token has changed: nothing was written for them.
    pub stale: Vec<JobId>,
    /// The next job of each ordering key, if the job before it is finished now.
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
    /// Jobs whose token has changed.
    pub lost: Vec<JobId>,
    /// Jobs that the worker still holds, but whose row is locked by one of its own effects. Renew them again soon.
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
    /// This many crashes in a row make a dead letter.
    pub crash_limit: u32,
    /// Leases that have ended count as crashes if the sweep could begin within this time; `None` leaves them alone. If
    /// the sweep had to wait for other writers, workers may have been unable to renew their leases for the same reason.
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

/// A run whose lease had ended when the sweeper looked.
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
    /// How many runs in a row crashed.
    pub crashes: u32,
    /// Whether it is its turn: no job of its ordering key is before it.
    pub is_ready: bool,
}
