//! The escape hatch: the drivers' own connections, for a handler that needs more than
//! [`EffectTransaction::execute`](crate::EffectTransaction::execute) and
//! [`fetch`](crate::EffectTransaction::fetch). Code that uses it depends on one database and on one version of its driver.
//! Everything else in this crate keeps its shape when a driver is replaced.

pub use sqlx;

/// A connection to Postgres.
pub type PostgresConnection = sqlx::PgConnection;

/// A connection to an SQLite file.
pub type SqliteConnection = sqlx::SqliteConnection;
