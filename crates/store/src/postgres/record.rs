//! Recording a batch: as one statement, which asks what is new, or fails if not all of it is.
//!
//! Before it, `PostgresStore::record` takes a connection and calls [`record`]. After it, the batch is committed, and
//! `Committer::commit` in `ingest::commit` goes on.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::keys;
use super::large_body;
use super::resends::{self, Resend};
use crate::event_row::{event_columns, free_before};
use crate::large_body::WrittenBodies;
use crate::{Recorded, Routed, head};

/// Two gateways may record the same keys at the same moment: each waits for the other's key, so all must take keys in
/// one order, or they wait for each other for ever.
///
/// That a key is new is known from `fresh` alone: the other gateway's rows are not visible to this statement even after it
/// has waited for them.
///
/// Each part unnests only what it needs: Postgres keeps the rows of every `unnest` and of every CTE, and bodies are long.
///
/// A head is written with the first new event of its request: what only came again leaves none. Another statement of the same
/// transaction may have written it.
const RECORD: &str = concat!(
    "
WITH fresh AS (
    INSERT INTO dedupe_keys (event_id, source, dedupe_key)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
    ORDER BY source, dedupe_key, id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), new_events AS (
    INSERT INTO events (",
    event_columns!(),
    ")
    SELECT incoming.* FROM unnest($4::event_row[]) AS incoming
    WHERE incoming.id IN (SELECT event_id FROM fresh)
    RETURNING request_id
), new_heads AS (
    INSERT INTO request_heads (request_id, url, headers)
    SELECT * FROM unnest($10::uuid[], $11::text[], $12::bytea[]) AS head (request_id, url, headers)
    WHERE request_id IN (SELECT request_id FROM new_events)
    ON CONFLICT DO NOTHING
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $9)
    FROM unnest($5::uuid[], $6::text[], $7::text[], $8::text[]) AS job (event_id)
    WHERE job.event_id IN (SELECT event_id FROM fresh)
)
SELECT event_id FROM fresh
"
);

/// For the case that every event is new, at half the price: it fails as a whole if one is not. The keys are what it is
/// about, so Postgres takes them before it writes the rest.
const RECORD_NEW: &str = concat!(
    "
WITH new_events AS (
    INSERT INTO events (",
    event_columns!(),
    ")
    SELECT * FROM unnest($4::event_row[])
), new_heads AS (
    INSERT INTO request_heads (request_id, url, headers)
    SELECT * FROM unnest($10::uuid[], $11::text[], $12::bytea[])
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $9)
    FROM unnest($5::uuid[], $6::text[], $7::text[], $8::text[]) AS job
)
INSERT INTO dedupe_keys (event_id, source, dedupe_key)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
ORDER BY source, dedupe_key, id
"
);

