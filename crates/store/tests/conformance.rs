//! Every verb of the store, on both databases, with the same expectations. Here are opening, recording and reading.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[macro_use]
#[path = "conformance/database.rs"]
mod database;
#[path = "conformance/batches.rs"]
mod batches;
#[path = "conformance/effects.rs"]
mod effects;
#[path = "conformance/found_by.rs"]
mod found_by;
#[path = "conformance/heads.rs"]
mod heads;
#[path = "conformance/history.rs"]
mod history;
#[path = "conformance/large_bodies.rs"]
mod large_bodies;
#[path = "conformance/operate.rs"]
mod operate;
#[path = "conformance/order.rs"]
mod order;
#[path = "conformance/resends.rs"]
mod resends;
#[path = "conformance/review.rs"]
mod review;
#[path = "conformance/snooze.rs"]
mod snooze;
#[path = "conformance/spool.rs"]
mod spool;
#[path = "conformance/spool_keys.rs"]
mod spool_keys;
#[path = "conformance/statements.rs"]
mod statements;
#[path = "conformance/sweep.rs"]
mod sweep;
#[path = "conformance/upgrade.rs"]
mod upgrade;
#[path = "conformance/work.rs"]
mod work;
#[path = "conformance/writes.rs"]
mod writes;

use std::collections::HashSet;
use std::sync::Arc;

use database::{Database, event, event_with_body, new_job, paid, routed, tagged, with_window};
use hookfast_store::{Migrate, NewJob, OpenError, Recorded, Routed, StoreError};
use hookfast_webhook::{JobState, Priority, ProofKind};
use time::OffsetDateTime;

async fn a_new_event_is_recorded_with_one_job_for_each_handler(database: Database) {
    let store = database.open().await;
    let events = [routed(event("stripe", "evt_1"), &["ledger", "mail"]), routed(event("stripe", "evt_2"), &[])];
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::New, Recorded::New]);

    let jobs = store.jobs_of(events[0].event.id()).await.unwrap();
    let seen: Vec<_> = jobs.iter().map(|job| (job.handler.as_str(), job.state, job.attempts)).collect();
    assert_eq!(seen, [("ledger", JobState::Pending, 0), ("mail", JobState::Pending, 0)]);
    let now = OffsetDateTime::now_utc();
    assert!(
        jobs.iter().all(|job| job.due_at > now - time::Duration::MINUTE && job.due_at < now + time::Duration::MINUTE)
    );
    assert_eq!(store.jobs_of(events[1].event.id()).await.unwrap(), []);
}

async fn a_job_keeps_its_priority_and_an_event_its_object(database: Database) {
    let store = database.open().await;
    let urgent = NewJob { priority: Priority::High, ..new_job("ledger") };
    let routed = Routed { event: event("stripe", "evt_1"), jobs: vec![urgent, new_job("mail")] };
    store.record(std::slice::from_ref(&routed)).await.unwrap();
    let jobs = store.jobs_of(routed.event.id()).await.unwrap();
    let seen: Vec<_> = jobs.iter().map(|job| (job.priority, job.reason.as_deref())).collect();
    assert_eq!(seen, [(Priority::High, None), (Priority::Normal, None)]);
    assert_eq!(store.latest_events(1).await.unwrap()[0].object_id.as_deref(), Some("in_1"));
    let stored = store.event(routed.event.id()).await.unwrap().expect("it is there");
    assert_eq!(stored.summary.object_id.as_deref(), Some("in_1"));
}

