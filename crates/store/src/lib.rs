//! Where events become durable. The [`Store`] trait speaks domain verbs, each one atomic step; SQLite and Postgres
//! implement it side by side, and one suite (`tests/conformance.rs`) runs every verb on both.
//!
//! The one thing to know: when [`Record::record`] returns `Ok`, the events survive a crash and a power cut.

mod decode;
mod effect;
mod error;
mod event_row;
mod faults;
mod head;
mod headers;
mod job;
mod large_body;
mod lent;
mod migrations;
mod open;
mod operate;
mod postgres;
mod private;
mod review;
mod spool;
mod sqlite;
mod token;

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hookfast_webhook::{Event, EventId, JobState, Priority, ProofKind};
use time::OffsetDateTime;
use uuid::Uuid;

pub use effect::{BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, EffectWrite, Value, Written};
pub use error::{AskError, OpenError, StoreError, is_about_statement, is_outage, is_too_slow};
pub use headers::StoredHeaders;
pub use job::{
    Backlog, Claim, Claimed, ClaimedEvent, Crash, DeadLetters, DueJob, DueJobs, DuePlace, Interruption, JobId, LostRun,
    NewJob, Outcome, Ready, Renewed, Settled, Settlement, Sweep, Swept, Token,
};
pub use open::{Config, Migrate, StoreUrl, open};
pub use operate::{Act, Action, Attempt, Audit, ByHandler, Cursor, Effect, Filter, Found, Moment, Step, Which};
pub use private::problem_of_private_file;
pub use review::{Resolution, Review};
pub use spool::{Behind, LateStore, NotTaken, SetAside, SpoolConfig, SpoolStatus, Spooled};
pub use sqlite::Spool;
/// For handlers that write into the store's database with the driver's own means.
pub use sqlx;

/// What receiving asks of a database.
#[async_trait]
pub trait Record: Send + Sync {
    /// Writes the events that are new, with one job for each of their handlers, and notes the others as resends: all or
    /// nothing, durable on return. Says for each event which it was.
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError>;

    /// The event that has this key, which is the first of all that came with it.
    async fn first_of(&self, source: &str, dedupe_key: &str) -> Result<Option<EventId>, StoreError>;

    /// How many calls of [`Record::record`] are worth having under way at once.
    fn parallel_records(&self) -> usize;

    /// Fails unless an event could be recorded now: the database answers, has this program's tables, and never had an
    /// I/O error.
    async fn check(&self) -> Result<(), StoreError>;
}

/// What working asks of a database.
#[async_trait]
pub trait Work: Send + Sync {
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

    /// How much there is to do.
    async fn backlog(&self) -> Result<Backlog, StoreError>;

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

/// The longest that the database works on an operator's question: far longer than recording may take, because an operator can
/// wait, and not without end, because it costs the others.
pub const QUESTION_MAX: Duration = Duration::from_secs(60);

/// What operators ask of a database.
#[async_trait]
pub trait Operate: Send + Sync {
    /// The newest events first.
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, AskError>;

    /// One event with everything that was recorded about it.
    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError>;

    /// The jobs of one event, by handler.
    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError>;

