//! The values of handlers' statements: bound, and read back.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, Postgres};
use sqlx::query::Query;
use sqlx::{Column, Encode, Error, Row, Type, TypeInfo, ValueRef};

use crate::Value;

/// The statement of a handler with its values.
pub(super) fn query(statement: &'static str, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    // With a null the statement is prepared for the type of its place, which need not be the type of the next value.
    let has_null = values.contains(&Value::Null);
    let bind = |query: Query<'static, Postgres, PgArguments>, value| match value {
        Value::Null => query.bind(UntypedNull),
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    };
    values.into_iter().fold(sqlx::query(statement), bind).persistent(!has_null)
}

/// A null that Postgres gives the type of its place; it refuses a null text where a number belongs.
struct UntypedNull;

impl Type<Postgres> for UntypedNull {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for UntypedNull {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}

/// The first value of a row.
pub(super) fn first_value(row: &PgRow) -> Result<Value, Error> {
    if row.try_get_raw(0)?.is_null() {
        return Ok(Value::Null);
    }
    Ok(match row.column(0).type_info().name() {
        "INT2" => Value::Integer(row.try_get::<i16, _>(0)?.into()),
        "INT4" => Value::Integer(row.try_get::<i32, _>(0)?.into()),
        "INT8" => Value::Integer(row.try_get(0)?),
        "FLOAT4" => Value::Real(row.try_get::<f32, _>(0)?.into()),
        "FLOAT8" => Value::Real(row.try_get(0)?),
        "BYTEA" => Value::Bytes(row.try_get(0)?),
        _ => Value::Text(row.try_get(0)?),
    })
}
