//! A database that an older version filled.

use std::fs;
use std::path::Path;

use hookfast_store::{Migrate, OpenError, Outcome, Resolution};
use hookfast_webhook::{EventId, JobState, Priority};
use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection, SqliteConnection};
use uuid::{Uuid, uuid};

use crate::database::{Database, claim_one, job, job_of, paid, ready, settle};

/// One migration without those that follow.
pub(crate) async fn only(kind: &str, file: &str) -> Migrator {
    let folder = tempfile::tempdir().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(kind);
    fs::copy(all.join(file), folder.path().join(file)).unwrap();
    Migrator::new(folder.path()).await.unwrap()
}

/// Runs only the first migration, as the version did that had no other.
async fn make_first_version(database: &Database) {
    let kind = if database.is_sqlite() { "sqlite" } else { "postgres" };
    let migrator = only(kind, "0001_record.sql").await;
    if database.is_sqlite() {
        let url = format!("{}?mode=rwc", database.url);
        migrator.run(&mut SqliteConnection::connect(&url).await.unwrap()).await.unwrap();
        database.make_private();
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
                 x'613a20310a', x'7b7d');
             INSERT INTO jobs VALUES (unhex('01890000000070008000000000000001'), 'ledger', 'pending', 0, 1);",
            "INSERT INTO events VALUES ('01890000-0000-7000-8000-000000000001', 'stripe', 'evt_1', 'invoice.paid',
                 NULL, NULL, now(), 'signature', '01890000-0000-7000-8000-000000000002', '::1', 'POST',
                 'https://h.example/', 'a: 1\n', '{}');
             INSERT INTO jobs VALUES ('01890000-0000-7000-8000-000000000001', 'ledger', 'pending', 0, 'epoch');",
        )
        .await;
    let error = database.try_open(Migrate::Never).await.err().expect("it lacks migrations");
    assert!(matches!(error, OpenError::NotMigrated { missing: 12, .. }), "{error}");

    let store = database.open().await;
    let id = job_of(EventId(uuid!("01890000-0000-7000-8000-000000000001")), "ledger");
    assert_eq!(ready(&store).await, std::slice::from_ref(&id));
    let claimed = claim_one(&store, &id).await;
    assert_eq!((claimed.attempt, claimed.interruptions, claimed.event.object_id.as_deref()), (1, 0, None));
    assert_eq!((claimed.event.body.as_deref(), claimed.event.size_bytes), (Some(&b"{}"[..]), 2));
    let stored = store.event(id.event).await.unwrap().expect("it is there");
    for (url, headers) in [(stored.url, stored.headers), (claimed.event.url.clone(), claimed.event.headers.clone())] {
        assert_eq!(url, "https://h.example/");
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("a", &b"1"[..])]);
    }
    settle(&store, &claimed, Outcome::Succeeded).await;
    let done = job(&store, &id).await;
    assert_eq!((done.state, done.priority), (JobState::Succeeded, Priority::Normal));
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

