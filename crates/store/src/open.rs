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
    /// Whether this process is the gateway of an SQLite file, of which there can be one; its commands and child processes are
    /// not. Postgres has any number of gateways.
    pub lock: bool,
}

impl Config {
    /// The usual settings.
    pub fn new(url: StoreUrl) -> Self {
        Self { url, parallel_batches: 2, worker_connections: 16, dispatch_grace: Duration::from_secs(5), lock: false }
    }
}

/// A database that events can be stored in.
#[derive(Clone)]
pub enum StoreUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(PostgresUrl),
}

/// How to reach a database on a Postgres server.
#[derive(Clone)]
pub struct PostgresUrl(pub(crate) Box<PgConnectOptions>);

impl PostgresUrl {
    /// The server's host and port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.0.get_host(), self.0.get_port())
    }
}

/// What to do about missing migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrate {
    /// Run them.
    Run,
    /// Run them on SQLite, which belongs to one gateway; on Postgres only say that they are missing.
    IfEmbedded,
    /// Only say that they are missing.
    Never,
}

/// Without the password, which sqlx would print.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// Without the password, too.
impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&crate::postgres::name(&self.0)).finish()
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
        if let Some(rest) = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://")) {
            if has_raw_credentials(rest) {
                return Err(OpenError::Url(
                    "its user name or password holds a character that ends it there: write `@` as `%40`, `/` as `%2F`, `?` \
                     as `%3F`, `#` as `%23` and `%` as `%25`"
                        .into(),
                ));
            }
            let options = PgConnectOptions::from_str(url)
                .map_err(|error| OpenError::Url(format!("not a usable Postgres URL: {error}")))?;
            return Ok(Self::Postgres(PostgresUrl(Box::new(options))));
        }
        Err(OpenError::Url("allowed are `sqlite:PATH` and `postgres://USER:PASSWORD@HOST:PORT/DATABASE`".into()))
    }
}

/// Whether what stands behind `postgres://` has a user name or a password that is not percent-encoded. Such a URL would be
/// read as another one, and part of the password as the name of a host or a database.
fn has_raw_credentials(rest: &str) -> bool {
    let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = if authority.contains('@') { after.split('?').next().unwrap_or_default() } else { after };
    authority.matches('@').count() > 1 || path.contains('@')
}

/// Opens the store: checks what durability rests on, and runs or checks the migrations.
pub async fn open(config: &Config, migrate: Migrate) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match &config.url {
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open_with(path, config, migrate).await?),
        StoreUrl::Postgres(url) => Arc::new(PostgresStore::open(url, config, migrate).await?),
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
        for raw in ["u:p@ss@h/d", "u:p/w@h:5432/d", "u:p@ss/word@h/d", "u:p?w@h/d", "u:p#w@h/d"] {
            let refused = format!("postgres://{raw}").parse::<StoreUrl>().expect_err("not percent-encoded").to_string();
            assert!(refused.contains("%40") && !refused.contains("ss/word"), "{refused}");
        }
        for good in ["u:p%40ss%2Fword@h:5432/d", "u@h/d?options=-c%20a%3Db@c", "h/d", "/d?host=/tmp", "u@%2Ftmp/d"] {
            assert!(format!("postgres://{good}").parse::<StoreUrl>().is_ok(), "{good}");
        }
        for bad in ["", "sqlite:", "sqlite::memory:", "sqlite:a?mode=ro", "mysql://h/d", "hookfast.db"] {
            assert!(bad.parse::<StoreUrl>().is_err(), "{bad}");
        }
    }
}
