//! That events came again: a number beside each key, and the first and last arrivals.

use sqlx::Error;
use sqlx::postgres::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::spool::SpooledResend;
use crate::{Routed, Spooled};

/// An arrival of an event whose key was taken.
pub(super) struct Resend<'a> {
    /// The id that the event would have if it were new.
    id: Uuid,
    source: &'a str,
    dedupe_key: &'a str,
    received_at: OffsetDateTime,
    request_id: Uuid,
    remote_address: String,
    /// How many arrivals it stands for: a spool keeps some of many.
    times: i64,
}

impl<'a> Resend<'a> {
    pub(super) fn of(Routed { event, .. }: &'a Routed) -> Self {
        let arrival = &event.delivery().arrival;
        Self {
            id: event.id().0,
            source: arrival.source.as_str(),
            dedupe_key: event.dedupe_key().as_str(),
            received_at: arrival.received_at,
            request_id: arrival.request_id.0,
            remote_address: arrival.remote_address.to_string(),
            times: 1,
        }
    }

    pub(super) fn of_spooled(Spooled { row, .. }: &'a Spooled) -> Self {
        Self {
            id: row.id,
            source: &row.source,
            dedupe_key: &row.dedupe_key,
            received_at: row.received_at,
            request_id: row.request_id,
            remote_address: row.remote_address.to_string(),
            times: 1,
        }
    }

    /// The resends that a spool counted for an event. The arrivals between two that are kept count with the later one.
    pub(super) fn counted_in_spool(event: &'a Spooled) -> impl Iterator<Item = Self> {
        let mut before = 0;
        event.resends.iter().map(move |SpooledResend { id, arrival }| {
            let times = arrival.number - before;
            before = arrival.number;
            Self {
                id: *id,
                source: &event.row.source,
                dedupe_key: &event.row.dedupe_key,
                received_at: arrival.received_at,
                request_id: arrival.request_id,
                remote_address: arrival.remote_address.clone(),
                times,
            }
        })
    }
}

/// By key and not by event, because the event may be another gateway's.
///
/// A statement that was given up may come through so late that its events are here already, out of the spool. Then their keys
/// have their own ids, or their arrivals are kept, and they have not come again. This is a statement of its own because the
/// one that takes the keys may have waited for those events, and would not see them.
///
/// The rows of the keys are locked in one order, or two gateways could wait for each other. For the same reason a transaction
/// takes all its keys first, and counts last.
const NOTE: &str = "
WITH incoming AS (
    SELECT *, coalesce(sum(times) OVER later, 0) AS later
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[], $6::text[], $7::bigint[])
        AS incoming (id, source, dedupe_key, received_at, request_id, remote_address, times)
    WHERE NOT EXISTS (SELECT FROM dedupe_keys AS known
                      WHERE (known.source, known.dedupe_key, known.event_id)
                          = (incoming.source, incoming.dedupe_key, incoming.id))
      AND NOT EXISTS (SELECT FROM resend_arrivals AS kept
                      WHERE (kept.source, kept.dedupe_key, kept.request_id)
                          = (incoming.source, incoming.dedupe_key, incoming.request_id))
    WINDOW newest_first AS (PARTITION BY source, dedupe_key ORDER BY received_at DESC, request_id DESC),
           later AS (newest_first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), locked AS (
    SELECT known.source, known.dedupe_key FROM dedupe_keys AS known
    WHERE (known.source, known.dedupe_key) IN (SELECT source, dedupe_key FROM incoming)
    ORDER BY known.source, known.dedupe_key
    FOR NO KEY UPDATE
), counted AS (
    UPDATE dedupe_keys AS known SET resends = known.resends + came.times
    FROM (SELECT source, dedupe_key, sum(times) AS times FROM incoming JOIN locked USING (source, dedupe_key)
          GROUP BY source, dedupe_key) AS came
    WHERE (known.source, known.dedupe_key) = (came.source, came.dedupe_key)
    RETURNING known.source, known.dedupe_key, known.resends
), numbered AS (
    SELECT incoming.*, resends - later AS number FROM incoming JOIN counted USING (source, dedupe_key)
)
INSERT INTO resend_arrivals (source, dedupe_key, slot, number, received_at, request_id, remote_address)
SELECT DISTINCT ON (source, dedupe_key, slot)
       source, dedupe_key, CASE WHEN number <= 5 THEN number ELSE 6 + number % 5 END AS slot, number, received_at,
       request_id, remote_address
FROM numbered ORDER BY source, dedupe_key, slot, number DESC
ON CONFLICT (source, dedupe_key, slot) DO UPDATE SET
    number = excluded.number, received_at = excluded.received_at, request_id = excluded.request_id,
    remote_address = excluded.remote_address
";

/// Counts resends, each at most once as far as its arrival is still kept.
pub(super) async fn note(connection: &mut PgConnection, resends: &[Resend<'_>]) -> Result<(), Error> {
    if resends.is_empty() {
        return Ok(());
    }
    sqlx::query(NOTE)
        .bind(column(resends, |resend| resend.id))
        .bind(column(resends, |resend| resend.source))
        .bind(column(resends, |resend| resend.dedupe_key))
        .bind(column(resends, |resend| resend.received_at))
        .bind(column(resends, |resend| resend.request_id))
        .bind(column(resends, |resend| resend.remote_address.as_str()))
        .bind(column(resends, |resend| resend.times))
        .execute(connection)
        .await?;
    Ok(())
}

/// One value of every resend, as an array to bind.
fn column<'a, T>(resends: &'a [Resend<'_>], value: impl Fn(&'a Resend<'a>) -> T) -> Vec<T> {
    resends.iter().map(value).collect()
}
