//! A worker's verbs: claim, settle, renew, pardon, hand back.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{EventId, FailureKind, JobState};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Error, Row};

use super::moment::{after, length, micros, now, time};
use super::rows::{ManyRows, ROWS_MAX, Together, Values, id_list};
use crate::decode::{handler, word};
use crate::large_body::size_bytes;
use crate::work::LOST_LEASE;
use crate::{
    Claim, Claimed, ClaimedEvent, DeadLetters, JobId, LostRun, Ready, Renewed, Settled, Settlement, StoredHeaders,
    Token,
};

/// Two statements as one text, because sqlx hands each text to another thread; they share their values. The first takes
/// what `$candidates` finds, but for those that crashed too often.
macro_rules! claim {
    ($candidates:literal) => {
        concat!(
            "WITH candidates AS MATERIALIZED (",
            $candidates,
            ")
             UPDATE jobs SET state = 'processing', attempts = attempts + 1, token = $3, worker = $4, claimed_at = $5,
                             due_at = $6
             WHERE handler = $1 AND event_id IN (
                 SELECT event_id FROM candidates WHERE crashes < $7);

             SELECT jobs.event_id, jobs.attempts, jobs.crashes, jobs.interruptions, events.source,
                    events.dedupe_key, events.event_type, events.account, events.object_id, events.occurred_at,
                    events.received_at, events.proof, coalesce(head.url, events.url) AS url,
                    coalesce(head.headers, events.headers) AS headers, ",
            size_bytes!(),
            " AS size_bytes, iif(",
            size_bytes!(),
            " <= $8, events.body, NULL) AS body
             FROM jobs CROSS JOIN events ON events.id = jobs.event_id
             LEFT JOIN request_heads AS head ON head.request_id = events.request_id
             WHERE jobs.handler = $1 AND jobs.token = $3 AND jobs.claimed_at = $5
               AND jobs.event_id IN (SELECT unhex(value) FROM json_each($2))
             ORDER BY jobs.event_id"
        )
    };
}

pub(super) const CLAIM: &str = claim!(
    "SELECT event_id, crashes FROM jobs
     WHERE handler = $1 AND state = 'pending' AND event_id IN (SELECT unhex(value) FROM json_each($2))"
);

/// A job's turn: no unfinished job of its key is before it, and no job of its key is running, before it or behind it. An
/// event may become visible after a later one, so a later job may have begun already.
///
/// The states are written as in the partial indexes, or SQLite would not use those.
pub(super) const CLAIM_IN_ORDER: &str = claim!(
    "SELECT event_id, crashes FROM jobs
     WHERE handler = $1 AND state = 'pending' AND event_id IN (SELECT unhex(value) FROM json_each($2))
       AND (ordering_key IS NULL
            OR NOT EXISTS (
                 SELECT 1 FROM jobs AS earlier
                 WHERE earlier.handler = $1 AND earlier.ordering_key = jobs.ordering_key
                   AND earlier.event_id < jobs.event_id AND earlier.finished_at IS NULL)
               AND NOT ($9 AND EXISTS (
                 SELECT 1 FROM jobs AS dead
                 WHERE dead.handler = $1 AND dead.ordering_key = jobs.ordering_key
                   AND dead.event_id < jobs.event_id AND dead.state = 'dead_letter'))
               AND NOT EXISTS (
                 SELECT 1 FROM jobs AS held
                 WHERE held.handler = $1 AND held.ordering_key = jobs.ordering_key AND held.state = 'processing'))"
);

pub(super) async fn claim(writer: &mut SqliteConnection, claim: &Claim<'_>) -> Result<Vec<Claimed>, Error> {
    let statements = if claim.ordering.is_some() { CLAIM_IN_ORDER } else { CLAIM };
    let rows = sqlx::query(statements)
        .bind(claim.handler.as_str())
        .bind(id_list(claim.events))
        .bind(claim.token.0)
        .bind(claim.worker)
        .bind(now())
        .bind(after(claim.lease))
        .bind(claim.crashes_below.map_or(i64::MAX, i64::from))
        .bind(i64::try_from(Claimed::BODY_BYTES).unwrap_or(i64::MAX))
        .bind(claim.ordering == Some(DeadLetters::Block))
        .fetch_all(writer)
        .await?;
    rows.iter().map(|row| claimed(row, claim)).collect()
}

