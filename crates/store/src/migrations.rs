//! The migrations in the binary, and how they compare with those a database has had.

use std::borrow::Cow;
use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::OpenError;

/// The migrations of a folder, by the names of their files. `sqlx::migrate!` reads the folder by itself, but its macros build
/// the whole of sqlx and its TLS a second time.
macro_rules! embedded {
    ($folder:literal: $($name:literal)+) => {
        LazyLock::new(|| {
            let text_of = [$(($name, include_str!(concat!("../../../migrations/", $folder, "/", $name, ".sql")))),+];
            Migrator::with_migrations(text_of.map(|(name, text)| migration(name, text)).into())
        })
    };
}

/// The migrations of a store, which have the same names for both databases.
macro_rules! embedded_for_store {
    ($folder:literal) => {
        embedded!($folder:
            "0001_record" "0002_process" "0003_order" "0004_resends" "0005_due" "0006_incoming" "0007_states"
            "0008_compression" "0009_walk" "0010_contract_heads" "0011_resends" "0012_found"
            "0013_contract_large_bodies")
    };
}

pub(crate) static POSTGRES: LazyLock<Migrator> = embedded_for_store!("postgres");
pub(crate) static SQLITE: LazyLock<Migrator> = embedded_for_store!("sqlite");
pub(crate) static SPOOL: LazyLock<Migrator> =
    embedded!("spool": "0001_spool" "0002_contract_heads" "0003_resends" "0004_found");

/// The migration in a file with this name, such as `0001_record`, and this text.
fn migration(name: &'static str, text: &'static str) -> Migration {
    let (number, words) = name.split_once('_').expect("a migration's name is a number, `_` and words");
    let version = number.parse().expect("a migration's name begins with its number");
    let description = words.replace('_', " ").into();
    Migration::new(version, description, MigrationType::Simple, SqlStr::from_static(text), false)
}

/// A migration that a database has had.
pub(crate) struct Applied {
    version: i64,
    description: String,
    success: bool,
    checksum: Vec<u8>,
}

impl From<(i64, String, bool, Vec<u8>)> for Applied {
    fn from((version, description, success, checksum): (i64, String, bool, Vec<u8>)) -> Self {
        Self { version, description, success, checksum }
    }
}

/// What migrations a database has had, the same on both kinds.
pub(crate) const APPLIED: &str =
    "SELECT version, description, success, checksum FROM _sqlx_migrations ORDER BY version";

/// How the description of a migration begins that takes away what the version before still uses.
const CONTRACT: &str = "contract";

/// Runs what is missing, and leaves migrations of a newer program alone; [`compare`] judges these.
pub(crate) fn tolerant(migrator: &'static Migrator) -> Migrator {
    Migrator { migrations: Cow::Borrowed(&migrator.migrations), ignore_missing: true, ..Migrator::DEFAULT }
}

/// Says that a database is upgraded: with much in it, that takes a while. A new one has nothing to upgrade.
pub(crate) fn announce(migrator: &Migrator, applied: &[Applied], database: &str) {
    let missing = missing(migrator, applied);
    if missing > 0 && !applied.is_empty() {
        let are = if missing == 1 { "is" } else { "are" };
        tracing::info!(
            "upgrading {database}: {missing} of its migrations {are} missing. With many events an upgrade can take minutes"
        );
    }
}

/// Also says which processes of an older version must not go on, which may run beside this one. They look at the migrations only
/// when they start.
pub(crate) fn announce_beside_others(migrator: &Migrator, applied: &[Applied], database: &str) {
    announce(migrator, applied, database);
    warn_of_contracting(migrator, applied, database);
}

fn warn_of_contracting(migrator: &Migrator, applied: &[Applied], database: &str) {
    let contracting = contracting(migrator, applied);
    if !contracting.is_empty() && !applied.is_empty() {
        tracing::warn!(
            "{database} gets migrations after which an older hookfast misreads what a newer one records: {}. Stop all \
             `serve` and `work` of the older version before one of this version starts",
            contracting.join(", ")
        );
    }
}

fn contracting(migrator: &Migrator, applied: &[Applied]) -> Vec<String> {
    let contracting = unapplied(migrator, applied).filter(|ours| ours.description.starts_with(CONTRACT));
    contracting.map(|ours| format!("{} ({})", ours.version, ours.description)).collect()
}

fn missing(migrator: &Migrator, applied: &[Applied]) -> usize {
    unapplied(migrator, applied).count()
}

fn unapplied<'a>(migrator: &'a Migrator, applied: &'a [Applied]) -> impl Iterator<Item = &'a Migration> {
    migrator.iter().filter(|ours| !applied.iter().any(|had| had.version == ours.version))
}

/// Fails unless this program can use a database with these migrations: all of its own, and of newer ones only those that take
/// nothing away.
pub(crate) fn compare(migrator: &Migrator, applied: &[Applied], database: &str) -> Result<(), OpenError> {
    check_applied(migrator, applied, database)?;
    match missing(migrator, applied) {
        0 => {
            warn_of_newer(migrator, applied, database);
            Ok(())
        }
        missing => {
            let total = migrator.iter().count();
            Err(OpenError::NotMigrated { database: database.into(), missing, total })
        }
    }
}

