//! Recording a batch: as one statement that asks what is new, or, if all of it should be, in the way that costs least.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::copy::Rows;
use crate::{Recorded, Routed, headers};

/// Two gateways may record the same keys at the same moment: each waits for the other's key, so all must take keys in
/// one order, or they wait for each other for ever.
///
/// That a key is new is known from `fresh` alone. The other gateway's rows are not visible to this statement even after
/// it has waited for them, which is why a resend is noted by key and not by event.
///
/// A statement that was given up may come through so late that its events are here already, out of the spool. Then their keys
/// have their own ids, or their resends are noted, and they have not come again.
///
/// Each part unnests only what it needs: Postgres keeps the rows of every `unnest` and of every CTE, and bodies are long.
const RECORD: &str = "
WITH fresh AS (
    INSERT INTO dedupe_keys (event_id, source, dedupe_key)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
    ORDER BY source, dedupe_key, id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), new_events AS (
    INSERT INTO events (id, source, dedupe_key, received_at, request_id, remote_address, event_type, account,
                        occurred_at, proof, method, url, headers, body, object_id)
    SELECT incoming.*
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[], $8::text[],
                $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[], $15::text[])
        AS incoming (id)
    WHERE incoming.id IN (SELECT event_id FROM fresh)
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $20)
    FROM unnest($16::uuid[], $17::text[], $18::text[], $19::text[]) AS job (event_id)
    WHERE job.event_id IN (SELECT event_id FROM fresh)
), came_again AS (
    INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address)
    SELECT source, dedupe_key, received_at, request_id, remote_address
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[])
        AS incoming (id, source, dedupe_key, received_at, request_id, remote_address)
    WHERE NOT EXISTS (SELECT FROM fresh WHERE fresh.event_id = incoming.id)
      AND NOT EXISTS (SELECT FROM dedupe_keys AS known
                      WHERE (known.source, known.dedupe_key, known.event_id)
                          = (incoming.source, incoming.dedupe_key, incoming.id))
      AND NOT EXISTS (SELECT FROM resends AS noted
                      WHERE (noted.source, noted.dedupe_key, noted.request_id)
                          = (incoming.source, incoming.dedupe_key, incoming.request_id))
)
SELECT event_id FROM fresh
";

/// From how many events on a batch is copied: it takes some round trips more.
const WORTH_COPYING: usize = 16;

/// For the case that every event is new: it fails if one is not, before any body is sent.
const TAKE_NEW_KEYS: &str = "
WITH new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $8)
    FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[]) AS job
)
INSERT INTO dedupe_keys (event_id, source, dedupe_key)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
ORDER BY source, dedupe_key, id
";

const COPY_EVENTS: &str = "
COPY events (id, source, dedupe_key, received_at, request_id, remote_address, event_type, account, occurred_at, proof,
             method, url, headers, body, object_id)
FROM STDIN (FORMAT binary)
";

/// Records a batch. Whether the last one had new events only says how to begin: duplicates come in bursts, and trying
/// the faster way in vain costs more than it saves.
pub(super) async fn record(
    store: &PostgresStore,
    connection: &mut PgConnection,
    events: &[Routed],
) -> Result<Vec<Recorded>, sqlx::Error> {
    let grace = store.dispatch_grace;
    let mut in_order: Vec<_> = events.iter().collect();
    let new = if crate::in_statements(&in_order).nth(1).is_none() {
        if events.len() >= WORTH_COPYING && store.only_new.load(Relaxed) {
            match copy(connection, &in_order, grace).await {
                Ok(()) => return Ok(vec![Recorded::New; events.len()]),
                Err(error) if is_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
        }
        record_part(connection, &in_order, grace).await?
    } else {
        // Each part takes its keys in order, and so must the parts.
        in_order.sort_by_key(|routed| (&routed.event.delivery().arrival.source, routed.event.dedupe_key()));
        let mut transaction = connection.begin().await?;
        let mut new = HashSet::new();
        for part in crate::in_statements(&in_order) {
            new.extend(record_part(&mut transaction, part, grace).await?);
        }
        transaction.commit().await?;
        new
    };
    store.only_new.store(new.len() == events.len(), Relaxed);
    Ok(events.iter().map(|routed| crate::recorded(&new, routed)).collect())
}

/// Records events that are all new. As arrays, the wide rows would cost Postgres twice as much.
async fn copy(connection: &mut PgConnection, events: &[&Routed], dispatch_grace: Duration) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let arrivals = || events.iter().map(|routed| &routed.event.delivery().arrival);
    let keys = sqlx::query(TAKE_NEW_KEYS)
        .bind(column(events, |routed| routed.event.id().0))
        .bind(arrivals().map(|arrival| arrival.source.as_str()).collect::<Vec<_>>())
        .bind(column(events, |routed| routed.event.dedupe_key().as_str()));
    with_jobs(keys, events, dispatch_grace).execute(&mut *transaction).await?;
    let mut copying = transaction.copy_in_raw(COPY_EVENTS).await?;
    copying.send(rows(events)).await?;
    copying.finish().await?;
    transaction.commit().await
}

