//! Opening the file: who may read it, what durability rests on, and the tables.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::SetOnce;

use super::checkpoints::Checkpoints;
use super::limit::StatementLimit;
use super::lock::{Words, lock};
use super::record::Writer;
use super::turns::Turns;
use super::{DriverError, SqliteStore};
use crate::faults::{Protection, is_off};
use crate::migrations::{APPLIED, Applied, SQLITE, announce, check_applied, compare, tolerant};
use crate::private::{problem_of_file_of_gateway, problem_of_private_file};
use crate::{Config, Migrate, OpenError};

/// Below this version SQLite can damage a database when it resets the WAL.
const SAFE_VERSION: [u32; 3] = [3, 51, 3];

pub(super) const PAGE_BYTES: u32 = 8192;

/// How long to wait for whoever writes now.
pub(super) const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for another process that writes, an operator's command say.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The pages (2 MiB) by which a file with a limit may outgrow it, for everything but recording.
const RESERVED_PAGES: u64 = 256;

/// What a file is for.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Store,
    Spool,
}

impl Content {
    /// What to do about a file that cannot be read.
    fn remedy(self) -> &'static str {
        match self {
            Self::Store => "Restore a backup, or name another file with `url` in `[store]`",
            Self::Spool => {
                "Move it aside with the files beside it, or set `spool = false` in `[store]`, to go on without it: events \
                 that wait in it are then not drained"
            }
        }
    }
}

/// A file, and how its connections are set up.
#[derive(Clone, Copy)]
pub(super) struct DatabaseFile<'a> {
    pub(super) content: Content,
    pub(super) path: &'a Path,
    /// How large it may become; None is as large as the disk.
    pub(super) max_pages: Option<u64>,
}

impl DatabaseFile<'_> {
    /// What every connection is told.
    pub(super) fn pragmas(&self) -> Vec<(&'static str, String)> {
        let mut pragmas: Vec<(&str, String)> = vec![
            ("synchronous", if is_off(Protection::Sync) { "NORMAL" } else { "FULL" }.into()),
            // A checkpoint in the middle of a commit would make that commit slow; `Checkpoints` does them.
            ("wal_autocheckpoint", "0".into()),
            // A batch's statements keep notes of what they changed, to undo a part of it; a file for that costs more than
            // the batch itself. The cache holds a batch's pages, or they would be written more than once.
            ("temp_store", "MEMORY".into()),
            ("cache_size", "-16384".into()),
        ];
        pragmas.extend(self.max_pages.map(|pages| ("max_page_count", pages.to_string())));
        pragmas
    }

    pub(super) fn options(&self) -> SqliteConnectOptions {
        let options = SqliteConnectOptions::new()
            .filename(self.path)
            .page_size(PAGE_BYTES)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .disable_statement_logging();
        self.pragmas().into_iter().fold(options, |options, (name, value)| options.pragma(name, value))
    }

    /// What takes events out of a full file, or notes something about them, may need a few pages more.
    fn for_others(&self) -> Self {
        Self { max_pages: self.max_pages.map(|pages| pages + RESERVED_PAGES), ..*self }
    }

    /// Why the file cannot be used. Waiting helps with locks, and not with damage.
    pub(super) fn unreachable(&self, error: &impl DriverError) -> OpenError {
        let (database, problem) = (self.name(), error.to_string());
        match error.code().map(|code| code & 0xff) {
            // CORRUPT, NOTADB
            Some(11 | 26) => OpenError::Damaged { database, problem, remedy: self.content.remedy() },
            // BUSY
            Some(5) => {
                let problem = format!("another process holds its write lock ({problem}). Wait for that one, or end it");
                OpenError::Unreachable { database, problem }
            }
            // READONLY, CANTOPEN
            Some(8 | 14) => self.not_ours(&problem),
            _ => OpenError::Unreachable { database, problem },
        }
    }

    fn not_ours(&self, problem: &str) -> OpenError {
        let remedy = "Let the user that runs this command read and write the file and its folder";
        OpenError::File(format!("{}: {problem}. {remedy}", self.name()))
    }

    /// SQLite opens a file that may only be read without a word, and the first write fails.
    pub(super) fn check_writable(&self, is_read_only: bool) -> Result<(), OpenError> {
        if is_read_only { Err(self.not_ours("it may be read and not written")) } else { Ok(()) }
    }

    fn name(&self) -> String {
        match self.content {
            Content::Store => name(self.path),
            Content::Spool => format!("the spool {}", self.path.display()),
        }
    }
}

