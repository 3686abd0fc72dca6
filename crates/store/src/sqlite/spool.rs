//! The spool: a file of this machine in which events wait while Postgres cannot take them.
//!
//! It is opened as the store on SQLite is: private, FULL sync, one writer, and no more promises after an I/O error. Who
//! may drain it is one process: a lock beside the file says so.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hookfast_webhook::{EventId, HandlerName};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Row};
use uuid::Uuid;

use super::SqliteStore;
use super::lock::{Words, lock};
use super::moment::time;
use super::open::{Content, DatabaseFile, PAGE_BYTES};
use super::rows::id_list;
use crate::{Migrate, NewJob, OpenError, Routed, SetAside, SpoolConfig, SpoolStatus, Spooled, Store, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/spool");

/// A spool of which less than this part is free counts as full, because the next event may not fit.
const FULL_BELOW: u64 = 64;

const SIZES: &str = "
SELECT place, length(body) FROM events WHERE id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place LIMIT ?";

const OLDEST: &str = "
SELECT * FROM events WHERE place <= ? AND id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place";

const JOBS_OF_OLDEST: &str = "
SELECT event_id, handler, priority, ordering_key FROM jobs
WHERE event_id IN (SELECT id FROM events WHERE place <= ? AND id NOT IN (SELECT unhex(value) FROM json_each(?)))";

const IS_WAITING: &str =
    "SELECT EXISTS (SELECT 1 FROM events WHERE id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place)";

const SET_ASIDE: &str = "
SELECT id, source, received_at, length(body), refused FROM events WHERE refused IS NOT NULL ORDER BY place LIMIT ?";

const STATUS: &str = "
SELECT (SELECT count(*) FROM events),
       (SELECT count(*) FROM events WHERE refused IS NOT NULL),
       (SELECT received_at FROM events ORDER BY place LIMIT 1),
       (SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count)";

/// A spool. Nobody else has it.
pub struct Spool {
    file: SqliteStore,
    max_bytes: u64,
    /// What Postgres did not take. It is known here first: noting it in the file can fail.
    aside: Mutex<HashSet<Uuid>>,
    _lock: File,
}

impl Spool {
    /// Opens the file, or makes it. What Postgres did not take has another chance.
    pub async fn open(config: &SpoolConfig) -> Result<Self, OpenError> {
        let SpoolConfig { path, max_bytes } = config;
        let lock = lock(path, &LOCK)?;
        let file = DatabaseFile { content: Content::Spool, path, max_pages: Some(max_bytes / u64::from(PAGE_BYTES)) };
        let file = SqliteStore::open_file(&file, &MIGRATIONS, Migrate::Run).await?;
        Ok(Self { file, max_bytes: *max_bytes, aside: Mutex::default(), _lock: lock })
    }

    /// How a spool is, which another process may be using, and the first events that are set aside in it. None if there is no
    /// such file.
    pub async fn look(path: &Path, limit: usize) -> Result<Option<(SpoolStatus, Vec<SetAside>)>, OpenError> {
        if !path.exists() {
            return Ok(None);
        }
        let file = DatabaseFile { content: Content::Spool, path, max_pages: None };
        let unreachable = |error: sqlx::Error| file.unreachable(&error);
        let options = file.options().read_only(true);
        let mut connection = options.connect().await.map_err(unreachable)?;
        let row = sqlx::query(STATUS).fetch_one(&mut connection).await.map_err(unreachable)?;
        let status = status_of(&row).map_err(unreachable)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = sqlx::query(SET_ASIDE).bind(limit).fetch_all(&mut connection).await.map_err(unreachable)?;
        let aside = rows.iter().map(set_aside).collect::<Result<_, _>>().map_err(unreachable)?;
        Ok(Some((status, aside)))
    }

    /// Adds events at the end: all or nothing, durable on return.
    pub async fn add(&self, events: &[Routed]) -> Result<(), StoreError> {
        self.file.record_with(|recorder| recorder.spool(events)).await
    }

    /// The oldest events that are not set aside, at most this many events and bytes, and at least one if there is one.
    pub async fn oldest(&self, events: usize, bytes: u64) -> Result<Vec<Spooled>, StoreError> {
        self.file.refuse_if_broken()?;
        let aside = self.aside_list();
        let mut reader = self.file.readers.acquire().await.map_err(|error| self.file.judge(&error))?;
        oldest(&mut reader, events, bytes, &aside).await.map_err(|error| self.file.judge(&error))
    }

    /// Whether there are events that are not set aside.
    pub async fn is_waiting(&self) -> Result<bool, StoreError> {
        self.file.refuse_if_broken()?;
        let waiting = sqlx::query_scalar(IS_WAITING).bind(self.aside_list()).fetch_one(&self.file.readers).await;
        waiting.map_err(|error| self.file.judge(&error))
    }

    /// One event.
    pub async fn event(&self, id: EventId) -> Result<Option<Spooled>, StoreError> {
        self.file.refuse_if_broken()?;
        let mut reader = self.file.readers.acquire().await.map_err(|error| self.file.judge(&error))?;
        one(&mut reader, id).await.map_err(|error| self.file.judge(&error))
    }

    /// Takes events out that are in Postgres now.
    pub async fn remove(&self, events: &[Spooled]) -> Result<(), StoreError> {
        let ids = id_list(&events.iter().map(Spooled::id).collect::<Vec<_>>());
        self.file.write(async |writer| remove(writer, &ids).await).await?;
        self.aside().retain(|id| !events.iter().any(|event| event.id == *id));
        Ok(())
    }

    /// Lets the others pass an event that Postgres does not take, until the spool is opened anew. Why it does not is noted in
    /// the file; if that fails, the event is set aside all the same.
    pub async fn set_aside(&self, event: EventId, problem: &str) -> Result<(), StoreError> {
        self.aside().insert(event.0);
        let note = sqlx::query("UPDATE events SET refused = ? WHERE id = ?").bind(problem).bind(event.0);
        self.file.write(async |writer| note.execute(writer).await.map(|_| ())).await
    }

    fn aside(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aside_list(&self) -> String {
        id_list(&self.aside().iter().copied().map(EventId).collect::<Vec<_>>())
    }

    /// How much there is in it.
    pub async fn status(&self) -> Result<SpoolStatus, StoreError> {
        let row = sqlx::query(STATUS).fetch_one(&self.file.readers).await.map_err(|error| self.file.judge(&error))?;
        let status = status_of(&row).map_err(|error| self.file.judge(&error))?;
        Ok(SpoolStatus { refused: self.aside().len() as u64, ..status })
    }

    /// Fails unless an event could be added now, as far as can be said.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.file.refuse_if_broken()?;
        let SpoolStatus { bytes, .. } = self.status().await?;
        if self.max_bytes.saturating_sub(bytes) < self.max_bytes / FULL_BELOW {
            return Err(StoreError::Unavailable("it is full".into()));
        }
        Ok(())
    }

    /// How large it may become.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Lets go of the file after what is under way has ended.
    pub async fn close(&self) {
        self.file.close().await;
    }
}

const LOCK: Words = Words {
    what: "the spool",
    taken: "Give each gateway a spool of its own",
    impossible: "Name a file in a folder that stays, with `spool` in `[store]`, or have none with `spool = false`",
};

async fn oldest(
    reader: &mut SqliteConnection,
    events: usize,
    bytes: u64,
    aside: &str,
) -> Result<Vec<Spooled>, sqlx::Error> {
    let limit = i64::try_from(events).unwrap_or(i64::MAX);
    let sizes: Vec<(i64, i64)> = sqlx::query_as(SIZES).bind(aside).bind(limit).fetch_all(&mut *reader).await?;
    let mut sum = 0;
    let fits = |(_, size): &&(i64, i64)| {
        sum += size.unsigned_abs();
        sum <= bytes
    };
    let count = sizes.iter().take_while(fits).count().max(1);
    let Some((last, _)) = sizes.get(count - 1) else { return Ok(Vec::new()) };
    let rows = sqlx::query(OLDEST).bind(last).bind(aside).fetch_all(&mut *reader).await?;
    let mut jobs: HashMap<Uuid, Vec<NewJob>> = HashMap::new();
    for row in sqlx::query(JOBS_OF_OLDEST).bind(last).bind(aside).fetch_all(reader).await? {
        jobs.entry(row.try_get("event_id")?).or_default().push(job(&row)?);
    }
    rows.iter().map(|row| spooled(row, &mut jobs)).collect()
}

async fn one(reader: &mut SqliteConnection, id: EventId) -> Result<Option<Spooled>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM events WHERE id = ?").bind(id.0).fetch_optional(&mut *reader).await?;
    let of_event = "SELECT event_id, handler, priority, ordering_key FROM jobs WHERE event_id = ?";
    let rows = sqlx::query(of_event).bind(id.0).fetch_all(reader).await?;
    let mut jobs = HashMap::from([(id.0, rows.iter().map(job).collect::<Result<_, _>>()?)]);
    row.map(|row| spooled(&row, &mut jobs)).transpose()
}

