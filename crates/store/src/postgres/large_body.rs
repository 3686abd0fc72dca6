//! Large bodies: written in parts before their events, and read back as one.

use bytes::{Bytes, BytesMut};
use hookfast_webhook::{Event, EventId};
use sqlx::Error;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{PostgresStore, on};
use crate::event_row::free_before;
use crate::large_body::{self, ABANDONED_AFTER, PART, SIZE, WrittenBodies};
use crate::{Recorded, Routed, StoreError};

/// Writes nothing if the event came before, or its body is recorded already.
const BEGIN_BODY: &str = "
INSERT INTO large_bodies (event_id, size_bytes)
SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM dedupe_keys WHERE source = $3 AND dedupe_key = $4)
ON CONFLICT DO NOTHING";

const ADD_PART: &str = "INSERT INTO body_parts (event_id, part, bytes) VALUES ($1, $2, $3)";

const MARK_RECORDED: &str = "UPDATE large_bodies SET is_recorded = true WHERE event_id = ANY($1) AND NOT is_recorded";

const CLEAR: &str = "
WITH cleared AS (DELETE FROM large_bodies WHERE event_id = ANY($1) AND NOT is_recorded RETURNING event_id)
DELETE FROM body_parts WHERE event_id IN (SELECT event_id FROM cleared)";

const CLEAR_ABANDONED: &str = "
WITH cleared AS (DELETE FROM large_bodies WHERE event_id < $1 AND NOT is_recorded RETURNING event_id)
DELETE FROM body_parts WHERE event_id IN (SELECT event_id FROM cleared)";

impl PostgresStore {
    /// Writes the large bodies of these events, each part in a commit of its own. The body of an event that came before is not
    /// written again.
    pub(super) async fn write_large_bodies(&self, events: &[Routed]) -> Result<WrittenBodies, StoreError> {
        let mut written = WrittenBodies::default();
        for event in large_body::large(events) {
            if on(&self.pool, async |connection| begin_body(connection, event).await).await? {
                for (number, part) in large_body::parts(event) {
                    on(&self.pool, async |connection| add_part(connection, event, number, part).await).await?;
                }
                written.add(event);
            }
        }
        Ok(written)
    }

    /// Clears the bodies whose events turned out to be resends.
    pub(super) async fn clear_bodies_of_resends(
        &self,
        events: &[Routed],
        recorded: &[Recorded],
        bodies: &WrittenBodies,
    ) {
        let ids = events.iter().zip(recorded).filter(|(_, recorded)| **recorded != Recorded::New);
        let ids: Vec<_> = ids.map(|(routed, _)| routed.event.id().0).filter(|id| bodies.contains(*id)).collect();
        if !ids.is_empty() {
            // What fails here is cleared an hour later.
            let _ = on(&self.pool, async |connection| clear(connection, &ids).await).await;
        }
    }
}

async fn clear(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), Error> {
    sqlx::query(CLEAR).bind(ids).execute(connection).await.map(drop)
}

/// Notes that a body begins, unless its event came before. Clears bodies that were begun and abandoned, and what is left of an
/// earlier attempt at the same event.
async fn begin_body(connection: &mut PgConnection, event: &Event) -> Result<bool, Error> {
    if let Some(before) = free_before(event.id().0, ABANDONED_AFTER) {
        sqlx::query(CLEAR_ABANDONED).bind(before).execute(&mut *connection).await?;
    }
    clear(connection, &[event.id().0]).await?;
    let begun = sqlx::query(BEGIN_BODY)
        .bind(event.id().0)
        .bind(i64::try_from(event.body().len()).unwrap_or(i64::MAX))
        .bind(event.delivery().arrival.source.as_str())
        .bind(event.dedupe_key().as_str())
        .execute(connection)
        .await?;
    Ok(begun.rows_affected() == 1)
}

async fn add_part(connection: &mut PgConnection, event: &Event, number: i32, part: &[u8]) -> Result<(), Error> {
    sqlx::query(ADD_PART).bind(event.id().0).bind(number).bind(part).execute(connection).await.map(drop)
}

/// Marks the bodies of events that are recorded now. Fails if one of them was cleared meanwhile.
pub(super) async fn mark_recorded(connection: &mut PgConnection, events: &[Uuid]) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let marked = sqlx::query(MARK_RECORDED).bind(events).execute(connection).await?.rows_affected();
    if marked == events.len() as u64 { Ok(()) } else { Err(Error::RowNotFound) }
}

/// The body of an event, wherever it stands.
pub(super) async fn body(connection: &mut PgConnection, event: EventId) -> Result<Option<Bytes>, Error> {
    let body = "SELECT body FROM events WHERE id = $1";
    match sqlx::query_scalar::<_, Vec<u8>>(body).bind(event.0).fetch_optional(&mut *connection).await? {
        Some(body) if body.is_empty() => in_parts(connection, event).await.map(Some),
        body => Ok(body.map(Bytes::from)),
    }
}

/// The body of an event whose row has none. It may be that there is none.
pub(super) async fn in_parts(connection: &mut PgConnection, event: EventId) -> Result<Bytes, Error> {
    let size: Option<i64> = sqlx::query_scalar(SIZE).bind(event.0).fetch_optional(&mut *connection).await?;
    let size = usize::try_from(size.unwrap_or_default()).unwrap_or_default();
    let mut body = BytesMut::with_capacity(size);
    for number in 0_i32.. {
        if body.len() >= size {
            break;
        }
        let part: Vec<u8> = sqlx::query_scalar(PART).bind(event.0).bind(number).fetch_one(&mut *connection).await?;
        body.extend_from_slice(&part);
    }
    Ok(body.freeze())
}
