//! Recording what was in a spool: as recording does, and able to see that it happened before.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::ProofKind;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Error};
use time::OffsetDateTime;
use uuid::Uuid;

use super::resends::{self, Resend};
use super::{BATCH_TIMEOUT, judge, say};
use crate::{NotTaken, Recorded, Spooled, StoreError};

/// In one order, as whoever records does, or they would wait for each other.
const TAKE_KEYS: &str = "
INSERT INTO dedupe_keys (event_id, source, dedupe_key)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
ORDER BY source, dedupe_key, id
ON CONFLICT DO NOTHING
RETURNING event_id
";

/// A statement after the one that takes the keys: that one may have waited for a commit whose end the gateway did not see,
/// and does not see its rows itself.
const WHOSE_KEYS: &str = "
SELECT event_id FROM dedupe_keys
JOIN unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key) USING (source, dedupe_key)
WHERE event_id = incoming.id
";

/// The other events of a head may have been drained before.
const INSERT: &str = "
WITH new_events AS (
    INSERT INTO events (id, source, dedupe_key, received_at, request_id, remote_address, event_type, account,
                        occurred_at, proof, method, url, headers, body, object_id)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[],
                         $8::text[], $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[],
                         $15::text[])
), new_heads AS (
    INSERT INTO request_heads (request_id, url, headers)
    SELECT * FROM unnest($21::uuid[], $22::text[], $23::bytea[])
    ON CONFLICT DO NOTHING
)
INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
SELECT job.*, clock_timestamp() + make_interval(secs => $20)
FROM unnest($16::uuid[], $17::text[], $18::text[], $19::text[]) AS job
";

/// The time limits of this transaction alone. While a long statement is on its way over a slow link, the server counts the
/// session as idle, so that limit must give way, too.
const ALLOW: &str =
    "SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)";

/// Records a batch. An event whose key is there with the event's own id is there as a whole: it was one transaction. And a
/// resend that is noted already is not noted again.
pub(super) async fn record(
    connection: &mut PgConnection,
    events: &[Spooled],
    grace: Duration,
    within: Duration,
) -> Result<Vec<Recorded>, Error> {
    let mut transaction = connection.begin().await?;
    if within > BATCH_TIMEOUT {
        let milliseconds = within.as_millis().to_string();
        sqlx::query(ALLOW).bind(milliseconds).execute(&mut *transaction).await?;
    }
    let recorded = record_in(&mut transaction, events, grace).await?;
    transaction.commit().await?;
    Ok(recorded)
}

/// Records a small event and undoes that.
pub(super) async fn try_out(connection: &mut PgConnection, grace: Duration) -> Result<(), Error> {
    let now = OffsetDateTime::now_utc();
    let event = Spooled {
        id: Uuid::now_v7(),
        source: "hookfast".into(),
        dedupe_key: Uuid::now_v7().to_string(),
        event_type: "hookfast.try_out".into(),
        account: None,
        occurred_at: None,
        received_at: now,
        proof: ProofKind::Unsigned,
        request_id: Uuid::now_v7(),
        remote_address: "127.0.0.1".into(),
        method: "POST".into(),
        url: "/".into(),
        headers: Vec::new(),
        head: None,
        object_id: None,
        body: Bytes::new(),
        jobs: Vec::new(),
        resends: Vec::new(),
    };
    let mut transaction = connection.begin().await?;
    record_in(&mut transaction, &[event], grace).await?;
    transaction.rollback().await
}

pub(super) fn too_slow(within: Duration) -> NotTaken {
    NotTaken::TooMuch(format!("no answer within {} s", within.as_secs()))
}

/// What draining can do about an error.
pub(super) fn not_taken(error: &Error) -> NotTaken {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    // Cancelled, which a time limit does; the limit for idle sessions; out of memory; internal errors, such as a value that
    // is too long for Postgres' own buffers.
    if matches!(code.as_ref(), "57014" | "25P03" | "53200") || code.starts_with("XX") {
        return NotTaken::TooMuch(say(error));
    }
    match judge(error) {
        StoreError::Rejected(problem) => NotTaken::Refused(problem),
        other => NotTaken::Away(other),
    }
}

async fn record_in(
    transaction: &mut PgConnection,
    events: &[Spooled],
    grace: Duration,
) -> Result<Vec<Recorded>, Error> {
    let all: Vec<_> = events.iter().collect();
    let fresh = ids(TAKE_KEYS, transaction, &all).await?;
    let (new, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|event| fresh.contains(&event.id));
    let known = ids(WHOSE_KEYS, transaction, &others).await?;
    let resent: Vec<_> = others.into_iter().filter(|event| !known.contains(&event.id)).collect();
    insert(transaction, &new, grace).await?;
    let own = resent.iter().map(|event| Resend::of_spooled(event));
    let counted = events.iter().flat_map(Resend::counted_in_spool);
    resends::note(transaction, &own.chain(counted).collect::<Vec<_>>()).await?;
    let came_again: HashSet<_> = resent.iter().map(|event| event.id).collect();
    let verdict = |event: &Spooled| match came_again.contains(&event.id) {
        true => Recorded::Duplicate,
        false => Recorded::New,
    };
    Ok(events.iter().map(verdict).collect())
}

/// The ids that a statement about keys gives.
async fn ids(
    statement: &'static str,
    connection: &mut PgConnection,
    events: &[&Spooled],
) -> Result<HashSet<Uuid>, Error> {
    if events.is_empty() {
        return Ok(HashSet::new());
    }
    let rows: Vec<PgRow> = sqlx::query(statement)
        .bind(column(events, |event| event.id))
        .bind(column(events, |event| event.source.as_str()))
        .bind(column(events, |event| event.dedupe_key.as_str()))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn insert(connection: &mut PgConnection, events: &[&Spooled], grace: Duration) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let jobs = || events.iter().flat_map(|event| event.jobs.iter().map(|job| (event.id, job)));
    let heads: HashMap<_, _> =
        events.iter().filter_map(|event| event.head.as_deref()).map(|head| (head.request_id, head)).collect();
    sqlx::query(INSERT)
        .bind(column(events, |event| event.id))
        .bind(column(events, |event| event.source.as_str()))
        .bind(column(events, |event| event.dedupe_key.as_str()))
        .bind(column(events, |event| event.received_at))
        .bind(column(events, |event| event.request_id))
        .bind(column(events, |event| event.remote_address.as_str()))
        .bind(column(events, |event| event.event_type.as_str()))
        .bind(column(events, |event| event.account.as_deref()))
        .bind(column(events, |event| event.occurred_at))
        .bind(column(events, |event| event.proof.as_str()))
        .bind(column(events, |event| event.method.as_str()))
        .bind(column(events, |event| event.url.as_str()))
        .bind(column(events, |event| event.headers.as_slice()))
        .bind(column(events, |event| &event.body[..]))
        .bind(column(events, |event| event.object_id.as_deref()))
        .bind(jobs().map(|(event_id, _)| event_id).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.handler.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.priority.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.ordering_key.as_deref()).collect::<Vec<_>>())
        .bind(grace.as_secs_f64())
        .bind(heads.keys().copied().collect::<Vec<_>>())
        .bind(heads.values().map(|head| head.url.as_str()).collect::<Vec<_>>())
        .bind(heads.values().map(|head| head.headers.as_slice()).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// One value of every event, as an array to bind.
fn column<'a, T>(events: &[&'a Spooled], value: impl Fn(&'a Spooled) -> T) -> Vec<T> {
    events.iter().map(|event| value(event)).collect()
}