/// Fails if a migration that was run is not one to go on with.
pub(crate) fn check_applied(migrator: &Migrator, applied: &[Applied], database: &str) -> Result<(), OpenError> {
    let other = |problem: String| OpenError::OtherTables { database: database.into(), problem };
    let newest = migrator.iter().map(|ours| ours.version).max().unwrap_or_default();
    for had in applied {
        let Applied { version, description, success, checksum } = had;
        if !success {
            return Err(other(format!("migration {version} was begun and not finished. Restore a backup")));
        }
        match migrator.iter().find(|ours| ours.version == *version) {
            Some(ours) if *ours.checksum == *checksum => {}
            Some(_) => {
                return Err(other(format!(
                    "its migration {version} ({description}) has another text than this program's. If it is another \
                     program's database, give hookfast one of its own"
                )));
            }
            None if *version > newest && !description.starts_with(CONTRACT) => {}
            None => {
                return Err(other(format!(
                    "it has migration {version} ({description}), with which this program cannot work. Use the newer \
                     hookfast that made it"
                )));
            }
        }
    }
    Ok(())
}

fn warn_of_newer(migrator: &Migrator, applied: &[Applied], database: &str) {
    let is_ours = |version| migrator.iter().any(|ours| ours.version == version);
    let newer: Vec<_> = applied.iter().map(|had| had.version).filter(|version| !is_ours(*version)).collect();
    if !newer.is_empty() {
        tracing::warn!(
            "{database} has migrations of a newer hookfast: {newer:?}. They take nothing away, so this one works with it; \
             upgrade it soon"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn migrator() -> Migrator {
        let ours = |version| {
            let (kind, text) = (MigrationType::Simple, SqlStr::from_static("SELECT 1"));
            Migration::new(version, "ours".into(), kind, text, false)
        };
        Migrator::with_migrations(vec![ours(1), ours(2)])
    }

    fn applied(migrator: &Migrator, newer: &[(i64, &str)]) -> Vec<Applied> {
        let ours = migrator.iter().map(|ours| (ours.version, "ours", ours.checksum.to_vec()));
        let newer = newer.iter().map(|(version, description)| (*version, *description, vec![7]));
        let applied = |(version, description, checksum): (i64, &str, Vec<u8>)| Applied {
            version,
            description: description.into(),
            success: true,
            checksum,
        };
        ours.chain(newer).map(applied).collect()
    }

    #[tokio::test]
    async fn every_file_of_the_folders_is_embedded() {
        for (folder, embedded) in [("postgres", &*POSTGRES), ("sqlite", &*SQLITE), ("spool", &*SPOOL)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(folder);
            let files = Migrator::new(folder).await.expect("the folder is readable");
            let parts = |migrator: &Migrator| -> Vec<_> {
                let parts = |one: &Migration| (one.version, one.description.clone(), one.checksum.clone(), one.no_tx);
                migrator.iter().map(parts).collect()
            };
            assert_eq!(parts(&files), parts(embedded));
        }
    }

    #[test]
    fn newer_migrations_are_accepted_unless_they_contract() {
        let migrator = migrator();
        assert!(compare(&migrator, &applied(&migrator, &[]), "it").is_ok());
        assert!(compare(&migrator, &applied(&migrator, &[(3, "more room"), (4, "an index")]), "it").is_ok());
        let refused = compare(&migrator, &applied(&migrator, &[(3, "more room"), (4, "contract states")]), "it");
        assert!(refused.is_err_and(|error| error.to_string().contains("migration 4 (contract states)")));
        let refused = compare(&migrator, &applied(&migrator, &[(0, "somewhere between")]), "it");
        assert!(refused.is_err(), "an older one that is unknown is not a newer program's");
    }

    #[test]
    fn the_missing_migrations_that_contract_are_named() {
        let had = |count: usize| {
            let had = POSTGRES.iter().take(count);
            had.map(|had| Applied::from((had.version, had.description.to_string(), true, vec![]))).collect::<Vec<_>>()
        };
        assert_eq!(contracting(&POSTGRES, &had(9)), ["10 (contract heads)", "13 (contract large bodies)"]);
        assert_eq!(contracting(&POSTGRES, &had(12)), ["13 (contract large bodies)"]);
        assert!(contracting(&POSTGRES, &had(13)).is_empty());
    }

    #[test]
    fn what_is_missing_unfinished_or_changed_is_said() {
        let migrator = migrator();
        let mut had = applied(&migrator, &[]);
        had[1].success = false;
        assert!(compare(&migrator, &had, "it").is_err_and(|error| error.to_string().contains("not finished")));
        had[1].success = true;
        had[1].checksum = vec![7];
        assert!(compare(&migrator, &had, "it").is_err_and(|error| error.to_string().contains("another text")));
        had.pop();
        assert!(compare(&migrator, &had, "it").is_err_and(|error| error.to_string().contains("lacks 1 of 2")));
    }
}
