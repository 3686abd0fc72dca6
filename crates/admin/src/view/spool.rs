//! The spool of this gateway.

use std::path::Path;

use hookfast_store::{SetAside, SpoolStatus};
use serde::Serialize;
use time::OffsetDateTime;
use time::serde::rfc3339;

/// The events that wait in the spool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpoolView {
    /// The file.
    pub path: String,
    /// How many events wait.
    pub events: u64,
    /// How many of them are set aside, because Postgres did not take them.
    pub refused: u64,
    /// The first of those that are set aside.
    pub set_aside: Vec<SetAsideView>,
    /// When the oldest event arrived.
    #[serde(with = "rfc3339::option")]
    pub oldest: Option<OffsetDateTime>,
    /// The bytes in use.
    pub bytes: u64,
    /// The most bytes that it may use.
    pub max_bytes: u64,
}

impl SpoolView {
    /// The view of a spool in this file, which may use this many bytes.
    pub fn new(path: &Path, max_bytes: u64, status: &SpoolStatus, set_aside: &[SetAside]) -> Self {
        let SpoolStatus { events, refused, oldest, bytes } = *status;
        let set_aside = set_aside.iter().map(SetAsideView::from).collect();
        Self { path: path.display().to_string(), events, refused, set_aside, oldest, bytes, max_bytes }
    }
}

/// An event that Postgres did not take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAsideView {
    /// Its id.
    pub id: String,
    /// Its source.
    pub source: String,
    /// When it arrived.
    #[serde(with = "rfc3339")]
    pub received_at: OffsetDateTime,
    /// The size of its body.
    pub size_bytes: u64,
    /// Why Postgres did not take it.
    pub reason: String,
}

impl From<&SetAside> for SetAsideView {
    fn from(event: &SetAside) -> Self {
        let SetAside { id, source, received_at, size_bytes, reason } = event;
        Self {
            id: id.to_string(),
            source: source.clone(),
            received_at: *received_at,
            size_bytes: *size_bytes,
            reason: reason.clone(),
        }
    }
}
