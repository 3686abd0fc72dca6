//! What a spool holds, and what it asks of the database behind it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_webhook::EventId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::event_row::EventRow;
use crate::head::Head;
use crate::{KeptArrival, NewJob, Record, Recorded, StoreError};

/// Where events wait while Postgres cannot take them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolConfig {
    /// The file.
    pub path: PathBuf,
    /// How large it may become.
    pub max_bytes: u64,
}

/// An event that was in a spool, with its jobs. Only a spool makes one, of an event that was genuine when it went in.
#[derive(Debug, Clone)]
pub struct Spooled {
    pub(crate) row: EventRow<'static>,
    /// What it has in common with other events of its request.
    pub(crate) head: Option<Arc<Head>>,
    pub(crate) jobs: Vec<NewJob>,
    /// That it came again while it waited, in the order of arrival.
    pub(crate) resends: Vec<SpooledResend>,
}

/// That an event came again while it waited in a spool.
#[derive(Debug, Clone)]
pub(crate) struct SpooledResend {
    /// The id that the event would have if it were new.
    pub(crate) id: Uuid,
    pub(crate) arrival: KeptArrival,
}

impl Spooled {
    /// The event's id, the same as before.
    pub fn id(&self) -> EventId {
        EventId(self.row.id)
    }

    /// The source it came to.
    pub fn source(&self) -> &str {
        &self.row.source
    }

    /// The size of its body.
    pub fn size_bytes(&self) -> u64 {
        self.row.body.len() as u64
    }

    /// How often it came again while it waited.
    pub fn resends(&self) -> u64 {
        self.resends.last().map_or(0, |last| last.arrival.number.unsigned_abs())
    }

    /// One for each handler that wanted it when it came.
    pub fn jobs(&self) -> &[NewJob] {
        &self.jobs
    }
}

/// How a spool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolStatus {
    /// How many events it holds.
    pub events: u64,
    /// How many of them are set aside, because Postgres did not take them.
    pub refused: u64,
    /// When the oldest of them came.
    pub oldest: Option<OffsetDateTime>,
    /// How many bytes of the file are in use.
    pub bytes: u64,
}

/// An event of a spool that is set aside, so that the others pass it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The event's id.
    pub id: EventId,
    /// The source it came to.
    pub source: String,
    /// When it came.
    pub received_at: OffsetDateTime,
    /// The size of its body.
    pub size_bytes: u64,
    /// Why Postgres did not take it.
    pub reason: String,
}

/// Why Postgres did not take events out of a spool.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotTaken {
    /// It refuses the data. In a batch, splitting finds the event.
    #[error("Postgres refuses it: {0}")]
    Refused(String),
    /// It did not finish in the time that it had, or ran out of memory or the like. Less at once may work.
    #[error("Postgres did not manage it: {0}")]
    TooMuch(String),
    /// It cannot be used at the moment.
    #[error(transparent)]
    Away(#[from] StoreError),
}

/// What a spool asks of the database behind it.
#[async_trait]
pub trait Behind: Record {
    /// Records events that were in a spool, as [`Record::record`] does. An event may already be recorded, if the answer
    /// to an earlier attempt was lost: an event that is stored under the same id counts as new.
    async fn record_spooled(&self, events: &[Spooled], within: Duration) -> Result<Vec<Recorded>, NotTaken>;

    /// Fails unless a small event could be recorded now: one is, and undone.
    async fn takes_events(&self) -> Result<(), StoreError>;

    /// Fails unless the database can be used now. Connects if that was not possible before.
    async fn reach(&self) -> Result<(), StoreError>;
}
