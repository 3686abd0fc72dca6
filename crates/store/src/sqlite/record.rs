//! Recording a batch: the key first, and if it is new, the event and its jobs.
//!
//! Before it, `SqliteStore::record` waits for its turn to write, and calls [`Writer::record`]. After it, the transaction
//! is synced to disk, and `Committer::commit` in `ingest::commit` goes on.
//!
//! How many events a second the gateway can take is decided here, so this has a connection of its own, with a driver that
//! runs a statement where it is called. sqlx hands each statement to another thread, with a copy of every value.

use std::collections::HashSet;
use std::time::Duration;

use hookfast_webhook::{Arrival, Delivery, Event, RequestId};
use rusqlite::{CachedStatement, Connection, MAIN_DB, OpenFlags, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use super::event_row;
use super::large_body::mark_recorded;
use super::moment::{after, micros};
use super::open::{BUSY_TIMEOUT, DatabaseFile, Settings};
use crate::event_row::free_before;
use crate::large_body::WrittenBodies;
use crate::{NewJob, OpenError, Recorded, Routed, head};

const TAKE_KEY: &str = "INSERT INTO dedupe_keys (source, dedupe_key, event_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";

/// An event whose key has a window frees it from an event that came before that.
const FREE_KEY: &str = "DELETE FROM dedupe_keys WHERE source = ? AND dedupe_key = ? AND event_id < ?";

/// The arrivals that are kept beside a key belong to the event that had it.
const FORGET_ARRIVALS: &str = "DELETE FROM resend_arrivals WHERE source = ? AND dedupe_key = ?";

const INSERT_HEAD: &str =
    "INSERT INTO request_heads (request_id, url, headers) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";

const INSERT_JOB: &str = "INSERT INTO jobs (event_id, handler, due_at, priority, ordering_key) VALUES (?, ?, ?, ?, ?)";

const COUNT_RESEND: &str =
    "UPDATE dedupe_keys SET resends = resends + 1 WHERE source = ? AND dedupe_key = ? RETURNING resends";

const KEEP_ARRIVAL: &str = "
INSERT OR REPLACE INTO resend_arrivals (source, dedupe_key, slot, number, received_at, request_id, remote_address)
VALUES (?1, ?2, iif(?3 <= 5, ?3, 6 + ?3 % 5), ?3, ?4, ?5, ?6)";

const WAITING_WITH_KEY: &str = "SELECT id FROM events WHERE source = ? AND dedupe_key = ? ORDER BY place";

/// Counts by the arrivals that are kept: a number in the row of the event would mean writing its body again.
const KEEP_SPOOLED_ARRIVAL: &str = "
INSERT OR REPLACE INTO resend_arrivals (event_id, slot, number, id, received_at, request_id, remote_address)
SELECT ?1, iif(number <= 5, number, 6 + number % 5), number, ?2, ?3, ?4, ?5
FROM (SELECT coalesce(max(number), 0) + 1 AS number FROM resend_arrivals WHERE event_id = ?1)";

const SPOOL_JOB: &str = "INSERT INTO jobs (event_id, handler, priority, ordering_key) VALUES (?, ?, ?, ?)";

/// The connection on which events are recorded. A call on it blocks its thread until the disk has answered.
pub(super) struct Writer(Connection);

impl Writer {
    /// Opens a file that is there and has its tables. What durability rests on is checked for this connection, too.
    pub(super) fn open(file: &DatabaseFile<'_>) -> Result<Self, OpenError> {
        let (connection, settings) = connect(file).map_err(|error| file.unreachable(&error))?;
        settings.check()?;
        file.check_writable(connection.is_readonly(MAIN_DB).map_err(|error| file.unreachable(&error))?)?;
        Ok(Self(connection))
    }

    /// Records a batch: all or nothing, durable on return. Its jobs are due after `grace`; until then a hint should have
    /// led to them.
    pub(super) fn record(
        &mut self,
        events: &[Routed],
        bodies: &WrittenBodies,
        grace: Duration,
    ) -> rusqlite::Result<Vec<Recorded>> {
        let due_at = after(grace);
        self.in_transaction(|transaction| {
            let mut take_key = transaction.prepare_cached(TAKE_KEY)?;
            let mut insert_event = InsertEvent::prepare(transaction)?;
            let mut insert_job = transaction.prepare_cached(INSERT_JOB)?;
            let record = |routed: &Routed| {
                let (event, arrival) = (&routed.event, &routed.event.delivery().arrival);
                let (id, source, key) = (event.id().0, arrival.source.as_str(), event.dedupe_key().as_str());
                free_key(transaction, event)?;
                if take_key.execute(params![source, key, id.as_bytes()])? == 0 {
                    note_resend(transaction, event)?;
                    return Ok(Recorded::Duplicate);
                }
                insert_event.execute(routed, bodies)?;
                if bodies.contains(id) {
                    mark_recorded(transaction, event)?;
                }
                for NewJob { handler, priority, ordering_key } in &routed.jobs {
                    let job = params![id.as_bytes(), handler.as_str(), due_at, priority.as_str(), ordering_key];
                    insert_job.execute(job)?;
                }
                Ok(Recorded::New)
            };
            events.iter().map(record).collect()
        })
    }

    /// Adds a batch to a spool, whose table of events has the same columns: all or nothing, durable on return. An event whose
    /// key waits already is counted as a resend, unless the one that waits is among `held`.
    pub(super) fn spool(&mut self, events: &[Routed], held: &HashSet<Uuid>) -> rusqlite::Result<usize> {
        self.in_transaction(|transaction| {
            let mut insert_event = InsertEvent::prepare(transaction)?;
            let mut insert_job = transaction.prepare_cached(SPOOL_JOB)?;
            let mut added = 0;
            for routed in events {
                if let Some(waiting) = waiting_with_key(transaction, &routed.event, held)? {
                    note_spooled_resend(transaction, waiting, &routed.event)?;
                    continue;
                }
                insert_event.execute(routed, &WrittenBodies::default())?;
                added += 1;
                for NewJob { handler, priority, ordering_key } in &routed.jobs {
                    let id = routed.event.id().0;
                    insert_job.execute(params![id.as_bytes(), handler.as_str(), priority.as_str(), ordering_key])?;
                }
            }
            Ok(added)
        })
    }

    /// Fails unless a transaction that writes can begin within this time.
    pub(super) fn try_out(&self, within: Duration) -> rusqlite::Result<()> {
        self.0.busy_timeout(within)?;
        let tried = self.0.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
        self.0.busy_timeout(BUSY_TIMEOUT)?;
        tried
    }

    /// Moves everything out of the WAL. Whether that worked: what others read or move stands in the way.
    pub(super) fn empty_the_wal(&self) -> rusqlite::Result<bool> {
        self.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
    }

    pub(super) fn in_transaction<T>(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        // IMMEDIATE, because a transaction that begins with reading cannot wait for another writer.
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let written = write(&transaction)?;
        transaction.commit()?;
        Ok(written)
    }
}

fn connect(file: &DatabaseFile<'_>) -> rusqlite::Result<(Connection, Settings)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file.path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    for (name, value) in file.pragmas() {
        connection.pragma_update(None, name, value)?;
    }
    let settings = connection.query_row(Settings::READ, [], |row| {
        Ok(Settings { journal_mode: row.get(0)?, synchronous: row.get(1)?, version: row.get(2)? })
    })?;
    Ok((connection, settings))
}

