//! The sweeper's verbs: which unfinished jobs are due, and how much there is to do.

use std::time::Duration;

use hookfast_webhook::HandlerName;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Error, Row};

use super::work::{column, job};
use crate::job::{CRASHED, priority};
use crate::{Backlog, Ready, Sweep, Swept};

/// `(SELECT clock_timestamp())` is read once, so that the index can answer what is due. It is asked handler by handler, because
/// of one that nobody works for here, many jobs may be due.
///
/// A job that somebody holds at this moment is passed over: a claim has just taken it, or an effect is being written.
const SWEEP: &str = "
WITH due AS (
    SELECT event_id, handler, attempts, claimed_at, worker, state = 'processing' AS has_crashed,
        CASE WHEN state = 'processing' THEN crashes + 1 ELSE crashes END AS crashes
    FROM unnest($1::text[]) AS wanted (name) CROSS JOIN LATERAL (
        SELECT * FROM jobs
        WHERE handler = name AND due_at <= (SELECT clock_timestamp()) AND finished_at IS NULL
        ORDER BY due_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS of_one
    ORDER BY due_at LIMIT $2
), swept AS (
    UPDATE jobs SET crashes = due.crashes, token = NULL, worker = NULL, claimed_at = NULL,
        state = CASE WHEN has_crashed AND due.crashes >= $5 THEN 'dead_letter' ELSE 'pending' END,
        reason = CASE WHEN has_crashed AND due.crashes >= $5 THEN 'crash' ELSE reason END,
        finished_at = CASE WHEN has_crashed AND due.crashes >= $5 THEN clock_timestamp() END,
        due_at = clock_timestamp() + make_interval(secs => CASE WHEN due.crashes > 0 THEN $4 ELSE $3 END)
    FROM due
    WHERE jobs.event_id = due.event_id AND jobs.handler = due.handler
    RETURNING due.*, jobs.priority, jobs.ordering_key, jobs.state = 'dead_letter' AS is_buried
), history AS (
    INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
    SELECT event_id, handler, attempts, claimed_at,
        (extract(epoch FROM clock_timestamp() - claimed_at) * 1000000)::bigint, 'crash', $6, worker
    FROM swept WHERE has_crashed
)
SELECT event_id, handler, priority, has_crashed, is_buried,
    NOT is_buried AND (ordering_key IS NULL OR NOT EXISTS (
        SELECT FROM jobs AS earlier
        WHERE earlier.handler = swept.handler AND earlier.ordering_key = swept.ordering_key
            AND earlier.event_id < swept.event_id AND earlier.state IN ('pending', 'processing', 'failed')
            -- Those buried just now still look as they did before.
            AND (earlier.event_id, earlier.handler) NOT IN (SELECT event_id, handler FROM swept WHERE is_buried)
    )) AS is_ready, crashes > 0 AND crashes >= $5 - 1 AS is_suspect
FROM swept
";

pub(super) async fn sweep(connection: &mut PgConnection, sweep: &Sweep<'_>) -> Result<Swept, Error> {
    let rows = sqlx::query(SWEEP)
        .bind(column(sweep.handlers, HandlerName::as_str))
        .bind(i64::from(sweep.limit))
        .bind(sweep.look_again_in.as_secs_f64())
        .bind(sweep.look_at_suspects_in.as_secs_f64())
        .bind(i32::try_from(sweep.crash_limit).unwrap_or(i32::MAX))
        .bind(CRASHED)
        .fetch_all(connection)
        .await?;

    let mut swept = Swept { due: rows.len(), ..Swept::default() };
    for row in &rows {
        match (row.try_get("is_ready")?, row.try_get("is_suspect")?) {
            (true, false) => swept.ready.push(ready(row)?),
            (true, true) => swept.suspects.push(job(row)?),
            (false, _) => {}
        }
        if row.try_get("has_crashed")? {
            swept.crashed.push(job(row)?);
        }
        if row.try_get("is_buried")? {
            swept.buried.push(job(row)?);
        }
    }
    Ok(swept)
}

fn ready(row: &PgRow) -> Result<Ready, Error> {
    Ok(Ready { job: job(row)?, priority: priority(row.try_get("priority")?) })
}

pub(super) async fn look_again(
    connection: &mut PgConnection,
    handlers: &[HandlerName],
    limit: u32,
) -> Result<u64, Error> {
    let done = sqlx::query(
        "WITH waiting AS (
             SELECT event_id, handler FROM unnest($1::text[]) AS wanted (name) CROSS JOIN LATERAL (
                 SELECT * FROM jobs
                 WHERE handler = name AND due_at > (SELECT clock_timestamp()) AND finished_at IS NULL
                     AND state = 'pending'
                 ORDER BY due_at LIMIT $2
                 FOR UPDATE SKIP LOCKED
             ) AS of_one
             ORDER BY due_at LIMIT $2
         )
         UPDATE jobs SET due_at = clock_timestamp()
         FROM waiting
         WHERE jobs.event_id = waiting.event_id AND jobs.handler = waiting.handler",
    )
    .bind(column(handlers, HandlerName::as_str))
    .bind(i64::from(limit))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Two parts, because each has an index of its own; the finished jobs, which are most, have none.
const COUNT: &str = "
SELECT handler, state, count(*) FROM (
    (SELECT handler, state FROM jobs WHERE finished_at IS NULL ORDER BY handler, due_at LIMIT $1)
    UNION ALL
    (SELECT handler, state FROM jobs WHERE state = 'dead_letter' ORDER BY event_id LIMIT $1)
) AS counted
GROUP BY handler, state ORDER BY handler, state
";

/// From handler to handler, because the index goes by them.
const OLDEST_DUE_AND_REPLAYED: &str = "
WITH RECURSIVE first_of_each AS (
    (SELECT handler, due_at FROM jobs WHERE finished_at IS NULL ORDER BY handler, due_at LIMIT 1)
    UNION ALL
    SELECT next.* FROM first_of_each CROSS JOIN LATERAL (
        SELECT handler, due_at FROM jobs
        WHERE finished_at IS NULL AND handler > first_of_each.handler
        ORDER BY handler, due_at LIMIT 1
    ) AS next
)
SELECT (
    SELECT extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM first_of_each
    WHERE due_at <= (SELECT clock_timestamp())
), (
    SELECT coalesce(sum(jobs), 0)::bigint FROM audit WHERE action = 'replay'
)
";

pub(super) async fn backlog(connection: &mut PgConnection) -> Result<Backlog, Error> {
    let rows = sqlx::query(COUNT).bind(i64::from(Backlog::COUNTED)).fetch_all(&mut *connection).await?;
    let count = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get::<i64, _>(2)?.unsigned_abs()));
    let totals = sqlx::query(OLDEST_DUE_AND_REPLAYED).fetch_one(connection).await?;
    let oldest_due: Option<f64> = totals.try_get(0)?;
    Ok(Backlog {
        jobs: rows.iter().map(count).collect::<Result<_, Error>>()?,
        oldest_due: oldest_due.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()),
        replayed: totals.try_get::<i64, _>(1)?.unsigned_abs(),
    })
}
