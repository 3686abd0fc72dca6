//! Reading events back.

use hookfast_webhook::EventId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Error, Row};

use super::large_body;
use super::moment::time;
use super::operate::ended;
use crate::decode::{optional_word, word};
use crate::event_row::stored_tags;
use crate::large_body::size_bytes;
use crate::{EventSummary, JobSummary, KeptArrival, StoredEvent, StoredHeaders};

const CAME_AGAIN: &str = "
SELECT arrivals.number, arrivals.received_at, arrivals.request_id, arrivals.remote_address
FROM resend_arrivals AS arrivals JOIN events USING (source, dedupe_key)
WHERE events.id = $1 ORDER BY arrivals.number";

pub(super) async fn latest(readers: &SqlitePool, limit: u32) -> Result<Vec<EventSummary>, Error> {
    let rows = sqlx::query(concat!(
        "SELECT id, source, dedupe_key, event_type, account, object_id, occurred_at, received_at, ",
        size_bytes!(),
        " AS size_bytes,
                coalesce((SELECT keys.resends FROM dedupe_keys AS keys
                          WHERE keys.source = events.source AND keys.dedupe_key = events.dedupe_key), 0)
                + (SELECT count(*) FROM resends
                   WHERE resends.source = events.source AND resends.dedupe_key = events.dedupe_key) AS resends,
                (SELECT count(*) FROM jobs WHERE jobs.event_id = events.id) AS jobs
         FROM events ORDER BY id DESC LIMIT $1"
    ))
    .bind(limit)
    .fetch_all(readers)
    .await?;
    rows.iter().map(summary).collect()
}

pub(super) async fn event(readers: &SqlitePool, id: EventId) -> Result<Option<StoredEvent>, Error> {
    let row = sqlx::query(concat!(
        "SELECT id, source, dedupe_key, event_type, account, object_id, occurred_at, received_at, proof,
                priority, provider_event_id, delivery_id, tags, secret_index, trace_id, request_id,
                remote_address, method, coalesce(head.url, events.url) AS url,
                coalesce(head.headers, events.headers) AS headers, body, ",
        size_bytes!(),
        " AS size_bytes,
                coalesce((SELECT keys.resends FROM dedupe_keys AS keys
                          WHERE keys.source = events.source AND keys.dedupe_key = events.dedupe_key), 0)
                + (SELECT count(*) FROM resends
                   WHERE resends.source = events.source AND resends.dedupe_key = events.dedupe_key) AS resends,
                (SELECT count(*) FROM jobs WHERE jobs.event_id = events.id) AS jobs
         FROM events LEFT JOIN request_heads AS head USING (request_id) WHERE id = $1"
    ))
    .bind(id.0)
    .fetch_optional(readers)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let again = sqlx::query(CAME_AGAIN).bind(id.0).fetch_all(readers).await?;
    let came_again = again.iter().map(kept_arrival).collect::<Result<_, _>>()?;
    let mut event = StoredEvent { came_again, ..stored(&row)? };
    if event.body.is_empty() {
        event.body = large_body::in_parts(readers, id).await?.into();
    }
    Ok(Some(event))
}

pub(super) async fn jobs_of(readers: &SqlitePool, id: EventId) -> Result<Vec<JobSummary>, Error> {
    let rows = sqlx::query(
        "SELECT handler, state, attempts, due_at, priority, reason, finished_at, resolution, reviewed_at, reviewed_by, note,
                audit_id
         FROM jobs WHERE event_id = $1 ORDER BY handler",
    )
    .bind(id.0)
    .fetch_all(readers)
    .await?;
    rows.iter()
        .map(|row| {
            let ended = ended(row)?;
            let finished_at = ended.finished_at;
            let (reason, review) = ended.reason_and_review()?;
            Ok(JobSummary {
                handler: row.try_get("handler")?,
                state: word(row.try_get("state")?)?,
                attempts: row.try_get("attempts")?,
                due_at: time(row.try_get("due_at")?)?,
                priority: word(row.try_get("priority")?)?,
                reason,
                finished_at,
                review,
            })
        })
        .collect()
}

fn stored(row: &SqliteRow) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        summary: summary(row)?,
        proof: word(row.try_get("proof")?)?,
        priority: optional_word(row.try_get("priority")?)?,
        provider_event_id: row.try_get("provider_event_id")?,
        delivery_id: row.try_get("delivery_id")?,
        tags: stored_tags(row.try_get("tags")?)?,
        secret_index: row.try_get("secret_index")?,
        trace_id: row.try_get("trace_id")?,
        request_id: row.try_get("request_id")?,
        remote_address: row.try_get("remote_address")?,
        method: row.try_get("method")?,
        url: row.try_get("url")?,
        headers: StoredHeaders(row.try_get("headers")?),
        body: row.try_get("body")?,
        came_again: Vec::new(),
    })
}

pub(super) fn kept_arrival(row: &SqliteRow) -> Result<KeptArrival, Error> {
    Ok(KeptArrival {
        number: row.try_get("number")?,
        received_at: time(row.try_get("received_at")?)?,
        request_id: row.try_get("request_id")?,
        remote_address: row.try_get("remote_address")?,
    })
}

fn summary(row: &SqliteRow) -> Result<EventSummary, Error> {
    Ok(EventSummary {
        id: EventId(row.try_get("id")?),
        source: row.try_get("source")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        account: row.try_get("account")?,
        object_id: row.try_get("object_id")?,
        occurred_at: row.try_get::<Option<i64>, _>("occurred_at")?.map(time).transpose()?,
        received_at: time(row.try_get("received_at")?)?,
        size_bytes: row.try_get("size_bytes")?,
        resends: row.try_get("resends")?,
        jobs: row.try_get("jobs")?,
    })
}
