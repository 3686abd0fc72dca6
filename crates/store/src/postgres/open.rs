//! Connecting: what durability rests on, and the tables.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::time::timeout;

use super::connections::Connections;
use super::{BATCH_TIMEOUT, PostgresStore, say};
use crate::faults::{Protection, is_off};
use crate::migrations::{APPLIED, Applied, POSTGRES, announce_beside_others, check_applied, compare, tolerant};
use crate::{Config, Migrate, OpenError, PostgresUrl};

/// Connections for claims and sweeps: each is one statement for many jobs.
const WORKER_CONNECTIONS: u32 = 4;

/// Connections for renewals and outcomes.
const LEASE_CONNECTIONS: u32 = 2;

/// Connections for bodies of middle size, and as many for large ones and for counting.
const BODY_CONNECTIONS: u32 = 2;

/// Connections for everything beside batches: one for requests that are larger than a batch or have a large body, the others for
/// operators, for readiness, and for clearing bodies.
const OTHER_CONNECTIONS: u32 = 3;

/// How long a run waits for another's body to arrive before its own is asked for.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

impl PostgresStore {
    pub(crate) async fn open(url: &PostgresUrl, config: &Config, migrate: Migrate) -> Result<Self, OpenError> {
        let options = (*url.0).clone();
        let database = name(&options);
        let unreachable = |error: sqlx::Error| unreachable(&database, &error);
        if migrate == Migrate::Run {
            // On a connection of its own, because a migration may take longer than any batch.
            let mut connection = in_time(options.connect()).await.map_err(unreachable)?;
            let applied = applied(&mut connection, &database).await?;
            check_applied(&POSTGRES, &applied, &database)?;
            announce_beside_others(&POSTGRES, &applied, &database);
            let other = |problem: String| OpenError::OtherTables { database: database.clone(), problem };
            let run = tolerant(&POSTGRES).run_direct(None, &mut connection, false).await;
            run.map_err(|error| other(not_migrated(&error)))?;
        }
        let options = with_settings(options);
        // Not through a pool, which tries again and hides what the network said.
        let mut connection = in_time(options.connect()).await.map_err(unreachable)?;
        in_time(check_settings(&mut connection)).await.map_err(unreachable)??;
        let applied = timeout(BATCH_TIMEOUT, applied(&mut connection, &database)).await;
        compare(&POSTGRES, &applied.map_err(|_| unreachable(sqlx::Error::PoolTimedOut))??, &database)?;
        let _ = in_time(connection.close()).await;
        let parallel_batches = u32::try_from(config.parallel_batches).unwrap_or(u32::MAX);
        let pool = pool(parallel_batches.saturating_add(OTHER_CONNECTIONS), Duration::from_secs(2));
        let pool = pool.connect_lazy_with(options.clone());
        Ok(Self {
            pool,
            // So that no handler can take a connection from recording. They are made when they are needed.
            workers: self::pool(WORKER_CONNECTIONS, BATCH_TIMEOUT).connect_lazy_with(options.clone()),
            leases: self::pool(LEASE_CONNECTIONS, BATCH_TIMEOUT).connect_lazy_with(options.clone()),
            short_bodies: self::pool(BODY_CONNECTIONS, BATCH_TIMEOUT).connect_lazy_with(options.clone()),
            bodies: self::pool(BODY_CONNECTIONS, BODY_PATIENCE)
                .connect_lazy_with(options.clone().options([("statement_timeout", "0")])),
            effects: Connections::new(options, config.worker_connections),
            parallel_batches: config.parallel_batches,
            dispatch_grace: config.dispatch_grace,
            only_new: AtomicBool::new(true),
            clearing: Default::default(),
        })
    }
}

/// Waiting helps when a server is not there, and not when there is no such user or database.
fn unreachable(database: &str, error: &sqlx::Error) -> OpenError {
    let (database, problem) = (database.to_owned(), say(error));
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    if ["28", "3D", "42501"].iter().any(|class| code.starts_with(class)) {
        return OpenError::Refused { database, problem };
    }
    OpenError::Unreachable { database, problem }
}

