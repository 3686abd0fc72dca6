//! What operators do to jobs: replay, resolve, move.

use hookfast_webhook::EventId;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Error, Row};
use time::OffsetDateTime;

use super::work::column;
use crate::operate::MOVED;
use crate::{Act, JobId, NewJob, Resolution, Step};

/// Does a part of an act and notes it in the audit; nothing if there is no such audit.
pub(super) async fn act(connection: &mut PgConnection, step: &Step<'_>) -> Result<Option<u64>, Error> {
    let mut transaction = connection.begin().await?;
    let changed = match step.act {
        Act::Replay { jobs, force_effects } => replay(&mut transaction, jobs, force_effects, step.as_of).await?,
        Act::Resolve { jobs, resolution } => resolve(&mut transaction, jobs, resolution, step.as_of).await?,
        Act::Move { jobs } => {
            let jobs: Vec<_> = jobs.iter().map(|(old, new)| (old, Some(new))).collect();
            abandon(&mut transaction, &jobs, MOVED).await?
        }
        Act::Abandon { jobs, resolution } => {
            let jobs: Vec<_> = jobs.iter().map(|job| (job, None)).collect();
            abandon(&mut transaction, &jobs, resolution.as_str()).await?
        }
    };
    let noted = sqlx::query(
        "UPDATE audit SET jobs = jobs + $2, next_after = CASE WHEN $4 THEN NULL ELSE $3 END, is_done = $4
         WHERE id = $1",
    )
    .bind(step.audit)
    .bind(i64::try_from(changed).unwrap_or(i64::MAX))
    .bind(step.next_after.map(|event| event.0))
    .bind(step.is_last)
    .execute(&mut *transaction)
    .await?;
    if noted.rows_affected() == 0 {
        return transaction.rollback().await.map(|()| None);
    }
    transaction.commit().await?;
    Ok(Some(changed))
}

/// In one order, or two operators with the same jobs could wait for each other.
const REPLAY: &str = "
WITH replayed AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT DISTINCT ON (event_id, handler) wanted.*, clock_timestamp()
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
        AS wanted (event_id, handler, priority, ordering_key)
    WHERE EXISTS (SELECT FROM events WHERE events.id = wanted.event_id)
    ORDER BY event_id, handler
    ON CONFLICT (event_id, handler) DO UPDATE SET state = 'pending', attempts = 0, crashes = 0, interruptions = 0,
        token = NULL, worker = NULL, claimed_at = NULL, reason = NULL, finished_at = NULL, due_at = excluded.due_at
    WHERE jobs.state IN ('dead_letter', 'succeeded', 'resolved')
        AND ($6::timestamptz IS NULL OR jobs.finished_at <= $6)
    RETURNING event_id, handler
), forgotten AS (
    DELETE FROM effects USING replayed
    WHERE $5 AND effects.event_id = replayed.event_id AND effects.handler = replayed.handler
)
SELECT count(*) FROM replayed
";

async fn replay(
    transaction: &mut PgConnection,
    jobs: &[(EventId, NewJob)],
    force_effects: bool,
    as_of: Option<OffsetDateTime>,
) -> Result<u64, Error> {
    let row = sqlx::query(REPLAY)
        .bind(column(jobs, |(event, _)| event.0))
        .bind(column(jobs, |(_, job)| job.handler.as_str()))
        .bind(column(jobs, |(_, job)| job.priority.as_str()))
        .bind(column(jobs, |(_, job)| job.ordering_key.as_deref()))
        .bind(force_effects)
        .bind(as_of)
        .fetch_one(transaction)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

const RESOLVE: &str = "
WITH dead AS (
    SELECT jobs.event_id, jobs.handler
    FROM unnest($1::uuid[], $2::text[]) AS wanted (event_id, handler) JOIN jobs USING (event_id, handler)
    WHERE jobs.state = 'dead_letter' AND ($4::timestamptz IS NULL OR jobs.finished_at <= $4)
    ORDER BY jobs.event_id, jobs.handler
    FOR UPDATE OF jobs
), resolved AS (
    UPDATE jobs SET state = 'resolved', reason = $3, finished_at = clock_timestamp()
    FROM dead
    WHERE jobs.event_id = dead.event_id AND jobs.handler = dead.handler
    RETURNING jobs.event_id, jobs.handler, jobs.ordering_key
), next_in_line AS (
    UPDATE jobs SET due_at = clock_timestamp()
    FROM resolved CROSS JOIN LATERAL (
        SELECT behind.event_id FROM jobs AS behind
        WHERE behind.handler = resolved.handler AND behind.ordering_key = resolved.ordering_key
            AND behind.event_id > resolved.event_id AND behind.state = 'pending' AND behind.finished_at IS NULL
        ORDER BY behind.event_id LIMIT 1
    ) AS next
    WHERE jobs.event_id = next.event_id AND jobs.handler = resolved.handler AND jobs.state = 'pending'
)
SELECT count(*) FROM resolved
";

async fn resolve(
    transaction: &mut PgConnection,
    jobs: &[JobId],
    resolution: Resolution,
    as_of: Option<OffsetDateTime>,
) -> Result<u64, Error> {
    let row = sqlx::query(RESOLVE)
        .bind(column(jobs, |job| job.event.0))
        .bind(column(jobs, |job| job.handler.as_str()))
        .bind(resolution.as_str())
        .bind(as_of)
        .fetch_one(transaction)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

/// A job whose lease has ended has no worker any more.
const ABANDON: &str = "
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
        AS wanted (event_id, handler, new_handler, new_priority, new_key)
), free AS (
    SELECT wanted.*
    FROM wanted JOIN jobs USING (event_id, handler)
    WHERE jobs.state IN ('pending', 'failed') OR (jobs.state = 'processing' AND jobs.due_at <= clock_timestamp())
    ORDER BY jobs.event_id, jobs.handler
    FOR UPDATE OF jobs
), abandoned AS (
    UPDATE jobs SET state = 'resolved', reason = $6, finished_at = clock_timestamp(), token = NULL, worker = NULL,
        claimed_at = NULL
    FROM free
    WHERE jobs.event_id = free.event_id AND jobs.handler = free.handler
    RETURNING jobs.event_id
), made AS (
    INSERT INTO jobs (event_id, handler, priority, ordering_key, due_at)
    SELECT event_id, new_handler, new_priority, new_key, clock_timestamp() FROM free WHERE new_handler IS NOT NULL
    ORDER BY event_id, new_handler
    ON CONFLICT (event_id, handler) DO NOTHING
)
SELECT count(*) FROM abandoned
";

async fn abandon(
    transaction: &mut PgConnection,
    jobs: &[(&JobId, Option<&NewJob>)],
    reason: &str,
) -> Result<u64, Error> {
    let row = sqlx::query(ABANDON)
        .bind(column(jobs, |(old, _)| old.event.0))
        .bind(column(jobs, |(old, _)| old.handler.as_str()))
        .bind(column(jobs, |(_, new)| new.map(|new| new.handler.as_str())))
        .bind(column(jobs, |(_, new)| new.map(|new| new.priority.as_str())))
        .bind(column(jobs, |(_, new)| new.and_then(|new| new.ordering_key.as_deref())))
        .bind(reason)
        .fetch_one(transaction)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}
