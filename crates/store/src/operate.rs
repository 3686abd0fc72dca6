//! What operators ask and do: which jobs, why they died, replay, resolve, and the audit of all that. A webhook does not
//! pass here: `admin` and the commands of the gateway call this.

mod act;
mod filter;
mod review;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_webhook::{EventId, FailureKind, HandlerName, JobState, Priority, ProofKind};
use time::OffsetDateTime;
use uuid::Uuid;

pub use act::{Act, Action, Audit, Step};
pub(crate) use filter::first_id_of_unix;
pub use filter::{Cursor, Filter, Moment, Which};
pub(crate) use review::Ended;
pub use review::{Resolution, Review};

use crate::{AskError, Measure, StoreError, StoredHeaders};

/// The longest that the database works on an operator's question: far longer than recording may take, because an operator can
/// wait, and not without end, because it costs the others.
pub const QUESTION_MAX: Duration = Duration::from_secs(60);

/// What operators ask of a database.
#[async_trait]
pub trait Operate: Measure {
    /// The newest events first.
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, AskError>;

    /// One event with everything that was recorded about it.
    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError>;

    /// The jobs of one event, by handler.
    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError>;

    /// Jobs, or events without a handler, in the order of their events.
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
    /// When the sweeper looks at the job again.
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

/// A job, or an event without a handler, as an operator sees it in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The event.
    pub event: EventId,
    /// The handler, if there is a job.
    pub handler: Option<HandlerName>,
    /// The job's state.
    pub state: Option<JobState>,
    /// Why it died.
    pub reason: Option<String>,
    /// What an operator decided about it.
    pub review: Option<Review>,
    /// What the last attempt that failed had to say.
    pub message: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is looked at next, or how long its worker has it.
    pub due_at: Option<OffsetDateTime>,
    /// Since when a worker has it.
    pub claimed_at: Option<OffsetDateTime>,
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

/// What the jobs of an event have, by handler. A job that has none of it is not in here.
pub type ByHandler<T> = BTreeMap<String, Vec<T>>;

/// A run of a job, as history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1; a replay starts again.
    pub number: u32,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration: Duration,
    /// Why it failed, if it did.
    pub failure: Option<FailureKind>,
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