async fn an_event_comes_back_byte_for_byte(database: Database) {
    let store = database.open().await;
    let body = "{\"id\":\"evt_ü\\u0000\",\"type\":\"a\\nb\",\"created\":1759999996,\r\n \"x\":\"\u{1f600}\u{0}\"}\n";
    let routed = routed(event_with_body("stripe", body), &["ledger"]);
    store.record(std::slice::from_ref(&routed)).await.unwrap();

    let stored = store.event(routed.event.id()).await.unwrap().expect("it is there");
    let delivery = routed.event.delivery();
    assert_eq!(stored.body, body.as_bytes());
    assert_eq!(stored.url, "https://h.example/webhooks/x?a=%20b");
    assert_eq!((stored.method.as_str(), stored.proof), ("POST", ProofKind::Signature));
    assert_eq!(stored.remote_address, "2001:db8::7");
    assert_eq!(stored.request_id, delivery.arrival.request_id.0);
    let headers: Vec<_> = stored.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    let sent = delivery.request.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    assert_eq!(headers, sent.collect::<Vec<_>>());
    let summary = stored.summary;
    assert_eq!(summary.dedupe_key, routed.event.dedupe_key().as_str());
    assert_eq!(summary.event_type, routed.event.event_type().as_str());
    assert_eq!((summary.account, summary.size_bytes), (None, body.len() as i64));
    assert_eq!(summary.received_at, delivery.arrival.received_at);
}

async fn what_an_event_is_found_by_is_stored(database: Database) {
    let store = database.open().await;
    let routed = [routed(tagged("evt_1"), &[]), routed(event("stripe", "evt_2"), &[])];
    store.record(&routed).await.unwrap();
    let stored = store.event(routed[0].event.id()).await.unwrap().expect("it is there");
    assert_eq!((stored.priority, stored.tags), (Some(Priority::High), vec!["vip".to_owned()]));
    assert_eq!((stored.provider_event_id.as_deref(), stored.delivery_id.as_deref()), (Some("evt_1"), Some("dlv_1")));
    assert_eq!(stored.trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(stored.secret_index, Some(0));
    let plain = store.event(routed[1].event.id()).await.unwrap().expect("it is there");
    assert_eq!((plain.priority, plain.tags), (Some(Priority::Normal), Vec::new()));
}

/// A user who disconnects again after a reconnection sends the very same bytes.
async fn a_key_with_a_window_is_free_after_it(database: Database) {
    let store = database.open().await;
    let of_key = || with_window("user_1", 3600);
    assert_eq!(store.record(&[of_key()]).await.unwrap(), [Recorded::New]);
    assert_eq!(store.record(&[of_key(), paid("evt_1")]).await.unwrap(), [Recorded::Duplicate, Recorded::New]);
    // As if it had come long ago.
    database
        .execute(
            "UPDATE dedupe_keys SET event_id = unhex('01890000000070008000000000000001') WHERE dedupe_key = 'user_1'",
            "UPDATE dedupe_keys SET event_id = '01890000-0000-7000-8000-000000000001' WHERE dedupe_key = 'user_1'",
        )
        .await;
    assert_eq!(store.record(&[paid("evt_1"), of_key()]).await.unwrap(), [Recorded::Duplicate, Recorded::New]);
    assert_eq!(store.record(&[of_key()]).await.unwrap(), [Recorded::Duplicate]);
    let events = store.latest_events(10).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.dedupe_key == "user_1").count(), 2);
    assert_eq!(events[0].resends, 1, "the resends of the event before are not this one's");
}

async fn an_empty_body_is_kept_as_such(database: Database) {
    let store = database.open().await;
    let routed = routed(event_with_body("stripe", ""), &[]);
    store.record(std::slice::from_ref(&routed)).await.unwrap();
    assert_eq!(store.event(routed.event.id()).await.unwrap().expect("it is there").body, b"");
}

