//! The markers of side effects, in transactions that hold the writer.

use std::sync::{Arc, OnceLock};

use hookfast_webhook::HandlerName;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, Row};
use time::OffsetDateTime;
use uuid::Uuid;

use super::moment::{micros, now};
use super::turns::Writing;
use super::{classify, commit as commit_noting};
use crate::effect::Mark;
use crate::{BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, StoreError};

/// Nobody else can write in this transaction's time, so that whoever finds the job to be the worker's holds it.
pub(super) const BEGIN: &str = "
INSERT INTO effects (event_id, handler, key, id, is_done, done_at)
SELECT event_id, handler, $4, $5, $6, iif($6, $7, NULL) FROM jobs
WHERE event_id = $1 AND handler = $2 AND token = $3 AND state = 'processing'
ON CONFLICT (event_id, handler, key) DO UPDATE SET runs = runs + 1
RETURNING id, runs, is_done, result
";

pub(super) async fn begin(
    mut transaction: Writing,
    broken: &Arc<OnceLock<String>>,
    effect: &EffectKey<'_>,
) -> Result<BegunEffect, EffectError> {
    // An own effect is done when this transaction is committed, and nobody sees it before.
    let is_own = effect.kind == EffectKind::Own;
    let row = sqlx::query(BEGIN)
        .bind(effect.job.event.0)
        .bind(effect.job.handler.as_str())
        .bind(effect.token.0)
        .bind(effect.key)
        .bind(Uuid::now_v7())
        .bind(is_own)
        .bind(now())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(|error| classify(&error, broken))?;
    let row = row.ok_or(EffectError::LostLease)?;
    let marker = || Ok((row.try_get("id")?, row.try_get("is_done")?, row.try_get("result")?, row.try_get("runs")?));
    let (id, is_done, result, runs): (_, bool, _, u32) = marker().map_err(|error: Error| classify(&error, broken))?;
    let is_new = runs == 1;
    Ok(BegunEffect {
        id,
        is_done: is_done && !is_new,
        result,
        transaction: EffectTransaction::on_sqlite(transaction, Arc::clone(broken), is_own && is_new),
    })
}

/// Commits the marker with whatever the handler wrote.
pub(crate) async fn commit(
    mut transaction: Writing,
    broken: &Arc<OnceLock<String>>,
    mark: Option<Mark<'_>>,
) -> Result<(), EffectError> {
    if let Some(mark) = mark {
        let marked = write_mark(&mut transaction, &mark).await.map_err(|error| classify(&error, broken))?;
        if !marked {
            let problem = "one of the handler's statements has undone the whole transaction";
            return Err(StoreError::Rejected(problem.into()).into());
        }
    }
    Ok(commit_noting(transaction, broken).await?)
}

/// Says whether the marker was there.
async fn write_mark(writer: &mut SqliteConnection, Mark { effect, result }: &Mark<'_>) -> Result<bool, Error> {
    let done = sqlx::query(
        "UPDATE effects SET is_done = 1, result = $4, done_at = $5 WHERE event_id = $1 AND handler = $2 AND key = $3",
    )
    .bind(effect.job.event.0)
    .bind(effect.job.handler.as_str())
    .bind(effect.key)
    .bind(*result)
    .bind(now())
    .execute(writer)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Writes that an outside effect is done, and says whether the job is still the worker's.
pub(super) async fn finish(
    writer: &mut SqliteConnection,
    effect: &EffectKey<'_>,
    result: Option<&str>,
) -> Result<bool, Error> {
    let done = sqlx::query(
        "UPDATE effects SET is_done = 1, result = $5, done_at = $6
         WHERE event_id = $1 AND handler = $2 AND key = $4
           AND EXISTS (SELECT 1 FROM jobs
                       WHERE event_id = $1 AND handler = $2 AND token = $3 AND state = 'processing')",
    )
    .bind(effect.job.event.0)
    .bind(effect.job.handler.as_str())
    .bind(effect.token.0)
    .bind(effect.key)
    .bind(result)
    .bind(now())
    .execute(writer)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) async fn is_newest(
    writer: &mut SqliteConnection,
    handler: &HandlerName,
    object: &str,
    occurred_at: OffsetDateTime,
) -> Result<bool, Error> {
    let noted = sqlx::query(
        "INSERT INTO newest (handler, object, occurred_at) VALUES ($1, $2, $3)
         ON CONFLICT (handler, object) DO UPDATE SET occurred_at = excluded.occurred_at
         WHERE excluded.occurred_at >= newest.occurred_at",
    )
    .bind(handler.as_str())
    .bind(object)
    .bind(micros(occurred_at))
    .execute(writer)
    .await?;
    Ok(noted.rows_affected() == 1)
}
