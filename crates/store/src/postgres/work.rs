//! A worker's verbs: claim, settle, renew, pardon, hand back. Each is one statement for all its jobs, with two
//! exceptions: a claim with ordering takes a lock first, in one transaction with the claim, and handing back first waits
//! for other transactions.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{EventId, FailureKind};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Error, Row};
use uuid::Uuid;

use crate::decode::{handler, word};
use crate::large_body::size_bytes;
use crate::work::LOST_LEASE;
use crate::{
    Claim, Claimed, ClaimedEvent, DeadLetters, JobId, LostRun, Ready, Renewed, Settled, Settlement, StoredHeaders,
    Token,
};

/// A claim, with `$order` for what else must be so before it is a job's turn.
/// It waits for jobs that another claim or the sweeper has locked, which is short. It does not skip locked jobs: a
/// skipped job would stay pending and lose its hint, and the queue would refuse the sweeper's hint as a double. Two
/// claims of the same jobs lock them in the order of the index or of the table. If they wait for each other all the same,
/// Postgres ends one of them, and its hints come again.
///
/// `OFFSET 0` has Postgres look up the head of each event by its key. Otherwise it may go through all heads to join them.
macro_rules! claim {
    ($order:literal) => {
        concat!(
            "
WITH claimed AS (
    UPDATE jobs SET state = 'processing', attempts = attempts + 1, token = $3, worker = $4,
        claimed_at = clock_timestamp(), due_at = clock_timestamp() + make_interval(secs => $5)
    WHERE event_id = ANY($1) AND handler = $2 AND state = 'pending' AND crashes < $6",
            $order,
            "
    RETURNING event_id, attempts, crashes, interruptions
)
SELECT claimed.*, source, dedupe_key, event_type, account, object_id, occurred_at, received_at, proof,
    coalesce(head.url, events.url) AS url, coalesce(head.headers, events.headers) AS headers,
    size.size_bytes, CASE WHEN size.size_bytes <= $7 THEN body END AS body
FROM claimed JOIN events ON events.id = claimed.event_id
CROSS JOIN LATERAL (SELECT ",
            size_bytes!(),
            " AS size_bytes) AS size
LEFT JOIN LATERAL (
    SELECT url, headers FROM request_heads WHERE request_id = events.request_id OFFSET 0
) AS head ON true
ORDER BY claimed.event_id
"
        )
    };
}

const CLAIM: &str = claim!("");

/// Only the first unfinished job of a key, and only if none of that key is running: an event with a smaller id may become
/// visible late. Each question has its index: a key may have a long backlog and many dead letters.
const CLAIM_IN_ORDER: &str = claim!(
    "
        AND (jobs.ordering_key IS NULL
            OR NOT EXISTS (
                    SELECT FROM jobs AS earlier
                    WHERE earlier.handler = jobs.handler AND earlier.ordering_key = jobs.ordering_key
                        AND earlier.event_id < jobs.event_id AND earlier.finished_at IS NULL)
                AND NOT ($8 AND EXISTS (
                    SELECT FROM jobs AS dead
                    WHERE dead.handler = jobs.handler AND dead.ordering_key = jobs.ordering_key
                        AND dead.event_id < jobs.event_id AND dead.state = 'dead_letter'))
                AND NOT EXISTS (
                    SELECT FROM jobs AS held
                    WHERE held.handler = jobs.handler AND held.ordering_key = jobs.ordering_key
                        AND held.state = 'processing'))"
);

/// Ordered claims of one handler come one after the other. In a statement of its own, so that the claim sees all that the
/// one before it did.
const TAKE_TURNS: &str = "SELECT pg_advisory_xact_lock(hashtextextended('hookfast claim ' || $1, 0))";

pub(super) async fn claim(connection: &mut PgConnection, claim: &Claim<'_>) -> Result<Vec<Claimed>, Error> {
    let statement = if claim.ordering.is_some() { CLAIM_IN_ORDER } else { CLAIM };
    let mut query = sqlx::query(statement)
        .bind(claim.events.iter().map(|event| event.0).collect::<Vec<_>>())
        .bind(claim.handler.as_str())
        .bind(claim.token.0)
        .bind(claim.worker)
        .bind(claim.lease.as_secs_f64())
        .bind(claim.crashes_below.map_or(i32::MAX, |crashes| i32::try_from(crashes).unwrap_or(i32::MAX)))
        .bind(i32::try_from(Claimed::BODY_BYTES).unwrap_or(i32::MAX));
    let rows = match claim.ordering {
        None => query.fetch_all(connection).await?,
        Some(dead_letters) => {
            query = query.bind(dead_letters == DeadLetters::Block);
            let mut transaction = connection.begin().await?;
            sqlx::query(TAKE_TURNS).bind(claim.handler.as_str()).execute(&mut *transaction).await?;
            let rows = query.fetch_all(&mut *transaction).await?;
            transaction.commit().await?;
            rows
        }
    };
    rows.iter().map(|row| claimed(row, claim)).collect()
}

fn claimed(row: &PgRow, claim: &Claim<'_>) -> Result<Claimed, Error> {
    Ok(Claimed {
        job: JobId { event: EventId(row.try_get("event_id")?), handler: claim.handler.clone() },
        token: claim.token,
        attempt: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        crashes: row.try_get::<i32, _>("crashes")?.unsigned_abs(),
        interruptions: row.try_get::<i32, _>("interruptions")?.unsigned_abs(),
        event: ClaimedEvent {
            source: row.try_get("source")?,
            dedupe_key: row.try_get("dedupe_key")?,
            event_type: row.try_get("event_type")?,
            account: row.try_get("account")?,
            object_id: row.try_get("object_id")?,
            occurred_at: row.try_get("occurred_at")?,
            received_at: row.try_get("received_at")?,
            proof: word(row.try_get("proof")?)?,
            url: row.try_get("url")?,
            headers: StoredHeaders(row.try_get("headers")?),
            size_bytes: usize::try_from(row.try_get::<i64, _>("size_bytes")?).unwrap_or_default(),
            body: row.try_get::<Option<Vec<u8>>, _>("body")?.map(Bytes::from),
        },
    })
}

/// `settled` carries what the history needs, because a join of two lists that Postgres knows nothing about can be slow.
const SETTLE: &str = "
WITH settled AS (
    UPDATE jobs SET state = run.state, reason = run.failure, token = NULL, worker = NULL, claimed_at = NULL,
        attempts = CASE WHEN run.counts THEN jobs.attempts ELSE jobs.attempts - 1 END,
        crashes = CASE WHEN run.counts THEN 0 ELSE jobs.crashes END,
        interruptions = CASE WHEN run.counts THEN 0 WHEN run.is_interrupted_by_store THEN jobs.interruptions + 1
                             ELSE jobs.interruptions END,
        due_at = coalesce(clock_timestamp() + make_interval(secs => run.retry_in), jobs.due_at),
        finished_at = CASE WHEN run.state <> 'failed' THEN clock_timestamp() END
    FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::float8[],
                $9::int[], $10::timestamptz[], $11::bigint[], $12::text[], $13::boolean[])
        AS run (event_id, handler, token, state, failure, message, counts, retry_in,
                number, started_at, duration_us, worker, is_interrupted_by_store)
    WHERE jobs.event_id = run.event_id AND jobs.handler = run.handler AND jobs.token = run.token
        AND jobs.state = 'processing'
    RETURNING run.*, jobs.ordering_key
), history AS (
    INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
    SELECT event_id, handler, number, started_at, duration_us, failure, message, worker FROM settled
)
SELECT settled.event_id, settled.handler, next.event_id AS next_event_id, next.priority AS next_priority
FROM settled LEFT JOIN LATERAL (
    SELECT behind.event_id, behind.priority FROM jobs AS behind
    WHERE behind.handler = settled.handler AND behind.ordering_key = settled.ordering_key
        AND behind.finished_at IS NULL AND behind.state = 'pending'
        AND settled.state <> 'failed'
    ORDER BY behind.event_id LIMIT 1
) AS next ON true
";

