//! The spool: a file of this machine in which events wait while Postgres cannot take them.
//!
//! It is opened as the store on SQLite is: private, FULL sync, one writer, and no more promises after an I/O error. Who
//! may drain it is one process: a lock beside the file says so.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Row};
use tokio::time::sleep;
use uuid::Uuid;

use super::SqliteStore;
use super::events::kept_arrival;
use super::lock::{Words, lock};
use super::moment::time;
use super::open::{Content, DatabaseFile, PAGE_BYTES, check_private};
use super::rows::{id_list, uuid_list};
use crate::decode::{handler, word};
use crate::event_row::EventRow;
use crate::head::Head;
use crate::migrations::SPOOL;
use crate::private::problem_of_private_file;
use crate::spool::SpooledResend;
use crate::{Migrate, NewJob, OpenError, Routed, SetAside, SpoolConfig, SpoolStatus, Spooled, Store, StoreError};

/// A spool of which less than this part is free counts as full, because the next event may not fit.
const FULL_BELOW: u64 = 64;

/// The log beside the file has this part of what a spool may take in all, and no more than this. It is emptied when it has
/// half of that: the other half is for the batch that comes next.
const LOG_PART: u64 = 4;
const MAX_LOG_BYTES: u64 = 128 * 1024 * 1024;

/// A sender waits meanwhile.
const EMPTY_LOG_TRIES: usize = 20;
const EMPTY_LOG_AGAIN: Duration = Duration::from_millis(10);

const SIZES: &str = "
SELECT place, octet_length(events.url) + octet_length(events.headers) + octet_length(body), request_id,
       coalesce(octet_length(head.url) + octet_length(head.headers), 0)
FROM events LEFT JOIN request_heads AS head USING (request_id)
WHERE id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place LIMIT ?";

const OLDEST: &str = "
SELECT * FROM events WHERE place <= ? AND id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place";

const JOBS_OF_OLDEST: &str = "
SELECT event_id, handler, priority, ordering_key FROM jobs
WHERE event_id IN (SELECT id FROM events WHERE place <= ? AND id NOT IN (SELECT unhex(value) FROM json_each(?)))";

const HEADS_OF_OLDEST: &str = "
SELECT request_id, url, headers FROM request_heads
WHERE request_id IN (SELECT request_id FROM events
                     WHERE place <= ? AND id NOT IN (SELECT unhex(value) FROM json_each(?)))";

const RESENDS_OF_OLDEST: &str = "
SELECT event_id, id, number, received_at, request_id, remote_address FROM resend_arrivals
WHERE event_id IN (SELECT unhex(value) FROM json_each(?)) ORDER BY event_id, number";

/// Those of these heads of which no event waits any more.
const REMOVE_HEADS: &str = "
DELETE FROM request_heads
WHERE request_id IN (SELECT unhex(value) FROM json_each(?))
  AND NOT EXISTS (SELECT 1 FROM events WHERE events.request_id = request_heads.request_id AND events.url = '')";

const IS_WAITING: &str =
    "SELECT EXISTS (SELECT 1 FROM events WHERE id NOT IN (SELECT unhex(value) FROM json_each(?)) ORDER BY place)";

const SET_ASIDE: &str = "
SELECT id, source, received_at, length(body), refused FROM events WHERE refused IS NOT NULL ORDER BY place LIMIT ?";

const STATUS: &str = "
SELECT (SELECT count(*) FROM events),
       (SELECT count(*) FROM events WHERE refused IS NOT NULL),
       (SELECT received_at FROM events ORDER BY place LIMIT 1),
       (SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count)";

/// A spool. It belongs to this process alone.
pub struct Spool {
    file: SqliteStore,
    max_bytes: u64,
    /// How large the log beside the file may become.
    max_log_bytes: u64,
    log: PathBuf,
    /// What Postgres did not take. It is known here first: noting it in the file can fail.
    aside: Mutex<HashSet<Uuid>>,
    /// What is being handed on. A resend of one of these is not counted with it, because it could be removed with it unseen.
    held: tokio::sync::Mutex<HashSet<Uuid>>,
    _lock: File,
}

impl Spool {
    /// Opens the file, or makes it. What Postgres did not take has another chance.
    pub async fn open(config: &SpoolConfig) -> Result<Self, OpenError> {
        let SpoolConfig { path, max_bytes } = config;
        check_private(path, problem_of_private_file)?;
        let lock = lock(path, &LOCK)?;
        let max_log_bytes = (max_bytes / LOG_PART).min(MAX_LOG_BYTES);
        let max_bytes = max_bytes - max_log_bytes;
        // A file that an earlier version filled may be larger. It grows no more, and keeps its reserve.
        let has_bytes = fs::metadata(path).map_or(0, |file| file.len());
        let max_pages = Some(max_bytes.max(has_bytes) / u64::from(PAGE_BYTES));
        let file = DatabaseFile { content: Content::Spool, path, max_pages };
        let file = SqliteStore::open_file(&file, &SPOOL, Migrate::Run).await?;
        let log = PathBuf::from(format!("{}-wal", path.display()));
        let (aside, held) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { file, max_bytes, max_log_bytes, log, aside, held, _lock: lock })
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

