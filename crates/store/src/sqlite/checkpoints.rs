//! Checkpoints beside the writer: what moves pages from the WAL into the database.

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Row};
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;

use super::classify;
use super::open::PAGE_BYTES;
use crate::faults::{Protection, is_off};

/// Beyond this length of the WAL (64 MiB) the writer waits for a checkpoint, so that the file does not grow for ever.
const WAL_LIMIT_PAGES: i64 = 64 * 1024 * 1024 / PAGE_BYTES as i64;

/// After a checkpoint the disk is the writer's alone for this multiple of the time that the checkpoint took, within bounds.
const PAUSE_TIMES: u32 = 6;
const PAUSE_AT_LEAST: Duration = Duration::from_millis(20);
const PAUSE_AT_MOST: Duration = Duration::from_millis(200);

/// How long the writer waits for readers before the WAL starts over. If they take longer, it is tried again.
const WAIT_FOR_READERS: Duration = Duration::from_millis(20);

/// Moves what the WAL holds into the database, beside the writer: little and often, because while much of it goes to the
/// disk at once, commits are slow.
///
/// Under steady load such a checkpoint never gets to the end of the WAL. Once the WAL is too long, a checkpoint that makes the
/// writer wait lets it start over at the beginning of the file. The file is kept, because writing over a file is faster than
/// making it longer.
pub(super) struct Checkpoints {
    connection: SqliteConnection,
    file: Arc<File>,
    alone: Arc<tokio::sync::Mutex<()>>,
    broken: Arc<SetOnce<String>>,
    /// What the last one found. A WAL that was moved as a whole starts over by itself, and may then look the same again; but
    /// such a one is flushed by SQLite.
    last: Pages,
}

/// How many pages are in the WAL, and how many of them are moved.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Pages {
    in_wal: i64,
    moved: i64,
}

impl Checkpoints {
    /// Starts them in a task of their own. `file` is for flushing, and `alone` is what the writers take turns with.
    pub(super) async fn start(
        options: SqliteConnectOptions,
        file: &Arc<File>,
        alone: &Arc<tokio::sync::Mutex<()>>,
        broken: &Arc<SetOnce<String>>,
    ) -> Result<JoinHandle<()>, sqlx::Error> {
        let checkpoints = Self {
            connection: options.busy_timeout(WAIT_FOR_READERS).connect().await?,
            file: Arc::clone(file),
            alone: Arc::clone(alone),
            broken: Arc::clone(broken),
            last: Pages::default(),
        };
        let broken = Arc::clone(broken);
        Ok(tokio::spawn(async move {
            // Without it the WAL would grow for ever, and no flush in the background would notice an I/O error.
            if AssertUnwindSafe(checkpoints.run()).catch_unwind().await.is_err() {
                let _ = broken.set("the task that moves pages out of the WAL panicked".into());
            }
        }))
    }

    async fn run(mut self) {
        loop {
            let began = Instant::now();
            let was_anything_moved = self.checkpoint().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "a checkpoint of the database failed");
                classify(&error, &self.broken);
                false
            });
            let pause = match was_anything_moved {
                true => (began.elapsed() * PAUSE_TIMES).clamp(PAUSE_AT_LEAST, PAUSE_AT_MOST),
                false => PAUSE_AT_MOST,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Says whether there was anything to move.
    async fn checkpoint(&mut self) -> Result<bool, sqlx::Error> {
        let pages = self.move_pages().await?;
        let was_anything_moved = pages != self.last;
        self.last = pages;
        if was_anything_moved {
            // Before the WAL starts over, all that came out of it must be on the disk. The writer does not wait for what is
            // there already.
            self.flush().await;
        }
        // Pages that a reader still uses cannot be moved, and then starting over is impossible, too.
        if pages.in_wal > WAL_LIMIT_PAGES && pages.in_wal - pages.moved < WAL_LIMIT_PAGES / 4 {
            self.move_pages().await?;
            // SQLite keeps others from writing while it waits for readers. So this takes the turn of a writer, and its wait is
            // short.
            let _alone = self.alone.lock().await;
            sqlx::query("PRAGMA wal_checkpoint(RESTART)").execute(&mut self.connection).await?;
        }
        Ok(was_anything_moved)
    }

    /// Moves what it can.
    async fn move_pages(&mut self) -> Result<Pages, sqlx::Error> {
        let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut self.connection).await?;
        Ok(Pages { in_wal: row.try_get(1)?, moved: row.try_get(2)? })
    }

    async fn flush(&self) {
        let file = Arc::clone(&self.file);
        let flushed = tokio::task::spawn_blocking(move || file.sync_data()).await;
        if let Ok(Err(error)) = flushed {
            tracing::warn!(%error, "the database could not be flushed");
            if !is_off(Protection::Distrust) {
                let _ = self.broken.set(error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::SqliteStore;
    use super::super::open::{Content, DatabaseFile};
    use super::*;
    use crate::Migrate;

    /// The pages that the WAL holds after one more commit.
    async fn pages_in_wal(store: &SqliteStore) -> i64 {
        sqlx::query("INSERT INTO filler VALUES (1)").execute(&store.writer).await.expect("writes");
        let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&store.writer).await.expect("answers");
        row.get(1)
    }

    /// A store whose checkpoints come when the test says so.
    async fn without_checkpoints(path: &Path) -> (SqliteStore, Checkpoints) {
        let store = SqliteStore::open(path, Duration::ZERO, Migrate::Run).await.expect("opens");
        store.checkpoints.abort();
        let options = DatabaseFile { content: Content::Store, path, max_pages: None }.options();
        let checkpoints = Checkpoints {
            connection: options.busy_timeout(WAIT_FOR_READERS).connect().await.expect("opens"),
            file: Arc::new(File::open(path).expect("it is there")),
            alone: Arc::clone(&store.alone),
            broken: Arc::clone(&store.broken),
            last: Pages::default(),
        };
        (store, checkpoints)
    }

    #[tokio::test]
    async fn a_long_wal_starts_over_once_it_has_no_reader() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (store, mut checkpoints) = without_checkpoints(&folder.path().join("test.db")).await;
        let fill = "CREATE TABLE filler (bytes BLOB); INSERT INTO filler VALUES (zeroblob(80000000))";
        sqlx::raw_sql(fill).execute(&store.writer).await.expect("writes");

        let mut reading = store.readers.begin().await.expect("begins");
        sqlx::query("SELECT 1 FROM filler").fetch_one(&mut *reading).await.expect("reads");
        checkpoints.checkpoint().await.expect("a reader is no error");
        assert!(pages_in_wal(&store).await > WAL_LIMIT_PAGES, "it cannot start over while it has a reader");

        reading.rollback().await.expect("ends");
        checkpoints.checkpoint().await.expect("works");
        assert!(pages_in_wal(&store).await < WAL_LIMIT_PAGES / 4);
    }

    /// Or an idle gateway would not leave the disk alone.
    #[tokio::test]
    async fn a_checkpoint_says_whether_there_was_anything_to_move() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (store, mut checkpoints) = without_checkpoints(&folder.path().join("test.db")).await;
        sqlx::raw_sql("CREATE TABLE filler (bytes BLOB)").execute(&store.writer).await.expect("writes");
        for is_written in [true, false, false, true, false] {
            if is_written {
                sqlx::query("INSERT INTO filler VALUES (1)").execute(&store.writer).await.expect("writes");
            }
            assert_eq!(checkpoints.checkpoint().await.expect("works"), is_written);
        }
    }
}
