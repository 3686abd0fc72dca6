//! Effects that are one statement each, many in a transaction.

use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, Row};
use tokio::sync::SetOnce;
use uuid::Uuid;

use super::moment::now;
use super::turns::Writing;
use super::{classify, commit, effects, values};
use crate::effect::Marker;
use crate::error::is_outage;
use crate::{EffectWrite, StoreError, Written};

pub(super) async fn write(
    mut transaction: Writing,
    broken: &Arc<SetOnce<String>>,
    writes: &[EffectWrite],
) -> Result<Vec<Written>, StoreError> {
    let judged = |error: Error| match is_outage(&error) {
        true => classify(&error, broken),
        false => StoreError::Rejected(error.to_string()),
    };
    let mut written = Vec::with_capacity(writes.len());
    for write in writes {
        let one = Marker::written(mark(&mut transaction, write).await.map_err(judged)?)?;
        if one == Written::Now {
            let (connection, limited) = transaction.for_handler();
            let done = values::query(write.statement, write.values.clone()).execute(connection).await;
            limited.end();
            done.map_err(judged)?;
        }
        written.push(one);
    }
    commit(transaction, broken).await?;
    Ok(written)
}

/// The marker, if the token is still the job's.
async fn mark(writer: &mut SqliteConnection, write: &EffectWrite) -> Result<Option<Marker>, Error> {
    let row = sqlx::query(effects::BEGIN)
        .bind(write.job.event.0)
        .bind(write.job.handler.as_str())
        .bind(write.token.0)
        .bind(&write.key)
        .bind(Uuid::now_v7())
        .bind(true)
        .bind(now())
        .fetch_optional(writer)
        .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Marker { is_new: row.try_get::<u32, _>("runs")? == 1, is_done: row.try_get("is_done")? }))
}
