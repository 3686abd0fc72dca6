//! The values of handlers' statements: bound, and read back.

use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{Error, Row, TypeInfo, ValueRef};

use crate::Value;

/// The statement of a handler with its values.
pub(super) fn query(statement: &'static str, values: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    let bind = |query: Query<'static, Sqlite, SqliteArguments>, value| match value {
        Value::Null => query.bind(None::<String>),
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    };
    values.into_iter().fold(sqlx::query(statement), bind)
}

/// The first value of a row.
pub(super) fn first_value(row: &SqliteRow) -> Result<Value, Error> {
    let value = row.try_get_raw(0)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match value.type_info().name() {
        "INTEGER" => Value::Integer(row.try_get(0)?),
        "REAL" => Value::Real(row.try_get(0)?),
        "BLOB" => Value::Bytes(row.try_get(0)?),
        _ => Value::Text(row.try_get(0)?),
    })
}
