//! Recording a batch as one text of SQL.
//!
//! SQLite has no arrays to unnest, so a batch is bound as three values whatever its size: JSON rows for the events, JSON
//! rows for the jobs, and one blob that holds all bytes, into which the rows point. So the statements are prepared once,
//! and the batch crosses to SQLite's thread once.

use std::collections::HashSet;

use hookfast_webhook::JobId;
use serde::Serialize;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{DISPATCH_GRACE_SECONDS, Recorded, Routed, headers};

const RECORD: &str = "
BEGIN IMMEDIATE;

INSERT INTO dedupe_keys (source, dedupe_key, event_id)
SELECT value ->> 'source', value ->> 'dedupe_key', substr($3, value ->> 'id_at', 16) FROM json_each($1) WHERE true
ON CONFLICT DO NOTHING
RETURNING event_id;

INSERT INTO events (id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, request_id,
                    remote_address, method, url, headers, body)
SELECT known.event_id, known.source, known.dedupe_key, value ->> 'event_type', value ->> 'account',
       value ->> 'occurred_at', value ->> 'received_at', value ->> 'proof', substr($3, value ->> 'request_id_at', 16),
       value ->> 'remote_address', value ->> 'method', value ->> 'url',
       substr($3, value ->> 'headers_at', value ->> 'headers_bytes'), substr($3, value ->> 'body_at', value ->> 'body_bytes')
FROM json_each($1) CROSS JOIN dedupe_keys AS known
WHERE known.source = value ->> 'source' AND known.dedupe_key = value ->> 'dedupe_key'
  AND known.event_id = substr($3, value ->> 'id_at', 16);

INSERT INTO jobs (id, event_id, handler, due_at)
SELECT substr($3, value ->> 'id_at', 16), known.event_id, value ->> 'handler',
       CAST((unixepoch('subsec') + $4) * 1000000 AS INTEGER)
FROM json_each($2) CROSS JOIN dedupe_keys AS known
WHERE known.source = value ->> 'source' AND known.dedupe_key = value ->> 'dedupe_key'
  AND known.event_id = substr($3, value ->> 'event_id_at', 16);

INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address)
SELECT known.source, known.dedupe_key, value ->> 'received_at', substr($3, value ->> 'request_id_at', 16),
       value ->> 'remote_address'
FROM json_each($1) CROSS JOIN dedupe_keys AS known
WHERE known.source = value ->> 'source' AND known.dedupe_key = value ->> 'dedupe_key'
  AND known.event_id <> substr($3, value ->> 'id_at', 16);

COMMIT;
";

/// One event. What ends in `_at` is a place in the blob.
#[derive(Serialize)]
struct EventRow<'a> {
    source: &'a str,
    dedupe_key: &'a str,
    id_at: usize,
    request_id_at: usize,
    headers_at: usize,
    headers_bytes: usize,
    body_at: usize,
    body_bytes: usize,
    event_type: &'a str,
    account: Option<&'a str>,
    occurred_at: Option<i64>,
    received_at: i64,
    proof: &'a str,
    remote_address: String,
    method: &'a str,
    url: &'a str,
}

#[derive(Serialize)]
struct JobRow<'a> {
    source: &'a str,
    dedupe_key: &'a str,
    id_at: usize,
    event_id_at: usize,
    handler: &'a str,
}

pub(super) async fn record(writer: &mut SqliteConnection, events: &[Routed]) -> Result<Vec<Recorded>, sqlx::Error> {
    let batch = Batch::of(events);
    let query = sqlx::query(RECORD)
        .bind(batch.events)
        .bind(batch.jobs)
        .bind(batch.blob)
        .bind(DISPATCH_GRACE_SECONDS)
        .fetch_all(&mut *writer)
        .await;
    match query {
        Ok(rows) => {
            let new = rows.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<Uuid>, _>>()?;
            Ok(events.iter().map(|routed| crate::recorded(&new, routed)).collect())
        }
        Err(error) => {
            // If this fails too, there was no transaction left to end.
            let _ = sqlx::query("ROLLBACK").execute(writer).await;
            Err(error)
        }
    }
}

struct Batch {
    events: String,
    jobs: String,
    blob: Vec<u8>,
}

impl Batch {
    fn of(batch: &[Routed]) -> Self {
        let mut blob = Vec::with_capacity(batch.iter().map(|routed| routed.event.body().len() + 1024).sum());
        let mut events = Vec::with_capacity(batch.len());
        let mut jobs = Vec::with_capacity(batch.len());
        for Routed { event, handlers } in batch {
            let arrival = &event.delivery().arrival;
            let request = &event.delivery().request;
            let (source, dedupe_key) = (arrival.source.as_str(), event.dedupe_key().as_str());

            let event_id_at = append(&mut blob, event.id().0.as_bytes());
            let request_id_at = append(&mut blob, arrival.request_id.0.as_bytes());
            for handler in handlers.iter() {
                let id_at = append(&mut blob, JobId::new().0.as_bytes());
                jobs.push(JobRow { source, dedupe_key, id_at, event_id_at, handler: handler.as_str() });
            }
            let headers_at = blob.len() + 1;
            headers::write(&request.headers, &mut blob);
            let headers_bytes = blob.len() + 1 - headers_at;
            let body_at = append(&mut blob, event.body());

            events.push(EventRow {
                source,
                dedupe_key,
                id_at: event_id_at,
                request_id_at,
                headers_at,
                headers_bytes,
                body_at,
                body_bytes: event.body().len(),
                event_type: event.event_type().as_str(),
                account: event.account().map(|account| account.as_str()),
                occurred_at: event.occurred_at().map(micros),
                received_at: micros(arrival.received_at),
                proof: event.delivery().proof.kind(),
                remote_address: arrival.remote_address.to_string(),
                method: request.method.as_str(),
                url: &request.url,
            });
        }
        Self { events: json_rows(&events), jobs: json_rows(&jobs), blob }
    }
}

/// Appends and says where, counted from 1 as SQL's `substr` does.
fn append(blob: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let at = blob.len() + 1;
    blob.extend_from_slice(bytes);
    at
}

fn micros(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1000).expect("years up to 9999 fit")
}

fn json_rows<T: Serialize>(rows: &[T]) -> String {
    serde_json::to_string(rows).expect("rows of text and numbers become JSON")
}