pub(super) async fn settle(connection: &mut PgConnection, settlements: &[Settlement]) -> Result<Settled, Error> {
    let rows = sqlx::query(SETTLE)
        .bind(column(settlements, |run| run.job.event.0))
        .bind(column(settlements, |run| run.job.handler.as_str()))
        .bind(column(settlements, |run| run.token.0))
        .bind(column(settlements, |run| run.outcome.state().as_str()))
        .bind(column(settlements, |run| run.outcome.failure().map(FailureKind::as_str)))
        .bind(column(settlements, |run| run.outcome.message()))
        .bind(column(settlements, |run| run.outcome.counts()))
        .bind(column(settlements, |run| run.outcome.retry_in().map(|wait| wait.as_secs_f64())))
        .bind(column(settlements, |run| i32::try_from(run.attempt).unwrap_or(i32::MAX)))
        .bind(column(settlements, |run| run.started_at))
        .bind(column(settlements, |run| i64::try_from(run.duration.as_micros()).unwrap_or(i64::MAX)))
        .bind(column(settlements, |run| &*run.worker))
        .bind(column(settlements, |run| run.outcome.is_interrupted_by_store()))
        .fetch_all(connection)
        .await?;

    let settled: HashSet<(Uuid, &str)> =
        rows.iter().map(|row| Ok((row.try_get("event_id")?, row.try_get("handler")?))).collect::<Result<_, Error>>()?;
    let is_stale = |run: &&Settlement| !settled.contains(&(run.job.event.0, run.job.handler.as_str()));
    Ok(Settled {
        stale: settlements.iter().filter(is_stale).map(|run| run.job.clone()).collect(),
        next: rows.iter().filter_map(|row| next(row).transpose()).collect::<Result<_, _>>()?,
    })
}

