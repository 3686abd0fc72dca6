//! A limit on the time of a handler's statements: while one runs, no other connection can write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use sqlx::Error;
use sqlx::sqlite::SqliteConnection;

/// How long a statement of a handler may take, as on Postgres.
const AT_MOST: Duration = Duration::from_secs(4);

/// After this many of its steps SQLite asks whether a statement may go on.
const STEPS: i32 = 10_000;

/// Until when the statement that runs may take, in microseconds since the first one; zero while none has a limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatementLimit(Arc<AtomicU64>);

/// Ends the limit with the statement.
pub(crate) struct Limited<'a>(&'a StatementLimit);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl StatementLimit {
    /// Lets a connection heed it.
    pub(super) async fn watch(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        let limit = self.clone();
        connection.lock_handle().await?.set_progress_handler(STEPS, move || limit.is_kept());
        Ok(())
    }

    /// Limits the next statement.
    pub(crate) fn begin(&self) -> Limited<'_> {
        self.0.store(micros(START.elapsed() + AT_MOST), Relaxed);
        Limited(self)
    }

    fn is_kept(&self) -> bool {
        let until = self.0.load(Relaxed);
        until == 0 || micros(START.elapsed()) < until
    }
}

impl Drop for Limited<'_> {
    /// A statement whose caller does not wait for it any more is ended at once: it would keep the writer.
    fn drop(&mut self) {
        self.0.0.store(1, Relaxed);
    }
}

impl Limited<'_> {
    /// The statement has come to its end.
    pub(crate) fn end(self) {
        self.0.0.store(0, Relaxed);
        std::mem::forget(self);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