async fn a_batch_too_large_for_one_statement_is_recorded_as_one(database: Database) {
    let store = database.open().await;
    let large = |id: &str| {
        let body = format!(r#"{{"id":"{id}","type":"t","data":"{}"}}"#, "x".repeat(5 * 1024 * 1024));
        routed(event_with_body("stripe", &body), &["ledger"])
    };
    store.record(&[large("evt_2")]).await.unwrap();
    let ids = ["evt_3", "evt_2", "evt_1", "evt_1", "evt_0"];
    let events: Vec<_> = ids.into_iter().map(large).collect();
    let recorded = store.record(&events).await.unwrap();
    assert_eq!((recorded[0], recorded[1], recorded[4]), (Recorded::New, Recorded::Duplicate, Recorded::New));
    assert_ne!(recorded[2], recorded[3], "one of two that are the same is new");
    let stored = store.latest_events(10).await.unwrap();
    assert_eq!(stored.len(), 4);
    for (routed, _) in events.iter().zip(&recorded).filter(|(_, recorded)| **recorded == Recorded::New) {
        assert_eq!(store.event(routed.event.id()).await.unwrap().expect("it is there").body, routed.event.body()[..]);
        assert_eq!(store.jobs_of(routed.event.id()).await.unwrap().len(), 1);
    }
}

async fn what_came_before_is_a_duplicate_and_noted(database: Database) {
    let store = database.open().await;
    let first = paid("evt_1");
    assert_eq!(store.record(std::slice::from_ref(&first)).await.unwrap(), [Recorded::New]);
    assert_eq!(store.record(&[paid("evt_1")]).await.unwrap(), [Recorded::Duplicate]);
    assert_eq!(store.record(&[paid("evt_2"), paid("evt_1")]).await.unwrap(), [Recorded::New, Recorded::Duplicate]);

    let events = store.latest_events(10).await.unwrap();
    let seen: Vec<_> = events.iter().map(|event| (event.dedupe_key.as_str(), event.resends, event.jobs)).collect();
    assert_eq!(seen, [("evt_2", 0, 1), ("evt_1", 2, 1)]);
    assert_eq!(events[1].id, first.event.id(), "the first one stays");
}

async fn duplicates_within_one_batch_give_one_event(database: Database) {
    let store = database.open().await;
    let batch = [paid("evt_1"), paid("evt_1"), paid("evt_2"), paid("evt_1")];
    let recorded = store.record(&batch).await.unwrap();
    assert_eq!(recorded, [Recorded::New, Recorded::Duplicate, Recorded::New, Recorded::Duplicate]);
    let events = store.latest_events(10).await.unwrap();
    assert_eq!(events.iter().map(|event| (event.resends, event.jobs)).collect::<Vec<_>>(), [(0, 1), (2, 1)]);
}

async fn the_same_key_at_another_source_is_another_event(database: Database) {
    let store = database.open().await;
    let batch = [routed(event("stripe", "evt_1"), &["ledger"]), routed(event("stripe-eu", "evt_1"), &["ledger"])];
    assert_eq!(store.record(&batch).await.unwrap(), [Recorded::New, Recorded::New]);
}

/// Batches that hold the same keys in opposite order, at the same time: no deadlock, one event each.
async fn concurrent_batches_of_the_same_events_agree(database: Database) {
    let store = database.open().await;
    let mut tasks = Vec::new();
    for round in 0..32 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let mut batch: Vec<_> = (0..20).map(|key| paid(&format!("evt_{key}"))).collect();
            if round % 2 == 1 {
                batch.reverse();
            }
            store.record(&batch).await.unwrap()
        }));
    }
    let mut new = 0;
    for task in tasks {
        new += task.await.unwrap().iter().filter(|recorded| **recorded == Recorded::New).count();
    }
    assert_eq!(new, 20);
    let events = store.latest_events(100).await.unwrap();
    assert_eq!(events.len(), 20);
    assert!(events.iter().all(|event| event.resends == 31 && event.jobs == 1));
}

async fn a_batch_with_a_row_the_database_refuses_leaves_nothing(database: Database) {
    let store = database.open().await;
    database
        .execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN new.dedupe_key = 'evt_bad'
             BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END",
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF new.dedupe_key = 'evt_bad' THEN RAISE 'refused by a trigger'; END IF; RETURN new; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    let error = store.record(&[paid("evt_1"), paid("evt_bad"), paid("evt_2")]).await.unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(problem) if problem.contains("refused by a trigger")), "{error}");
    assert_eq!(store.latest_events(10).await.unwrap(), []);
    assert_eq!(store.record(&[paid("evt_1"), paid("evt_2")]).await.unwrap(), [Recorded::New, Recorded::New]);
}