fn claimed(row: &SqliteRow, claim: &Claim<'_>) -> Result<Claimed, Error> {
    Ok(Claimed {
        job: JobId { event: EventId(row.try_get("event_id")?), handler: claim.handler.clone() },
        token: claim.token,
        attempt: row.try_get("attempts")?,
        crashes: row.try_get("crashes")?,
        interruptions: row.try_get("interruptions")?,
        event: ClaimedEvent {
            source: row.try_get("source")?,
            dedupe_key: row.try_get("dedupe_key")?,
            event_type: row.try_get("event_type")?,
            account: row.try_get("account")?,
            object_id: row.try_get("object_id")?,
            occurred_at: row.try_get::<Option<i64>, _>("occurred_at")?.map(time).transpose()?,
            received_at: time(row.try_get("received_at")?)?,
            proof: word(row.try_get("proof")?)?,
            url: row.try_get("url")?,
            headers: StoredHeaders(row.try_get("headers")?),
            size_bytes: usize::try_from(row.try_get::<i64, _>("size_bytes")?).unwrap_or_default(),
            body: row.try_get::<Option<Vec<u8>>, _>("body")?.map(Bytes::from),
        },
    })
}

/// Before the jobs change, because it must see whose they are.
pub(super) static INSERT_ATTEMPTS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
         SELECT column1, column2, column4, column5, column6, column7, column8, column9 FROM {rows} CROSS JOIN jobs
         WHERE jobs.event_id = column1 AND jobs.handler = column2 AND jobs.token = column3
           AND jobs.state = 'processing'",
        9,
    )
});

pub(super) static SETTLE_JOBS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET state = column4, reason = column5, due_at = coalesce(column6, due_at), finished_at = column7,
                         attempts = attempts - NOT column8, crashes = iif(column8, 0, crashes),
                         interruptions = iif(column8, 0, interruptions + column9),
                         token = NULL, worker = NULL, claimed_at = NULL
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2 AND jobs.token = +column3
           AND jobs.state = 'processing'
         RETURNING event_id, handler, state, ordering_key",
        9,
    )
});

pub(super) static BEHIND: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "SELECT jobs.event_id, jobs.handler, jobs.priority FROM {rows} CROSS JOIN jobs
         WHERE jobs.handler = column1
           AND jobs.event_id = (
               SELECT behind.event_id FROM jobs AS behind
               WHERE behind.handler = column1 AND behind.ordering_key = column2
                 AND behind.finished_at IS NULL AND behind.state = 'pending'
               ORDER BY behind.event_id LIMIT 1)",
        2,
    )
});

pub(super) async fn settle(writer: &mut SqliteConnection, settlements: &[Settlement]) -> Result<Settled, Error> {
    let now = now();
    let mut rows = Vec::new();
    for part in settlements.chunks(ROWS_MAX) {
        let statements = Together::default().then_rows(&INSERT_ATTEMPTS, part, bind_attempt).then_rows(
            &SETTLE_JOBS,
            part,
            |settlement, values| bind_settled(settlement, now, values),
        );
        rows.extend(statements.fetch(writer).await?);
    }
    let settled = rows.iter().map(job).collect::<Result<HashSet<_>, _>>()?;
    let jobs = settlements.iter().map(|settlement| &settlement.job);
    let stale = jobs.filter(|job| !settled.contains(job)).cloned().collect();
    Ok(Settled { stale, next: next(writer, &rows).await? })
}

/// The next job of each ordering key of which a job is finished now.
async fn next(writer: &mut SqliteConnection, settled: &[SqliteRow]) -> Result<Vec<Ready>, Error> {
    let mut finished: Vec<(&str, &str)> = Vec::new();
    for row in settled {
        let state: JobState = word(row.try_get("state")?)?;
        if let (Some(key), false) = (row.try_get("ordering_key")?, state.is_unfinished()) {
            finished.push((row.try_get("handler")?, key));
        }
    }
    let bind = |(handler, key): &(&str, &str), values: &mut Values| {
        values.add(*handler).add(*key);
    };
    BEHIND.fetch(writer, &finished, bind).await?.iter().map(ready).collect()
}

fn bind_attempt(settlement: &Settlement, values: &mut Values) {
    bind_held(&settlement.job, settlement.token, values)
        .add(settlement.attempt)
        .add(micros(settlement.started_at))
        .add(length(settlement.duration))
        .add(settlement.outcome.failure().map(FailureKind::as_str))
        .add(settlement.outcome.message())
        .add(&*settlement.worker);
}

