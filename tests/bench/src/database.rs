//! Looking into a database behind the gateway's back, as cheaply as it can be done: whoever looks shares the machine with
//! those who work.

use std::time::{Duration, Instant};

use anyhow::ensure;
use hookfast::driver::sqlx::{self, Connection, Executor, PgConnection, SqliteConnection};
use time::OffsetDateTime;
use tokio::runtime::{Builder, Runtime};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A set-up that works takes less time than this.
const AT_MOST: Duration = Duration::from_secs(300);

// All three read the first entry of an index. A search without an order would go through all rows that are finished.
const UNFINISHED_ON_POSTGRES: &str = "SELECT EXISTS (SELECT 1 FROM (SELECT FROM jobs WHERE finished_at IS NULL ORDER BY handler, due_at LIMIT 1) AS job)";
const UNFINISHED_ON_SQLITE: &str = "SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE finished_at IS NULL)";
const UNFINISHED_OF_GRAPHILE: &str =
    "SELECT EXISTS (SELECT 1 FROM (SELECT FROM graphile_worker._private_jobs ORDER BY id LIMIT 1) AS job)";

const LAGS_ON_POSTGRES: &str = "
    SELECT (extract(epoch FROM finished_at - received_at) * 1000000)::bigint
    FROM jobs JOIN events ON events.id = jobs.event_id WHERE finished_at <= $1";
const LAGS_ON_SQLITE: &str = "
    SELECT finished_at - received_at
    FROM jobs JOIN events ON events.id = jobs.event_id WHERE finished_at <= $1";

/// Whose jobs a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jobs {
    Ours,
    Graphile,
}

/// A database with jobs.
pub(crate) struct Database {
    pub(crate) runtime: Runtime,
    pub(crate) connection: Link,
}

pub(crate) enum Link {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// Runs a future that uses the connection, with what is done on either database.
macro_rules! on_either {
    ($database:expr, postgres($pg:ident) => $on_pg:expr, sqlite($lite:ident) => $on_lite:expr) => {{
        let Database { runtime, connection } = $database;
        runtime.block_on(async {
            match connection {
                Link::Postgres($pg) => $on_pg,
                Link::Sqlite($lite) => $on_lite,
            }
        })
    }};
}
pub(crate) use on_either;

impl Database {
    pub(crate) fn open(url: &str) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(async {
            Ok::<_, sqlx::Error>(match url.starts_with("sqlite:") {
                true => Link::Sqlite(SqliteConnection::connect(url).await?),
                false => Link::Postgres(PgConnection::connect(url).await?),
            })
        })?;
        Ok(Self { runtime, connection })
    }

