//! Connecting: what durability rests on, and the tables.

use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Row};

use super::PostgresStore;
use crate::migrations::{APPLIED, compare};
use crate::{Migrate, OpenError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// Connections for everything that is not recording.
const OTHER_CONNECTIONS: u32 = 2;

impl PostgresStore {
    pub(crate) async fn open(
        options: PgConnectOptions,
        parallel_batches: usize,
        migrate: Migrate,
    ) -> Result<Self, OpenError> {
        let database = name(&options);
        let unreachable =
            |error: sqlx::Error| OpenError::Unreachable { database: database.clone(), problem: error.to_string() };
        if migrate == Migrate::Run {
            // On a connection of its own, because a migration may take longer than any batch.
            let mut connection = options.connect().await.map_err(unreachable)?;
            let other = |problem: String| OpenError::OtherTables { database: database.clone(), problem };
            MIGRATIONS.run(&mut connection).await.map_err(|error| other(error.to_string()))?;
        }
        let pool = pool(options, parallel_batches).await.map_err(unreachable)?;
        check_settings(&pool).await.map_err(unreachable)??;
        check_tables(&pool, &database).await?;
        Ok(Self { pool, parallel_batches })
    }
}

/// The database without the password.
pub(crate) fn name(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("the Postgres database `{database}` at {}:{}", options.get_host(), options.get_port())
}

async fn pool(options: PgConnectOptions, parallel_batches: usize) -> Result<PgPool, sqlx::Error> {
    let options = options
        .application_name("hookfast")
        // Said on every connection, because a role or database may have another default.
        .options([
            ("synchronous_commit", "on"),
            ("statement_timeout", "4s"),
            ("idle_in_transaction_session_timeout", "10s"),
            // A batch is always the same statement; planning it anew for each batch costs more than running it.
            ("plan_cache_mode", "force_generic_plan"),
        ])
        .disable_statement_logging();
    let parallel_batches = u32::try_from(parallel_batches).unwrap_or(u32::MAX);
    PgPoolOptions::new()
        .max_connections(parallel_batches.saturating_add(OTHER_CONNECTIONS))
        .acquire_timeout(Duration::from_secs(2))
        // A question before each batch would double its round trips; a dead connection shows itself soon enough.
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

/// Reads back what durability rests on.
async fn check_settings(pool: &PgPool) -> Result<Result<(), OpenError>, sqlx::Error> {
    const REMEDY: &str = "Set it to `on` in postgresql.conf and reload.";
    let needed = [
        ("fsync", "without it a power cut destroys the database"),
        ("full_page_writes", "without it a power cut can leave half-written pages"),
        ("synchronous_commit", "without it a crash loses acknowledged events"),
    ];
    for (setting, why) in needed {
        let row = sqlx::query("SELECT current_setting($1)").bind(setting).fetch_one(pool).await?;
        let value: String = row.try_get(0)?;
        // `remote_apply` and the like promise more than `on`.
        if matches!(value.as_str(), "off" | "local") {
            return Ok(Err(OpenError::Unsafe { setting, value, why, remedy: REMEDY }));
        }
    }
    Ok(Ok(()))
}

async fn check_tables(pool: &PgPool, database: &str) -> Result<(), OpenError> {
    // Where there is no such table yet, no migration was run.
    let applied = sqlx::query_as(APPLIED).fetch_all(pool).await.unwrap_or_default();
    compare(&MIGRATIONS, &applied, database)
}
