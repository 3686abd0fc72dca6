//! Large bodies: written in parts before their events, and read back as one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hookfast_webhook::{Event, EventId};
use sqlx::Error;
use sqlx::postgres::{PgConnection, PgPool};
use tokio::time::timeout;
use uuid::Uuid;

use super::{BATCH_TIMEOUT, LEAST_BYTES_WRITTEN_PER_SECOND, PostgresStore, on, too_slow};
use crate::large_body::{self, PART, Parts, SIZE, WrittenBodies, note_clearing};
use crate::{Recorded, Routed, StoreError};

/// Writes nothing if the event came before, or its body is recorded already.
const BEGIN_BODY: &str = "
INSERT INTO large_bodies (event_id, size_bytes)
SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM dedupe_keys WHERE source = $3 AND dedupe_key = $4)
ON CONFLICT DO NOTHING";

const ADD_PART: &str = "INSERT INTO body_parts (event_id, part, bytes) VALUES ($1, $2, $3)";

const MARK_RECORDED: &str = "
UPDATE large_bodies SET is_recorded = true WHERE event_id = ANY($1) AND NOT is_recorded AND size_bytes > 0";

const CLEAR: &str = "
WITH cleared AS (DELETE FROM large_bodies WHERE event_id = ANY($1) AND NOT is_recorded RETURNING event_id)
DELETE FROM body_parts WHERE event_id IN (SELECT event_id FROM cleared)";

/// A body without a size cannot be recorded any more, so that it may lose its parts piece by piece.
const GIVE_UP: &str = "
UPDATE large_bodies SET size_bytes = 0
WHERE event_id = (SELECT event_id FROM large_bodies WHERE event_id < $1 AND NOT is_recorded
                  ORDER BY event_id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING event_id";

/// Clears some parts of a body that was given up. The body itself goes with the last of them.
const CLEAR_PIECE: &str = "
WITH given_up AS (
    SELECT event_id FROM large_bodies WHERE event_id = $1 AND size_bytes = 0 FOR UPDATE SKIP LOCKED
), cleared AS (
    DELETE FROM body_parts
    WHERE event_id IN (SELECT event_id FROM given_up)
      AND part IN (SELECT part FROM body_parts WHERE event_id = $1 ORDER BY part LIMIT $2)
    RETURNING part
)
DELETE FROM large_bodies WHERE event_id IN (SELECT event_id FROM given_up) AND (SELECT count(*) FROM cleared) < $2";

/// The most parts of an abandoned body that one statement clears: a body has any number of them, a statement has 4 s.
const PIECE_PARTS: i64 = 64;

/// The most pieces that are cleared after a batch: few, because other batches are written meanwhile, but more than most bodies
/// have.
const PIECES: usize = 4;

impl PostgresStore {
    /// Writes the large bodies of these events, each part in a commit of its own. The body of an event that came before is not
    /// written again. There is one limit for all of it, so that a slow server does not keep a committer for each part.
    pub(super) async fn write_large_bodies(&self, events: &[Routed]) -> Result<WrittenBodies, StoreError> {
        let bytes: usize = large_body::large(events).map(|event| event.body().len()).sum();
        let patience = BATCH_TIMEOUT + Duration::from_secs((bytes / LEAST_BYTES_WRITTEN_PER_SECOND) as u64);
        timeout(patience, self.write_in_parts(events)).await.map_err(|_| too_slow(patience))?
    }

    async fn write_in_parts(&self, events: &[Routed]) -> Result<WrittenBodies, StoreError> {
        let mut written = WrittenBodies::default();
        for event in large_body::large(events) {
            if on(&self.pool, async |connection| begin_body(connection, event).await).await? {
                let mut parts = Parts::of(event);
                while let Some((number, part)) = parts.next() {
                    let began = Instant::now();
                    on(&self.pool, async |connection| add_part(connection, event, number, part).await).await?;
                    parts.took(began.elapsed());
                }
                written.add(event);
            }
        }
        Ok(written)
    }

    /// Clears the bodies whose events turned out to be resends, and some of what was abandoned. The batch is durable and does
    /// not wait for this, or it could seem late. Clearing takes one connection: if it is under way, the bodies of these
    /// resends count as abandoned.
    pub(super) fn clear_bodies_beside(&self, events: &[Routed], recorded: &[Recorded], bodies: &WrittenBodies) {
        let Some(before) = bodies.abandoned_before() else { return };
        let Ok(alone) = Arc::clone(&self.clearing).try_lock_owned() else { return };
        let (pool, resends) = (self.pool.clone(), bodies.of_resends(events, recorded));
        tokio::spawn(async move {
            if !resends.is_empty() {
                note_clearing(on(&pool, async |connection| clear(connection, &resends).await).await);
            }
            note_clearing(clear_abandoned(&pool, before).await);
            drop(alone);
        });
    }
}

async fn clear(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), Error> {
    sqlx::query(CLEAR).bind(ids).execute(connection).await.map(drop)
}

async fn clear_abandoned(pool: &PgPool, before: Uuid) -> Result<(), StoreError> {
    for _ in 0..PIECES {
        if !on(pool, async |connection| clear_piece(connection, before).await).await? {
            break;
        }
    }
    Ok(())
}

/// Clears a piece of an abandoned body. Whether there was one.
async fn clear_piece(connection: &mut PgConnection, before: Uuid) -> Result<bool, Error> {
    let abandoned = sqlx::query_scalar(GIVE_UP).bind(before).fetch_optional(&mut *connection).await?;
    let Some(body): Option<Uuid> = abandoned else { return Ok(false) };
    sqlx::query(CLEAR_PIECE).bind(body).bind(PIECE_PARTS).execute(connection).await?;
    Ok(true)
}

/// Notes that a body begins, unless its event came before. Clears what is left of an earlier attempt at the same event.
async fn begin_body(connection: &mut PgConnection, event: &Event) -> Result<bool, Error> {
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
