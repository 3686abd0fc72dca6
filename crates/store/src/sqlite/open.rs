//! Opening the file: who may read it, what durability rests on, the tables, and the checkpoints.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Row};

use super::turns::Turns;
use super::{SqliteStore, judge};
use crate::faults::{Protection, is_off};
use crate::migrations::{APPLIED, compare};
use crate::{Migrate, OpenError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// Below this version SQLite can damage a database when it resets the WAL.
const SAFE_VERSION: [u32; 3] = [3, 51, 3];

pub(super) const PAGE_BYTES: u32 = 8192;

/// Beyond this length of the WAL (16 MiB) the writer waits for a checkpoint, so that the file does not grow for ever. The
/// shorter it is, the shorter the writer waits: all of it goes to the disk meanwhile.
const WAL_LIMIT_PAGES: i64 = 16 * 1024 * 1024 / PAGE_BYTES as i64;

const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);

/// How long the writer waits for those who read before the WAL starts over; if they take longer, it is tried again.
const WAIT_FOR_READERS: Duration = Duration::from_millis(20);

/// How long to wait for whoever writes now.
pub(super) const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

impl SqliteStore {
    pub(crate) async fn open(path: &Path, dispatch_grace: Duration, migrate: Migrate) -> Result<Self, OpenError> {
        let file = Self::open_file(path, options(path), &MIGRATIONS, migrate).await?;
        Ok(Self { dispatch_grace, ..file })
    }

    /// Opens a file with tables of some kind.
    pub(super) async fn open_file(
        path: &Path,
        options: SqliteConnectOptions,
        migrations: &Migrator,
        migrate: Migrate,
    ) -> Result<Self, OpenError> {
        let unreachable =
            |error: sqlx::Error| OpenError::Unreachable { database: name(path), problem: error.to_string() };
        create_private(path)?;
        let writer = writer(options.clone()).await.map_err(unreachable)?;
        let mut connection = writer.acquire().await.map_err(unreachable)?;
        check_settings(&mut connection).await.map_err(unreachable)??;
        check_tables(&mut connection, path, migrations, migrate).await?;
        drop(connection);
        let readers = SqlitePoolOptions::new().max_connections(4).connect_lazy_with(options.clone().read_only(true));
        let broken = Arc::new(OnceLock::new());
        let connection = options.busy_timeout(WAIT_FOR_READERS).connect().await.map_err(unreachable)?;
        let checkpoints = Checkpoints { connection, writer: writer.clone(), broken: Arc::clone(&broken) };
        let checkpoints = tokio::spawn(checkpoints.run());
        let turns = Turns::new();
        Ok(Self { writer, turns, readers, checkpoints, broken, dispatch_grace: Duration::ZERO })
    }
}

/// A pool of one connection: whoever has it is the only one who writes.
async fn writer(options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(WRITER_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        // Where SQLite has undone a transaction by itself, as on a full disk, sqlx still counts it as open and would begin
        // no other: then the connection is replaced.
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
        .connect_with(options)
        .await
}

fn name(path: &Path) -> String {
    format!("the database file {}", path.display())
}

/// Payloads are private: only the owner may read the file. SQLite gives the same mode to the files beside it.
fn create_private(path: &Path) -> Result<(), OpenError> {
    let refuse = |problem: String| Err(OpenError::File(format!("{}: {problem}", name(path))));
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            refuse("it is a symbolic link, and whoever made it could be somebody else. Name the file itself".into())
        }
        Ok(found) if !found.is_file() => refuse("it is not a file".into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
                Ok(_) => Ok(()),
                Err(error) => refuse(format!("it cannot be created: {error}")),
            }
        }
        Err(error) => refuse(error.to_string()),
    }
}

pub(super) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(if is_off(Protection::Sync) { SqliteSynchronous::Normal } else { SqliteSynchronous::Full })
        // A checkpoint in the middle of a commit would make that commit slow; `spawn_checkpoints` does them.
        .pragma("wal_autocheckpoint", "0")
        // A batch's statements keep notes of what they changed, to undo a part of it; a file for that costs more than the
        // batch itself. The cache holds a batch's pages, or they would be written more than once.
        .pragma("temp_store", "MEMORY")
        .pragma("cache_size", "-16384")
        .busy_timeout(Duration::from_secs(2))
        .foreign_keys(true)
        .disable_statement_logging()
}

/// Reads back what durability rests on.
async fn check_settings(writer: &mut SqliteConnection) -> Result<Result<(), OpenError>, sqlx::Error> {
    let row = sqlx::query(
        "SELECT (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous), sqlite_version()",
    )
    .fetch_one(writer)
    .await?;
    let (journal, synchronous, version): (String, i64, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);

    let wrong = |setting, value: String, why, remedy| Ok(Err(OpenError::Unsafe { setting, value, why, remedy }));
    if journal != "wal" {
        let why = "only a write-ahead log makes commits both safe and fast";
        return wrong("SQLite's journal_mode", journal, why, "Put the file on a local disk, not on a network share.");
    }
    if synchronous != 2 && !is_off(Protection::Sync) {
        let why = "below 2 (FULL) a power cut loses acknowledged events";
        return wrong("SQLite's synchronous", synchronous.to_string(), why, "Use a hookfast built with stock SQLite.");
    }
    if !is_safe(&version) {
        let why = "versions before 3.51.3 can damage the database";
        return wrong("SQLite's version", version, why, "Build hookfast with its bundled SQLite.");
    }
    Ok(Ok(()))
}

