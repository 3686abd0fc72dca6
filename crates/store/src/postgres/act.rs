//! What operators do to jobs: replay, resolve, move.

use hookfast_webhook::EventId;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Error, Row};

use super::work::column;
use crate::{Act, JobId, NewJob, Resolution, Step};

/// Does a part of an act and notes it in the audit; nothing if there is no such audit.
pub(super) async fn act(connection: &mut PgConnection, step: &Step<'_>) -> Result<Option<u64>, Error> {
    let mut transaction = connection.begin().await?;
    let changed = match step.act {
        Act::Replay { jobs, force_effects } => replay(&mut transaction, step, jobs, force_effects).await?,
        Act::Resolve { jobs, resolution } => resolve(&mut transaction, step, jobs, resolution).await?,
        Act::Reopen { jobs } => reopen(&mut transaction, step, jobs).await?,
        Act::Move { jobs } => {
            let jobs: Vec<_> = jobs.iter().map(|(old, new)| (old, Some(new))).collect();
            abandon(&mut transaction, step, &jobs, Resolution::Moved).await?
        }
        Act::Abandon { jobs, resolution } => {
            let jobs: Vec<_> = jobs.iter().map(|job| (job, None)).collect();
            abandon(&mut transaction, step, &jobs, resolution).await?
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
        token = NULL, worker = NULL, claimed_at = NULL, reason = NULL, finished_at = NULL, due_at = excluded.due_at,
        (resolution, reviewed_at, reviewed_by, note, audit_id) = (
            SELECT 'retried', excluded.due_at, who, why, id FROM audit WHERE id = $7 AND jobs.state <> 'succeeded')
    WHERE jobs.state IN ('dead_letter', 'succeeded', 'resolved')
        AND ($6::timestamptz IS NULL OR greatest(jobs.finished_at, jobs.reviewed_at) <= $6)
    RETURNING event_id, handler
), forgotten AS (
    DELETE FROM effects USING replayed
    WHERE $5 AND effects.event_id = replayed.event_id AND effects.handler = replayed.handler
)
SELECT count(*) FROM replayed
";

async fn replay(
    transaction: &mut PgConnection,
    step: &Step<'_>,
    jobs: &[(EventId, NewJob)],
    force_effects: bool,
) -> Result<u64, Error> {
    let row = sqlx::query(REPLAY)
        .bind(column(jobs, |(event, _)| event.0))
        .bind(column(jobs, |(_, job)| job.handler.as_str()))
        .bind(column(jobs, |(_, job)| job.priority.as_str()))
        .bind(column(jobs, |(_, job)| job.ordering_key.as_deref()))
        .bind(force_effects)
        .bind(step.as_of)
        .bind(step.audit)
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
    UPDATE jobs SET state = 'resolved', resolution = $3, reviewed_at = clock_timestamp(), reviewed_by = who, note = why,
        audit_id = audit.id
    FROM dead CROSS JOIN audit
    WHERE audit.id = $5 AND jobs.event_id = dead.event_id AND jobs.handler = dead.handler
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
    step: &Step<'_>,
    jobs: &[JobId],
    resolution: Resolution,
) -> Result<u64, Error> {
    let row = sqlx::query(RESOLVE)
        .bind(column(jobs, |job| job.event.0))
        .bind(column(jobs, |job| job.handler.as_str()))
        .bind(resolution.as_str())
        .bind(step.as_of)
        .bind(step.audit)
        .fetch_one(transaction)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

/// What earlier versions resolved has the resolution in place of the reason, and when it died is not known any more.
const REOPEN: &str = "
WITH resolved AS (
    SELECT jobs.event_id, jobs.handler
    FROM unnest($1::uuid[], $2::text[]) AS wanted (event_id, handler) JOIN jobs USING (event_id, handler)
    WHERE jobs.state = 'resolved' AND coalesce(jobs.resolution, jobs.reason) <> 'moved'
        AND ($3::timestamptz IS NULL OR coalesce(jobs.reviewed_at, jobs.finished_at) <= $3)
    ORDER BY jobs.event_id, jobs.handler
    FOR UPDATE OF jobs
)
UPDATE jobs SET state = 'dead_letter', resolution = NULL, reviewed_at = NULL, reviewed_by = NULL, note = NULL,
    audit_id = NULL, reason = CASE WHEN reason IN ('ignored', 'manual_fix') THEN NULL ELSE reason END
FROM resolved
WHERE jobs.event_id = resolved.event_id AND jobs.handler = resolved.handler
";

async fn reopen(transaction: &mut PgConnection, step: &Step<'_>, jobs: &[JobId]) -> Result<u64, Error> {
    let reopened = sqlx::query(REOPEN)
        .bind(column(jobs, |job| job.event.0))
        .bind(column(jobs, |job| job.handler.as_str()))
        .bind(step.as_of)
        .execute(transaction)
        .await?;
    Ok(reopened.rows_affected())
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
    UPDATE jobs SET state = 'resolved', resolution = $6, reviewed_at = clock_timestamp(), reviewed_by = who, note = why,
        audit_id = audit.id, finished_at = clock_timestamp(), token = NULL, worker = NULL, claimed_at = NULL
    FROM free CROSS JOIN audit
    WHERE audit.id = $7 AND jobs.event_id = free.event_id AND jobs.handler = free.handler
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
    step: &Step<'_>,
    jobs: &[(&JobId, Option<&NewJob>)],
    resolution: Resolution,
) -> Result<u64, Error> {
    let row = sqlx::query(ABANDON)
        .bind(column(jobs, |(old, _)| old.event.0))
        .bind(column(jobs, |(old, _)| old.handler.as_str()))
        .bind(column(jobs, |(_, new)| new.map(|new| new.handler.as_str())))
        .bind(column(jobs, |(_, new)| new.map(|new| new.priority.as_str())))
        .bind(column(jobs, |(_, new)| new.and_then(|new| new.ordering_key.as_deref())))
        .bind(resolution.as_str())
        .bind(step.audit)
        .fetch_one(transaction)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}