fn set_aside(row: &SqliteRow) -> Result<SetAside, sqlx::Error> {
    Ok(SetAside {
        id: EventId(row.try_get(0)?),
        source: row.try_get(1)?,
        received_at: time(row.try_get(2)?)?,
        size_bytes: row.try_get::<i64, _>(3)?.unsigned_abs(),
        reason: row.try_get(4)?,
    })
}

fn spooled(row: &SqliteRow, jobs: &mut HashMap<Uuid, Vec<NewJob>>) -> Result<Spooled, sqlx::Error> {
    let id = row.try_get("id")?;
    Ok(Spooled {
        id,
        source: row.try_get("source")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        account: row.try_get("account")?,
        occurred_at: row.try_get::<Option<i64>, _>("occurred_at")?.map(time).transpose()?,
        received_at: time(row.try_get("received_at")?)?,
        proof: row.try_get("proof")?,
        request_id: row.try_get("request_id")?,
        remote_address: row.try_get("remote_address")?,
        method: row.try_get("method")?,
        url: row.try_get("url")?,
        headers: row.try_get("headers")?,
        object_id: row.try_get("object_id")?,
        body: row.try_get::<Vec<u8>, _>("body")?.into(),
        jobs: jobs.remove(&id).unwrap_or_default(),
    })
}

