//! Reading events back.

use hookfast_webhook::EventId;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{Error, Row};

use crate::{EventSummary, JobSummary, StoredEvent, StoredHeaders};

pub(super) async fn latest(connection: &mut PgConnection, limit: u32) -> Result<Vec<EventSummary>, Error> {
    let rows = sqlx::query(
        "SELECT id, source, dedupe_key, event_type, account, object_id, occurred_at, received_at,
                length(body)::bigint AS size_bytes,
                (SELECT count(*) FROM resends
                 WHERE resends.source = events.source AND resends.dedupe_key = events.dedupe_key) AS resends,
                (SELECT count(*) FROM jobs WHERE jobs.event_id = events.id) AS jobs
         FROM events ORDER BY id DESC LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(summary).collect()
}

pub(super) async fn event(pool: &PgPool, id: EventId) -> Result<Option<StoredEvent>, Error> {
    let row = sqlx::query(
        "SELECT *, length(body)::bigint AS size_bytes,
                (SELECT count(*) FROM resends
                 WHERE resends.source = events.source AND resends.dedupe_key = events.dedupe_key) AS resends,
                (SELECT count(*) FROM jobs WHERE jobs.event_id = events.id) AS jobs
         FROM events WHERE id = $1",
    )
    .bind(id.0)
    .fetch_optional(pool)
    .await?;
    row.as_ref().map(stored).transpose()
}

pub(super) async fn jobs_of(pool: &PgPool, id: EventId) -> Result<Vec<JobSummary>, Error> {
    let rows = sqlx::query(
        "SELECT handler, state, attempts, due_at, priority, reason FROM jobs WHERE event_id = $1 ORDER BY handler",
    )
    .bind(id.0)
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(JobSummary {
                handler: row.try_get("handler")?,
                state: row.try_get("state")?,
                attempts: row.try_get::<i32, _>("attempts")?.into(),
                due_at: row.try_get("due_at")?,
                priority: row.try_get("priority")?,
                reason: row.try_get("reason")?,
            })
        })
        .collect()
}

fn stored(row: &PgRow) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        summary: summary(row)?,
        proof: row.try_get("proof")?,
        request_id: row.try_get("request_id")?,
        remote_address: row.try_get("remote_address")?,
        method: row.try_get("method")?,
        url: row.try_get("url")?,
        headers: StoredHeaders(row.try_get("headers")?),
        body: row.try_get("body")?,
    })
}

fn summary(row: &PgRow) -> Result<EventSummary, Error> {
    Ok(EventSummary {
        id: EventId(row.try_get("id")?),
        source: row.try_get("source")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        account: row.try_get("account")?,
        object_id: row.try_get("object_id")?,
        occurred_at: row.try_get("occurred_at")?,
        received_at: row.try_get("received_at")?,
        size_bytes: row.try_get("size_bytes")?,
        resends: row.try_get("resends")?,
        jobs: row.try_get("jobs")?,
    })
}
