//! Recording what was in a spool: as recording does, and able to see that it happened before.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Error};
use uuid::Uuid;

use super::keys;
use super::resends::{self, Resend};
use super::{BATCH_TIMEOUT, classify, say};
use crate::event_row::{EventRow, event_columns};
use crate::{NotTaken, Recorded, Spooled, StoreError};

/// In one order, as recording does: otherwise two transactions could wait for each other.
const TAKE_KEYS: &str = "
INSERT INTO dedupe_keys (event_id, source, dedupe_key)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
ORDER BY source, dedupe_key, id
ON CONFLICT DO NOTHING
RETURNING event_id
";

/// Runs after `TAKE_KEYS`, in a statement of its own: `TAKE_KEYS` may have waited for another commit, and does not see
/// the rows of that commit.
const WHOSE_KEYS: &str = "
SELECT event_id FROM dedupe_keys
JOIN unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key) USING (source, dedupe_key)
WHERE event_id = incoming.id
";

/// The other events of a head may have been drained before.
const INSERT: &str = concat!(
    "
WITH new_events AS (
    INSERT INTO events (",
    event_columns!(),
    ")
    SELECT * FROM unnest($1::event_row[])
), new_heads AS (
    INSERT INTO request_heads (request_id, url, headers)
    SELECT * FROM unnest($7::uuid[], $8::text[], $9::bytea[])
    ON CONFLICT DO NOTHING
)
INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
SELECT job.*, clock_timestamp() + make_interval(secs => $6)
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS job
"
);

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
    let event = Spooled { row: EventRow::to_try_out(), head: None, jobs: Vec::new(), resends: Vec::new() };
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
    match classify(error) {
        StoreError::Rejected(problem) => NotTaken::Refused(problem),
        other => NotTaken::Away(other),
    }
}

async fn record_in(
    transaction: &mut PgConnection,
    events: &[Spooled],
    grace: Duration,
) -> Result<Vec<Recorded>, Error> {
    let mut came_again = HashSet::new();
    for round in rounds(events) {
        came_again.extend(record_round(transaction, &round, grace).await?);
    }
    let verdict = |event: &Spooled| match came_again.contains(&event.row.id) {
        true => Recorded::Duplicate,
        false => Recorded::New,
    };
    Ok(events.iter().map(verdict).collect())
}

/// A key with a window may be that of several events of a batch, each of which takes it from the one before. They are
/// recorded one after the other. All other events are the first round.
fn rounds(events: &[Spooled]) -> Vec<Vec<&Spooled>> {
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    let mut rounds: Vec<Vec<&Spooled>> = Vec::new();
    for event in events {
        let round = match event.row.key_window_us {
            None => 0,
            Some(_) => {
                let before = seen.entry((&event.row.source, &event.row.dedupe_key)).or_default();
                *before += 1;
                *before - 1
            }
        };
        rounds.resize_with(rounds.len().max(round + 1), Vec::new);
        rounds[round].push(event);
    }
    rounds
}

/// Gives the ids of those that came again.
async fn record_round(
    transaction: &mut PgConnection,
    events: &[&Spooled],
    grace: Duration,
) -> Result<Vec<Uuid>, Error> {
    keys::free(transaction, &freed_keys(events)).await?;
    let fresh = ids(TAKE_KEYS, transaction, events).await?;
    let (new, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| fresh.contains(&event.row.id));
    let known = ids(WHOSE_KEYS, transaction, &others).await?;
    let resent: Vec<_> = others.into_iter().filter(|event| !known.contains(&event.row.id)).collect();
    insert(transaction, &new, grace).await?;
    let own = resent.iter().map(|event| Resend::of_spooled(event));
    let counted = events.iter().flat_map(|event| Resend::counted_in_spool(event));
    resends::note(transaction, &own.chain(counted).collect::<Vec<_>>()).await?;
    Ok(resent.iter().map(|event| event.row.id).collect())
}

fn freed_keys<'a>(events: &[&'a Spooled]) -> Vec<keys::Freed<'a>> {
    let mut freed = Vec::new();
    for Spooled { row, .. } in events {
        if let Some(before) = row.key_free_before() {
            freed.push(keys::Freed { source: &row.source, dedupe_key: &row.dedupe_key, before });
        }
    }
    freed
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
        .bind(column(events, |event| event.row.id))
        .bind(column(events, |event| &*event.row.source))
        .bind(column(events, |event| &*event.row.dedupe_key))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn insert(connection: &mut PgConnection, events: &[&Spooled], grace: Duration) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let jobs = || events.iter().flat_map(|event| event.jobs.iter().map(|job| (event.row.id, job)));
    let heads: HashMap<_, _> =
        events.iter().filter_map(|event| event.head.as_deref()).map(|head| (head.request_id, head)).collect();
    sqlx::query(INSERT)
        .bind(column(events, |event| &event.row))
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