/// Records a batch. Whether the last one had only new events says how to begin: duplicates come in bursts, and trying the
/// cheaper way in vain costs more than it saves.
pub(super) async fn record(
    store: &PostgresStore,
    connection: &mut PgConnection,
    events: &[Routed],
    bodies: &WrittenBodies,
) -> Result<Vec<Recorded>, sqlx::Error> {
    let grace = store.dispatch_grace;
    let mut in_order: Vec<_> = events.iter().collect();
    let free = freed_keys(events);
    let new = if free.is_empty() && bodies.is_empty() && in_statements(&in_order).nth(1).is_none() {
        if store.only_new.load(Relaxed) {
            match statement(RECORD_NEW, &in_order, bodies, grace).execute(&mut *connection).await {
                Ok(_) => return Ok(vec![Recorded::New; events.len()]),
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let new = record_part(&mut *connection, &in_order, bodies, grace).await?;
        note_resends(connection, &in_order, &new).await?;
        new
    } else {
        // Each part takes its keys in order, and so must the parts.
        in_order.sort_by_key(|routed| (&routed.event.delivery().arrival.source, routed.event.dedupe_key()));
        let mut transaction = connection.begin().await?;
        keys::free(&mut transaction, &free).await?;
        let mut new = HashSet::new();
        for part in in_statements(&in_order) {
            new.extend(record_part(&mut transaction, part, bodies, grace).await?);
        }
        let with_bodies: Vec<_> = new.iter().copied().filter(|id| bodies.contains(*id)).collect();
        large_body::mark_recorded(&mut transaction, &with_bodies).await?;
        note_resends(&mut transaction, &in_order, &new).await?;
        transaction.commit().await?;
        new
    };
    store.only_new.store(new.len() == events.len(), Relaxed);
    Ok(events.iter().map(|routed| recorded(&new, routed)).collect())
}

/// What became of an event, given the ids of those that were new.
fn recorded(new: &HashSet<Uuid>, routed: &Routed) -> Recorded {
    if new.contains(&routed.event.id().0) { Recorded::New } else { Recorded::Duplicate }
}

/// The most bytes of bodies in one statement: a statement is copied on its way, and bodies can be long.
const STATEMENT_BYTES: usize = 8 * 1024 * 1024;

/// The events in parts, each small enough for one statement. An event that is larger is a part of its own.
fn in_statements<'a, 'e>(events: &'a [&'e Routed]) -> impl Iterator<Item = &'a [&'e Routed]> {
    let mut rest = events;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |routed: &&&Routed| {
            bytes += routed.event.body().len();
            bytes <= STATEMENT_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (part, after) = rest.split_at(count);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// The keys with a window, which events that came before it do not hold any more.
fn freed_keys(events: &[Routed]) -> Vec<keys::Freed<'_>> {
    let mut freed = Vec::new();
    for Routed { event, .. } in events {
        if let Some(before) = event.key_window().and_then(|window| free_before(event.id().0, window)) {
            let (source, dedupe_key) = (event.delivery().arrival.source.as_str(), event.dedupe_key().as_str());
            freed.push(keys::Freed { source, dedupe_key, before });
        }
    }
    freed
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Records events that may have come before, and gives the ids of those that are new.
async fn record_part(
    connection: &mut PgConnection,
    events: &[&Routed],
    bodies: &WrittenBodies,
    grace: Duration,
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let rows = statement(RECORD, events, bodies, grace).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn note_resends(
    connection: &mut PgConnection,
    events: &[&Routed],
    new: &HashSet<Uuid>,
) -> Result<(), sqlx::Error> {
    let again = events.iter().filter(|routed| !new.contains(&routed.event.id().0));
    resends::note(connection, &again.map(|routed| Resend::of(routed)).collect::<Vec<_>>()).await
}

/// A statement with what both that record need.
fn statement(
    text: &'static str,
    events: &[&Routed],
    bodies: &WrittenBodies,
    dispatch_grace: Duration,
) -> Query<'static, Postgres, PgArguments> {
    let jobs = || events.iter().flat_map(|routed| routed.jobs.iter().map(|job| (routed.event.id(), job)));
    let heads = head::deliveries_apart(events);
    sqlx::query(text)
        .bind(column(events, |routed| routed.event.id().0))
        .bind(column(events, |routed| routed.event.delivery().arrival.source.as_str()))
        .bind(column(events, |routed| routed.event.dedupe_key().as_str()))
        .bind(column(events, |routed| bodies.row(routed)))
        .bind(jobs().map(|(event_id, _)| event_id.0).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.handler.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.priority.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.ordering_key.as_deref()).collect::<Vec<_>>())
        .bind(dispatch_grace.as_secs_f64())
        .bind(heads.iter().map(|delivery| delivery.arrival.request_id.0).collect::<Vec<_>>())
        .bind(heads.iter().map(|delivery| delivery.request.url.as_str()).collect::<Vec<_>>())
        .bind(heads.iter().map(|delivery| head::stored_headers(delivery)).collect::<Vec<_>>())
}

/// One value of every event, as an array to bind.
fn column<'a, T>(events: &[&'a Routed], value: impl Fn(&'a Routed) -> T) -> Vec<T> {
    events.iter().map(|routed| value(routed)).collect()
}
