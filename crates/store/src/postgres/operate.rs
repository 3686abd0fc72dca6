//! What operators look at: a job's history and the audit.

use std::time::Duration;

use hookfast_webhook::EventId;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Error, Row};
use uuid::Uuid;

use crate::decode::{by_handler, optional_word, word};
use crate::operate::Ended;
use crate::{Attempt, Audit, ByHandler, Effect, Moment};

pub(super) async fn moment(pool: &PgPool) -> Result<Moment, Error> {
    let row = sqlx::query("SELECT clock_timestamp() AS at, (SELECT id FROM events ORDER BY id DESC LIMIT 1) AS last");
    let row = row.fetch_one(pool).await?;
    let last: Option<Uuid> = row.try_get("last")?;
    Ok(Moment { at: row.try_get("at")?, last_event: EventId(last.unwrap_or(Uuid::nil())) })
}

pub(super) async fn attempts(pool: &PgPool, event: EventId) -> Result<ByHandler<Attempt>, Error> {
    let rows = sqlx::query(
        "SELECT handler, number, started_at, duration_us, failure, message, worker FROM attempts
         WHERE event_id = $1 ORDER BY handler, started_at, number",
    )
    .bind(event.0);
    by_handler(&rows.fetch_all(pool).await?, attempt)
}

fn attempt(row: &PgRow) -> Result<Attempt, Error> {
    Ok(Attempt {
        number: row.try_get::<i32, _>("number")?.unsigned_abs(),
        started_at: row.try_get("started_at")?,
        duration: Duration::from_micros(row.try_get::<i64, _>("duration_us")?.unsigned_abs()),
        failure: optional_word(row.try_get("failure")?)?,
        message: row.try_get("message")?,
        worker: row.try_get("worker")?,
    })
}

pub(super) async fn effects(pool: &PgPool, event: EventId) -> Result<ByHandler<Effect>, Error> {
    let rows = sqlx::query(
        "SELECT handler, key, id, runs, is_done, result, done_at FROM effects
         WHERE event_id = $1 ORDER BY handler, key",
    )
    .bind(event.0);
    by_handler(&rows.fetch_all(pool).await?, effect)
}

fn effect(row: &PgRow) -> Result<Effect, Error> {
    Ok(Effect {
        key: row.try_get("key")?,
        id: row.try_get("id")?,
        runs: row.try_get::<i32, _>("runs")?.unsigned_abs(),
        is_done: row.try_get("is_done")?,
        result: row.try_get("result")?,
        done_at: row.try_get("done_at")?,
    })
}

pub(super) async fn begin_act(pool: &PgPool, audit: &Audit) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO audit (id, at, who, action, why, filter, jobs, next_after, is_done)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(audit.id)
    .bind(audit.at)
    .bind(&audit.who)
    .bind(audit.action.as_str())
    .bind(&audit.why)
    .bind(&audit.filter)
    .bind(i64::try_from(audit.jobs).unwrap_or(i64::MAX))
    .bind(audit.next_after.map(|event| event.0))
    .bind(audit.is_done)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn audit(pool: &PgPool, id: Uuid) -> Result<Option<Audit>, Error> {
    let row = sqlx::query("SELECT * FROM audit WHERE id = $1").bind(id).fetch_optional(pool).await?;
    row.as_ref().map(audited).transpose()
}

pub(super) async fn latest_audits(pool: &PgPool, limit: u32) -> Result<Vec<Audit>, Error> {
    let rows = sqlx::query("SELECT * FROM audit ORDER BY at DESC, id DESC LIMIT $1")
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    rows.iter().map(audited).collect()
}

fn audited(row: &PgRow) -> Result<Audit, Error> {
    Ok(Audit {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        who: row.try_get("who")?,
        action: word(row.try_get("action")?)?,
        why: row.try_get("why")?,
        filter: row.try_get("filter")?,
        jobs: row.try_get::<i64, _>("jobs")?.unsigned_abs(),
        next_after: row.try_get::<Option<Uuid>, _>("next_after")?.map(EventId),
        is_done: row.try_get("is_done")?,
    })
}

/// Why a job died and what became of it.
pub(super) fn ended(row: &PgRow) -> Result<Ended, Error> {
    Ok(Ended {
        reason: row.try_get("reason")?,
        finished_at: row.try_get("finished_at")?,
        resolution: row.try_get("resolution")?,
        reviewed_at: row.try_get("reviewed_at")?,
        reviewed_by: row.try_get("reviewed_by")?,
        note: row.try_get("note")?,
        audit_id: row.try_get("audit_id")?,
    })
}