fn bind_settled(settlement: &Settlement, now: i64, values: &mut Values) {
    let retry_in = settlement.outcome.retry_in();
    bind_held(&settlement.job, settlement.token, values)
        .add(settlement.outcome.state().as_str())
        .add(settlement.outcome.failure().map(FailureKind::as_str))
        .add(retry_in.map(|wait| now.saturating_add(length(wait))))
        .add(retry_in.is_none().then_some(now))
        .add(settlement.outcome.counts())
        .add(settlement.outcome.is_interrupted_by_store());
}

fn bind_held<'v>(job: &JobId, token: Token, values: &'v mut Values) -> &'v mut Values {
    values.add(job.event.0).add(job.handler.as_str()).add(token.0)
}

pub(super) static RENEW: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET due_at = column4 FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2 AND jobs.token = +column3
           AND jobs.state = 'processing'
         RETURNING event_id, handler",
        4,
    )
});

/// Renews leases. No effect can hold a job meanwhile: there is one writer.
pub(super) async fn renew(
    writer: &mut SqliteConnection,
    jobs: &[(JobId, Token)],
    lease: Duration,
) -> Result<Renewed, Error> {
    let ends = after(lease);
    let bind = |(job, token): &(JobId, Token), values: &mut Values| {
        bind_held(job, *token, values).add(ends);
    };
    let renewed = RENEW.fetch(writer, jobs, bind).await?;
    let renewed = renewed.iter().map(job).collect::<Result<HashSet<_>, _>>()?;
    let lost = jobs.iter().map(|(job, _)| job).filter(|job| !renewed.contains(job)).cloned().collect();
    Ok(Renewed { lost, passed_over: Vec::new() })
}

/// The attempt is found by its worker and number.
pub(super) static PARDON_ATTEMPTS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE attempts SET failure = 'interrupted', message = column5 FROM {rows}
         WHERE attempts.event_id = +column1 AND attempts.handler = +column2 AND attempts.number = +column3
           AND attempts.worker = +column4 AND attempts.failure = 'crash'
         RETURNING event_id, handler",
        5,
    )
});

/// A job that another worker runs by now goes on: only its counts change, and the attempt of that run stays. An operator's
/// replay may have begun to count anew.
pub(super) static PARDON_JOBS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET crashes = max(crashes - 1, 0), attempts = max(attempts - 1, state = 'processing'),
                         due_at = iif(state = 'dead_letter', column3, due_at),
                         reason = iif(state = 'dead_letter', NULL, reason),
                         finished_at = NULL,
                         state = iif(state = 'dead_letter', 'pending', state)
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2
           AND (jobs.finished_at IS NULL OR jobs.state = 'dead_letter' AND jobs.reason = 'crash')",
        3,
    )
});

pub(super) async fn pardon(writer: &mut SqliteConnection, runs: &[LostRun]) -> Result<(), Error> {
    let now = now();
    let bind_attempt = |run: &LostRun, values: &mut Values| {
        values.add(run.job.event.0).add(run.job.handler.as_str()).add(run.attempt).add(&*run.worker).add(LOST_LEASE);
    };
    let pardoned = PARDON_ATTEMPTS.fetch(writer, runs, bind_attempt).await?;
    let pardoned = pardoned.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    let bind_job = |job: &JobId, values: &mut Values| {
        values.add(job.event.0).add(job.handler.as_str()).add(now);
    };
    PARDON_JOBS.execute(writer, &pardoned, bind_job).await.map(drop)
}

pub(super) static HAND_BACK: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET state = 'pending', attempts = attempts - 1, due_at = column4,
                         token = NULL, worker = NULL, claimed_at = NULL
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2 AND jobs.token = +column3
           AND jobs.state = 'processing'",
        4,
    )
});

pub(super) async fn hand_back(writer: &mut SqliteConnection, jobs: &[(JobId, Token)]) -> Result<(), Error> {
    let now = now();
    let bind = |(job, token): &(JobId, Token), values: &mut Values| {
        bind_held(job, *token, values).add(now);
    };
    HAND_BACK.execute(writer, jobs, bind).await.map(|_| ())
}

/// The job that a row is about.
pub(super) fn job(row: &SqliteRow) -> Result<JobId, Error> {
    Ok(JobId { event: EventId(row.try_get("event_id")?), handler: handler(row.try_get("handler")?)? })
}

pub(super) fn ready(row: &SqliteRow) -> Result<Ready, Error> {
    Ok(Ready { job: job(row)?, priority: word(row.try_get("priority")?)? })
}
