//! The sweeper's verbs: which jobs become pending, which pending ones are due, and how much there is to do.

use std::time::Duration;

use hookfast_webhook::{EventId, HandlerName, JobState};
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Error, Row};
use uuid::Uuid;

use super::moment::{micros, now, time};
use super::work::job;
use crate::decode::word;
use crate::work::CRASHED;
use crate::{Backlog, Crash, DeadLetters, DueJob, DueJobs, DuePlace, Sweep, Swept};

/// The jobs of a handler whose retry is due or whose lease has ended. Retries and leases are asked for apart, because the
/// index goes by state.
macro_rules! due {
    ($columns:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            $columns,
            " FROM jobs
             WHERE handler = $2 AND state = 'failed' AND due_at <= $1 AND finished_at IS NULL
             ORDER BY due_at, event_id LIMIT $3)
             UNION ALL
             SELECT * FROM (SELECT ",
            $columns,
            " FROM jobs
             WHERE handler = $2 AND state = 'processing' AND due_at <= $1 AND finished_at IS NULL AND $6
             ORDER BY due_at, event_id LIMIT $3)"
        )
    };
}

/// Asked before the writer is taken: mostly nothing is due.
pub(super) const IS_ANY_DUE: &str = "
SELECT EXISTS (SELECT 1 FROM jobs
               WHERE handler = $2 AND state = 'failed' AND due_at <= $1 AND finished_at IS NULL)
    OR EXISTS (SELECT 1 FROM jobs
               WHERE handler = $2 AND state = 'processing' AND due_at <= $1 AND finished_at IS NULL AND $3)
";