/// All migrations up to this number.
async fn make_version(database: &Database, last: u32) {
    let kind = if database.is_sqlite() { "sqlite" } else { "postgres" };
    let folder = tempfile::tempdir().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations").join(kind);
    for entry in fs::read_dir(all).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap()[..4].parse::<u32>().unwrap() <= last {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let migrator = Migrator::new(folder.path()).await.unwrap();
    if database.is_sqlite() {
        let url = format!("{}?mode=rwc", database.url);
        migrator.run(&mut SqliteConnection::connect(&url).await.unwrap()).await.unwrap();
        database.make_private();
    } else {
        migrator.run(&mut PgConnection::connect(&database.url).await.unwrap()).await.unwrap();
    }
}

/// A pending, a dead and a resolved job of the version before columns for reviews and for what an event is found by.
async fn everything_of_the_eleventh_version_is_kept(database: Database) {
    make_version(&database, 11).await;
    database
        .execute(
            "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 3)
             INSERT INTO events (id, source, dedupe_key, event_type, received_at, proof, request_id, remote_address, method,
                                 url, headers, body, object_id)
             SELECT unhex(printf('018900000000700080%014x', n)), 'stripe', 'evt_' || n, 'invoice.paid', 1, 'signature',
                    unhex('01890000000070008000000000000002'), '::1', 'POST', 'https://h.example/', x'613a20310a', x'7b7d',
                    'in_1' FROM numbers;
             INSERT INTO dedupe_keys (source, dedupe_key, event_id, resends) SELECT source, dedupe_key, id, 2 FROM events;
             INSERT INTO jobs (event_id, handler, due_at, state, reason, finished_at, priority)
             VALUES (unhex('01890000000070008000000000000001'), 'ledger', 0, 'pending', NULL, NULL, 'high'),
                    (unhex('01890000000070008000000000000002'), 'ledger', 0, 'dead_letter', 'refused', 7, 'normal'),
                    (unhex('01890000000070008000000000000003'), 'ledger', 0, 'resolved', 'ignored', 9, 'normal')",
            "INSERT INTO events (id, source, dedupe_key, event_type, received_at, proof, request_id, remote_address, method,
                                 url, headers, body, object_id)
             SELECT ('01890000-0000-7000-8000-00000000000' || n)::uuid, 'stripe', 'evt_' || n, 'invoice.paid', now(),
                    'signature', '01890000-0000-7000-8000-000000000002', '::1', 'POST', 'https://h.example/', 'a: 1\n',
                    '{}', 'in_1' FROM generate_series(1, 3) AS n;
             INSERT INTO dedupe_keys (source, dedupe_key, event_id, resends) SELECT source, dedupe_key, id, 2 FROM events;
             INSERT INTO jobs (event_id, handler, due_at, state, reason, finished_at, priority)
             VALUES ('01890000-0000-7000-8000-000000000001', 'ledger', 'epoch', 'pending', NULL, NULL, 'high'),
                    ('01890000-0000-7000-8000-000000000002', 'ledger', 'epoch', 'dead_letter', 'refused',
                     to_timestamp(0.000007), 'normal'),
                    ('01890000-0000-7000-8000-000000000003', 'ledger', 'epoch', 'resolved', 'ignored',
                     to_timestamp(0.000009), 'normal')",
        )
        .await;
    let store = database.open().await;
    let ids = [1, 2, 3].map(|n| EventId(Uuid::from_u128(0x0189_0000_0000_7000_8000_0000_0000_0000 + n)));
    let [pending, dead, resolved] = ids.map(|event| job_of(event, "ledger"));
    let stored = store.event(pending.event).await.unwrap().expect("it is there");
    assert_eq!((stored.summary.resends, stored.summary.object_id.as_deref()), (2, Some("in_1")));
    assert_eq!((stored.body.as_slice(), stored.priority, stored.tags.len()), (&b"{}"[..], None, 0));
    let letter = job(&store, &dead).await;
    assert_eq!((letter.state, letter.reason.as_deref(), letter.review), (JobState::DeadLetter, Some("refused"), None));
    let ignored = job(&store, &resolved).await;
    assert_eq!((ignored.state, ignored.reason.clone()), (JobState::Resolved, None));
    let review = ignored.review.expect("it was resolved");
    assert_eq!((review.resolution, review.at.microsecond(), review.by), (Resolution::Ignored, 9, None));
    assert_eq!(job(&store, &pending).await.priority, Priority::High);
    let claimed = claim_one(&store, &pending).await;
    settle(&store, &claimed, Outcome::Succeeded).await;
}

/// Earlier versions had a row for each resend.
async fn resends_of_the_first_version_count_along(database: Database) {
    make_first_version(&database).await;
    database
        .execute(
            "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 23)
             INSERT INTO resends SELECT 'stripe', 'evt_1', n, unhex(printf('%032x', n)), '::1' FROM numbers
             UNION ALL SELECT 'stripe', 'evt_2', 7, unhex(printf('%032x', 7)), '::2';
             INSERT INTO dedupe_keys (source, dedupe_key, event_id)
                 VALUES ('stripe', 'evt_1', unhex('01890000000070008000000000000001'));
             INSERT INTO events VALUES (unhex('01890000000070008000000000000001'), 'stripe', 'evt_1', 'invoice.paid',
                 NULL, NULL, 1, 'signature', unhex('01890000000070008000000000000002'), '::1', 'POST', 'https://h.example/',
                 x'', x'7b7d');",
            "INSERT INTO resends SELECT 'stripe', 'evt_1', 'epoch'::timestamptz + n * interval '1 microsecond',
                 lpad(to_hex(n), 32, '0')::uuid, '::1' FROM generate_series(1, 23) AS n
             UNION ALL SELECT 'stripe', 'evt_2', 'epoch', lpad(to_hex(7), 32, '0')::uuid, '::2';
             INSERT INTO dedupe_keys (source, dedupe_key, event_id)
                 VALUES ('stripe', 'evt_1', '01890000-0000-7000-8000-000000000001');
             INSERT INTO events VALUES ('01890000-0000-7000-8000-000000000001', 'stripe', 'evt_1', 'invoice.paid',
                 NULL, NULL, now(), 'signature', '01890000-0000-7000-8000-000000000002', '::1', 'POST',
                 'https://h.example/', '', '{}');",
        )
        .await;
    let store = database.open().await;
    let id = EventId(uuid!("01890000-0000-7000-8000-000000000001"));
    assert_eq!(store.event(id).await.unwrap().unwrap().summary.resends, 23);
    store.record(&[paid("evt_1")]).await.unwrap();
    let event = store.event(id).await.unwrap().unwrap();
    assert_eq!((event.summary.resends, event.came_again.len()), (24, 1));
    assert_eq!(store.latest_events(1).await.unwrap()[0].resends, 24);
}

on_both! {
    everything_of_the_eleventh_version_is_kept
    resends_of_the_first_version_count_along
    jobs_of_the_first_version_are_worked_on
}
