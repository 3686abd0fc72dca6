//! Waiting for the last job, by looking into the database as cheaply as it can be done: whoever looks shares the machine
//! with those who work.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hookfast::sqlx::{self, Connection, PgConnection, SqliteConnection};
use time::OffsetDateTime;
use tokio::runtime::{Builder, Runtime};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// No set-up that works takes so long.
const AT_MOST: Duration = Duration::from_secs(300);

// All three read the first entry of an index. A search without an order would go through all rows that are finished.
const ON_POSTGRES: &str =
    "SELECT EXISTS (SELECT 1 FROM (SELECT FROM jobs WHERE finished_at IS NULL ORDER BY due_at LIMIT 1) AS job)";
const ON_SQLITE: &str =
    "SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE state IN ('pending', 'processing', 'failed'))";
const OF_GRAPHILE: &str =
    "SELECT EXISTS (SELECT 1 FROM (SELECT FROM graphile_worker._private_jobs ORDER BY id LIMIT 1) AS job)";

/// Whose jobs a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jobs {
    Ours,
    Graphile,
}

/// A database with jobs.
pub(crate) struct Database {
    runtime: Runtime,
    connection: Link,
    jobs: Jobs,
}

enum Link {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Database {
    pub(crate) fn open(url: &str, jobs: Jobs) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(async {
            Ok::<_, sqlx::Error>(match url.starts_with("sqlite:") {
                true => Link::Sqlite(SqliteConnection::connect(url).await?),
                false => Link::Postgres(PgConnection::connect(url).await?),
            })
        })?;
        Ok(Self { runtime, connection, jobs })
    }

    /// Waits until every job is finished, and says when that was. All must have done what they were to do.
    pub(crate) fn wait_for_the_last(&mut self, jobs: usize) -> anyhow::Result<OffsetDateTime> {
        let start = Instant::now();
        while self.has_unfinished()? {
            ensure!(start.elapsed() < AT_MOST, "jobs are unfinished after {AT_MOST:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        let end = OffsetDateTime::now_utc();
        let done = self.done()?;
        ensure!(usize::try_from(done)? == jobs, "{done} of {jobs} jobs have done their work");
        Ok(end)
    }

    /// When the first run of one of our jobs began.
    pub(crate) fn first_start(&mut self) -> anyhow::Result<OffsetDateTime> {
        let start = self.runtime.block_on(async {
            match &mut self.connection {
                Link::Postgres(link) => {
                    sqlx::query_scalar("SELECT min(started_at) FROM attempts").fetch_one(link).await
                }
                Link::Sqlite(link) => {
                    let micros = sqlx::query_scalar::<_, i64>("SELECT min(started_at) FROM attempts").fetch_one(link);
                    Ok(OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(micros.await?))
                }
            }
        });
        Ok(start?)
    }

    fn has_unfinished(&mut self) -> anyhow::Result<bool> {
        let found = self.runtime.block_on(async {
            match (&mut self.connection, self.jobs) {
                (Link::Postgres(link), Jobs::Ours) => sqlx::query_scalar(ON_POSTGRES).fetch_one(link).await,
                (Link::Postgres(link), Jobs::Graphile) => sqlx::query_scalar(OF_GRAPHILE).fetch_one(link).await,
                (Link::Sqlite(link), _) => sqlx::query_scalar(ON_SQLITE).fetch_one(link).await,
            }
        });
        Ok(found?)
    }

    fn done(&mut self) -> anyhow::Result<i64> {
        const DONE: &str = "SELECT count(*) FROM bench_done";
        let done = self.runtime.block_on(async {
            match &mut self.connection {
                Link::Postgres(link) => sqlx::query_scalar(DONE).fetch_one(link).await,
                Link::Sqlite(link) => sqlx::query_scalar(DONE).fetch_one(link).await,
            }
        });
        Ok(done?)
    }
}
