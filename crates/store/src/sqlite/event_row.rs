//! An event's row on SQLite: bound with the driver that records, read back with sqlx.

use std::borrow::Cow;

use rusqlite::{CachedStatement, params};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row};

use super::moment::{micros, time};
use crate::event_row::{EventRow, event_columns};

/// Into the table of the store, or into that of a spool, which has the same columns.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO events (",
    event_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

impl EventRow<'_> {
    /// Runs [`INSERT`] for this row.
    pub(super) fn insert(&self, statement: &mut CachedStatement<'_>) -> rusqlite::Result<usize> {
        statement.execute(params![
            self.id.as_bytes(),
            self.source,
            self.dedupe_key,
            micros(self.received_at),
            self.request_id.as_bytes(),
            self.remote_address,
            self.event_type,
            self.account,
            self.occurred_at.map(micros),
            self.proof,
            self.method,
            self.url,
            self.headers,
            self.body,
            self.object_id,
            self.priority,
            self.provider_event_id,
            self.delivery_id,
            self.tags,
            self.trace_id,
            self.secret_index,
            self.key_window_us,
        ])
    }
}

impl EventRow<'static> {
    /// A row that waits in a spool.
    pub(super) fn decode(row: &SqliteRow) -> Result<Self, Error> {
        let text = |column| row.try_get::<String, _>(column).map(Cow::Owned);
        let optional = |column| Ok::<_, Error>(row.try_get::<Option<String>, _>(column)?.map(Cow::Owned));
        Ok(Self {
            id: row.try_get("id")?,
            source: text("source")?,
            dedupe_key: text("dedupe_key")?,
            received_at: time(row.try_get("received_at")?)?,
            request_id: row.try_get("request_id")?,
            remote_address: text("remote_address")?,
            event_type: text("event_type")?,
            account: optional("account")?,
            occurred_at: row.try_get::<Option<i64>, _>("occurred_at")?.map(time).transpose()?,
            proof: text("proof")?,
            method: text("method")?,
            url: text("url")?,
            headers: row.try_get::<Vec<u8>, _>("headers")?.into(),
            body: row.try_get::<Vec<u8>, _>("body")?.into(),
            object_id: optional("object_id")?,
            priority: optional("priority")?,
            provider_event_id: optional("provider_event_id")?,
            delivery_id: optional("delivery_id")?,
            tags: optional("tags")?,
            trace_id: optional("trace_id")?,
            secret_index: row.try_get("secret_index")?,
            key_window_us: row.try_get("key_window_us")?,
        })
    }
}
