//! The sweeper's verbs: which jobs become pending, which pending ones are due, and how much there is to do.

use std::time::Duration;

use hookfast_webhook::{EventId, HandlerName};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Error, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::work::{column, job};
use crate::decode::word;
use crate::work::CRASHED;
use crate::{Backlog, Crash, DeadLetters, DueJob, DueJobs, DuePlace, Sweep, Swept};

/// `(SELECT clock_timestamp())` is read once, so that the index can answer what is due. Retries and leases are asked for
/// apart, because the index goes by state.
///
/// A job that another transaction holds at this moment is passed over: a settlement, a renewal or an effect is being written.
const SWEEP: &str = "
WITH due AS (
    SELECT event_id, handler, attempts, claimed_at, worker, state = 'processing' AS has_crashed,
        CASE WHEN state = 'processing' THEN crashes + 1 ELSE crashes END AS crashes
    FROM unnest($1::text[]) AS wanted (name) CROSS JOIN (VALUES ('failed'), ('processing')) AS kind (word)
    CROSS JOIN LATERAL (
        SELECT * FROM jobs
        WHERE handler = name AND state = word AND due_at <= (SELECT clock_timestamp()) AND finished_at IS NULL
            AND (word = 'failed' OR $5)
        ORDER BY due_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS of_one
), swept AS (
    UPDATE jobs SET crashes = due.crashes, token = NULL, worker = NULL, claimed_at = NULL,
        state = CASE WHEN has_crashed AND due.crashes >= $3 THEN 'dead_letter' ELSE 'pending' END,
        reason = CASE WHEN has_crashed AND due.crashes >= $3 THEN 'crash' ELSE reason END,
        finished_at = CASE WHEN has_crashed AND due.crashes >= $3 THEN clock_timestamp() END,
        due_at = clock_timestamp()
    FROM due
    WHERE jobs.event_id = due.event_id AND jobs.handler = due.handler
    RETURNING due.*, jobs.state = 'dead_letter' AS is_buried
), history AS (
    INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
    SELECT event_id, handler, attempts, claimed_at,
        (extract(epoch FROM clock_timestamp() - claimed_at) * 1000000)::bigint, 'crash', $4, worker
    FROM swept WHERE has_crashed
)
SELECT event_id, handler, has_crashed, is_buried,
    CASE WHEN has_crashed THEN (SELECT source FROM events WHERE events.id = swept.event_id) END AS source
FROM swept
";

pub(super) async fn sweep(connection: &mut PgConnection, sweep: &Sweep<'_>) -> Result<Swept, Error> {
    let rows = sqlx::query(SWEEP)
        .bind(column(sweep.handlers, HandlerName::as_str))
        .bind(i64::from(sweep.limit))
        .bind(i32::try_from(sweep.crash_limit).unwrap_or(i32::MAX))
        .bind(CRASHED)
        .bind(sweep.judge_leases_within.is_some())
        .fetch_all(connection)
        .await?;
    let has_more = rows.len() >= sweep.limit as usize;
    let mut swept = Swept { has_more, changed: rows.len(), ..Swept::default() };
    for row in &rows {
        if row.try_get("has_crashed")? {
            let source = row.try_get::<Option<_>, _>("source")?.unwrap_or_default();
            swept.crashed.push(Crash { job: job(row)?, source, is_buried: row.try_get("is_buried")? });
        }
    }
    Ok(swept)
}

/// The index is read in its order, and for each row with an ordering key two other indexes are asked for one row each.
const DUE_JOBS: &str = "
SELECT event_id, due_at, priority, crashes, ordering_key IS NULL
    OR NOT EXISTS (
            SELECT FROM jobs AS earlier
            WHERE earlier.handler = $1 AND earlier.ordering_key = jobs.ordering_key
                AND earlier.event_id < jobs.event_id AND earlier.finished_at IS NULL)
        AND NOT ($5 AND EXISTS (
            SELECT FROM jobs AS dead
            WHERE dead.handler = $1 AND dead.ordering_key = jobs.ordering_key
                AND dead.event_id < jobs.event_id AND dead.state = 'dead_letter')) AS is_ready
FROM jobs
WHERE handler = $1 AND state = 'pending' AND finished_at IS NULL
    AND due_at >= $2 AND (due_at, event_id) > ($2, $3) AND due_at <= (SELECT clock_timestamp())
ORDER BY due_at, event_id LIMIT $4
";

pub(super) async fn due_jobs(connection: &mut PgConnection, due: &DueJobs<'_>) -> Result<Vec<DueJob>, Error> {
    let rows = sqlx::query(DUE_JOBS)
        .bind(due.handler.as_str())
        .bind(due.after.map_or(OffsetDateTime::UNIX_EPOCH, |place| place.due_at))
        .bind(due.after.map_or(Uuid::nil(), |place| place.event.0))
        .bind(i64::from(due.limit))
        .bind(due.ordering == Some(DeadLetters::Block))
        .fetch_all(connection)
        .await?;
    rows.iter().map(due_job).collect()
}

fn due_job(row: &PgRow) -> Result<DueJob, Error> {
    Ok(DueJob {
        place: DuePlace { due_at: row.try_get("due_at")?, event: EventId(row.try_get("event_id")?) },
        priority: word(row.try_get("priority")?)?,
        crashes: row.try_get::<i32, _>("crashes")?.unsigned_abs(),
        is_ready: row.try_get("is_ready")?,
    })
}

/// Two parts, because each has an index of its own; the finished jobs, which are most, have none.
const COUNT: &str = "
SELECT handler, state, count(*) FROM jobs WHERE finished_at IS NULL GROUP BY handler, state
UNION ALL
SELECT handler, 'dead_letter', count(*) FROM jobs WHERE state = 'dead_letter' GROUP BY handler
ORDER BY 1, 2
";

/// From handler to handler, because the index goes by them.
const OLDEST_DUE: &str = "
WITH RECURSIVE handlers (name) AS (
    (SELECT handler FROM jobs WHERE finished_at IS NULL ORDER BY handler LIMIT 1)
    UNION ALL
    SELECT (SELECT handler FROM jobs WHERE finished_at IS NULL AND handler > name ORDER BY handler LIMIT 1)
    FROM handlers WHERE name IS NOT NULL
)
SELECT name, extract(epoch FROM clock_timestamp() - first.due_at)::float8
FROM handlers CROSS JOIN LATERAL (
    SELECT due_at FROM jobs
    WHERE handler = name AND state = 'pending' AND finished_at IS NULL AND due_at <= (SELECT clock_timestamp())
    ORDER BY due_at LIMIT 1
) AS first
WHERE name IS NOT NULL
";

const REPLAYED: &str = "SELECT coalesce(sum(jobs), 0)::bigint FROM audit WHERE action = 'replay'";

pub(super) async fn backlog(connection: &mut PgConnection) -> Result<Backlog, Error> {
    let counts = sqlx::query(COUNT).fetch_all(&mut *connection).await?;
    let count = |row: &PgRow| Ok((row.try_get(0)?, word(row.try_get(1)?)?, row.try_get::<i64, _>(2)?.unsigned_abs()));
    let oldest = sqlx::query(OLDEST_DUE).fetch_all(&mut *connection).await?;
    let age = |row: &PgRow| Ok((row.try_get(0)?, Duration::try_from_secs_f64(row.try_get(1)?).unwrap_or_default()));
    let replayed = sqlx::query(REPLAYED).fetch_one(connection).await?;
    Ok(Backlog {
        jobs: counts.iter().map(count).collect::<Result<_, Error>>()?,
        oldest_due: oldest.iter().map(age).collect::<Result<_, Error>>()?,
        replayed: replayed.try_get::<i64, _>(0)?.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count that ends early looks like a backlog that stands still.
    #[test]
    fn counting_has_no_limit() {
        assert!(!COUNT.to_uppercase().contains("LIMIT"), "{COUNT}");
    }
}
