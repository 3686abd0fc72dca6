//! Errors, named by what the caller can do about them.

use std::time::Duration;

/// A verb of the store failed. Nothing may be answered 2xx on any of these.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot do it now: unreachable, busy, full, or too slow. Whether a write happened is unknown; doing it
    /// again later is right, because recording twice is harmless.
    #[error("the store cannot be used at the moment: {0}")]
    Unavailable(String),
    /// The store refuses this data. In a batch, splitting finds the row.
    #[error("the store refuses this data: {0}")]
    Rejected(String),
    /// An I/O error or damage. This handle gives no more promises: the process must open the store anew.
    #[error("the store had an I/O error and is not used any more until a restart: {0}")]
    Broken(String),
}

/// An operator's question has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskError {
    /// The database is fine, but there is too much to go through.
    #[error(
        "the question is too broad: the database was not done with it after {} s. Ask for less: a shorter time with \
         --since and --until, one --handler, a smaller --limit, or the ids of events", .0.as_secs()
    )]
    TooBroad(Duration),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no database we know.
    #[error("{0}")]
    Url(String),
    /// The database does not answer.
    #[error("cannot reach {database}: {problem}")]
    Unreachable {
        /// Which database, without its password.
        database: String,
        /// What it or the network said.
        problem: String,
    },
    /// The database answers, and does not let us in.
    #[error("cannot use {database}: {problem}")]
    Refused {
        /// Which database, without its password.
        database: String,
        /// What it said.
        problem: String,
    },
    /// The file is damaged, or holds something else.
    #[error("{database} is damaged, or is no SQLite database: {problem}. {remedy}")]
    Damaged {
        /// Which database.
        database: String,
        /// What SQLite said.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file is not as it must be.
    #[error("{0}")]
    File(String),
    /// A setting would let acknowledged events get lost.
    #[error("{setting} is `{value}`, but {why}. {remedy}")]
    Unsafe {
        /// The setting.
        setting: &'static str,
        /// What it is.
        value: String,
        /// Why that is no good.
        why: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Migrations were not run yet.
    #[error(
        "{database} lacks {missing} of {total} migrations. Run `hookfast migrate`, or start with `hookfast serve --migrate`"
    )]
    NotMigrated {
        /// Which database.
        database: String,
        /// How many are missing.
        missing: usize,
        /// How many there are.
        total: usize,
    },
    /// The tables are not those this program knows.
    #[error("{database} does not fit this program: {problem}")]
    OtherTables {
        /// Which database.
        database: String,
        /// What differs.
        problem: String,
    },
}

/// A statement of a handler failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StatementError {
    /// The database refuses the statement.
    #[error("{0}")]
    Refused(String),
    /// The database ended the statement.
    #[error("a statement took longer than the store allows: {0}")]
    TooSlow(String),
    /// The database could not carry out the statement. Either the statement needs more than the server has, or the server is
    /// in trouble: which of them shows when the server is asked something else.
    #[error("{0}")]
    Overwhelmed(String),
    /// The database went away.
    #[error("{0}")]
    Outage(String),
}

impl StatementError {
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        let kind = if is_too_slow(error) {
            Self::TooSlow
        } else if !is_outage(error) {
            Self::Refused
        } else if is_about_statement(error) {
            Self::Overwhelmed
        } else {
            Self::Outage
        };
        kind(error.to_string())
    }
}

/// Whether an error of the driver means that the database went away, and not that it disliked a statement.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};

    let Some(error) = error.as_database_error() else {
        return matches!(error, Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed);
    };
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        // BUSY, LOCKED, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB
        return code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 10 | 11 | 13 | 14 | 26));
    }
    // Connection, resources, the operator's doing, the system. A statement that took too long is none of these.
    code != STATEMENT_TIMEOUT && ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))
}

/// Whether a statement was ended because it took too long.
pub(crate) fn is_too_slow(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    code == STATEMENT_TIMEOUT || code == SQLITE_INTERRUPT
}

/// SQLite's code for a statement that was ended by its progress handler.
const SQLITE_INTERRUPT: &str = "9";

/// Whether a statement itself can be the reason for an error that looks like an outage: it may have used up what the server
/// has. Whether it was shows when the server is asked something else.
fn is_about_statement(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
    error.is_some_and(|error| ["53", "57", "58"].iter().any(|class| error.code().starts_with(class)))
}

/// Postgres' code for a statement that was cancelled: by `statement_timeout`, or by an administrator.
const STATEMENT_TIMEOUT: &str = "57014";