/// The job behind a settled one, if there is one.
fn next(row: &PgRow) -> Result<Option<Ready>, Error> {
    let Some(event_id) = row.try_get("next_event_id")? else { return Ok(None) };
    let job = JobId { event: EventId(event_id), handler: handler(row.try_get("handler")?)? };
    Ok(Some(Ready { job, priority: word(row.try_get("next_priority")?)? }))
}

/// One value of every row, as an array to bind.
pub(super) fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// Skips a job whose row an effect of its own run has locked, and returns it in `passed_over`. The sweeper skips the job,
/// too, for as long as the effect has the lock.
const RENEW: &str = "
WITH held AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS held (event_id, handler, token)
), mine AS (
    SELECT jobs.event_id, jobs.handler FROM held JOIN jobs USING (event_id, handler)
    WHERE jobs.token = held.token AND jobs.state = 'processing'
    FOR UPDATE OF jobs SKIP LOCKED
), renewed AS (
    UPDATE jobs SET due_at = clock_timestamp() + make_interval(secs => $4)
    FROM mine
    WHERE jobs.event_id = mine.event_id AND jobs.handler = mine.handler
)
SELECT event_id, handler, EXISTS (
    SELECT FROM jobs
    WHERE jobs.event_id = held.event_id AND jobs.handler = held.handler AND jobs.token = held.token
        AND jobs.state = 'processing'
) AS is_mine
FROM held
WHERE NOT EXISTS (SELECT FROM mine WHERE mine.event_id = held.event_id AND mine.handler = held.handler)
";

