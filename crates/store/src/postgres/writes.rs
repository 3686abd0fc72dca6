//! Effects that are one statement each, many in a transaction: their markers in one statement, and what they do in one text.
//!
//! The driver waits for the answer to each statement before it sends the next one. So the handlers' statements are prepared
//! by number, and a text of `EXECUTE`s with the values written out is one round trip for all of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Error, Row};
use tokio::time::timeout;
use uuid::Uuid;

use super::classify;
use super::connections::{Connections, Place};
use super::work::column;
use crate::effect::Marker;
use crate::error::is_outage;
use crate::{EffectWrite, StoreError, Value, Written};

/// A text beyond this is sent, and the rest in another one.
const TEXT_BYTES: usize = 1 << 20;

/// Locks the jobs whose tokens are still current until the transaction ends, and writes their markers as done. Other
/// transactions see that only after the commit.
const MARK: &str = "
INSERT INTO effects (event_id, handler, key, id, is_done, done_at)
SELECT event_id, handler, key, id, true, clock_timestamp()
FROM (
    SELECT jobs.event_id, jobs.handler, run.key, run.id
    FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::uuid[]) AS run (event_id, handler, token, key, id)
    JOIN jobs USING (event_id, handler)
    WHERE jobs.token = run.token AND jobs.state = 'processing'
    ORDER BY jobs.event_id
    FOR UPDATE OF jobs
) AS held
ON CONFLICT (event_id, handler, key) DO UPDATE SET runs = effects.runs + 1
RETURNING event_id, handler, key, runs = 1 AS is_new, is_done
";

pub(super) async fn write(connections: &Arc<Connections>, writes: &[EffectWrite]) -> Result<Vec<Written>, StoreError> {
    // A text that is sent ends at the first one.
    let has_nul = |value: &Value| matches!(value, Value::Text(text) if text.contains('\0'));
    if writes.iter().flat_map(|write| &write.values).any(has_nul) {
        return Err(StoreError::Rejected("a text with a NUL character".into()));
    }
    let Some(first) = writes.first() else { return Ok(Vec::new()) };
    let place = connections.place(&first.job.handler).await.map_err(|error| classify(&error))?;
    let too_slow = |_| StoreError::Rejected(format!("they take longer than {SHARED_TIMEOUT:?} together"));
    timeout(SHARED_TIMEOUT, try_write(connections, place, writes)).await.map_err(too_slow)?
}

/// How long a shared commit may take: one slow statement holds up the others no longer than this. Then each is done alone.
const SHARED_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for each of its statements.
const BEGIN: &str = "BEGIN; SET LOCAL statement_timeout = '1s'";

async fn try_write(
    connections: &Arc<Connections>,
    place: Place,
    writes: &[EffectWrite],
) -> Result<Vec<Written>, StoreError> {
    let mut transaction = connections.begin(place, BEGIN).await.map_err(|error| classify(&error))?;
    let mut markers = mark(transaction.connection(), writes).await.map_err(|error| judged(&error))?;
    let written = writes.iter().map(|write| Marker::written(markers.remove(&name(write))));
    let written: Vec<_> = written.collect::<Result<_, _>>()?;
    let mut text = String::new();
    for (write, _) in writes.iter().zip(&written).filter(|(_, written)| **written == Written::Now) {
        let (connection, prepared) = transaction.with_prepared();
        push_execute(
            &mut text,
            prepared.number(connection, write).await.map_err(|error| judged(&error))?,
            &write.values,
        );
        if text.len() > TEXT_BYTES {
            run(connection, mem::take(&mut text)).await.map_err(|error| judged(&error))?;
        }
    }
    transaction.commit_after(text).await.map_err(|error| judged(&error))?;
    Ok(written)
}

/// An error of a handler's statement is the handler's. It gets the error when its statement is run alone.
fn judged(error: &Error) -> StoreError {
    if is_outage(error) { classify(error) } else { StoreError::Rejected(error.to_string()) }
}

