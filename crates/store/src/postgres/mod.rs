//! The shared store: any number of gateways on one Postgres.

mod events;
mod open;
mod record;

use std::time::Duration;

use async_trait::async_trait;
use hookfast_webhook::EventId;
use sqlx::postgres::PgPool;

pub(crate) use open::name;

use crate::{EventSummary, JobSummary, Recorded, Routed, Store, StoreError, StoredEvent};

/// How long a batch may take before its connection is given up. Far beyond any answer's deadline: it only frees the
/// committer from a server that is gone without a word.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct PostgresStore {
    pool: PgPool,
    parallel_batches: usize,
}

#[async_trait]
impl Store for PostgresStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| judge(&error))?;
        match tokio::time::timeout(BATCH_TIMEOUT, record::record(&mut connection, events)).await {
            Ok(recorded) => recorded.map_err(|error| judge(&error)),
            Err(_) => {
                // Its answer may still come, so nobody else may use this connection.
                drop(connection.detach());
                Err(StoreError::Unavailable(format!("no answer within {} s", BATCH_TIMEOUT.as_secs())))
            }
        }
    }

    fn parallel_records(&self) -> usize {
        self.parallel_batches
    }

    async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM jobs LIMIT 1").execute(&self.pool).await.map_err(|error| judge(&error))?;
        Ok(())
    }

    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, StoreError> {
        events::latest(&self.pool, limit).await.map_err(|error| judge(&error))
    }

    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        events::event(&self.pool, id).await.map_err(|error| judge(&error))
    }

    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError> {
        events::jobs_of(&self.pool, id).await.map_err(|error| judge(&error))
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

/// The first two characters of a code are its class.
fn judge(error: &sqlx::Error) -> StoreError {
    let problem = error.to_string();
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref().map(|code| &code[..2.min(code.len())]) {
        // Data exception, constraint violation, raised by a trigger, limit exceeded: it is about these rows.
        Some("22" | "23" | "P0" | "54") => StoreError::Rejected(problem),
        // Everything else is the server or the way to it. A server with an I/O error restarts itself and recovers.
        _ => StoreError::Unavailable(problem),
    }
}
