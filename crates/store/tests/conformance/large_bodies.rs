//! Large bodies: written in parts before their events, and read back as one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hookfast_store::{Recorded, Routed, StoreError};
use hookfast_webhook::EventId;
use sqlx::Connection;
use tokio::time::sleep;

use crate::database::{Database, HOUR, claim_one, event_with_body, job_of, paid, routed};

const BODIES: &str = "SELECT count(*) FROM large_bodies";
const PARTS: &str = "SELECT count(*) FROM body_parts";
const BYTES: &str = "SELECT cast(sum(length(bytes)) AS bigint) FROM body_parts";

/// A body of some megabytes, of which no two parts are equal.
fn large_text(id: &str) -> String {
    let numbers: String = (0..300_000).map(|number| format!("{number:07} ")).collect();
    format!(r#"{{"id":"{id}","type":"invoice.paid","created":1759999996,"account":"acct_1","text":"{numbers}"}}"#)
}

fn large(id: &str) -> Routed {
    routed(event_with_body("stripe", &large_text(id)), &["ledger"])
}

async fn a_large_body_comes_back_byte_for_byte(database: Database) {
    let store = database.open().await;
    let events = [paid("evt_1"), large("evt_2"), large("evt_3")];
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::New; 3]);
    for routed in &events {
        let (id, body) = (routed.event.id(), routed.event.body());
        let stored = store.event(id).await.unwrap().expect("it is there");
        assert!(stored.body == body[..], "the body for operators");
        assert_eq!(stored.summary.size_bytes, body.len() as i64);
        let claimed = claim_one(&store, &job_of(id, "ledger")).await;
        assert_eq!(claimed.event.size_bytes, body.len());
        let fetched = store.body(id, body.len()).await.unwrap().expect("it is there");
        assert!(fetched == body[..], "the body for handlers");
        assert_eq!(claimed.event.body.is_some(), body.len() < 1000, "a large body does not come with the claim");
    }
    let listed: Vec<_> = store.latest_events(3).await.unwrap().iter().map(|event| event.size_bytes).collect();
    assert_eq!(listed, events.iter().rev().map(|routed| routed.event.body().len() as i64).collect::<Vec<_>>());
    let in_rows = "SELECT cast(count(*) AS bigint) FROM events WHERE length(body) = 0";
    assert_eq!((database.number(in_rows).await, database.number(BODIES).await), (2, 2));
    assert!(database.number(PARTS).await >= 8, "each body stands in several parts");
}

async fn an_event_without_a_body_has_an_empty_one(database: Database) {
    let store = database.open().await;
    let recorded = paid("evt_1");
    store.record(std::slice::from_ref(&recorded)).await.unwrap();
    database.execute("UPDATE events SET body = x''", "UPDATE events SET body = ''").await;
    assert_eq!(store.body(recorded.event.id(), 0).await.unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.event(recorded.event.id()).await.unwrap().expect("it is there").body, b"");
    assert_eq!(store.body(EventId::new(), 0).await.unwrap(), None, "there is no such event");
}

async fn the_body_of_a_resend_is_not_kept(database: Database) {
    let store = database.open().await;
    store.record(&[large("evt_1")]).await.unwrap();
    let bytes = database.number(BYTES).await;
    for _ in 0..2 {
        assert_eq!(store.record(&[large("evt_1")]).await.unwrap(), [Recorded::Duplicate]);
    }
    // And where the key is taken while the body is written: by another event of the same request.
    assert_eq!(store.record(&[large("evt_2"), large("evt_2")]).await.unwrap(), [Recorded::New, Recorded::Duplicate]);
    wait_until(&database, BODIES, 2).await;
    assert_eq!(database.number(BYTES).await, 2 * bytes);
    assert_eq!(database.resends().await, 3);
}

/// As after a batch that was split, and after an outcome that was not known.
async fn what_was_not_recorded_is_recorded_the_second_time(database: Database) {
    let store = database.open().await;
    let events = [large("evt_1")];
    refuse(&database, "INSERT", "events").await;
    assert!(matches!(store.record(&events).await, Err(StoreError::Rejected(problem)) if problem.contains("refused")));
    assert_eq!((database.number(BODIES).await, store.latest_events(1).await.unwrap()), (1, vec![]));
    refuse_no_more(&database, "events").await;
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::New]);
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::Duplicate]);
    let body = events[0].event.body();
    assert!(store.body(events[0].event.id(), body.len()).await.unwrap().expect("it is there") == body[..]);
    assert_eq!((database.number(BODIES).await, database.number(BYTES).await), (1, body.len() as i64));
}

/// Even if nothing is known of the event any more but its body.
async fn a_body_that_is_recorded_is_not_written_again(database: Database) {
    let store = database.open().await;
    let events = [large("evt_1")];
    store.record(&events).await.unwrap();
    let parts = database.number(PARTS).await;
    database.execute("DELETE FROM dedupe_keys", "DELETE FROM dedupe_keys").await;
    assert!(matches!(store.record(&events).await, Err(StoreError::Rejected(_))));
    let body = events[0].event.body();
    assert!(store.body(events[0].event.id(), body.len()).await.unwrap().expect("it is there") == body[..]);
    assert_eq!((database.number(BODIES).await, database.number(PARTS).await), (1, parts));
}

const LONG_AGO: &str = "01999999000070008000000000000001";
const SOMEWHAT_LATER: &str = "01999999000070008000000000000002";

