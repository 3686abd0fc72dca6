//! Recording a batch: the key first, and if it is new, the event and its jobs.
//!
//! How many events a second the gateway can take is decided here, so this has a connection of its own, with a driver that
//! runs a statement where it is called. sqlx hands each statement to another thread, with a copy of every value.

use std::time::Duration;

use rusqlite::{CachedStatement, Connection, MAIN_DB, OpenFlags, Transaction, TransactionBehavior, params};

use super::moment::{after, micros};
use super::open::{BUSY_TIMEOUT, DatabaseFile, Settings};
use crate::{NewJob, OpenError, Recorded, Routed, headers};

const TAKE_KEY: &str = "INSERT INTO dedupe_keys (source, dedupe_key, event_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";

const INSERT_EVENT: &str = "
INSERT INTO events
(id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, request_id, remote_address, method, url,
 headers, body, object_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const INSERT_JOB: &str = "INSERT INTO jobs (event_id, handler, due_at, priority, ordering_key) VALUES (?, ?, ?, ?, ?)";

const INSERT_RESEND: &str = "
INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address) VALUES (?, ?, ?, ?, ?)";

const SPOOL_JOB: &str = "INSERT INTO jobs (event_id, handler, priority, ordering_key) VALUES (?, ?, ?, ?)";

/// The connection on which events are recorded. Whoever uses it waits for the disk.
pub(super) struct Recorder(Connection);

impl Recorder {
    /// Opens a file that is there and has its tables. What durability rests on is checked for this connection, too.
    pub(super) fn open(file: &DatabaseFile<'_>) -> Result<Self, OpenError> {
        let (connection, settings) = connect(file).map_err(|error| file.unreachable(&error))?;
        settings.check()?;
        file.check_writable(connection.is_readonly(MAIN_DB).map_err(|error| file.unreachable(&error))?)?;
        Ok(Self(connection))
    }

    /// Records a batch: all or nothing, durable on return. Somebody should look at its jobs after `grace`.
    pub(super) fn record(&mut self, events: &[Routed], grace: Duration) -> rusqlite::Result<Vec<Recorded>> {
        let due_at = after(grace);
        self.in_transaction(|transaction| {
            let mut take_key = transaction.prepare_cached(TAKE_KEY)?;
            let mut insert_event = InsertEvent::prepare(transaction)?;
            let mut insert_job = transaction.prepare_cached(INSERT_JOB)?;
            let record = |routed: &Routed| {
                let (event, arrival) = (&routed.event, &routed.event.delivery().arrival);
                let (id, source, key) = (event.id().0, arrival.source.as_str(), event.dedupe_key().as_str());
                if take_key.execute(params![source, key, id.as_bytes()])? == 0 {
                    note_resend(transaction, routed)?;
                    return Ok(Recorded::Duplicate);
                }
                insert_event.execute(routed)?;
                for NewJob { handler, priority, ordering_key } in &routed.jobs {
                    let job = params![id.as_bytes(), handler.as_str(), due_at, priority.as_str(), ordering_key];
                    insert_job.execute(job)?;
                }
                Ok(Recorded::New)
            };
            events.iter().map(record).collect()
        })
    }

    /// Adds a batch to a spool, whose table of events has the same columns: all or nothing, durable on return.
    pub(super) fn spool(&mut self, events: &[Routed]) -> rusqlite::Result<()> {
        self.in_transaction(|transaction| {
            let mut insert_event = InsertEvent::prepare(transaction)?;
            let mut insert_job = transaction.prepare_cached(SPOOL_JOB)?;
            for routed in events {
                insert_event.execute(routed)?;
                for NewJob { handler, priority, ordering_key } in &routed.jobs {
                    let id = routed.event.id().0;
                    insert_job.execute(params![id.as_bytes(), handler.as_str(), priority.as_str(), ordering_key])?;
                }
            }
            Ok(())
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

    fn in_transaction<T>(
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

/// A statement, and room for the headers of one event.
struct InsertEvent<'a> {
    statement: CachedStatement<'a>,
    headers: Vec<u8>,
}

impl<'a> InsertEvent<'a> {
    fn prepare(transaction: &'a Transaction<'_>) -> rusqlite::Result<Self> {
        Ok(Self { statement: transaction.prepare_cached(INSERT_EVENT)?, headers: Vec::with_capacity(1024) })
    }

    fn execute(&mut self, Routed { event, .. }: &Routed) -> rusqlite::Result<()> {
        let (arrival, request) = (&event.delivery().arrival, &event.delivery().request);
        self.headers.clear();
        headers::write(&request.headers, &mut self.headers);
        self.statement.execute(params![
            event.id().0.as_bytes(),
            arrival.source.as_str(),
            event.dedupe_key().as_str(),
            event.event_type().as_str(),
            event.account().map(|account| account.as_str()),
            event.occurred_at().map(micros),
            micros(arrival.received_at),
            event.delivery().proof.kind(),
            arrival.request_id.0.as_bytes(),
            arrival.remote_address.to_string(),
            request.method.as_str(),
            request.url,
            self.headers,
            &event.body()[..],
            event.object_id().map(|object| object.as_str()),
        ])?;
        Ok(())
    }
}

fn note_resend(transaction: &Transaction<'_>, Routed { event, .. }: &Routed) -> rusqlite::Result<()> {
    let arrival = &event.delivery().arrival;
    transaction.prepare_cached(INSERT_RESEND)?.execute(params![
        arrival.source.as_str(),
        event.dedupe_key().as_str(),
        micros(arrival.received_at),
        arrival.request_id.0.as_bytes(),
        arrival.remote_address.to_string(),
    ])?;
    Ok(())
}