/// A server that stands still lets a client wait for ever.
async fn in_time<T>(step: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(BATCH_TIMEOUT, step).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// The database without the password.
pub(crate) fn name(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("the Postgres database `{database}` at {}:{}", options.get_host(), options.get_port())
}

fn with_settings(options: PgConnectOptions) -> PgConnectOptions {
    options
        .application_name("hookfast")
        // Said on every connection, because a role or database may have another default.
        .options([
            ("synchronous_commit", if is_off(Protection::Sync) { "off" } else { "on" }),
            ("statement_timeout", "4s"),
            ("idle_in_transaction_session_timeout", "10s"),
            // The driver has no keepalive of its own. The server's keeps a silent connection alive in the tables of a firewall
            // between the two.
            ("tcp_keepalives_idle", "30"),
            ("tcp_keepalives_interval", "10"),
            ("tcp_keepalives_count", "3"),
            // Statements wait for each other's rows and then go on with what has become of them.
            ("default_transaction_isolation", "read committed"),
            // Values that stand in a text are quoted accordingly.
            ("standard_conforming_strings", "on"),
            // A batch is always the same statement; planning it anew for each batch costs more than running it. But a plan
            // that was made while a table was short is still used when it is long, so it must go by the keys at once.
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            // Where there is no key to go by, the scan counts as so dear now that Postgres would compile the plan for it.
            ("jit", "off"),
        ])
        .disable_statement_logging()
}

fn pool(connections: u32, patience: Duration) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(patience)
        // A question before each batch would double its round trips; a dead connection shows itself soon enough.
        .test_before_acquire(false)
        // What was dropped in the middle, such as a transaction, has an end to wait for. If the server is gone without a
        // word, it does not come, and the connection's place in the pool would stay taken.
        .after_release(|connection, _| {
            Box::pin(async { Ok(matches!(timeout(BATCH_TIMEOUT, connection.flush()).await, Ok(Ok(())))) })
        })
}

/// Reads back what durability rests on.
async fn check_settings(connection: &mut PgConnection) -> Result<Result<(), OpenError>, sqlx::Error> {
    const REMEDY: &str = "Set it to `on` in postgresql.conf and reload.";
    let needed = [
        ("fsync", "without it a power cut destroys the database"),
        ("full_page_writes", "without it a power cut can leave half-written pages"),
        ("synchronous_commit", "without it a crash loses acknowledged events"),
    ];
    for (setting, why) in needed {
        let row = sqlx::query("SELECT current_setting($1)").bind(setting).fetch_one(&mut *connection).await?;
        let value: String = row.try_get(0)?;
        // `remote_apply` and the like promise more than `on`.
        if matches!(value.as_str(), "off" | "local") && !is_off(Protection::Sync) {
            return Ok(Err(OpenError::Unsafe { setting, value, why, remedy: REMEDY }));
        }
    }
    Ok(Ok(()))
}

/// The migrations that the database has had.
async fn applied(connection: &mut PgConnection, database: &str) -> Result<Vec<Applied>, OpenError> {
    const TABLES: &str = "
        SELECT to_regclass('_sqlx_migrations') IS NOT NULL,
               (SELECT min(nspname::text) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                WHERE relname = '_sqlx_migrations' AND relkind = 'r'),
               to_regclass('events') IS NOT NULL";
    let unreachable = |error: sqlx::Error| unreachable(database, &error);
    let other = |problem: String| Err(OpenError::OtherTables { database: database.into(), problem });
    let row = sqlx::query(TABLES).fetch_one(&mut *connection).await.map_err(unreachable)?;
    let column = |error: sqlx::Error| unreachable(error);
    let are_there: bool = row.try_get(0).map_err(column)?;
    if are_there {
        let applied: Vec<(i64, String, bool, Vec<u8>)> =
            sqlx::query_as(APPLIED).fetch_all(connection).await.map_err(|error| not_readable(database, &error))?;
        return Ok(applied.into_iter().map(Applied::from).collect());
    }
    if let Some(schema) = row.try_get::<Option<String>, _>(1).map_err(column)? {
        return other(format!(
            "its migrations are in the schema `{schema}`, which this role may not use, or which is not in its search_path"
        ));
    }
    if row.try_get(2).map_err(column)? {
        return other(
            "it is another program's database, with a table `events` and without hookfast's migrations. Give hookfast a \
             database or a schema of its own"
                .into(),
        );
    }
    Ok(Vec::new())
}

fn not_readable(database: &str, error: &sqlx::Error) -> OpenError {
    match unreachable(database, error) {
        OpenError::Refused { database, problem } => {
            let problem =
                format!("{problem}. Grant this role the rights on all tables of hookfast, or use their owner");
            OpenError::Refused { database, problem }
        }
        other => other,
    }
}

fn not_migrated(error: &MigrateError) -> String {
    match error {
        MigrateError::Execute(error) => say(error),
        MigrateError::ExecuteMigration(error, version) => format!("migration {version} failed: {}", say(error)),
        other => other.to_string(),
    }
}