impl SqliteStore {
    pub(crate) async fn open(path: &Path, dispatch_grace: Duration, migrate: Migrate) -> Result<Self, OpenError> {
        let file =
            Self::open_file(&DatabaseFile { content: Content::Store, path, max_pages: None }, &SQLITE, migrate).await?;
        Ok(Self { dispatch_grace, ..file })
    }

    /// Opens it as the configuration says, which may be as the only gateway.
    pub(crate) async fn open_with(path: &Path, config: &Config, migrate: Migrate) -> Result<Self, OpenError> {
        if config.lock {
            check_private(path, problem_of_private_file)?;
        }
        let lock = if config.lock { Some(lock(path, &LOCK)?) } else { None };
        Ok(Self { lock, ..Self::open(path, config.dispatch_grace, migrate).await? })
    }

    /// Opens a file with tables of some kind.
    pub(super) async fn open_file(
        file: &DatabaseFile<'_>,
        migrations: &'static Migrator,
        migrate: Migrate,
    ) -> Result<Self, OpenError> {
        let unreachable = |error: sqlx::Error| file.unreachable(&error);
        create_private(file.path)?;
        // Migrations may need room in a file that is full.
        let unlimited = DatabaseFile { max_pages: None, ..*file };
        let mut connection = unlimited.options().connect().await.map_err(unreachable)?;
        Settings::of(&mut connection).await.map_err(unreachable)?.check()?;
        check_tables(&mut connection, file, migrations, migrate).await?;
        let limit = StatementLimit::default();
        let writer = writer(file.for_others().options(), &limit).await.map_err(unreachable)?;
        // Not before another one is open: the last one to be closed would empty the log, however long it is.
        connection.close().await.map_err(unreachable)?;
        let recorder = Mutex::new(Some(Writer::open(file)?));
        let readers = SqlitePoolOptions::new().max_connections(4).connect_lazy_with(file.options().read_only(true));
        let (alone, broken) = (Arc::default(), Arc::new(SetOnce::new()));
        let not_opened = |error: io::Error| OpenError::File(format!("{}: {error}", file.name()));
        let opened = Arc::new(File::open(file.path).map_err(not_opened)?);
        let checkpoints = Checkpoints::start(file.options(), &opened, &alone, &broken).await.map_err(unreachable)?;
        let (turns, dispatch_grace) = (Turns::new(), Duration::ZERO);
        let recorded = Mutex::default();
        Ok(Self {
            recorder,
            recorded,
            writer,
            alone,
            turns,
            limit,
            readers,
            checkpoints,
            broken,
            dispatch_grace,
            lock: None,
            _file: opened,
        })
    }
}

/// A pool of one connection.
async fn writer(options: SqliteConnectOptions, limit: &StatementLimit) -> Result<SqlitePool, sqlx::Error> {
    let limit = limit.clone();
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(WRITER_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        // Where SQLite has undone a transaction by itself, as on a full disk, sqlx still counts it as open and would begin
        // no other: then the connection is replaced.
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
        .after_connect(move |connection, _| {
            let limit = limit.clone();
            Box::pin(async move { limit.watch(connection).await })
        })
        .connect_with(options)
        .await
}

const LOCK: Words = Words {
    what: "the database file",
    taken: "SQLite is for one gateway: stop the other one, give this one a file of its own with `url` in `[store]`, or use \
            Postgres, which several can share",
    impossible: "The gateway keeps a lock beside its database",
};

fn name(path: &Path) -> String {
    format!("the database file {}", path.display())
}

/// Makes the file if it is missing, for its owner alone: it holds payloads. SQLite gives the same mode to the files beside it.
fn create_private(path: &Path) -> Result<(), OpenError> {
    check_private(path, problem_of_file_of_gateway)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let what_to_do = how_to_create(path, &error);
            Err(OpenError::File(format!("{}: it cannot be created: {error}. {what_to_do}", name(path))))
        }
    }
}

/// Fails if the file, or one that SQLite keeps beside it, is not private.
pub(super) fn check_private(path: &Path, problem_of: fn(&Path) -> Option<String>) -> Result<(), OpenError> {
    for suffix in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{suffix}", path.display()));
        if let Some(problem) = problem_of(&path) {
            return Err(OpenError::File(format!("{}: {problem}", name(&path))));
        }
    }
    Ok(())
}

/// What to do about a file that cannot be created.
pub(super) fn how_to_create(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.display();
    match error.kind() {
        ErrorKind::NotFound => format!("Make the folder {folder} first. "),
        ErrorKind::PermissionDenied => format!("Let the user that runs hookfast write to the folder {folder}. "),
        ErrorKind::ReadOnlyFilesystem => format!("The folder {folder} is on a file system that is read-only. "),
        _ => String::new(),
    }
}