/// Runs a text that was put together from the handlers' own statements and quoted values, or from words of ours.
pub(super) async fn run(connection: &mut PgConnection, text: String) -> Result<(), Error> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop)
}

/// Event, handler and key.
type Name = (Uuid, String, String);

fn name(write: &EffectWrite) -> Name {
    (write.job.event.0, write.job.handler.to_string(), write.key.clone())
}

/// The markers of the jobs whose tokens are still current.
async fn mark(connection: &mut PgConnection, writes: &[EffectWrite]) -> Result<HashMap<Name, Marker>, Error> {
    let rows = sqlx::query(MARK)
        .bind(column(writes, |write| write.job.event.0))
        .bind(column(writes, |write| write.job.handler.as_str()))
        .bind(column(writes, |write| write.token.0))
        .bind(column(writes, |write| write.key.as_str()))
        .bind(column(writes, |_| Uuid::now_v7()))
        .fetch_all(connection)
        .await?;
    let marker = |row: &PgRow| {
        let marker = Marker { is_new: row.try_get("is_new")?, is_done: row.try_get("is_done")? };
        Ok(((row.try_get("event_id")?, row.try_get("handler")?, row.try_get("key")?), marker))
    };
    rows.iter().map(marker).collect()
}

/// The statements that a connection knows by number, each with the types of its values.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    numbers: HashMap<(&'static str, Vec<&'static str>), usize>,
    next: usize,
}

impl Prepared {
    async fn number(&mut self, connection: &mut PgConnection, write: &EffectWrite) -> Result<usize, Error> {
        let key = (write.statement, write.values.iter().map(type_of).collect());
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        // A number is used once, even if PREPARE failed: the statement may exist all the same.
        let number = self.next;
        self.next += 1;
        let types = if key.1.is_empty() { String::new() } else { format!("({})", key.1.join(", ")) };
        let text = format!("PREPARE hookfast_{number} {types} AS {}", write.statement);
        // Not by `run`: in a text of several statements, all but the first would be run here and now.
        sqlx::query(AssertSqlSafe(text)).persistent(false).execute(connection).await?;
        self.numbers.insert(key, number);
        Ok(number)
    }
}

/// The types that the driver gives to these values, so that a statement means the same in both ways. A null has the type of
/// its place.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "unknown",
        Value::Text(_) => "text",
        Value::Integer(_) => "int8",
        Value::Real(_) => "float8",
        Value::Bytes(_) => "bytea",
    }
}

fn push_execute(text: &mut String, number: usize, values: &[Value]) {
    let _ = write!(text, "EXECUTE hookfast_{number}");
    for (place, value) in values.iter().enumerate() {
        text.push(if place == 0 { '(' } else { ',' });
        push_literal(text, value);
    }
    text.push_str(if values.is_empty() { ";" } else { ");" });
}

/// In quotes, a value is read as the type of its place. Within them only a quote means something else than itself, because
/// `standard_conforming_strings` is on.
fn push_literal(text: &mut String, value: &Value) {
    let literal = match value {
        Value::Null => return text.push_str("NULL"),
        Value::Text(value) => value.replace('\'', "''"),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Bytes(bytes) => bytes.iter().fold(r"\x".into(), |hex, byte| format!("{hex}{byte:02x}")),
    };
    let _ = write!(text, "'{literal}'");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_gets_out_of_its_quotes() {
        let mut text = String::new();
        push_execute(&mut text, 0, &["it's", "'); DROP TABLE jobs; --", r"\'"].map(Value::from));
        assert_eq!(text, r"EXECUTE hookfast_0('it''s','''); DROP TABLE jobs; --','\''');");
    }

    #[test]
    fn values_are_written_as_postgres_reads_them() {
        let mut text = String::new();
        push_execute(&mut text, 1, &[Value::Null, Value::Integer(-7), Value::Real(0.1), Value::Bytes(vec![0, 255])]);
        push_execute(&mut text, 2, &[]);
        assert_eq!(text, r"EXECUTE hookfast_1(NULL,'-7','0.1','\x00ff');EXECUTE hookfast_2;");
    }
}