/// As if a process had died before the event was recorded.
async fn abandon(database: &Database, id: &str, parts: usize) {
    let statements = |id: String, byte: &str| {
        let parts: Vec<_> = (0..parts).map(|part| format!("({id}, {part}, {byte})")).collect();
        let parts = format!("INSERT INTO body_parts (event_id, part, bytes) VALUES {}", parts.join(", "));
        format!("INSERT INTO large_bodies (event_id, size_bytes) VALUES ({id}, 9); {parts}").leak()
    };
    database.execute(statements(format!("x'{id}'"), "x'00'"), statements(format!("'{id}'"), "'\\x00'")).await;
}

/// Bodies may be cleared a moment after the answer.
async fn wait_until(database: &Database, query: &'static str, number: i64) {
    let start = Instant::now();
    while database.number(query).await != number {
        assert!(start.elapsed() < Duration::from_secs(10), "{query} is not {number}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn refuse(database: &Database, verb: &str, table: &str) {
    let sqlite = format!("CREATE TRIGGER refuse BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END");
    let postgres = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
         CREATE TRIGGER refuse BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
    );
    database.execute(sqlite.leak(), postgres.leak()).await;
}

async fn refuse_no_more(database: &Database, table: &str) {
    database.execute("DROP TRIGGER refuse", format!("DROP TRIGGER refuse ON {table}").leak()).await;
}

async fn a_body_that_was_abandoned_is_cleared_after_a_day(database: Database) {
    let store = database.open().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let id_of = |age: Duration| format!("{:012x}70008000000000000003", (now - age).as_millis());
    abandon(&database, LONG_AGO, 1).await;
    abandon(&database, &id_of(25 * HOUR), 1).await;
    abandon(&database, &id_of(22 * HOUR), 1).await;
    let abandoned = EventId(LONG_AGO.parse().unwrap());
    assert_eq!(store.event(abandoned).await.unwrap(), None, "a body is no event");
    assert_eq!(store.latest_events(10).await.unwrap(), []);
    for id in ["evt_1", "evt_2", "evt_3"] {
        store.record(&[large(id)]).await.unwrap();
    }
    wait_until(&database, "SELECT count(*) FROM body_parts WHERE length(bytes) = 1", 1).await;
    assert_eq!(database.number(BODIES).await, 4, "the clock of another gateway may be wrong by some hours");
}

async fn a_body_of_many_parts_is_cleared(database: Database) {
    let store = database.open().await;
    abandon(&database, LONG_AGO, 200).await;
    abandon(&database, SOMEWHAT_LATER, 1).await;
    store.record(&[large("evt_1")]).await.unwrap();
    wait_until(&database, "SELECT count(*) FROM body_parts WHERE length(bytes) = 1", 1).await;
    store.record(&[large("evt_2")]).await.unwrap();
    wait_until(&database, "SELECT count(*) FROM body_parts WHERE length(bytes) = 1", 0).await;
    wait_until(&database, BODIES, 2).await;
}

async fn a_body_that_cannot_be_cleared_refuses_no_event(database: Database) {
    let store = database.open().await;
    abandon(&database, LONG_AGO, 1).await;
    refuse(&database, "DELETE", "body_parts").await;
    assert_eq!(store.record(&[large("evt_1")]).await.unwrap(), [Recorded::New]);
    assert_eq!(store.record(&[large("evt_2"), large("evt_2")]).await.unwrap(), [Recorded::New, Recorded::Duplicate]);
    refuse_no_more(&database, "body_parts").await;
    assert_eq!(store.record(&[large("evt_3")]).await.unwrap(), [Recorded::New]);
    wait_until(&database, "SELECT count(*) FROM body_parts WHERE length(bytes) = 1", 0).await;
}

/// Several gateways clear at once.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_body_that_is_being_cleared_is_passed_over() {
    let database = Database::postgres();
    let store = database.open().await;
    abandon(&database, LONG_AGO, 1).await;
    abandon(&database, SOMEWHAT_LATER, 1).await;
    let mut another = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let mut holds = another.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM large_bodies ORDER BY event_id LIMIT 1 FOR UPDATE")
        .execute(&mut *holds)
        .await
        .unwrap();
    assert_eq!(store.record(&[large("evt_1")]).await.unwrap(), [Recorded::New]);
    wait_until(&database, BODIES, 2).await;
    holds.rollback().await.unwrap();
    assert_eq!(store.record(&[large("evt_2")]).await.unwrap(), [Recorded::New]);
    wait_until(&database, BODIES, 2).await;
}

/// A committer waits for it, and with it all large requests.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_there_is_one_limit_for_all_parts() {
    let database = Database::postgres();
    let store = database.open().await;
    let slow =
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON body_parts FOR EACH ROW EXECUTE FUNCTION slow()";
    database.execute("", slow).await;
    let start = Instant::now();
    assert!(matches!(store.record(&[large("evt_1")]).await, Err(StoreError::Unavailable(_))));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

on_both! {
    a_large_body_comes_back_byte_for_byte
    an_event_without_a_body_has_an_empty_one
    the_body_of_a_resend_is_not_kept
    what_was_not_recorded_is_recorded_the_second_time
    a_body_that_is_recorded_is_not_written_again
    a_body_that_was_abandoned_is_cleared_after_a_day
    a_body_of_many_parts_is_cleared
    a_body_that_cannot_be_cleared_refuses_no_event
}
