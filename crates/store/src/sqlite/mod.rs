//! The embedded store: one file, WAL, `synchronous=FULL`, one writer.

mod events;
mod open;
mod record;
mod rows;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::{EventSummary, JobSummary, Recorded, Routed, Store, StoreError, StoredEvent};

pub(crate) struct SqliteStore {
    writer: Mutex<SqliteConnection>,
    readers: SqlitePool,
    checkpoints: JoinHandle<()>,
    /// The first I/O error. After a failed fsync the next commit may *seem* to work, so from then on nothing is promised.
    broken: Arc<OnceLock<String>>,
}

#[async_trait]
impl Store for SqliteStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        let mut writer = self.writer.lock().await;
        self.refuse_if_broken()?;
        let recorded = record::record(&mut writer, events).await;
        recorded.map_err(|error| self.judge(&error))
    }

    fn parallel_records(&self) -> usize {
        1
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.refuse_if_broken()?;
        sqlx::query("SELECT 1 FROM jobs LIMIT 1").execute(&self.readers).await.map_err(|error| self.judge(&error))?;
        Ok(())
    }

    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, StoreError> {
        events::latest(&self.readers, limit).await.map_err(|error| self.judge(&error))
    }

    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        events::event(&self.readers, id).await.map_err(|error| self.judge(&error))
    }

    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError> {
        events::jobs_of(&self.readers, id).await.map_err(|error| self.judge(&error))
    }

    async fn close(&self) {
        // Waits for the batch under way; whoever comes later finds the store closed.
        let _writer = self.writer.lock().await;
        let _ = self.broken.set("the store is closed".into());
        self.checkpoints.abort();
        self.readers.close().await;
    }
}

impl SqliteStore {
    fn refuse_if_broken(&self) -> Result<(), StoreError> {
        match self.broken.get() {
            Some(problem) => Err(StoreError::Broken(problem.clone())),
            None => Ok(()),
        }
    }

    fn judge(&self, error: &sqlx::Error) -> StoreError {
        judge(error, &self.broken)
    }
}

/// What the caller can do about an error; whatever ends all promises is noted.
fn judge(error: &sqlx::Error, broken: &OnceLock<String>) -> StoreError {
    let problem = error.to_string();
    match primary_code(error) {
        // IOERR, CORRUPT, NOTADB, READONLY, CANTOPEN
        Some(10 | 11 | 26 | 8 | 14) => {
            let _ = broken.set(problem.clone());
            StoreError::Broken(problem)
        }
        // ERROR, TOOBIG, CONSTRAINT, MISMATCH
        Some(1 | 18 | 19 | 20) => StoreError::Rejected(problem),
        // Mostly FULL, BUSY, LOCKED, NOMEM, which pass.
        Some(_) => StoreError::Unavailable(problem),
        None if matches!(error, sqlx::Error::WorkerCrashed) => {
            let _ = broken.set(problem.clone());
            StoreError::Broken(problem)
        }
        None => StoreError::Unavailable(problem),
    }
}

/// SQLite's result code without what the extended code adds.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
