//! A database that an older version filled.

use std::fs;
use std::path::Path;

use hookfast_store::{Migrate, OpenError, Outcome};
use hookfast_webhook::EventId;
use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection, SqliteConnection};
use uuid::uuid;

use crate::database::{Database, claim_one, job, job_of, ready, settle};

/// Runs only the first migration, as the version did that had no other.
async fn make_first_version(database: &Database) {
    let (kind, is_sqlite) = if database.url.starts_with("sqlite") { ("sqlite", true) } else { ("postgres", false) };
    let folder = tempfile::tempdir().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(kind);
    fs::copy(all.join("0001_record.sql"), folder.path().join("0001_record.sql")).unwrap();
    let migrator = Migrator::new(folder.path()).await.unwrap();
    if is_sqlite {
        let url = format!("{}?mode=rwc", database.url);
        migrator.run(&mut SqliteConnection::connect(&url).await.unwrap()).await.unwrap();
    } else {
        migrator.run(&mut PgConnection::connect(&database.url).await.unwrap()).await.unwrap();
    }
}

async fn jobs_of_the_first_version_are_worked_on(database: Database) {
    make_first_version(&database).await;
    database
        .execute(
            "INSERT INTO events VALUES (unhex('01890000000070008000000000000001'), 'stripe', 'evt_1', 'invoice.paid',
                 NULL, NULL, 1, 'signature', unhex('01890000000070008000000000000002'), '::1', 'POST', 'https://h.example/',
                 x'', x'7b7d');
             INSERT INTO jobs VALUES (unhex('01890000000070008000000000000001'), 'ledger', 'pending', 0, 1);",
            "INSERT INTO events VALUES ('01890000-0000-7000-8000-000000000001', 'stripe', 'evt_1', 'invoice.paid',
                 NULL, NULL, now(), 'signature', '01890000-0000-7000-8000-000000000002', '::1', 'POST',
                 'https://h.example/', '', '{}');
             INSERT INTO jobs VALUES ('01890000-0000-7000-8000-000000000001', 'ledger', 'pending', 0, 'epoch');",
        )
        .await;
    let error = database.try_open(Migrate::Never).await.err().expect("it lacks migrations");
    assert!(matches!(error, OpenError::NotMigrated { missing: 8, .. }), "{error}");

    let store = database.open().await;
    let id = job_of(EventId(uuid!("01890000-0000-7000-8000-000000000001")), "ledger");
    assert_eq!(ready(&store).await, std::slice::from_ref(&id));
    let claimed = claim_one(&store, &id).await;
    assert_eq!((claimed.attempt, claimed.interruptions, claimed.event.object_id.as_deref()), (1, 0, None));
    assert_eq!((claimed.event.body.as_deref(), claimed.event.size_bytes), (Some(&b"{}"[..]), 2));
    settle(&store, &claimed, Outcome::Succeeded).await;
    let done = job(&store, &id).await;
    assert_eq!((done.state.as_str(), done.priority.as_str()), ("succeeded", "normal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_compresses_bodies_with_lz4_if_it_can() {
    let database = Database::postgres();
    make_first_version(&database).await;
    database.open().await;
    let can = "SELECT count(*) FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)";
    let does = "SELECT count(*) FROM pg_attribute
                WHERE attrelid = 'events'::regclass AND attname = 'body' AND attcompression = 'l'";
    assert_eq!(database.number(does).await, database.number(can).await);
}

on_both! {
    jobs_of_the_first_version_are_worked_on
}
