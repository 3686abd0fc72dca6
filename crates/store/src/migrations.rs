//! Compares the migrations in the binary with those a database has had.

use sqlx::migrate::Migrator;

use crate::OpenError;

/// A migration that a database has had.
#[derive(sqlx::FromRow)]
pub(crate) struct Applied {
    version: i64,
    success: bool,
    checksum: Vec<u8>,
}

/// What migrations a database has had, the same on both kinds.
pub(crate) const APPLIED: &str = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";

/// Says that a database is upgraded: with much in it, that takes a while. A new one has nothing to upgrade.
pub(crate) fn announce(migrator: &Migrator, applied: &[Applied], database: &str) {
    let missing = migrator.iter().count().saturating_sub(applied.len());
    if missing > 0 && !applied.is_empty() {
        let are = if missing == 1 { "is" } else { "are" };
        tracing::info!(
            "upgrading {database}: {missing} of its migrations {are} missing. With many events an upgrade can take minutes"
        );
    }
}

/// Fails unless `applied` are exactly the migrations of this program.
pub(crate) fn compare(migrator: &Migrator, applied: &[Applied], database: &str) -> Result<(), OpenError> {
    let other = |problem: String| OpenError::OtherTables { database: database.into(), problem };
    for had in applied {
        let Some(ours) = migrator.iter().find(|ours| ours.version == had.version) else {
            return Err(other(format!(
                "it has migration {}, which this program does not know. Use the newer hookfast that made it",
                had.version
            )));
        };
        if !had.success {
            return Err(other(format!("migration {} was begun and not finished. Restore a backup", had.version)));
        }
        if *ours.checksum != had.checksum {
            return Err(other(format!("its migration {} has another text than this program's", had.version)));
        }
    }
    let total = migrator.iter().count();
    match total - applied.len() {
        0 => Ok(()),
        missing => Err(OpenError::NotMigrated { database: database.into(), missing, total }),
    }
}
