//! What operators do to jobs: replay, resolve, move.

use std::collections::HashSet;
use std::sync::LazyLock;

use hookfast_webhook::EventId;
use sqlx::Error;
use sqlx::sqlite::SqliteConnection;

use super::moment::{micros, now};
use super::rows::{ManyRows, Values};
use super::work::job;
use crate::{Act, JobId, NewJob, Resolution, Step};

pub(super) static REPLAY: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT INTO jobs (event_id, handler, due_at, priority, ordering_key, audit_id)
         SELECT column1, column2, column3, column4, column5, column7 FROM {rows}
         WHERE EXISTS (SELECT 1 FROM events WHERE id = column1)
             AND NOT EXISTS (SELECT 1 FROM jobs AS later
                             WHERE later.event_id = column1 AND later.handler = column2 
                                 AND max(later.finished_at, coalesce(later.reviewed_at, 0)) > column6)
         ON CONFLICT (event_id, handler) DO UPDATE
         SET state = 'pending', attempts = 0, crashes = 0, interruptions = 0, due_at = excluded.due_at,
             token = NULL, worker = NULL, claimed_at = NULL, reason = NULL, finished_at = NULL,
             resolution = iif(jobs.state = 'succeeded', NULL, 'retried'),
             reviewed_at = iif(jobs.state = 'succeeded', NULL, excluded.due_at),
             reviewed_by = iif(jobs.state = 'succeeded', NULL, (SELECT who FROM audit WHERE id = excluded.audit_id)),
             note = iif(jobs.state = 'succeeded', NULL, (SELECT why FROM audit WHERE id = excluded.audit_id)),
             audit_id = iif(jobs.state = 'succeeded', NULL, excluded.audit_id)
         WHERE jobs.state IN ('dead_letter', 'succeeded', 'resolved')
         RETURNING event_id, handler",
        7,
    )
});

pub(super) static FORGET_EFFECTS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new("DELETE FROM effects WHERE (event_id, handler) IN (SELECT column1, column2 FROM {rows})", 2)
});

pub(super) static RESOLVE: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET state = 'resolved', resolution = column3, reviewed_at = column4, audit_id = column6,
                         reviewed_by = (SELECT who FROM audit WHERE id = column6),
                         note = (SELECT why FROM audit WHERE id = column6)
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2 AND jobs.state = 'dead_letter'
             AND (column5 IS NULL OR jobs.finished_at <= column5)
         RETURNING event_id, handler",
        6,
    )
});

/// Those that waited behind a resolved job are not to wait for the sweeper's next round as well.
///
/// SQLite takes a partial index only if every condition of the index stands in the statement.
pub(super) static NEXT_IN_LINE: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
         WHERE state = 'pending' AND (event_id, handler) IN (
             SELECT (SELECT behind.event_id FROM jobs AS behind
                     WHERE behind.handler = resolved.handler AND behind.ordering_key = resolved.ordering_key
                         AND behind.event_id > resolved.event_id AND behind.ordering_key IS NOT NULL
                         AND behind.state <> 'succeeded' AND behind.state <> 'resolved'
                         AND behind.finished_at IS NULL AND behind.state = 'pending'
                     ORDER BY behind.event_id LIMIT 1), resolved.handler
             FROM {rows} CROSS JOIN jobs AS resolved
             WHERE resolved.event_id = column1 AND resolved.handler = column2)",
        2,
    )
});

/// A job whose lease has ended has no worker any more.
pub(super) static ABANDON: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET state = 'resolved', resolution = column3, reviewed_at = column4, audit_id = column5,
                         reviewed_by = (SELECT who FROM audit WHERE id = column5),
                         note = (SELECT why FROM audit WHERE id = column5),
                         finished_at = column4, token = NULL, worker = NULL, claimed_at = NULL
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2
             AND (jobs.state = 'pending' OR jobs.state = 'failed'
                  OR (jobs.state = 'processing' AND jobs.due_at <= column4))
         RETURNING event_id, handler",
        5,
    )
});

/// What earlier versions resolved has the resolution in place of the reason, and when it died is not known any more.
pub(super) static REOPEN: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "UPDATE jobs SET state = 'dead_letter', resolution = NULL, reviewed_at = NULL, reviewed_by = NULL, note = NULL,
                         audit_id = NULL, reason = iif(reason = 'ignored' OR reason = 'manual_fix', NULL, reason)
         FROM {rows}
         WHERE jobs.event_id = +column1 AND jobs.handler = +column2 AND jobs.state = 'resolved'
             AND coalesce(jobs.resolution, jobs.reason) <> 'moved'
             AND (column3 IS NULL OR coalesce(jobs.reviewed_at, jobs.finished_at) <= column3)",
        3,
    )
});

pub(super) static MAKE: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT INTO jobs (event_id, handler, due_at, priority, ordering_key)
         SELECT column1, column2, column3, column4, column5 FROM {rows} WHERE TRUE
         ON CONFLICT (event_id, handler) DO NOTHING",
        5,
    )
});