fn job(row: &SqliteRow) -> Result<NewJob, sqlx::Error> {
    let handler: String = row.try_get("handler")?;
    let priority: String = row.try_get("priority")?;
    Ok(NewJob {
        handler: HandlerName::new(&handler).map_err(|error| sqlx::Error::Decode(error.into()))?,
        priority: crate::job::priority(&priority),
        ordering_key: row.try_get("ordering_key")?,
    })
}

async fn remove(writer: &mut SqliteConnection, ids: &str) -> Result<(), sqlx::Error> {
    let jobs = "DELETE FROM jobs WHERE event_id IN (SELECT unhex(value) FROM json_each(?))";
    sqlx::query(jobs).bind(ids).execute(&mut *writer).await?;
    let events = "DELETE FROM events WHERE id IN (SELECT unhex(value) FROM json_each(?))";
    sqlx::query(events).bind(ids).execute(writer).await?;
    Ok(())
}

fn status_of(row: &SqliteRow) -> Result<SpoolStatus, sqlx::Error> {
    let number = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(SpoolStatus {
        events: number(0)?,
        refused: number(1)?,
        oldest: row.try_get::<Option<i64>, _>(2)?.map(time).transpose()?,
        bytes: number(3)? * u64::from(PAGE_BYTES),
    })
}