async fn a_large_batch_is_recorded_whole(database: Database) {
    let store = database.open().await;
    let batch: Vec<_> = (0..1000).map(|key| paid(&format!("evt_{key}"))).collect();
    store.record(&batch).await.unwrap();
    let keys: HashSet<_> = store.latest_events(2000).await.unwrap().into_iter().map(|event| event.dedupe_key).collect();
    assert_eq!(keys.len(), 1000);
}

async fn the_latest_events_come_first_and_no_more_than_asked_for(database: Database) {
    let store = database.open().await;
    store.record(&[paid("evt_1"), paid("evt_2"), paid("evt_3")]).await.unwrap();
    let keys: Vec<_> = store.latest_events(2).await.unwrap().into_iter().map(|event| event.dedupe_key).collect();
    assert_eq!(keys, ["evt_3", "evt_2"]);
}

async fn what_was_recorded_is_there_after_reopening(database: Database) {
    let store = database.open().await;
    store.record(&[paid("evt_1")]).await.unwrap();
    store.close().await;
    assert!(store.record(&[paid("evt_2")]).await.is_err(), "a closed store records nothing");
    let store = database.open().await;
    assert_eq!(store.latest_events(10).await.unwrap().len(), 1);
    assert_eq!(store.record(&[paid("evt_1")]).await.unwrap(), [Recorded::Duplicate]);
}

async fn an_unknown_event_is_not_found(database: Database) {
    let store = database.open().await;
    assert_eq!(store.event(paid("evt_1").event.id()).await.unwrap(), None);
}

async fn the_check_fails_without_the_tables(database: Database) {
    let store = database.open().await;
    store.check().await.expect("a fresh store is fine");
    database.execute("DROP TABLE jobs", "DROP TABLE jobs").await;
    store.check().await.expect_err("a table is gone");
}

async fn missing_migrations_are_said_and_not_run_unasked(database: Database) {
    let error = database.try_open(Migrate::Never).await.err().expect("nothing was migrated");
    assert!(matches!(error, OpenError::NotMigrated { missing, total, .. } if missing == total), "{error}");
    assert!(error.to_string().contains("hookfast migrate"), "{error}");
    database.open().await.close().await;
    database.open().await.close().await;
    assert!(database.try_open(Migrate::Never).await.is_ok(), "migrating twice is harmless");
}

async fn newer_tables_are_used_unless_something_was_taken_away(database: Database) {
    database.open().await.close().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'from the future', true, 'x', 0)";
    database.execute(newer, newer).await;
    for migrate in [Migrate::Never, Migrate::Run] {
        let store = database.try_open(migrate).await.expect("what is new there takes nothing away");
        store.record(&[paid("evt_1")]).await.unwrap();
        store.close().await;
    }
    let contracts = "UPDATE _sqlx_migrations SET description = 'contract the past' WHERE version = 9999";
    database.execute(contracts, contracts).await;
    for migrate in [Migrate::Never, Migrate::Run] {
        let error = database.try_open(migrate).await.err().expect("the tables are too new");
        assert!(error.to_string().contains("9999"), "{error}");
    }
}

on_both! {
    a_batch_too_large_for_one_statement_is_recorded_as_one
    a_new_event_is_recorded_with_one_job_for_each_handler
    a_job_keeps_its_priority_and_an_event_its_object
    an_event_comes_back_byte_for_byte
    an_empty_body_is_kept_as_such
    what_an_event_is_found_by_is_stored
    a_key_with_a_window_is_free_after_it
    what_came_before_is_a_duplicate_and_noted
    duplicates_within_one_batch_give_one_event
    the_same_key_at_another_source_is_another_event
    concurrent_batches_of_the_same_events_agree
    a_batch_with_a_row_the_database_refuses_leaves_nothing
    a_large_batch_is_recorded_whole
    the_latest_events_come_first_and_no_more_than_asked_for
    what_was_recorded_is_there_after_reopening
    an_unknown_event_is_not_found
    the_check_fails_without_the_tables
    missing_migrations_are_said_and_not_run_unasked
    newer_tables_are_used_unless_something_was_taken_away
}
