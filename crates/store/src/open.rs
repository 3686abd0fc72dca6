//! From a URL to a store that is safe to use.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use crate::postgres::PostgresStore;
use crate::sqlite::SqliteStore;
use crate::{OpenError, Store};

/// How to reach the store.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which database.
    pub url: StoreUrl,
    /// How many batches may be under way at once on Postgres. SQLite has one writer.
    pub parallel_batches: usize,
    /// How many connections the workers may use on Postgres.
    pub worker_connections: u32,
    /// How long after recording a job the sweeper looks at it, should its dispatch get lost.
    pub dispatch_grace: Duration,
}

impl Config {
    /// The usual settings.
    pub fn new(url: StoreUrl) -> Self {
        Self { url, parallel_batches: 2, worker_connections: 16, dispatch_grace: Duration::from_secs(5) }
    }
}

/// A database that events can be stored in.
#[derive(Clone)]
pub enum StoreUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PgConnectOptions>),
}

/// What to do about missing migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrate {
    /// Run them.
    Run,
    /// Run them on SQLite, which nobody shares; on Postgres only say that they are missing.
    IfEmbedded,
    /// Only say that they are missing.
    Never,
}

/// Without the password, which sqlx would print.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(options) => f.debug_tuple("Postgres").field(&crate::postgres::name(options)).finish(),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = OpenError;

    fn from_str(url: &str) -> Result<Self, OpenError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            // A question mark would begin options, and we read none.
            if path.is_empty() || path.contains('?') || path.contains(":memory:") {
                return Err(OpenError::Url(
                    "write `sqlite:` and the path of a file, such as `sqlite:hookfast.db`".into(),
                ));
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url)
                .map_err(|error| OpenError::Url(format!("not a usable Postgres URL: {error}")))?;
            return Ok(Self::Postgres(Box::new(options)));
        }
        Err(OpenError::Url("allowed are `sqlite:PATH` and `postgres://USER:PASSWORD@HOST:PORT/DATABASE`".into()))
    }
}

/// Opens the store: checks what durability rests on, and runs or checks the migrations.
pub async fn open(config: &Config, migrate: Migrate) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path, config.dispatch_grace, migrate).await?),
        StoreUrl::Postgres(options) => Arc::new(PostgresStore::open((**options).clone(), config, migrate).await?),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn urls_name_a_file_or_a_server_and_nothing_else() {
        assert!(matches!("sqlite:a/b.db".parse(), Ok(StoreUrl::Sqlite(path)) if path == Path::new("a/b.db")));
        assert!(matches!("postgres://u:p@h/d".parse(), Ok(StoreUrl::Postgres(_))));
        for bad in ["", "sqlite:", "sqlite::memory:", "sqlite:a?mode=ro", "mysql://h/d", "hookfast.db"] {
            assert!(bad.parse::<StoreUrl>().is_err(), "{bad}");
        }
    }
}