    /// Waits until every job is finished, and says when that was. All must have done what they were to do.
    pub(crate) fn wait_for_the_last(&mut self, whose: Jobs, jobs: usize) -> anyhow::Result<OffsetDateTime> {
        let start = Instant::now();
        while self.has_unfinished(whose)? {
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
        const FIRST: &str = "SELECT min(started_at) FROM attempts";
        let start = on_either!(self,
            postgres(link) => sqlx::query_scalar(FIRST).fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar(FIRST).fetch_one(link).await.map(from_micros)
        );
        Ok(start?)
    }

    /// How long each job took from when its event was received until it was finished, of those that were finished by
    /// then, in microseconds.
    pub(crate) fn lags(&mut self, by: OffsetDateTime) -> anyhow::Result<Vec<u32>> {
        let micros = i64::try_from((by - OffsetDateTime::UNIX_EPOCH).whole_microseconds())?;
        let lags: Result<Vec<i64>, _> = on_either!(self,
            postgres(link) => sqlx::query_scalar(LAGS_ON_POSTGRES).bind(by).fetch_all(link).await,
            sqlite(link) => sqlx::query_scalar(LAGS_ON_SQLITE).bind(micros).fetch_all(link).await
        );
        Ok(lags?.into_iter().map(|lag| u32::try_from(lag.max(0)).unwrap_or(u32::MAX)).collect())
    }

    /// The same of the jobs of one handler whose events were received since then.
    pub(crate) fn lags_of(&mut self, handler: &str, since: OffsetDateTime) -> anyhow::Result<Vec<u32>> {
        const ON_POSTGRES: &str = "
            SELECT (extract(epoch FROM finished_at - received_at) * 1000000)::bigint
            FROM events JOIN jobs ON jobs.event_id = events.id
            WHERE events.id >= $1 AND handler = $2 AND finished_at IS NOT NULL";
        const ON_SQLITE: &str = "
            SELECT finished_at - received_at FROM events JOIN jobs ON jobs.event_id = events.id
            WHERE events.id >= $1 AND handler = $2 AND finished_at IS NOT NULL";
        // Ids begin with the time.
        let millis = u64::try_from((since - OffsetDateTime::UNIX_EPOCH).whole_milliseconds())?;
        let first = uuid::Uuid::from_u128(u128::from(millis) << 80);
        let lags: Result<Vec<i64>, _> = on_either!(self,
            postgres(link) => sqlx::query_scalar(ON_POSTGRES).bind(first).bind(handler).fetch_all(link).await,
            sqlite(link) => sqlx::query_scalar(ON_SQLITE).bind(first).bind(handler).fetch_all(link).await
        );
        Ok(lags?.into_iter().map(|lag| u32::try_from(lag.max(0)).unwrap_or(u32::MAX)).collect())
    }

    /// Runs a statement that both understand.
    pub(crate) fn execute(&mut self, statement: &'static str) -> anyhow::Result<()> {
        let done = on_either!(self,
            postgres(link) => link.execute(statement).await.map(|_| ()),
            sqlite(link) => link.execute(statement).await.map(|_| ())
        );
        Ok(done?)
    }

    /// The ordering key of a job, if there is one that has one.
    pub(crate) fn ordering_key(&mut self) -> anyhow::Result<Option<String>> {
        const KEY: &str = "SELECT ordering_key FROM jobs WHERE ordering_key IS NOT NULL LIMIT 1";
        let key = on_either!(self,
            postgres(link) => sqlx::query_scalar(KEY).fetch_optional(link).await,
            sqlite(link) => sqlx::query_scalar(KEY).fetch_optional(link).await
        );
        Ok(key?)
    }

    /// Which database server it is.
    pub(crate) fn version(&mut self) -> anyhow::Result<String> {
        let version = on_either!(self,
            postgres(link) => sqlx::query_scalar("SELECT current_setting('server_version')").fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar("SELECT sqlite_version()").fetch_one(link).await
        );
        Ok(version?)
    }

    /// How many events there are.
    pub(crate) fn events(&mut self) -> anyhow::Result<u64> {
        const EVENTS: &str = "SELECT count(*) FROM events";
        let events: Result<i64, _> = on_either!(self,
            postgres(link) => sqlx::query_scalar(EVENTS).fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar(EVENTS).fetch_one(link).await
        );
        Ok(u64::try_from(events?)?)
    }

    /// How much of the disk it takes, without the log of what was written.
    pub(crate) fn size_bytes(&mut self) -> anyhow::Result<u64> {
        const PAGES: &str = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let size: Result<i64, _> = on_either!(self,
            postgres(link) => sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar(PAGES).fetch_one(link).await
        );
        Ok(u64::try_from(size?)?)
    }

    /// Gives the disk back.
    pub(crate) fn empty(&mut self) -> anyhow::Result<()> {
        const ON_POSTGRES: &str =
            "TRUNCATE events, dedupe_keys, jobs, request_heads, resends, resend_arrivals, attempts, effects";
        let emptied = on_either!(self,
            postgres(link) => link.execute(ON_POSTGRES).await.map(|_| ()),
            // Its file goes with its folder.
            sqlite(_link) => Ok(())
        );
        Ok(emptied?)
    }

    /// Marks all jobs that wait as done, as if a worker had run them.
    pub(crate) fn finish_all(&mut self) -> anyhow::Result<()> {
        const FINISH: &str = "UPDATE jobs SET state = 'succeeded', attempts = 1, finished_at = due_at
                              WHERE state = 'pending'";
        let finished: Result<(), sqlx::Error> = on_either!(self,
            postgres(link) => {
                link.execute(FINISH).await?;
                link.execute("VACUUM (ANALYZE) jobs").await.map(|_| ())
            },
            sqlite(link) => link.execute(FINISH).await.map(|_| ())
        );
        Ok(finished?)
    }

    fn has_unfinished(&mut self, whose: Jobs) -> anyhow::Result<bool> {
        let on_postgres = match whose {
            Jobs::Ours => UNFINISHED_ON_POSTGRES,
            Jobs::Graphile => UNFINISHED_OF_GRAPHILE,
        };
        let found = on_either!(self,
            postgres(link) => sqlx::query_scalar(on_postgres).fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar(UNFINISHED_ON_SQLITE).fetch_one(link).await
        );
        Ok(found?)
    }

    fn done(&mut self) -> anyhow::Result<i64> {
        const DONE: &str = "SELECT count(*) FROM bench_done";
        let done = on_either!(self,
            postgres(link) => sqlx::query_scalar(DONE).fetch_one(link).await,
            sqlite(link) => sqlx::query_scalar(DONE).fetch_one(link).await
        );
        Ok(done?)
    }
}

fn from_micros(micros: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::microseconds(micros)
}
