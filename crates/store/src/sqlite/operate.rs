//! What operators look at: a job's history and the audit.

use std::time::Duration;

use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Error, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::moment::{micros, time};
use crate::decode::{by_handler, optional_word, word};
use crate::operate::Ended;
use crate::{Attempt, Audit, ByHandler, Effect, Moment};

pub(super) async fn moment(readers: &SqlitePool) -> Result<Moment, Error> {
    let last: Option<Uuid> = sqlx::query_scalar("SELECT max(id) FROM events").fetch_one(readers).await?;
    Ok(Moment { at: OffsetDateTime::now_utc(), last_event: EventId(last.unwrap_or(Uuid::nil())) })
}

pub(super) async fn attempts(readers: &SqlitePool, event: EventId) -> Result<ByHandler<Attempt>, Error> {
    let rows = sqlx::query("SELECT * FROM attempts WHERE event_id = $1 ORDER BY handler, rowid").bind(event.0);
    by_handler(&rows.fetch_all(readers).await?, attempt)
}

fn attempt(row: &SqliteRow) -> Result<Attempt, Error> {
    Ok(Attempt {
        number: row.try_get("number")?,
        started_at: time(row.try_get("started_at")?)?,
        duration: Duration::from_micros(row.try_get("duration_us")?),
        failure: optional_word(row.try_get("failure")?)?,
        message: row.try_get("message")?,
        worker: row.try_get("worker")?,
    })
}

pub(super) async fn effects(readers: &SqlitePool, event: EventId) -> Result<ByHandler<Effect>, Error> {
    let rows = sqlx::query("SELECT * FROM effects WHERE event_id = $1 ORDER BY handler, key").bind(event.0);
    by_handler(&rows.fetch_all(readers).await?, effect)
}

fn effect(row: &SqliteRow) -> Result<Effect, Error> {
    Ok(Effect {
        key: row.try_get("key")?,
        id: row.try_get("id")?,
        runs: row.try_get("runs")?,
        is_done: row.try_get("is_done")?,
        result: row.try_get("result")?,
        done_at: row.try_get::<Option<i64>, _>("done_at")?.map(time).transpose()?,
    })
}

pub(super) async fn begin_act(writer: &mut SqliteConnection, audit: &Audit) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO audit (id, at, who, action, why, filter, jobs, next_after, is_done)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(audit.id)
    .bind(micros(audit.at))
    .bind(&audit.who)
    .bind(audit.action.as_str())
    .bind(audit.why.as_deref())
    .bind(&audit.filter)
    .bind(audit.jobs.cast_signed())
    .bind(audit.next_after.map(|event| event.0))
    .bind(audit.is_done)
    .execute(writer)
    .await
    .map(|_| ())
}

pub(super) async fn audit(readers: &SqlitePool, id: Uuid) -> Result<Option<Audit>, Error> {
    let row = sqlx::query("SELECT * FROM audit WHERE id = $1").bind(id).fetch_optional(readers).await?;
    row.as_ref().map(audited).transpose()
}

pub(super) async fn latest_audits(readers: &SqlitePool, limit: u32) -> Result<Vec<Audit>, Error> {
    let rows = sqlx::query("SELECT * FROM audit ORDER BY at DESC, id DESC LIMIT $1").bind(limit).fetch_all(readers);
    rows.await?.iter().map(audited).collect()
}

fn audited(row: &SqliteRow) -> Result<Audit, Error> {
    Ok(Audit {
        id: row.try_get("id")?,
        at: time(row.try_get("at")?)?,
        who: row.try_get("who")?,
        action: word(row.try_get("action")?)?,
        why: row.try_get("why")?,
        filter: row.try_get("filter")?,
        jobs: row.try_get("jobs")?,
        next_after: row.try_get::<Option<Uuid>, _>("next_after")?.map(EventId),
        is_done: row.try_get("is_done")?,
    })
}

/// Why a job died and what became of it.
pub(super) fn ended(row: &SqliteRow) -> Result<Ended, Error> {
    let moment = |column| row.try_get::<Option<i64>, _>(column)?.map(time).transpose();
    Ok(Ended {
        reason: row.try_get("reason")?,
        finished_at: moment("finished_at")?,
        resolution: row.try_get("resolution")?,
        reviewed_at: moment("reviewed_at")?,
        reviewed_by: row.try_get("reviewed_by")?,
        note: row.try_get("note")?,
        audit_id: row.try_get("audit_id")?,
    })
}
