//! What a database holds, seen from beside the store.

use hookfast_store::driver::sqlx::{self, PgConnection, SqliteConnection};
use hookfast_webhook::EventId;

/// Everything about the jobs of events from `$1` on, as texts. Due is what is due within half an hour, because everything is
/// due now or in an hour; what is due much later would be forgotten. `CROSS JOIN` keeps SQLite from reading whole tables.
macro_rules! rows {
    ($in_half_an_hour:literal, $in_two_hours:literal) => {
        concat!(
            "SELECT 'job ' || dedupe_key || ' ' || handler || ' ' || state
                 || CASE WHEN state IN ('dead_letter', 'resolved') THEN ' ' || coalesce(reason, '-') ELSE '' END
                 || coalesce(' ' || worker, '')
                 || CASE WHEN token IS NULL THEN '' ELSE ' held' END
                 || CASE WHEN finished_at IS NOT NULL THEN ' finished'
                         WHEN due_at < ",
            $in_half_an_hour,
            " THEN ' due' WHEN due_at < ",
            $in_two_hours,
            " THEN ' later' ELSE ' forgotten' END
                 || ' attempts ' || attempts || ' crashes ' || crashes || ' spoilt ' || interruptions
             FROM events CROSS JOIN jobs WHERE jobs.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'attempt ' || dedupe_key || ' ' || handler || ' ' || number || ' ' || coalesce(failure, '-') || ' '
                 || worker
             FROM events CROSS JOIN attempts WHERE attempts.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'effect ' || dedupe_key || ' ' || handler || ' ' || key || ' runs ' || runs
                 || CASE WHEN is_done AND done_at IS NOT NULL THEN ' done ' ELSE ' begun ' END || coalesce(result, '-')
             FROM events CROSS JOIN effects WHERE effects.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'done ' || dedupe_key || ' ' || handler
             FROM events CROSS JOIN done WHERE done.event = events.dedupe_key AND events.id >= $1"
        )
    };
}

/// A connection beside the store.
pub(super) enum Reader {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Reader {
    pub(super) async fn rows(&mut self, first: EventId) -> Vec<String> {
        const ON_SQLITE: &str = rows!("(unixepoch() + 1800) * 1000000", "(unixepoch() + 7200) * 1000000");
        const ON_POSTGRES: &str =
            rows!("clock_timestamp() + interval '30 minutes'", "clock_timestamp() + interval '2 hours'");
        match self {
            Self::Sqlite(connection) => sqlx::query_scalar(ON_SQLITE).bind(first.0).fetch_all(connection).await,
            Self::Postgres(connection) => sqlx::query_scalar(ON_POSTGRES).bind(first.0).fetch_all(connection).await,
        }
        .unwrap()
    }

    /// Waits until no transaction holds the jobs of an event. On Postgres one that was dropped ends in its own time, and
    /// sweeps and renewals pass over what it holds; on SQLite the next writer waits for it.
    pub(super) async fn wait_for(&mut self, event: EventId) {
        if let Self::Postgres(connection) = self {
            let lock = "SELECT FROM jobs WHERE event_id = $1 FOR UPDATE";
            sqlx::query(lock).bind(event.0).execute(connection).await.unwrap();
        }
    }

    pub(super) async fn let_hours_pass(&mut self, first: EventId) {
        const ON_SQLITE: &str = "UPDATE jobs SET due_at = due_at - 7200000000 WHERE event_id >= $1";
        const ON_POSTGRES: &str = "UPDATE jobs SET due_at = due_at - interval '2 hours' WHERE event_id >= $1";
        match self {
            Self::Sqlite(connection) => {
                sqlx::query(ON_SQLITE).bind(first.0).execute(connection).await.unwrap();
            }
            Self::Postgres(connection) => {
                sqlx::query(ON_POSTGRES).bind(first.0).execute(connection).await.unwrap();
            }
        }
    }
}