pub(super) async fn renew(
    connection: &mut PgConnection,
    jobs: &[(JobId, Token)],
    lease: Duration,
) -> Result<Renewed, Error> {
    let rows = sqlx::query(RENEW)
        .bind(column(jobs, |(job, _)| job.event.0))
        .bind(column(jobs, |(job, _)| job.handler.as_str()))
        .bind(column(jobs, |(_, token)| token.0))
        .bind(lease.as_secs_f64())
        .fetch_all(connection)
        .await?;
    let mut renewed = Renewed::default();
    for row in &rows {
        let list = if row.try_get("is_mine")? { &mut renewed.passed_over } else { &mut renewed.lost };
        list.push(job(row)?);
    }
    Ok(renewed)
}

/// The attempt is found by its worker and number. If another worker runs the job by now, only the counts change, and its own
/// attempt stays: an operator's replay may have begun to count anew.
const PARDON: &str = "
WITH pardoned AS (
    UPDATE attempts SET failure = 'interrupted', message = $5
    FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[]) AS run (event_id, handler, number, worker)
    WHERE attempts.event_id = run.event_id AND attempts.handler = run.handler AND attempts.number = run.number
        AND attempts.worker = run.worker AND attempts.failure = 'crash'
    RETURNING attempts.event_id, attempts.handler
)
UPDATE jobs SET crashes = greatest(crashes - 1, 0),
    attempts = greatest(attempts - 1, CASE WHEN state = 'processing' THEN 1 ELSE 0 END),
    state = CASE WHEN state = 'dead_letter' THEN 'pending' ELSE state END,
    due_at = CASE WHEN state = 'dead_letter' THEN clock_timestamp() ELSE due_at END,
    reason = CASE WHEN state = 'dead_letter' THEN NULL ELSE reason END,
    finished_at = CASE WHEN state = 'dead_letter' THEN NULL ELSE finished_at END
FROM pardoned
WHERE jobs.event_id = pardoned.event_id AND jobs.handler = pardoned.handler
    AND (finished_at IS NULL OR state = 'dead_letter' AND reason = 'crash')
";

pub(super) async fn pardon(connection: &mut PgConnection, runs: &[LostRun]) -> Result<(), Error> {
    sqlx::query(PARDON)
        .bind(column(runs, |run| run.job.event.0))
        .bind(column(runs, |run| run.job.handler.as_str()))
        .bind(column(runs, |run| i32::try_from(run.attempt).unwrap_or(i32::MAX)))
        .bind(column(runs, |run| &*run.worker))
        .bind(LOST_LEASE)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) fn job(row: &PgRow) -> Result<JobId, Error> {
    Ok(JobId { event: EventId(row.try_get("event_id")?), handler: handler(row.try_get("handler")?)? })
}

/// A claim whose answer was lost may be about to commit. An update that began before that commit would skip its rows.
const WAIT_FOR_OTHERS: &str = "
SELECT 1 FROM jobs JOIN unnest($1::uuid[], $2::text[]) AS held (event_id, handler) USING (event_id, handler)
ORDER BY jobs.event_id, jobs.handler FOR UPDATE OF jobs
";

const HAND_BACK: &str = "
UPDATE jobs SET state = 'pending', attempts = attempts - 1, token = NULL, worker = NULL, claimed_at = NULL,
    due_at = clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS held (event_id, handler, token)
WHERE jobs.event_id = held.event_id AND jobs.handler = held.handler AND jobs.token = held.token
    AND jobs.state = 'processing'
";

pub(super) async fn hand_back(connection: &mut PgConnection, jobs: &[(JobId, Token)]) -> Result<(), Error> {
    let events: Vec<_> = column(jobs, |(job, _)| job.event.0);
    let handlers: Vec<_> = column(jobs, |(job, _)| job.handler.as_str());
    sqlx::query(WAIT_FOR_OTHERS).bind(&events).bind(&handlers).execute(&mut *connection).await?;
    sqlx::query(HAND_BACK)
        .bind(&events)
        .bind(&handlers)
        .bind(column(jobs, |(_, token)| token.0))
        .execute(connection)
        .await?;
    Ok(())
}