/// Does a part of an act and says how many jobs it changed; nothing if there is no such act.
pub(super) async fn act(writer: &mut SqliteConnection, step: &Step<'_>) -> Result<Option<u64>, Error> {
    let changed = match step.act {
        Act::Replay { jobs, force_effects } => replay(writer, step, jobs, force_effects).await?,
        Act::Resolve { jobs, resolution } => resolve(writer, step, jobs, resolution).await?,
        Act::Reopen { jobs } => reopen(writer, step, jobs).await?,
        Act::Move { jobs } => move_jobs(writer, step, jobs).await?,
        Act::Abandon { jobs, resolution } => abandon(writer, step, jobs, resolution).await?.len() as u64,
    };
    Ok(note(writer, step, changed).await?.then_some(changed))
}

async fn replay(
    writer: &mut SqliteConnection,
    step: &Step<'_>,
    jobs: &[(EventId, NewJob)],
    force_effects: bool,
) -> Result<u64, Error> {
    let (now, as_of) = (now(), step.as_of.map(micros));
    let bind = |(event, job): &(EventId, NewJob), values: &mut Values| {
        let NewJob { handler, priority, ordering_key } = job;
        values
            .add(event.0)
            .add(handler.as_str())
            .add(now)
            .add(priority.as_str())
            .add(ordering_key.as_deref())
            .add(as_of)
            .add(step.audit);
    };
    let replayed = REPLAY.fetch(writer, jobs, bind).await?;
    let replayed = replayed.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    if force_effects {
        FORGET_EFFECTS.execute(writer, &replayed, bind_id).await?;
    }
    Ok(replayed.len() as u64)
}

async fn resolve(
    writer: &mut SqliteConnection,
    step: &Step<'_>,
    jobs: &[JobId],
    resolution: Resolution,
) -> Result<u64, Error> {
    let (now, as_of) = (now(), step.as_of.map(micros));
    let bind = |job: &JobId, values: &mut Values| {
        bind_id(job, values);
        values.add(resolution.as_str()).add(now).add(as_of).add(step.audit);
    };
    let resolved = RESOLVE.fetch(writer, jobs, bind).await?;
    let resolved = resolved.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    NEXT_IN_LINE.execute(writer, &resolved, bind_id).await?;
    Ok(resolved.len() as u64)
}

async fn reopen(writer: &mut SqliteConnection, step: &Step<'_>, jobs: &[JobId]) -> Result<u64, Error> {
    let as_of = step.as_of.map(micros);
    let bind = |job: &JobId, values: &mut Values| {
        bind_id(job, values);
        values.add(as_of);
    };
    REOPEN.execute(writer, jobs, bind).await
}

/// Gives those that no worker had.
async fn abandon<'j>(
    writer: &mut SqliteConnection,
    step: &Step<'_>,
    jobs: impl IntoIterator<Item = &'j JobId>,
    resolution: Resolution,
) -> Result<HashSet<JobId>, Error> {
    let now = now();
    let bind = |job: &&JobId, values: &mut Values| {
        bind_id(job, values);
        values.add(resolution.as_str()).add(now).add(step.audit);
    };
    let jobs: Vec<_> = jobs.into_iter().collect();
    ABANDON.fetch(writer, &jobs, bind).await?.iter().map(job).collect()
}

async fn move_jobs(writer: &mut SqliteConnection, step: &Step<'_>, jobs: &[(JobId, NewJob)]) -> Result<u64, Error> {
    let moved = abandon(writer, step, jobs.iter().map(|(job, _)| job), Resolution::Moved).await?;
    let now = now();
    let bind = |(old, new): &&(JobId, NewJob), values: &mut Values| {
        let NewJob { handler, priority, ordering_key } = new;
        values.add(old.event.0).add(handler.as_str()).add(now).add(priority.as_str()).add(ordering_key.as_deref());
    };
    let made: Vec<_> = jobs.iter().filter(|(job, _)| moved.contains(job)).collect();
    MAKE.execute(writer, &made, bind).await?;
    Ok(moved.len() as u64)
}

fn bind_id(job: &JobId, values: &mut Values) {
    values.add(job.event.0).add(job.handler.as_str());
}

/// Notes a step, and says whether there is such an act.
async fn note(writer: &mut SqliteConnection, step: &Step<'_>, changed: u64) -> Result<bool, Error> {
    let noted =
        sqlx::query("UPDATE audit SET jobs = jobs + $2, next_after = iif($4, NULL, $3), is_done = $4 WHERE id = $1")
            .bind(step.audit)
            .bind(changed.cast_signed())
            .bind(step.next_after.map(|event| event.0))
            .bind(step.is_last)
            .execute(writer)
            .await?;
    Ok(noted.rows_affected() == 1)
}