    /// Adds events at the end: all or nothing, durable on return. Gives how many it added; those that wait already are counted as
    /// resends.
    pub async fn add(&self, events: &[Routed]) -> Result<usize, StoreError> {
        self.bound_log().await?;
        let held = self.held.lock().await;
        self.file.record_with(|recorder| recorder.spool(events, &held)).await
    }

    /// Empties the log when it is too long: checkpoints beside the writer may be slower than the writer. If one is under way,
    /// the log cannot be emptied at once.
    async fn bound_log(&self) -> Result<(), StoreError> {
        let length = || fs::metadata(&self.log).map_or(0, |log| log.len());
        if length() <= self.max_log_bytes / 2 {
            return Ok(());
        }
        for _ in 0..EMPTY_LOG_TRIES {
            let is_empty = self.file.record_with(|recorder| recorder.empty_the_wal()).await?;
            if is_empty || length() <= self.max_log_bytes {
                return Ok(());
            }
            sleep(EMPTY_LOG_AGAIN).await;
        }
        Err(StoreError::Unavailable("its log is full and cannot be emptied, because it is being read".into()))
    }

    /// The oldest events that are not set aside, at most this many events and bytes, and at least one if there is one.
    pub async fn oldest(&self, events: usize, bytes: u64) -> Result<Vec<Spooled>, StoreError> {
        self.file.refuse_if_broken()?;
        let aside = self.aside_list();
        let mut reader = self.file.readers.acquire().await.map_err(|error| self.file.classify(&error))?;
        let mut oldest =
            oldest(&mut reader, events, bytes, &aside).await.map_err(|error| self.file.classify(&error))?;
        self.hold(&mut reader, &mut oldest).await?;
        Ok(oldest)
    }

    /// Takes the resends of these events along. From then on none is counted with them.
    async fn hold(&self, reader: &mut SqliteConnection, events: &mut [Spooled]) -> Result<(), StoreError> {
        *self.held.lock().await = events.iter().map(|event| event.row.id).collect();
        take_resends(reader, events).await.map_err(|error| self.file.classify(&error))
    }

    /// Whether there are events that are not set aside.
    pub async fn is_waiting(&self) -> Result<bool, StoreError> {
        self.file.refuse_if_broken()?;
        let waiting = sqlx::query_scalar(IS_WAITING).bind(self.aside_list()).fetch_one(&self.file.readers).await;
        waiting.map_err(|error| self.file.classify(&error))
    }

    /// One event.
    pub async fn event(&self, id: EventId) -> Result<Option<Spooled>, StoreError> {
        self.file.refuse_if_broken()?;
        let mut reader = self.file.readers.acquire().await.map_err(|error| self.file.classify(&error))?;
        let mut event = one(&mut reader, id).await.map_err(|error| self.file.classify(&error))?;
        self.hold(&mut reader, event.as_mut_slice()).await?;
        Ok(event)
    }

