//! Where events become durable. The [`Store`] trait speaks domain verbs, each one atomic step; SQLite and Postgres
//! implement it side by side, and one suite (`tests/conformance.rs`) runs every verb on both.
//!
//! The one thing to know: when [`Store::record`] returns `Ok`, the events survive a crash and a power cut.

mod error;
mod headers;
mod migrations;
mod open;
mod postgres;
mod sqlite;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use hookfast_webhook::{Event, EventId, HandlerName};
use time::OffsetDateTime;
use uuid::Uuid;

pub use error::{OpenError, StoreError};
pub use headers::StoredHeaders;
pub use open::{Config, Migrate, StoreUrl, open};

/// How long after recording a job the sweeper looks at it, should its dispatch get lost.
const DISPATCH_GRACE_SECONDS: i32 = 5;

/// What the gateway asks of a database.
#[async_trait]
pub trait Store: Send + Sync {
    /// Writes the events that are new, with one job for each of their handlers, and notes the others as resends: all or
    /// nothing, durable on return. Says for each event which it was.
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError>;

    /// How many calls of [`Store::record`] are worth having under way at once.
    fn parallel_records(&self) -> usize;

    /// Fails unless an event could be recorded now: the database answers, has this program's tables, and never had an
    /// I/O error.
    async fn check(&self) -> Result<(), StoreError>;

    /// The newest events first.
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, StoreError>;

    /// One event with everything that was recorded about it.
    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError>;

    /// The jobs of one event, by handler.
    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError>;

    /// Lets go of the database after what is under way has ended.
    async fn close(&self);
}

/// An event and the handlers that want it.
#[derive(Debug, Clone)]
pub struct Routed {
    /// The event.
    pub event: Event,
    /// The handlers.
    pub handlers: Arc<[HandlerName]>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It was new and is written, with its jobs.
    New,
    /// It was there already; that it came again is written.
    Duplicate,
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
    pub proof: String,
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
}

/// A job as a line in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// The handler it is for.
    pub handler: String,
    /// Its state.
    pub state: String,
    /// How often it was tried.
    pub attempts: i64,
    /// When somebody looks at it again.
    pub due_at: OffsetDateTime,
}