/// What durability rests on, as read back from a connection.
pub(super) struct Settings {
    pub(super) journal_mode: String,
    pub(super) synchronous: i64,
    pub(super) version: String,
}

impl Settings {
    pub(super) const READ: &str = "SELECT (SELECT journal_mode FROM pragma_journal_mode),
                                          (SELECT synchronous FROM pragma_synchronous), sqlite_version()";

    async fn of(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let row = sqlx::query(Self::READ).fetch_one(connection).await?;
        Ok(Self { journal_mode: row.try_get(0)?, synchronous: row.try_get(1)?, version: row.try_get(2)? })
    }

    pub(super) fn check(self) -> Result<(), OpenError> {
        let wrong = |setting, value, why, remedy| Err(OpenError::Unsafe { setting, value, why, remedy });
        if self.journal_mode != "wal" {
            let why = "only a write-ahead log makes commits both safe and fast";
            let remedy = "Put the file on a local disk, not on a network share.";
            return wrong("SQLite's journal_mode", self.journal_mode, why, remedy);
        }
        if self.synchronous != 2 && !is_off(Protection::Sync) {
            let why = "below 2 (FULL) a power cut loses acknowledged events";
            let remedy = "Use a hookfast built with stock SQLite.";
            return wrong("SQLite's synchronous", self.synchronous.to_string(), why, remedy);
        }
        if !is_safe(&self.version) {
            let why = "versions before 3.51.3 can damage the database";
            return wrong("SQLite's version", self.version, why, "Build hookfast with its bundled SQLite.");
        }
        Ok(())
    }
}

fn is_safe(version: &str) -> bool {
    let parts: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    parts.as_slice() >= SAFE_VERSION.as_slice()
}

async fn check_tables(
    writer: &mut SqliteConnection,
    file: &DatabaseFile<'_>,
    migrations: &'static Migrator,
    migrate: Migrate,
) -> Result<(), OpenError> {
    let database = file.name();
    let mut applied = applied(writer, file).await?;
    check_applied(migrations, &applied, &database)?;
    if migrate != Migrate::Never {
        announce(migrations, &applied, &database);
        let other = |problem: String| OpenError::OtherTables { database: database.clone(), problem };
        tolerant(migrations).run(&mut *writer).await.map_err(|error| other(error.to_string()))?;
        applied = self::applied(writer, file).await?;
    }
    compare(migrations, &applied, &database)
}

/// The migrations that the file has had. A file with tables and without these is another program's.
async fn applied(writer: &mut SqliteConnection, file: &DatabaseFile<'_>) -> Result<Vec<Applied>, OpenError> {
    const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let unreachable = |error: sqlx::Error| file.unreachable(&error);
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *writer).await.map_err(unreachable)?;
    if tables.iter().any(|table| table == "_sqlx_migrations") {
        let applied: Vec<(i64, String, bool, Vec<u8>)> =
            sqlx::query_as(APPLIED).fetch_all(writer).await.map_err(unreachable)?;
        return Ok(applied.into_iter().map(Applied::from).collect());
    }
    match tables.first() {
        None => Ok(Vec::new()),
        Some(table) => Err(OpenError::OtherTables {
            database: file.name(),
            problem: format!(
                "it is another program's database, with a table `{}` and without hookfast's migrations. Name a file of \
                 hookfast's own",
                table.escape_debug()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_the_rights_to_use_it_is_told_with_a_remedy() {
        let file = DatabaseFile { content: Content::Store, path: Path::new("h.db"), max_pages: None };
        for code in [rusqlite::ffi::SQLITE_READONLY, rusqlite::ffi::SQLITE_CANTOPEN] {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            let told = file.unreachable(&error).to_string();
            assert!(told.starts_with("the database file h.db: ") && told.contains("read and write the file"), "{told}");
        }
        file.check_writable(false).expect("it can be written");
        file.check_writable(true).expect_err("it cannot");
    }

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
        let database = |name| {
            DatabaseFile { content: Content::Store, path: &folder.path().join(name), max_pages: None }
                .options()
                .create_if_missing(true)
        };
        let mut good = database("good.db").connect().await.expect("opens");
        assert!(Settings::of(&mut good).await.expect("answers").check().is_ok());
        for options in [
            database("sync.db").pragma("synchronous", "NORMAL"),
            database("journal.db").journal_mode(SqliteJournalMode::Delete),
        ] {
            let mut bad = options.connect().await.expect("opens");
            let verdict = Settings::of(&mut bad).await.expect("answers").check();
            assert!(matches!(verdict, Err(OpenError::Unsafe { .. })), "{verdict:?}");
        }
    }
}
