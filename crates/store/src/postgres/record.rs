//! Recording a batch as one statement.

use std::collections::HashSet;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use uuid::Uuid;

use crate::{DISPATCH_GRACE_SECONDS, Recorded, Routed, headers};

/// Two gateways may record the same keys at the same moment: each waits for the other's key, so all must take keys in
/// one order, or they wait for each other for ever.
///
/// That a key is new is known from `fresh` alone. The other gateway's rows are not visible to this statement even after
/// it has waited for them, which is why a resend is noted by key and not by event.
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
                        occurred_at, proof, method, url, headers, body)
    SELECT incoming.*
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[], $8::text[],
                $9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bytea[]) AS incoming (id)
    WHERE incoming.id IN (SELECT event_id FROM fresh)
), new_jobs AS (
    INSERT INTO jobs (event_id, handler, due_at)
    SELECT job.event_id, job.handler, clock_timestamp() + make_interval(secs => $17)
    FROM unnest($15::uuid[], $16::text[]) AS job (event_id, handler)
    WHERE job.event_id IN (SELECT event_id FROM fresh)
), came_again AS (
    INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address)
    SELECT source, dedupe_key, received_at, request_id, remote_address
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[])
        AS incoming (id, source, dedupe_key, received_at, request_id, remote_address)
    WHERE NOT EXISTS (SELECT FROM fresh WHERE fresh.event_id = incoming.id)
)
SELECT event_id FROM fresh
";

pub(super) async fn record(connection: &mut PgConnection, events: &[Routed]) -> Result<Vec<Recorded>, sqlx::Error> {
    let mut in_order: Vec<_> = events.iter().collect();
    let new = if crate::in_statements(&in_order).nth(1).is_none() {
        record_part(connection, &in_order).await?
    } else {
        // Each part takes its keys in order, and so must the parts.
        in_order.sort_by_key(|routed| (&routed.event.delivery().arrival.source, routed.event.dedupe_key()));
        let mut transaction = connection.begin().await?;
        let mut new = HashSet::new();
        for part in crate::in_statements(&in_order) {
            new.extend(record_part(&mut transaction, part).await?);
        }
        transaction.commit().await?;
        new
    };
    Ok(events.iter().map(|routed| crate::recorded(&new, routed)).collect())
}

/// Records events as one statement, and gives the ids of those that are new.
async fn record_part(connection: &mut PgConnection, events: &[&Routed]) -> Result<HashSet<Uuid>, sqlx::Error> {
    let deliveries = || events.iter().map(|routed| routed.event.delivery());
    let arrivals = || deliveries().map(|delivery| &delivery.arrival);
    let jobs = || events.iter().flat_map(|routed| routed.handlers.iter().map(|handler| (routed.event.id(), handler)));

    let rows = sqlx::query(RECORD)
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
        .bind(jobs().map(|(event_id, _)| event_id.0).collect::<Vec<_>>())
        .bind(jobs().map(|(_, handler)| handler.as_str()).collect::<Vec<_>>())
        .bind(f64::from(DISPATCH_GRACE_SECONDS))
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
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
