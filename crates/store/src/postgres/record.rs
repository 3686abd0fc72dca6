//! Recording a batch: as one statement, which asks what is new, or fails if not all of it is.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection, PgHasArrayType, PgTypeInfo};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::PostgresStore;
use crate::{Recorded, Routed, headers};

/// Two gateways may record the same keys at the same moment: each waits for the other's key, so all must take keys in
/// one order, or they wait for each other for ever.
///
/// That a key is new is known from `fresh` alone: the other gateway's rows are not visible to this statement even after it
/// has waited for them.
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
    SELECT incoming.* FROM unnest($4::incoming_event[]) AS incoming
    WHERE incoming.id IN (SELECT event_id FROM fresh)
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $9)
    FROM unnest($5::uuid[], $6::text[], $7::text[], $8::text[]) AS job (event_id)
    WHERE job.event_id IN (SELECT event_id FROM fresh)
)
SELECT event_id FROM fresh
";

/// That events came again, by key and not by event, because that one may be another gateway's.
///
/// A statement that was given up may come through so late that its events are here already, out of the spool. Then their keys
/// have their own ids, or their resends are noted, and they have not come again. This is a statement of its own because the one
/// that takes the keys may have waited for those events, and would not see them.
const NOTE_RESENDS: &str = "
INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address)
SELECT source, dedupe_key, received_at, request_id, remote_address
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[])
    AS incoming (id, source, dedupe_key, received_at, request_id, remote_address)
WHERE NOT EXISTS (SELECT FROM dedupe_keys AS known
                  WHERE (known.source, known.dedupe_key, known.event_id)
                      = (incoming.source, incoming.dedupe_key, incoming.id))
  AND NOT EXISTS (SELECT FROM resends AS noted
                  WHERE (noted.source, noted.dedupe_key, noted.request_id)
                      = (incoming.source, incoming.dedupe_key, incoming.request_id))
";

/// For the case that every event is new, at half the price: it fails as a whole if one is not. The keys are what it is
/// about, so Postgres takes them before it writes the rest.
const RECORD_NEW: &str = "
WITH new_events AS (
    INSERT INTO events (id, source, dedupe_key, received_at, request_id, remote_address, event_type, account,
                        occurred_at, proof, method, url, headers, body, object_id)
    SELECT * FROM unnest($4::incoming_event[])
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT job.*, clock_timestamp() + make_interval(secs => $9)
    FROM unnest($5::uuid[], $6::text[], $7::text[], $8::text[]) AS job
)
INSERT INTO dedupe_keys (event_id, source, dedupe_key)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS incoming (id, source, dedupe_key)
ORDER BY source, dedupe_key, id
";

/// An event as both statements take it. One array of these costs Postgres a third less than an array for each column.
#[derive(sqlx::Encode)]
struct IncomingEvent<'a> {
    id: Uuid,
    source: &'a str,
    dedupe_key: &'a str,
    received_at: OffsetDateTime,
    request_id: Uuid,
    remote_address: String,
    event_type: &'a str,
    account: Option<&'a str>,
    occurred_at: Option<OffsetDateTime>,
    proof: &'a str,
    method: &'a str,
    url: &'a str,
    headers: Vec<u8>,
    body: &'a [u8],
    object_id: Option<&'a str>,
}

impl sqlx::Type<Postgres> for IncomingEvent<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("incoming_event")
    }
}

impl PgHasArrayType for IncomingEvent<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("incoming_event")
    }
}

impl<'a> IncomingEvent<'a> {
    fn of(Routed { event, .. }: &'a Routed) -> Self {
        let delivery = event.delivery();
        let (arrival, request) = (&delivery.arrival, &delivery.request);
        let mut stored_headers = Vec::with_capacity(512);
        headers::write(&request.headers, &mut stored_headers);
        Self {
            id: event.id().0,
            source: arrival.source.as_str(),
            dedupe_key: event.dedupe_key().as_str(),
            received_at: arrival.received_at,
            request_id: arrival.request_id.0,
            remote_address: arrival.remote_address.to_string(),
            event_type: event.event_type().as_str(),
            account: event.account().map(|account| account.as_str()),
            occurred_at: event.occurred_at(),
            proof: delivery.proof.kind(),
            method: request.method.as_str(),
            url: &request.url,
            headers: stored_headers,
            body: event.body(),
            object_id: event.object_id().map(|object| object.as_str()),
        }
    }
}

/// Records a batch. Whether the last one had only new events says how to begin: duplicates come in bursts, and trying the
/// cheaper way in vain costs more than it saves.
pub(super) async fn record(
    store: &PostgresStore,
    connection: &mut PgConnection,
    events: &[Routed],
) -> Result<Vec<Recorded>, sqlx::Error> {
    let grace = store.dispatch_grace;
    let mut in_order: Vec<_> = events.iter().collect();
    let new = if crate::in_statements(&in_order).nth(1).is_none() {
        if store.only_new.load(Relaxed) {
            match statement(RECORD_NEW, &in_order, grace).execute(&mut *connection).await {
                Ok(_) => return Ok(vec![Recorded::New; events.len()]),
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

fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

/// Records events that may have come before, and gives the ids of those that are new.
async fn record_part(
    connection: &mut PgConnection,
    events: &[&Routed],
    grace: Duration,
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let rows = statement(RECORD, events, grace).fetch_all(&mut *connection).await?;
    let new: HashSet<Uuid> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let again: Vec<_> = events.iter().copied().filter(|routed| !new.contains(&routed.event.id().0)).collect();
    if !again.is_empty() {
        note_resends(connection, &again).await?;
    }
    Ok(new)
}

async fn note_resends(connection: &mut PgConnection, events: &[&Routed]) -> Result<(), sqlx::Error> {
    let arrivals = || events.iter().map(|routed| &routed.event.delivery().arrival);
    keys(NOTE_RESENDS, events)
        .bind(arrivals().map(|arrival| arrival.received_at).collect::<Vec<_>>())
        .bind(arrivals().map(|arrival| arrival.request_id.0).collect::<Vec<_>>())
        .bind(arrivals().map(|arrival| arrival.remote_address.to_string()).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// A statement with what both that record need.
fn statement(
    text: &'static str,
    events: &[&Routed],
    dispatch_grace: Duration,
) -> Query<'static, Postgres, PgArguments> {
    let jobs = || events.iter().flat_map(|routed| routed.jobs.iter().map(|job| (routed.event.id(), job)));
    keys(text, events)
        .bind(column(events, IncomingEvent::of))
        .bind(jobs().map(|(event_id, _)| event_id.0).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.handler.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.priority.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|(_, job)| job.ordering_key.as_deref()).collect::<Vec<_>>())
        .bind(dispatch_grace.as_secs_f64())
}

/// A statement with the events' keys, with which all begin.
fn keys(text: &'static str, events: &[&Routed]) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(text)
        .bind(column(events, |routed| routed.event.id().0))
        .bind(column(events, |routed| routed.event.delivery().arrival.source.as_str()))
        .bind(column(events, |routed| routed.event.dedupe_key().as_str()))
}

/// One value of every event, as an array to bind.
fn column<'a, T>(events: &[&'a Routed], value: impl Fn(&'a Routed) -> T) -> Vec<T> {
    events.iter().map(|routed| value(routed)).collect()
}