    /// Jobs, or events that nobody handles, in the order of their events.
    async fn find(
        &self,
        which: Which,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Found>, AskError>;

    /// The same with the newest event first; of dead letters, the one that died last.
    async fn find_newest(&self, which: Which, filter: &Filter, limit: u32) -> Result<Vec<Found>, AskError>;

    /// The names of all sources that ever had an event.
    async fn sources(&self) -> Result<Vec<String>, StoreError>;

    /// Now, by the store's clock, and the newest event that it has.
    async fn moment(&self) -> Result<Moment, StoreError>;

    /// How many [`Operate::find`] would find in all; nothing if counting takes longer than `within`.
    async fn count_within(&self, which: Which, filter: &Filter, within: Duration) -> Result<Option<u64>, AskError>;

    /// How many [`Operate::find`] would find in all.
    async fn count(&self, which: Which, filter: &Filter) -> Result<u64, AskError> {
        self.count_within(which, filter, QUESTION_MAX).await?.ok_or(AskError::TooBroad(QUESTION_MAX))
    }

    /// The runs of every job of an event, the first one first.
    async fn attempts(&self, event: EventId) -> Result<ByHandler<Attempt>, StoreError>;

    /// The effects of every job of an event, in the order of their keys.
    async fn effects(&self, event: EventId) -> Result<ByHandler<Effect>, StoreError>;

    /// Notes that an operator begins an act.
    async fn begin_act(&self, audit: &Audit) -> Result<(), StoreError>;

    /// Does a part of an act and notes it. Says how many jobs it changed.
    async fn act(&self, step: &Step<'_>) -> Result<u64, StoreError>;

    /// One act of an operator.
    async fn audit(&self, id: Uuid) -> Result<Option<Audit>, StoreError>;

    /// The latest acts first.
    async fn latest_audits(&self, limit: u32) -> Result<Vec<Audit>, StoreError>;
}

/// A database that can do all of it.
#[async_trait]
pub trait Store: Record + Work + Operate {
    /// Lets go of the database after what is under way has ended.
    async fn close(&self);
}

/// An event and the jobs it gives.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The event.
    pub event: Event,
    /// One for each handler that wants it.
    pub jobs: Vec<NewJob>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It was new and is written, with its jobs.
    New,
    /// It was there already; that it came again is written.
    Duplicate,
    /// It is in the spool. Whether it is new shows when the spool is drained.
    Spooled,
}

/// The most bytes of bodies in one statement: a statement is copied on its way, and bodies can be long.
const STATEMENT_BYTES: usize = 8 * 1024 * 1024;

/// The events in parts that one statement each can take; an event that is larger is a part of its own.
fn in_statements<'a, 'e>(events: &'a [&'e Routed]) -> impl Iterator<Item = &'a [&'e Routed]> {
    let mut rest = events;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |routed: &&&Routed| {
            bytes += routed.event.body().len();
            bytes <= STATEMENT_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (part, after) = rest.split_at(count);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// What became of an event, given the ids of those that were new.
fn recorded(new: &HashSet<Uuid>, routed: &Routed) -> Recorded {
    if new.contains(&routed.event.id().0) { Recorded::New } else { Recorded::Duplicate }
}

/// An event as a line in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSummary {
    /// Its id.
    pub id: EventId,
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
    /// The size of its body.
    pub size_bytes: i64,
    /// How often it came again.
    pub resends: i64,
    /// How many jobs it has.
    pub jobs: i64,
}

/// An event with the request it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// What a list shows of it.
    pub summary: EventSummary,
    /// How the request was proved genuine.
    pub proof: ProofKind,
    /// How urgent it was when it came. Events of earlier versions do not say that, nor what follows up to the trace.
    pub priority: Option<Priority>,
    /// The provider's own id of it.
    pub provider_event_id: Option<String>,
    /// The provider's id of the delivery.
    pub delivery_id: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Which of the source's secrets matched, counted from 0.
    pub secret_index: Option<i32>,
    /// The sender's trace.
    pub trace_id: Option<String>,
    /// The id of the request.
    pub request_id: Uuid,
    /// The client's address.
    pub remote_address: String,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: StoredHeaders,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The first and the last times it came again, in the order of arrival.
    pub came_again: Vec<KeptArrival>,
}

/// A time at which an event came again. Of each event the first and the last few are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptArrival {
    /// Which resend it was, from 1.
    pub number: i64,
    /// When.
    pub received_at: OffsetDateTime,
    /// The id of the request.
    pub request_id: Uuid,
    /// The client's address.
    pub remote_address: String,
}

/// A job as a line in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// The handler it is for.
    pub handler: String,
    /// Its state.
    pub state: JobState,
    /// How often it was tried.
    pub attempts: i64,
    /// When somebody looks at it again.
    pub due_at: OffsetDateTime,
    /// How urgent it is.
    pub priority: Priority,
    /// Why it died, or why its last attempt failed.
    pub reason: Option<String>,
    /// When it ended.
    pub finished_at: Option<OffsetDateTime>,
    /// What an operator decided about it.
    pub review: Option<Review>,
}
