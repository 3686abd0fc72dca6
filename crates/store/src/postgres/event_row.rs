//! An event's row on Postgres: a value of the type `event_row`, which has the columns in the order of the fields of
//! [`EventRow`]. An array of these is one parameter, and costs Postgres a third less than an array for each column.

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::PgRecordEncoder;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, Postgres};

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

impl Encode<'_, Postgres> for EventRow<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let mut row = PgRecordEncoder::new(buffer);
        row.encode(self.id)?;
        row.encode(&self.source)?;
        row.encode(&self.dedupe_key)?;
        row.encode(self.received_at)?;
        row.encode(self.request_id)?;
        row.encode(&self.remote_address)?;
        row.encode(&self.event_type)?;
        row.encode(&self.account)?;
        row.encode(self.occurred_at)?;
        row.encode(&self.proof)?;
        row.encode(&self.method)?;
        row.encode(&self.url)?;
        row.encode(&self.headers)?;
        row.encode(&self.body)?;
        row.encode(&self.object_id)?;
        row.encode(&self.priority)?;
        row.encode(&self.provider_event_id)?;
        row.encode(&self.delivery_id)?;
        row.encode(&self.tags)?;
        row.encode(&self.trace_id)?;
        row.encode(self.secret_index)?;
        row.encode(self.key_window_us)?;
        row.finish();
        Ok(IsNull::No)
    }
}
