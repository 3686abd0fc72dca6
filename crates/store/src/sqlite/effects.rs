//! The markers of side effects, in transactions that hold the writer.

use std::sync::Arc;

use hookfast_webhook::HandlerName;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, Row};
use time::OffsetDateTime;
use tokio::sync::SetOnce;
use uuid::Uuid;

use super::moment::{micros, now};
use super::turns::Writing;
use super::{classify, commit as commit_noting, values};
use crate::effect::Mark;
use crate::{BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, StatementError, StoreError, Value};

/// There is one writer, so the job cannot change hands while this transaction is open.
pub(super) const BEGIN: &str = "
INSERT INTO effects (event_id, handler, key, id, is_done, done_at)
SELECT event_id, handler, $4, $5, $6, iif($6, $7, NULL) FROM jobs
WHERE event_id = $1 AND handler = $2 AND token = $3 AND state = 'processing'
ON CONFLICT (event_id, handler, key) DO UPDATE SET runs = runs + 1
RETURNING id, runs, is_done, result
";

pub(super) async fn begin(
    mut transaction: Writing,
    broken: &Arc<SetOnce<String>>,
    effect: &EffectKey<'_>,
) -> Result<BegunEffect, EffectError> {
    // An own effect is done when this transaction is committed. Readers do not see it before.
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
        transaction: EffectTransaction::on_sqlite(OpenTransaction::new(transaction, broken), is_own && is_new),
    })
}

/// The transaction of an effect.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    writing: Writing,
    /// The store's first I/O error.
    broken: Arc<SetOnce<String>>,
    /// A statement was given up or ended by force. SQLite may have undone everything before it, and would commit every further
    /// statement by itself, without the marker.
    is_undone: bool,
}

const UNDONE: &str = "a statement of the effect was given up or ended by force, so that nothing of the effect is there";

impl OpenTransaction {
    fn new(writing: Writing, broken: &Arc<SetOnce<String>>) -> Self {
        Self { writing, broken: Arc::clone(broken), is_undone: false }
    }

    /// The driver's own connection, unless what is written on it would be lost.
    #[cfg(feature = "driver")]
    pub(crate) fn connection(&mut self) -> Option<&mut SqliteConnection> {
        (!self.is_undone).then_some(&mut *self.writing)
    }

    pub(crate) async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, StatementError> {
        let query = values::query(statement, values);
        let done = self.for_handler(async |connection| query.execute(connection).await).await?;
        Ok(done.rows_affected())
    }

    pub(crate) async fn fetch(
        &mut self,
        statement: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<Value>, StatementError> {
        let query = values::query(statement, values);
        let row = self.for_handler(async |connection| query.fetch_optional(connection).await).await?;
        row.as_ref().map(values::first_value).transpose().map_err(|error| StatementError::of(&error))
    }

    /// Runs a statement of the handler, which has a limit on its time.
    async fn for_handler<T>(
        &mut self,
        statement: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, Error>,
    ) -> Result<T, StatementError> {
        self.refuse_if_undone()?;
        // It stays so if the caller does not wait for the end of the statement.
        self.is_undone = true;
        let (connection, limited) = self.writing.for_handler();
        let done = statement(connection).await;
        limited.end();
        self.is_undone = done.as_ref().is_err_and(ends_the_transaction);
        done.map_err(|error| StatementError::of(&error))
    }

    fn refuse_if_undone(&self) -> Result<(), StatementError> {
        if self.is_undone { Err(StatementError::Refused(UNDONE.into())) } else { Ok(()) }
    }

    pub(crate) async fn is_newest(
        &mut self,
        handler: &HandlerName,
        object: &str,
        occurred_at: OffsetDateTime,
    ) -> Result<bool, StatementError> {
        self.refuse_if_undone()?;
        let newest = is_newest(&mut self.writing, handler, object, occurred_at).await;
        newest.map_err(|error| StatementError::of(&error))
    }

    /// Commits the marker together with the handler's writes.
    pub(crate) async fn commit(mut self, mark: Option<Mark<'_>>) -> Result<(), EffectError> {
        if self.is_undone {
            return Err(StoreError::Rejected(UNDONE.into()).into());
        }
        if let Some(mark) = mark {
            let marked = write_mark(&mut self.writing, &mark).await.map_err(|error| classify(&error, &self.broken))?;
            if !marked {
                let problem = "one of the handler's statements has undone the whole transaction";
                return Err(StoreError::Rejected(problem.into()).into());
            }
        }
        Ok(commit_noting(self.writing, &self.broken).await?)
    }
}

/// Whether SQLite undoes the whole transaction with such an error: NOMEM, INTERRUPT, IOERR, FULL, and whatever is not an error
/// of the database.
fn ends_the_transaction(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_none_or(|code| code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 7 | 9 | 10 | 13)))
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

/// Writes that an outside effect is done, and returns whether the token is still the job's.
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

async fn is_newest(
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
