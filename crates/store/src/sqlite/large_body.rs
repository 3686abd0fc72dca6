//! Large bodies: written in parts before their events, and read back as one.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hookfast_webhook::{Event, EventId};
use rusqlite::{OptionalExtension, Transaction, params};
use sqlx::Error;
use sqlx::sqlite::SqlitePool;
use uuid::Uuid;

use super::SqliteStore;
use super::record::Writer;
use crate::large_body::{self, PART, Parts, SIZE, WrittenBodies, note_clearing};
use crate::{Recorded, Routed, StoreError};

const IS_KNOWN: &str = "SELECT 1 FROM dedupe_keys WHERE source = ? AND dedupe_key = ?";

/// Writes nothing if the body is recorded already.
const BEGIN_BODY: &str = "INSERT INTO large_bodies (event_id, size_bytes) VALUES (?, ?) ON CONFLICT DO NOTHING";

const ADD_PART: &str = "INSERT INTO body_parts (event_id, part, bytes) VALUES (?, ?, ?)";

const MARK_RECORDED: &str = "UPDATE large_bodies SET is_recorded = 1 WHERE event_id = ? AND is_recorded = 0";

/// One at a time, because clearing holds the writer, too.
const ABANDONED: &str =
    "SELECT event_id FROM large_bodies INDEXED BY large_bodies_begun WHERE is_recorded = 0 AND event_id < ? LIMIT 1";

const CLEAR: &str = "DELETE FROM large_bodies WHERE event_id = ? AND is_recorded = 0";

const CLEAR_PARTS: &str = "DELETE FROM body_parts WHERE event_id = ?";

impl SqliteStore {
    /// Writes the large bodies of these events, each part in a commit of its own. The body of an event that came before is not
    /// written again.
    pub(super) async fn write_large_bodies(&self, events: &[Routed]) -> Result<WrittenBodies, StoreError> {
        let mut written = WrittenBodies::default();
        for event in large_body::large(events) {
            if self.record_with(|writer| writer.begin_body(event)).await? {
                let mut parts = Parts::of(event);
                while let Some((number, part)) = parts.next() {
                    // In turn with other writes, which would otherwise wait for the parts as for many small events.
                    parts.took(self.with_recorder(|writer| writer.add_part(event, number, part)).await?);
                }
                written.add(event);
            }
        }
        Ok(written)
    }

    /// Clears the bodies whose events turned out to be resends, and one that was abandoned, if there is one.
    pub(super) async fn clear_bodies(&self, events: &[Routed], recorded: &[Recorded], bodies: &WrittenBodies) {
        for id in bodies.of_resends(events, recorded) {
            note_clearing(self.record_with(|writer| writer.clear_body(id)).await);
        }
        if let Some(before) = bodies.abandoned_before() {
            note_clearing(self.record_with(|writer| writer.clear_abandoned(before)).await);
        }
    }
}

impl Writer {
    /// Notes that a body begins, unless its event came before. Clears what is left of an earlier attempt at the same event.
    fn begin_body(&mut self, event: &Event) -> rusqlite::Result<bool> {
        self.in_transaction(|transaction| {
            let key = [event.delivery().arrival.source.as_str(), event.dedupe_key().as_str()];
            if transaction.prepare_cached(IS_KNOWN)?.exists(key)? {
                return Ok(false);
            }
            let id = event.id().0;
            clear(transaction, id.as_bytes())?;
            let size_bytes = i64::try_from(event.body().len()).unwrap_or(i64::MAX);
            Ok(transaction.prepare_cached(BEGIN_BODY)?.execute(params![id.as_bytes(), size_bytes])? == 1)
        })
    }

    /// Says how long it took.
    fn add_part(&mut self, event: &Event, number: i32, part: &[u8]) -> rusqlite::Result<Duration> {
        let began = Instant::now();
        self.in_transaction(|transaction| {
            let mut add_part = transaction.prepare_cached(ADD_PART)?;
            add_part.execute(params![event.id().0.as_bytes(), number, part]).map(drop)
        })?;
        Ok(began.elapsed())
    }

    fn clear_body(&mut self, id: Uuid) -> rusqlite::Result<()> {
        self.in_transaction(|transaction| clear(transaction, id.as_bytes()))
    }

    fn clear_abandoned(&mut self, before: Uuid) -> rusqlite::Result<()> {
        self.in_transaction(|transaction| {
            let mut abandoned = transaction.prepare_cached(ABANDONED)?;
            let abandoned = abandoned.query_row([before.as_bytes()], |row| row.get(0)).optional()?;
            abandoned.map_or(Ok(()), |id| clear(transaction, &id))
        })
    }
}

/// Marks the body of an event that is recorded now. Fails if the body was cleared meanwhile.
pub(super) fn mark_recorded(transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<()> {
    match transaction.prepare_cached(MARK_RECORDED)?.execute([event.id().0.as_bytes()])? {
        1 => Ok(()),
        changed => Err(rusqlite::Error::StatementChangedRows(changed)),
    }
}

fn clear(transaction: &Transaction<'_>, id: &[u8; 16]) -> rusqlite::Result<()> {
    if transaction.prepare_cached(CLEAR)?.execute([id])? == 1 {
        transaction.prepare_cached(CLEAR_PARTS)?.execute([id])?;
    }
    Ok(())
}

/// The body of an event, wherever it stands.
pub(super) async fn body(readers: &SqlitePool, event: EventId) -> Result<Option<Bytes>, Error> {
    let body = "SELECT body FROM events WHERE id = $1";
    match sqlx::query_scalar::<_, Vec<u8>>(body).bind(event.0).fetch_optional(readers).await? {
        Some(body) if body.is_empty() => in_parts(readers, event).await.map(Some),
        body => Ok(body.map(Bytes::from)),
    }
}

/// The body of an event whose row has none. It may be that there is none.
pub(super) async fn in_parts(readers: &SqlitePool, event: EventId) -> Result<Bytes, Error> {
    let size: Option<i64> = sqlx::query_scalar(SIZE).bind(event.0).fetch_optional(readers).await?;
    let size = usize::try_from(size.unwrap_or_default()).unwrap_or_default();
    let mut body = BytesMut::with_capacity(size);
    for number in 0.. {
        if body.len() >= size {
            break;
        }
        let part: Vec<u8> = sqlx::query_scalar(PART).bind(event.0).bind(number).fetch_one(readers).await?;
        body.extend_from_slice(&part);
    }
    Ok(body.freeze())
}
