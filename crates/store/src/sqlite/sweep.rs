//! The sweeper's verbs: sweep, look again, and how much there is to do.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use hookfast_webhook::HandlerName;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Error, Row};

use super::moment::{length, now};
use super::rows::{ManyRows, Values};
use super::work::{job, ready};
use crate::job::CRASHED;
use crate::{Backlog, JobId, Ready, Sweep, Swept};

/// The jobs of a handler that are due, in the order of the index.
macro_rules! due {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM jobs
             WHERE handler = $2 AND due_at <= $1 AND finished_at IS NULL
             ORDER BY due_at, event_id LIMIT $3"
        )
    };
}

/// Three statements as one text. Each looks for the due jobs anew and finds the same, because the last one is the first
/// that changes them.
pub(super) const SWEEP: &str = concat!(
    due!("event_id, handler, state, crashes, priority, ordering_key"),
    ";
     INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
     SELECT event_id, handler, attempts, claimed_at, max($1 - claimed_at, 0), 'crash', $7, worker
     FROM (",
    due!("event_id, handler, state, attempts, claimed_at, worker"),
    ") WHERE state = 'processing';
     UPDATE jobs SET state = iif(state = 'processing' AND crashes + 1 >= $6, 'dead_letter', 'pending'),
                     reason = iif(state = 'processing' AND crashes + 1 >= $6, 'crash', reason),
                     finished_at = iif(state = 'processing' AND crashes + 1 >= $6, $1, NULL),
                     due_at = iif(state = 'processing' OR crashes > 0, $5, $4),
                     crashes = crashes + (state = 'processing'),
                     token = NULL, worker = NULL, claimed_at = NULL
     WHERE (event_id, handler) IN (",
    due!("event_id, handler"),
    ")"
);

/// Handler by handler: of one that nobody works for here, many jobs may be due.
pub(super) async fn sweep(writer: &mut SqliteConnection, sweep: &Sweep<'_>) -> Result<Swept, Error> {
    let now = now();
    let mut due = Vec::new();
    for handler in sweep.handlers {
        let rows = sqlx::query(SWEEP)
            .bind(now)
            .bind(handler.as_str())
            .bind(i64::from(sweep.limit).saturating_sub_unsigned(due.len() as u64))
            .bind(now.saturating_add(length(sweep.look_again_in)))
            .bind(now.saturating_add(length(sweep.look_at_suspects_in)))
            .bind(sweep.crash_limit)
            .bind(CRASHED)
            .fetch_all(&mut *writer)
            .await?;
        due.extend(rows);
    }

    let mut swept = Swept { due: due.len(), ..Swept::default() };
    let mut ordered = Vec::new();
    for row in &due {
        let crashes = row.try_get::<u32, _>("crashes")? + u32::from(crashed(row)?);
        let is_buried = crashed(row)? && crashes >= sweep.crash_limit;
        if crashed(row)? {
            swept.crashed.push(job(row)?);
        }
        if is_buried {
            swept.buried.push(job(row)?);
            continue;
        }
        if row.try_get::<Option<&str>, _>("ordering_key")?.is_some() {
            ordered.push(job(row)?);
        }
        if crashes > 0 && crashes >= sweep.crash_limit.saturating_sub(1) {
            swept.suspects.push(job(row)?);
        } else {
            swept.ready.push(ready(row)?);
        }
    }
    let waiting = waiting(writer, &ordered).await?;
    swept.ready.retain(|Ready { job, .. }| !waiting.contains(job));
    swept.suspects.retain(|job| !waiting.contains(job));
    Ok(swept)
}

fn crashed(row: &SqliteRow) -> Result<bool, Error> {
    Ok(row.try_get::<&str, _>("state")? == "processing")
}

pub(super) static WAITING: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "SELECT jobs.event_id, jobs.handler FROM {rows} CROSS JOIN jobs
         WHERE jobs.event_id = column1 AND jobs.handler = column2
           AND EXISTS (
               SELECT 1 FROM jobs AS earlier
               WHERE earlier.handler = jobs.handler AND earlier.ordering_key = jobs.ordering_key
                 AND earlier.event_id < jobs.event_id
                 AND earlier.state <> 'succeeded' AND earlier.state <> 'resolved'
                 AND earlier.state <> 'dead_letter')",
        2,
    )
});

/// Those of the jobs that have an unfinished one with the same key before them. Whether a dead letter is in their way is
/// up to the handler's policy, and decided when they are claimed.
async fn waiting(writer: &mut SqliteConnection, jobs: &[JobId]) -> Result<HashSet<JobId>, Error> {
    let bind = |job: &JobId, values: &mut Values| {
        values.add(job.event.0).add(job.handler.as_str());
    };
    WAITING.fetch(writer, jobs, bind).await?.iter().map(job).collect()
}

/// Makes pending jobs due now, and says how many.
pub(super) async fn look_again(
    writer: &mut SqliteConnection,
    handlers: &[HandlerName],
    limit: u32,
) -> Result<u64, Error> {
    let mut changed = 0;
    for handler in handlers {
        let done = sqlx::query(LOOK_AGAIN)
            .bind(now())
            .bind(handler.as_str())
            .bind(i64::from(limit).saturating_sub_unsigned(changed))
            .execute(&mut *writer)
            .await?;
        changed += done.rows_affected();
    }
    Ok(changed)
}

const LOOK_AGAIN: &str = "
UPDATE jobs SET due_at = $1
WHERE (event_id, handler) IN (
    SELECT event_id, handler FROM jobs
    WHERE handler = $2 AND due_at > $1 AND finished_at IS NULL AND state = 'pending'
    ORDER BY due_at LIMIT $3)
";

/// Two parts, because each has an index of its own.
const COUNT: &str = "
SELECT handler, state, count(*) FROM (
    SELECT * FROM (SELECT handler, state FROM jobs WHERE finished_at IS NULL LIMIT $1)
    UNION ALL
    SELECT * FROM (SELECT handler, state FROM jobs WHERE state = 'dead_letter' LIMIT $1)
)
GROUP BY handler, state ORDER BY handler, state
";

/// From handler to handler, because the index goes by them.
const OLDEST_DUE_AND_REPLAYED: &str = "
WITH RECURSIVE handlers (handler) AS (
    SELECT min(handler) FROM jobs WHERE finished_at IS NULL
    UNION ALL
    SELECT (SELECT min(jobs.handler) FROM jobs
            WHERE jobs.handler > handlers.handler AND finished_at IS NULL)
    FROM handlers WHERE handler IS NOT NULL
)
SELECT (SELECT min((SELECT min(due_at) FROM jobs
                    WHERE jobs.handler = handlers.handler AND due_at <= $1
                      AND finished_at IS NULL))
        FROM handlers),
       (SELECT coalesce(sum(jobs), 0) FROM audit WHERE action = 'replay')
";

pub(super) async fn backlog(readers: &SqlitePool) -> Result<Backlog, Error> {
    let rows = sqlx::query(COUNT).bind(Backlog::COUNTED).fetch_all(readers).await?;
    let count = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    let now = now();
    let totals = sqlx::query(OLDEST_DUE_AND_REPLAYED).bind(now).fetch_one(readers).await?;
    let oldest_due: Option<i64> = totals.try_get(0)?;
    Ok(Backlog {
        jobs: rows.iter().map(count).collect::<Result<_, Error>>()?,
        oldest_due: oldest_due.map(|due_at| Duration::from_micros(now.abs_diff(due_at))),
        replayed: totals.try_get(1)?,
    })
}