    /// Takes events out that are in Postgres now.
    pub async fn remove(&self, events: &[Spooled]) -> Result<(), StoreError> {
        let ids = id_list(&events.iter().map(Spooled::id).collect::<Vec<_>>());
        let heads: HashSet<_> = events.iter().filter_map(|event| Some(event.head.as_ref()?.request_id)).collect();
        let heads = (!heads.is_empty()).then(|| uuid_list(heads));
        self.file.write(async |writer| remove(writer, &ids, heads.as_deref()).await).await?;
        self.aside().retain(|id| !events.iter().any(|event| event.row.id == *id));
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
        let row =
            sqlx::query(STATUS).fetch_one(&self.file.readers).await.map_err(|error| self.file.classify(&error))?;
        let status = status_of(&row).map_err(|error| self.file.classify(&error))?;
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
    let sizes: Vec<Size> = sqlx::query_as(SIZES).bind(aside).bind(limit).fetch_all(&mut *reader).await?;
    let (mut sum, mut request) = (0, None);
    let fits = |(_, size, request_id, head): &&Size| {
        // The head counts with the first event of its request.
        let head = if request.replace(*request_id) == Some(*request_id) { 0 } else { *head };
        sum += size.unsigned_abs() + head.unsigned_abs();
        sum <= bytes
    };
    let count = sizes.iter().take_while(fits).count().max(1);
    let Some((last, ..)) = sizes.get(count - 1) else { return Ok(Vec::new()) };
    let rows = sqlx::query(OLDEST).bind(last).bind(aside).fetch_all(&mut *reader).await?;
    let heads = sqlx::query(HEADS_OF_OLDEST).bind(last).bind(aside).fetch_all(&mut *reader).await?;
    let mut beside = Beside { heads: heads.iter().map(head).collect::<Result<_, _>>()?, jobs: HashMap::new() };
    for row in sqlx::query(JOBS_OF_OLDEST).bind(last).bind(aside).fetch_all(reader).await? {
        beside.jobs.entry(row.try_get("event_id")?).or_default().push(job(&row)?);
    }
    rows.iter().map(|row| spooled(row, &mut beside)).collect()
}

async fn take_resends(reader: &mut SqliteConnection, events: &mut [Spooled]) -> Result<(), sqlx::Error> {
    let ids = id_list(&events.iter().map(Spooled::id).collect::<Vec<_>>());
    let mut resends: HashMap<Uuid, Vec<SpooledResend>> = HashMap::new();
    for row in sqlx::query(RESENDS_OF_OLDEST).bind(ids).fetch_all(reader).await? {
        let resend = SpooledResend { id: row.try_get("id")?, arrival: kept_arrival(&row)? };
        resends.entry(row.try_get("event_id")?).or_default().push(resend);
    }
    for event in events {
        event.resends = resends.remove(&event.row.id).unwrap_or_default();
    }
    Ok(())
}

/// The place of an event, its size without the head of its request, that request, and the size of the head.
type Size = (i64, i64, Uuid, i64);

/// What stands beside events: heads by their requests, jobs by their events.
struct Beside {
    heads: HashMap<Uuid, Arc<Head>>,
    jobs: HashMap<Uuid, Vec<NewJob>>,
}

async fn one(reader: &mut SqliteConnection, id: EventId) -> Result<Option<Spooled>, sqlx::Error> {
    let row = sqlx::query("SELECT * FROM events WHERE id = ?").bind(id.0).fetch_optional(&mut *reader).await?;
    let of_event = "SELECT event_id, handler, priority, ordering_key FROM jobs WHERE event_id = ?";
    let rows = sqlx::query(of_event).bind(id.0).fetch_all(&mut *reader).await?;
    let of_request = "SELECT request_id, url, headers FROM request_heads
                      WHERE request_id = (SELECT request_id FROM events WHERE id = ?)";
    let heads = sqlx::query(of_request).bind(id.0).fetch_all(reader).await?;
    let mut beside = Beside {
        heads: heads.iter().map(head).collect::<Result<_, _>>()?,
        jobs: HashMap::from([(id.0, rows.iter().map(job).collect::<Result<_, _>>()?)]),
    };
    row.map(|row| spooled(&row, &mut beside)).transpose()
}

fn head(row: &SqliteRow) -> Result<(Uuid, Arc<Head>), sqlx::Error> {
    let request_id = row.try_get("request_id")?;
    let head = Head { request_id, url: row.try_get("url")?, headers: row.try_get("headers")? };
    Ok((request_id, Arc::new(head)))
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

fn spooled(row: &SqliteRow, beside: &mut Beside) -> Result<Spooled, sqlx::Error> {
    let row = EventRow::decode(row)?;
    let (head, jobs) = (beside.heads.get(&row.request_id).cloned(), beside.jobs.remove(&row.id).unwrap_or_default());
    Ok(Spooled { row, head, jobs, resends: Vec::new() })
}

fn job(row: &SqliteRow) -> Result<NewJob, sqlx::Error> {
    Ok(NewJob {
        handler: handler(row.try_get("handler")?)?,
        priority: word(row.try_get("priority")?)?,
        ordering_key: row.try_get("ordering_key")?,
    })
}

async fn remove(writer: &mut SqliteConnection, ids: &str, heads: Option<&str>) -> Result<(), sqlx::Error> {
    let jobs = "DELETE FROM jobs WHERE event_id IN (SELECT unhex(value) FROM json_each(?))";
    sqlx::query(jobs).bind(ids).execute(&mut *writer).await?;
    let resends = "DELETE FROM resend_arrivals WHERE event_id IN (SELECT unhex(value) FROM json_each(?))";
    sqlx::query(resends).bind(ids).execute(&mut *writer).await?;
    let events = "DELETE FROM events WHERE id IN (SELECT unhex(value) FROM json_each(?))";
    sqlx::query(events).bind(ids).execute(&mut *writer).await?;
    if let Some(heads) = heads {
        sqlx::query(REMOVE_HEADS).bind(heads).execute(writer).await?;
    }
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
