//! The markers of side effects, fenced by the job's token.

use std::sync::Arc;

use hookfast_webhook::HandlerName;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Error, Row};
use time::OffsetDateTime;
use tokio::time::timeout;
use uuid::Uuid;

use super::connections::{Connections, OpenTransaction, Place};
use super::{BATCH_TIMEOUT, classify, too_slow, values};
use crate::effect::Mark;
use crate::error::is_too_slow;
use crate::{BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, StatementError, StoreError, Value};

/// Locks the job, if its token is still current, until the transaction ends; and writes the marker. A new marker of an
/// effect in this database says done at once: other transactions see it only after the commit, and the commit need not
/// write it again.
const BEGIN: &str = "
INSERT INTO effects (event_id, handler, key, id, is_done, done_at)
SELECT event_id, handler, $4, $5, $6, CASE WHEN $6 THEN clock_timestamp() END
FROM (
    SELECT event_id, handler FROM jobs
    WHERE event_id = $1 AND handler = $2 AND token = $3 AND state = 'processing'
    FOR UPDATE
) AS held
ON CONFLICT (event_id, handler, key) DO UPDATE SET runs = effects.runs + 1
RETURNING id, is_done, result, runs
";

pub(super) async fn begin(connections: &Arc<Connections>, effect: &EffectKey<'_>) -> Result<BegunEffect, EffectError> {
    let place = connections.place(&effect.job.handler).await.map_err(|error| classify(&error))?;
    let begun =
        timeout(BATCH_TIMEOUT, try_begin(connections, place, effect)).await.map_err(|_| too_slow(BATCH_TIMEOUT))?;
    begun.map_err(|error| classify(&error))?.ok_or(EffectError::LostLease)
}

async fn try_begin(
    connections: &Arc<Connections>,
    place: Place,
    effect: &EffectKey<'_>,
) -> Result<Option<BegunEffect>, Error> {
    let is_own = effect.kind == EffectKind::Own;
    let mut transaction = connections.begin(place, "BEGIN").await?;
    let marker = sqlx::query(BEGIN)
        .bind(effect.job.event.0)
        .bind(effect.job.handler.as_str())
        .bind(effect.token.0)
        .bind(effect.key)
        .bind(Uuid::now_v7())
        .bind(is_own)
        .fetch_optional(transaction.connection())
        .await?;
    let Some(marker) = marker else { return Ok(None) };
    let is_new = marker.try_get::<i32, _>("runs")? == 1;
    Ok(Some(BegunEffect {
        id: marker.try_get("id")?,
        is_done: !is_new && marker.try_get("is_done")?,
        result: marker.try_get("result")?,
        transaction: EffectTransaction::on_postgres(transaction, is_own && is_new),
    }))
}

/// What a handler does in the transaction of an effect.
impl OpenTransaction {
    pub(crate) async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, StatementError> {
        let done = values::query(statement, values).execute(self.connection()).await;
        Ok(done.map_err(|error| StatementError::of(&error))?.rows_affected())
    }

    pub(crate) async fn fetch(
        &mut self,
        statement: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<Value>, StatementError> {
        let row = values::query(statement, values).fetch_optional(self.connection()).await;
        let value = row.and_then(|row| row.as_ref().map(values::first_value).transpose());
        value.map_err(|error| StatementError::of(&error))
    }

    pub(crate) async fn is_newest(
        &mut self,
        handler: &HandlerName,
        object: &str,
        occurred_at: OffsetDateTime,
    ) -> Result<bool, StatementError> {
        let noted = sqlx::query(
            "INSERT INTO newest (handler, object, occurred_at) VALUES ($1, $2, $3)
             ON CONFLICT (handler, object) DO UPDATE SET occurred_at = excluded.occurred_at
             WHERE newest.occurred_at <= excluded.occurred_at",
        )
        .bind(handler.as_str())
        .bind(object)
        .bind(occurred_at)
        .execute(self.connection())
        .await;
        Ok(noted.map_err(|error| StatementError::of(&error))?.rows_affected() == 1)
    }
}

pub(crate) async fn commit(transaction: OpenTransaction, mark: Option<Mark<'_>>) -> Result<(), EffectError> {
    let committed = timeout(BATCH_TIMEOUT, try_commit(transaction, mark)).await.map_err(|_| too_slow(BATCH_TIMEOUT))?;
    // What a commit takes long for are the handler's own deferred constraints.
    Ok(committed.map_err(|error| match is_too_slow(&error) {
        true => StoreError::Rejected(error.to_string()),
        false => classify(&error),
    })?)
}

/// Needs no token: the transaction has held the job since it began.
async fn try_commit(mut transaction: OpenTransaction, mark: Option<Mark<'_>>) -> Result<(), Error> {
    if let Some(Mark { effect, result }) = mark {
        sqlx::query(
            "UPDATE effects SET is_done = true, result = $4, done_at = clock_timestamp()
             WHERE event_id = $1 AND handler = $2 AND key = $3",
        )
        .bind(effect.job.event.0)
        .bind(effect.job.handler.as_str())
        .bind(effect.key)
        .bind(result)
        .execute(transaction.connection())
        .await?;
    }
    transaction.commit().await
}

const FINISH: &str = "
UPDATE effects SET is_done = true, result = $5, done_at = clock_timestamp()
FROM (
    SELECT event_id, handler FROM jobs
    WHERE event_id = $1 AND handler = $2 AND token = $3 AND state = 'processing'
    FOR UPDATE
) AS held
WHERE effects.event_id = held.event_id AND effects.handler = held.handler AND effects.key = $4
";

/// Writes that an outside effect is done, and returns whether the token is still the job's.
pub(super) async fn finish(
    connection: &mut PgConnection,
    effect: &EffectKey<'_>,
    result: Option<&str>,
) -> Result<bool, Error> {
    let finished = sqlx::query(FINISH)
        .bind(effect.job.event.0)
        .bind(effect.job.handler.as_str())
        .bind(effect.token.0)
        .bind(effect.key)
        .bind(result)
        .execute(connection)
        .await?;
    Ok(finished.rows_affected() == 1)
}

/// Two processes that make the same table at the same moment would fail, even with `IF NOT EXISTS`. How long it takes is up
/// to the handler.
pub(super) async fn prepare(workers: &PgPool, statements: &'static str) -> Result<(), StoreError> {
    let mut transaction =
        workers.begin_with("BEGIN; SET LOCAL statement_timeout = 0").await.map_err(|error| classify(&error))?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('hookfast prepare', 0))")
        .execute(&mut *transaction)
        .await
        .map_err(|error| classify(&error))?;
    // An error that the database has a code for is about the statements.
    sqlx::raw_sql(statements).execute(&mut *transaction).await.map_err(|error| match error.as_database_error() {
        Some(_) => StoreError::Rejected(error.to_string()),
        None => classify(&error),
    })?;
    transaction.commit().await.map_err(|error| classify(&error))
}