/// The events as rows of [`COPY_EVENTS`].
fn rows(events: &[&Routed]) -> Vec<u8> {
    let bodies: usize = events.iter().map(|routed| routed.event.body().len()).sum();
    let mut rows = Rows::new(15, bodies + events.len() * 1024);
    for Routed { event, .. } in events {
        let (arrival, request) = (&event.delivery().arrival, &event.delivery().request);
        rows.begin_row()
            .uuid(event.id().0)
            .text(arrival.source.as_str())
            .text(event.dedupe_key().as_str())
            .time(arrival.received_at)
            .uuid(arrival.request_id.0)
            .text(&arrival.remote_address.to_string())
            .text(event.event_type().as_str())
            .optional_text(event.account().map(|account| account.as_str()))
            .optional_time(event.occurred_at())
            .text(event.delivery().proof.kind())
            .text(request.method.as_str())
            .text(&request.url)
            .written(|out| headers::write(&request.headers, out))
            .bytes(event.body())
            .optional_text(event.object_id().map(|object| object.as_str()));
    }
    rows.end()
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Records events as one statement, and gives the ids of those that are new.
async fn record_part(
    connection: &mut PgConnection,
    events: &[&Routed],
    grace: Duration,
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let rows = statement(events, grace).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// [`RECORD`] with all the events bound to it.
fn statement(events: &[&Routed], dispatch_grace: Duration) -> Query<'static, Postgres, PgArguments> {
    let deliveries = || events.iter().map(|routed| routed.event.delivery());
    let arrivals = || deliveries().map(|delivery| &delivery.arrival);

    let events_alone = sqlx::query(RECORD)
        .bind(column(events, |routed| routed.event.id().0))
        .bind(arrivals().map(|arrival| arrival.source.as_str()).collect::<Vec<_>>())
        .bind(column(events, |routed| routed.event.dedupe_key().as_str()))
        .bind(arrivals().map(|arrival| arrival.received_at).collect::<Vec<_>>())
        .bind(arrivals().map(|arrival| arrival.request_id.0).collect::<Vec<_>>())
        .bind(arrivals().map(|arrival| arrival.remote_address.to_string()).collect::<Vec<_>>())
        .bind(column(events, |routed| routed.event.event_type().as_str()))
        .bind(column(events, |routed| routed.event.account().map(|account| account.as_str())))
        .bind(column(events, |routed| routed.event.occurred_at()))
        .bind(deliveries().map(|delivery| delivery.proof.kind()).collect::<Vec<_>>())
        .bind(deliveries().map(|delivery| delivery.request.method.as_str()).collect::<Vec<_>>())
        .bind(deliveries().map(|delivery| delivery.request.url.as_str()).collect::<Vec<_>>())
        .bind(deliveries().map(|delivery| stored_headers(&delivery.request.headers)).collect::<Vec<_>>())
        .bind(column(events, |routed| &routed.event.body()[..]))
        .bind(column(events, |routed| routed.event.object_id().map(|object| object.as_str())));
    with_jobs(events_alone, events, dispatch_grace)
}

/// The values of the jobs, which come last in both ways to record.
fn with_jobs(
    query: Query<'static, Postgres, PgArguments>,
    events: &[&Routed],
    dispatch_grace: Duration,
) -> Query<'static, Postgres, PgArguments> {
    let jobs = || events.iter().flat_map(|routed| routed.jobs.iter().map(|job| (routed.event.id(), job)));
    query
        .bind(jobs().map(|(event_id, _)| event_id.0).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.handler.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.priority.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.ordering_key.as_deref()).collect::<Vec<_>>())
        .bind(dispatch_grace.as_secs_f64())
}

/// One value of every event, as an array to bind.
fn column<'a, T>(events: &[&'a Routed], value: impl Fn(&'a Routed) -> T) -> Vec<T> {
    events.iter().map(|routed| value(routed)).collect()
}

fn stored_headers(headers: &http::HeaderMap) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    headers::write(headers, &mut out);
    out
}
