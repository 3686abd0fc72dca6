//! What receiving asks of a database: that events become durable.
//!
//! Before it, `Committer::record` in `ingest::commit` calls [`Record::record`] with a batch. If there is a spool, it
//! calls `Spooling::record` in `ingest::spool` instead, which uses the spool while the store does not take the batch.
//! `sqlite::record` and `postgres::record` write the events and their jobs. After it, `Dispatcher::tell` in
//! `ingest::dispatch` sends hints about the new jobs.

use async_trait::async_trait;
use hookfast_webhook::{Event, EventId};

use crate::{Check, NewJob, StoreError};

/// What receiving asks of a database.
#[async_trait]
pub trait Record: Check {
    /// Writes the events that are new, with one job for each of their handlers, and notes the others as resends: all or
    /// nothing, durable on return. Says for each event which it was.
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError>;

    /// The event that has this key, which is the first of all that came with it.
    async fn first_of(&self, source: &str, dedupe_key: &str) -> Result<Option<EventId>, StoreError>;

    /// How many calls of [`Record::record`] are worth having under way at once.
    fn parallel_records(&self) -> usize {
        1
    }
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
