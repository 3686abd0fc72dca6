//! An event's row on Postgres: a value of the type `event_row`, which has the columns in the order of the fields of
//! [`EventRow`]. An array of these is one parameter, and costs Postgres a third less than an array for each column.

use sqlx::Postgres;
use sqlx::postgres::{PgHasArrayType, PgTypeInfo};

use crate::event_row::EventRow;

impl sqlx::Type<Postgres> for EventRow<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("event_row")
    }
}

impl PgHasArrayType for EventRow<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("event_row")
    }
}