fn is_safe(version: &str) -> bool {
    let parts: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    parts.as_slice() >= SAFE_VERSION.as_slice()
}

async fn check_tables(
    writer: &mut SqliteConnection,
    path: &Path,
    migrations: &Migrator,
    migrate: Migrate,
) -> Result<(), OpenError> {
    if migrate != Migrate::Never {
        let other = |problem: String| OpenError::OtherTables { database: name(path), problem };
        migrations.run(&mut *writer).await.map_err(|error| other(error.to_string()))?;
    }
    let applied = sqlx::query_as(APPLIED).fetch_all(writer).await.unwrap_or_default();
    compare(migrations, &applied, &name(path))
}

/// Moves what the WAL holds into the database, beside the writer. Under steady load such a checkpoint never gets to the
/// end of the WAL; once that is too long, one that makes the writer wait lets it start over at the beginning of the file,
/// which is kept, because writing over a file is faster than making it longer.
struct Checkpoints {
    connection: SqliteConnection,
    writer: SqlitePool,
    broken: Arc<OnceLock<String>>,
}

impl Checkpoints {
    async fn run(mut self) {
        let mut timer = tokio::time::interval(CHECKPOINT_EVERY);
        loop {
            timer.tick().await;
            if let Err(error) = self.checkpoint().await {
                tracing::warn!(%error, "a checkpoint of the database failed");
                judge(&error, &self.broken);
            }
        }
    }

    async fn checkpoint(&mut self) -> Result<(), sqlx::Error> {
        let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut self.connection).await?;
        let (in_wal, moved): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        // What somebody still reads cannot be moved, and then starting over is impossible, too.
        if in_wal > WAL_LIMIT_PAGES && in_wal - moved < WAL_LIMIT_PAGES / 4 {
            // SQLite would wait for the readers while it keeps others from writing, for as long as for a writer. So nobody
            // writes, and it need not wait for long.
            let _writer = self.writer.acquire().await?;
            sqlx::query("PRAGMA wal_checkpoint(RESTART)").execute(&mut self.connection).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for safe in ["3.51.3", "3.51.10", "3.52.0", "4.0.0"] {
            assert!(is_safe(safe), "{safe}");
        }
        for unsafe_version in ["3.51.2", "3.9.9", "3.51", "", "x"] {
            assert!(!is_safe(unsafe_version), "{unsafe_version}");
        }
    }

    #[tokio::test]
    async fn a_connection_without_full_sync_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = |name| options(&folder.path().join(name)).create_if_missing(true);
        let mut good = database("good.db").connect().await.expect("opens");
        assert!(check_settings(&mut good).await.expect("answers").is_ok());
        for options in [
            database("sync.db").synchronous(SqliteSynchronous::Normal),
            database("journal.db").journal_mode(SqliteJournalMode::Delete),
        ] {
            let mut bad = options.connect().await.expect("opens");
            let verdict = check_settings(&mut bad).await.expect("answers");
            assert!(matches!(verdict, Err(OpenError::Unsafe { .. })), "{verdict:?}");
        }
    }

    /// The pages that the WAL holds after one more commit.
    async fn pages_in_wal(store: &SqliteStore) -> i64 {
        sqlx::query("INSERT INTO filler VALUES (1)").execute(&store.writer).await.expect("writes");
        let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&store.writer).await.expect("answers");
        row.get(1)
    }

    #[tokio::test]
    async fn a_long_wal_starts_over_once_nobody_reads_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("test.db");
        let store = SqliteStore::open(&path, Duration::ZERO, Migrate::Run).await.expect("opens");
        store.checkpoints.abort();
        let connection = options(&path).busy_timeout(WAIT_FOR_READERS).connect().await.expect("opens");
        let (writer, broken) = (store.writer.clone(), Arc::clone(&store.broken));
        let mut checkpoints = Checkpoints { connection, writer, broken };
        let fill = "CREATE TABLE filler (bytes BLOB); INSERT INTO filler VALUES (zeroblob(20000000))";
        sqlx::raw_sql(fill).execute(&store.writer).await.expect("writes");

        let mut reading = store.readers.begin().await.expect("begins");
        sqlx::query("SELECT 1 FROM filler").fetch_one(&mut *reading).await.expect("reads");
        checkpoints.checkpoint().await.expect("a reader is no error");
        assert!(pages_in_wal(&store).await > WAL_LIMIT_PAGES, "it cannot start over while somebody reads it");

        reading.rollback().await.expect("ends");
        checkpoints.checkpoint().await.expect("works");
        assert!(pages_in_wal(&store).await < WAL_LIMIT_PAGES / 4);
    }
}