/// Three statements as one text. Each looks for the due jobs anew and finds the same, because the last one is the first
/// that changes them.
pub(super) const SWEEP: &str = concat!(
    due!(
        "event_id, handler, state, crashes,
         iif(state = 'processing', (SELECT source FROM events WHERE events.id = jobs.event_id), NULL) AS source"
    ),
    ";
     INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
     SELECT event_id, handler, attempts, claimed_at, max($1 - claimed_at, 0), 'crash', $5, worker
     FROM (",
    due!("event_id, handler, state, attempts, claimed_at, worker"),
    ") WHERE state = 'processing';
     UPDATE jobs SET state = iif(state = 'processing' AND crashes + 1 >= $4, 'dead_letter', 'pending'),
                     reason = iif(state = 'processing' AND crashes + 1 >= $4, 'crash', reason),
                     finished_at = iif(state = 'processing' AND crashes + 1 >= $4, $1, NULL),
                     due_at = $1,
                     crashes = crashes + (state = 'processing'),
                     token = NULL, worker = NULL, claimed_at = NULL
     WHERE handler = $2 AND event_id IN (",
    due!("event_id"),
    ")"
);

/// Those of the handlers that have something due.
pub(super) async fn with_due_jobs(readers: &SqlitePool, sweep: &Sweep<'_>) -> Result<Vec<HandlerName>, Error> {
    let mut due = Vec::new();
    for handler in sweep.handlers {
        let row = sqlx::query(IS_ANY_DUE)
            .bind(now())
            .bind(handler.as_str())
            .bind(sweep.judge_leases_within.is_some())
            .fetch_one(readers);
        if row.await?.try_get(0)? {
            due.push(handler.clone());
        }
    }
    Ok(due)
}

pub(super) async fn sweep(
    writer: &mut SqliteConnection,
    handlers: &[HandlerName],
    sweep: &Sweep<'_>,
) -> Result<Swept, Error> {
    let now = now();
    let mut swept = Swept::default();
    for handler in handlers {
        let rows = sqlx::query(SWEEP)
            .bind(now)
            .bind(handler.as_str())
            .bind(sweep.limit)
            .bind(sweep.crash_limit)
            .bind(CRASHED)
            .bind(sweep.judge_leases_within.is_some())
            .fetch_all(&mut *writer)
            .await?;
        swept.has_more |= rows.len() >= sweep.limit as usize;
        swept.changed += rows.len();
        for row in &rows {
            if word::<JobState>(row.try_get("state")?)? != JobState::Processing {
                continue;
            }
            let is_buried = row.try_get::<u32, _>("crashes")? + 1 >= sweep.crash_limit;
            let source = row.try_get::<Option<_>, _>("source")?.unwrap_or_default();
            swept.crashed.push(Crash { job: job(row)?, source, is_buried });
        }
    }
    Ok(swept)
}

/// The index is read in its order, and for each row with an ordering key two other indexes are asked for one row each.
pub(super) const DUE_JOBS: &str = "
SELECT event_id, due_at, priority, crashes, ordering_key IS NULL
    OR NOT EXISTS (
            SELECT 1 FROM jobs AS earlier
            WHERE earlier.handler = $1 AND earlier.ordering_key = jobs.ordering_key
              AND earlier.event_id < jobs.event_id AND earlier.finished_at IS NULL)
        AND NOT ($6 AND EXISTS (
            SELECT 1 FROM jobs AS dead
            WHERE dead.handler = $1 AND dead.ordering_key = jobs.ordering_key
              AND dead.event_id < jobs.event_id AND dead.state = 'dead_letter')) AS is_ready
FROM jobs
WHERE handler = $1 AND state = 'pending' AND finished_at IS NULL AND (due_at, event_id) > ($2, $3) AND due_at <= $4
ORDER BY due_at, event_id LIMIT $5
";

pub(super) async fn due_jobs(readers: &SqlitePool, due: &DueJobs<'_>) -> Result<Vec<DueJob>, Error> {
    let rows = sqlx::query(DUE_JOBS)
        .bind(due.handler.as_str())
        .bind(due.after.map_or(i64::MIN, |place| micros(place.due_at)))
        .bind(due.after.map_or(Uuid::nil(), |place| place.event.0))
        .bind(now())
        .bind(due.limit)
        .bind(due.ordering == Some(DeadLetters::Block))
        .fetch_all(readers)
        .await?;
    rows.iter().map(due_job).collect()
}

fn due_job(row: &SqliteRow) -> Result<DueJob, Error> {
    Ok(DueJob {
        place: DuePlace { due_at: time(row.try_get("due_at")?)?, event: EventId(row.try_get("event_id")?) },
        priority: word(row.try_get("priority")?)?,
        crashes: row.try_get("crashes")?,
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
    SELECT min(handler) FROM jobs WHERE finished_at IS NULL
    UNION ALL
    SELECT (SELECT min(handler) FROM jobs WHERE handler > name AND finished_at IS NULL)
    FROM handlers WHERE name IS NOT NULL
)
SELECT name, (SELECT min(due_at) FROM jobs
              WHERE handler = name AND state = 'pending' AND finished_at IS NULL AND due_at <= $1) AS oldest
FROM handlers WHERE name IS NOT NULL AND oldest IS NOT NULL
";

const REPLAYED: &str = "SELECT coalesce(sum(jobs), 0) FROM audit WHERE action = 'replay'";

pub(super) async fn backlog(readers: &SqlitePool) -> Result<Backlog, Error> {
    let now = now();
    let counts = sqlx::query(COUNT).fetch_all(readers).await?;
    let count = |row: &SqliteRow| Ok((row.try_get(0)?, word(row.try_get(1)?)?, row.try_get(2)?));
    let oldest = sqlx::query(OLDEST_DUE).bind(now).fetch_all(readers).await?;
    let age = |row: &SqliteRow| Ok((row.try_get(0)?, Duration::from_micros(now.abs_diff(row.try_get(1)?))));
    Ok(Backlog {
        jobs: counts.iter().map(count).collect::<Result<_, Error>>()?,
        oldest_due: oldest.iter().map(age).collect::<Result<_, Error>>()?,
        replayed: sqlx::query(REPLAYED).fetch_one(readers).await?.try_get(0)?,
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
