//! Fills a database with events, fast: one that was really received is copied with other ids, keys and times.

use hookfast::driver::sqlx::{self, Executor};

use crate::database::{Database, Link, on_either};
use crate::requests::Ids;

/// Rows that are written in one transaction.
const CHUNK: u64 = 100_000;

/// What became of the jobs of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Done.
    Done,
    /// They wait, and are due.
    Waiting,
    /// They gave up.
    Dead,
}

impl Fate {
    fn state(self) -> &'static str {
        match self {
            Self::Done => "succeeded",
            Self::Waiting => "pending",
            Self::Dead => "dead_letter",
        }
    }
}

/// What a database is filled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copies<'a> {
    pub(crate) handler: &'a str,
    pub(crate) jobs: Fate,
    /// The ordering key of all jobs.
    pub(crate) ordering_key: Option<&'a str>,
    pub(crate) ids: Ids,
}

// Ids are UUIDv7 of a time long ago, one event each millisecond. Keys look like those of the requests, and come before
// them if they go by time. $1 and $2 are the first and the last of the chunk, $3 is whether keys are random, $4 the state
// of the jobs, $5 their handler, $6 their ordering key.
const ON_POSTGRES: &str = "
WITH template AS (SELECT * FROM events ORDER BY id DESC LIMIT 1),
numbers AS (
    SELECT serial, md5(serial::text) AS scattered FROM generate_series($1::bigint, $2::bigint) AS serial
), copies AS (
    INSERT INTO events (id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, request_id,
                        remote_address, method, url, headers, body, object_id)
    SELECT (lpad(to_hex(1600000000000 + serial), 12, '0') || '7' || substr(scattered, 1, 3) || '8'
            || substr(scattered, 4, 15))::uuid,
        source,
        CASE WHEN $3 THEN scattered
             ELSE 'evt_0' || lpad(to_hex(serial >> 12), 6, '0') || 'Lt4dXK03v5' || substr(scattered, 1, 16) END,
        event_type, account, to_timestamp(1600000000 + serial / 1000.0), to_timestamp(1600000000 + serial / 1000.0),
        proof, request_id, remote_address, method, url, headers, body, object_id
    FROM numbers, template
    RETURNING id, source, dedupe_key, received_at
), keys AS (
    INSERT INTO dedupe_keys (source, dedupe_key, event_id) SELECT source, dedupe_key, id FROM copies
)
INSERT INTO jobs (event_id, handler, state, attempts, due_at, finished_at, ordering_key)
SELECT id, $5, $4, CASE WHEN $4 = 'pending' THEN 0 ELSE 1 END, received_at,
    CASE WHEN $4 <> 'pending' THEN received_at END, $6
FROM copies
";

const EVENTS_ON_SQLITE: &str = "
WITH RECURSIVE numbers (serial) AS (SELECT $1 UNION ALL SELECT serial + 1 FROM numbers WHERE serial < $2)
INSERT INTO events (id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, request_id,
                    remote_address, method, url, headers, body, object_id)
SELECT unhex(printf('%012x70008', 1600000000000 + serial) || substr(hex(randomblob(8)), 2)),
    source,
    iif($3, lower(hex(randomblob(16))), printf('evt_0%06xLt4dXK03v5', serial >> 12) || lower(hex(randomblob(8)))),
    event_type, account, (1600000000000 + serial) * 1000, (1600000000000 + serial) * 1000, proof, request_id,
    remote_address, method, url, headers, body, object_id
FROM numbers, (SELECT * FROM events ORDER BY id DESC LIMIT 1)
";
const KEYS_ON_SQLITE: &str = "
INSERT INTO dedupe_keys (source, dedupe_key, event_id)
SELECT source, dedupe_key, id FROM events
WHERE id BETWEEN unhex(printf('%012x', 1600000000000 + $1)) AND unhex(printf('%012x', 1600000000001 + $2))
ORDER BY source, dedupe_key
";
const JOBS_ON_SQLITE: &str = "
INSERT INTO jobs (event_id, handler, state, attempts, due_at, finished_at, ordering_key)
SELECT id, $4, $3, iif($3 = 'pending', 0, 1), received_at, iif($3 = 'pending', NULL, received_at), $5
FROM events
WHERE id BETWEEN unhex(printf('%012x', 1600000000000 + $1)) AND unhex(printf('%012x', 1600000000001 + $2))
";

impl Database {
    /// Adds this many events. There must be one already, which is copied, and no other process at work.
    pub(crate) fn fill(&mut self, count: u64, copies: Copies<'_>) -> anyhow::Result<()> {
        on_either!(&mut *self,
            postgres(_link) => Ok(()),
            // If the machine fails now, it is measured anew anyway.
            sqlite(link) => link.execute("PRAGMA synchronous = OFF").await.map(|_| ())
        )?;
        for start in (0..count).step_by(usize::try_from(CHUNK)?) {
            let end = (start + CHUNK).min(count);
            self.fill_chunk(i64::try_from(start)?, i64::try_from(end)? - 1, copies)?;
            eprintln!("filling: {end} of {count} events");
        }
        self.settle_down()
    }

    fn fill_chunk(&mut self, first: i64, last: i64, copies: Copies<'_>) -> anyhow::Result<()> {
        let Copies { handler, jobs, ordering_key, ids } = copies;
        let (state, are_random) = (jobs.state(), ids == Ids::Random);
        let filled = on_either!(self,
            postgres(link) => {
                sqlx::query(ON_POSTGRES).bind(first).bind(last).bind(are_random).bind(state).bind(handler)
                    .bind(ordering_key).execute(link).await.map(|_| ())
            },
            sqlite(link) => {
                link.execute("BEGIN").await?;
                sqlx::query(EVENTS_ON_SQLITE).bind(first).bind(last).bind(are_random).execute(&mut *link).await?;
                sqlx::query(KEYS_ON_SQLITE).bind(first).bind(last).execute(&mut *link).await?;
                sqlx::query(JOBS_ON_SQLITE).bind(first).bind(last).bind(state).bind(handler).bind(ordering_key)
                    .execute(&mut *link).await?;
                link.execute("COMMIT").await.map(|_| ())
            }
        );
        Ok(filled?)
    }

    /// What a database would do in the background sooner or later is done now.
    fn settle_down(&mut self) -> anyhow::Result<()> {
        let settled: Result<(), sqlx::Error> = on_either!(self,
            postgres(link) => {
                link.execute("VACUUM (ANALYZE)").await?;
                link.execute("CHECKPOINT").await.map(|_| ())
            },
            sqlite(link) => link.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.map(|_| ())
        );
        Ok(settled?)
    }
}