/// Inserts an event, and the head of its request if that is kept apart.
struct InsertEvent<'a> {
    transaction: &'a Transaction<'a>,
    statement: CachedStatement<'a>,
    /// The request whose head was inserted last. The events of a request follow each other.
    head_of: Option<RequestId>,
}

impl<'a> InsertEvent<'a> {
    fn prepare(transaction: &'a Transaction<'a>) -> rusqlite::Result<Self> {
        Ok(Self { transaction, statement: transaction.prepare_cached(event_row::INSERT)?, head_of: None })
    }

    fn execute(&mut self, routed: &Routed, bodies: &WrittenBodies) -> rusqlite::Result<()> {
        if head::is_apart(routed.event.delivery()) {
            self.insert_head(routed.event.delivery())?;
        }
        bodies.row(routed).insert(&mut self.statement).map(drop)
    }

    fn insert_head(&mut self, delivery: &Delivery) -> rusqlite::Result<()> {
        let request_id = delivery.arrival.request_id;
        if self.head_of != Some(request_id) {
            let head = params![request_id.0.as_bytes(), delivery.request.url, head::stored_headers(delivery)];
            self.transaction.prepare_cached(INSERT_HEAD)?.execute(head)?;
            self.head_of = Some(request_id);
        }
        Ok(())
    }
}

/// The event of a spool that has this key and is not among `held`.
fn waiting_with_key(
    transaction: &Transaction<'_>,
    event: &Event,
    held: &HashSet<Uuid>,
) -> rusqlite::Result<Option<Uuid>> {
    let mut waiting = transaction.prepare_cached(WAITING_WITH_KEY)?;
    let key = [event.delivery().arrival.source.as_str(), event.dedupe_key().as_str()];
    let free_before = event.key_window().and_then(|window| free_before(event.id().0, window)).unwrap_or_default();
    let mut ids = waiting.query_map(key, |row| row.get(0).map(Uuid::from_bytes))?;
    ids.find(|id| !id.as_ref().is_ok_and(|id| held.contains(id) || *id < free_before)).transpose()
}

/// Most keys stand for ever, and for them nothing is asked.
fn free_key(transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<()> {
    let Some(before) = event.key_window().and_then(|window| free_before(event.id().0, window)) else { return Ok(()) };
    let (source, key) = (event.delivery().arrival.source.as_str(), event.dedupe_key().as_str());
    if transaction.prepare_cached(FREE_KEY)?.execute(params![source, key, before.as_bytes()])? > 0 {
        transaction.prepare_cached(FORGET_ARRIVALS)?.execute([source, key])?;
    }
    Ok(())
}

fn note_spooled_resend(transaction: &Transaction<'_>, waiting: Uuid, event: &Event) -> rusqlite::Result<()> {
    let Arrival { received_at, request_id, remote_address, .. } = &event.delivery().arrival;
    transaction.prepare_cached(KEEP_SPOOLED_ARRIVAL)?.execute(params![
        waiting.as_bytes(),
        event.id().0.as_bytes(),
        micros(*received_at),
        request_id.0.as_bytes(),
        remote_address.to_string(),
    ])?;
    Ok(())
}

fn note_resend(transaction: &Transaction<'_>, event: &Event) -> rusqlite::Result<()> {
    let arrival = &event.delivery().arrival;
    let (source, key) = (arrival.source.as_str(), event.dedupe_key().as_str());
    let number: i64 = transaction.prepare_cached(COUNT_RESEND)?.query_row([source, key], |row| row.get(0))?;
    transaction.prepare_cached(KEEP_ARRIVAL)?.execute(params![
        source,
        key,
        number,
        micros(arrival.received_at),
        arrival.request_id.0.as_bytes(),
        arrival.remote_address.to_string(),
    ])?;
    Ok(())
}
