//! Large bodies: written in parts before their events, and read back as one.

use hookfast_store::{Recorded, Routed};
use hookfast_webhook::EventId;
use time::OffsetDateTime;

use crate::database::{Database, claim_one, event_at, event_with_body, job_of, paid, routed};

const BODIES: &str = "SELECT count(*) FROM large_bodies";
const PARTS: &str = "SELECT count(*) FROM body_parts";

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

async fn an_empty_body_stays_empty(database: Database) {
    let store = database.open().await;
    let unknown = EventId::new(OffsetDateTime::now_utc());
    assert_eq!(store.body(unknown, 0).await.unwrap(), None);
}

async fn the_body_of_a_resend_is_not_kept(database: Database) {
    let store = database.open().await;
    store.record(&[large("evt_1")]).await.unwrap();
    let parts = database.number(PARTS).await;
    for _ in 0..2 {
        assert_eq!(store.record(&[large("evt_1")]).await.unwrap(), [Recorded::Duplicate]);
    }
    // And where the key is taken while the body is written: by another event of the same request.
    assert_eq!(store.record(&[large("evt_2"), large("evt_2")]).await.unwrap(), [Recorded::New, Recorded::Duplicate]);
    assert_eq!((database.number(BODIES).await, database.number(PARTS).await), (2, 2 * parts));
    assert_eq!(database.resends().await, 3);
}

/// As if the process had died before the event was recorded.
async fn a_body_that_was_abandoned_is_cleared(database: Database) {
    let store = database.open().await;
    let id = "01999999-0000-7000-8000-000000000001";
    database
        .execute(
            "INSERT INTO large_bodies (event_id, size_bytes) VALUES (x'01999999000070008000000000000001', 9);
             INSERT INTO body_parts (event_id, part, bytes) VALUES (x'01999999000070008000000000000001', 0, x'00')",
            "INSERT INTO large_bodies (event_id, size_bytes) VALUES ('01999999-0000-7000-8000-000000000001', 9);
             INSERT INTO body_parts (event_id, part, bytes) VALUES ('01999999-0000-7000-8000-000000000001', 0, '\\x00')",
        )
        .await;
    let abandoned = EventId(id.parse().unwrap());
    assert_eq!(store.event(abandoned).await.unwrap(), None, "a body is no event");
    assert_eq!(store.latest_events(10).await.unwrap(), []);
    let soon = OffsetDateTime::from_unix_timestamp(1_759_238_000).unwrap();
    let begun_at = OffsetDateTime::from(std::time::UNIX_EPOCH + std::time::Duration::from_millis(0x0199_9999_0000));
    assert!(begun_at < soon && begun_at > soon - time::Duration::HOUR, "{begun_at}");
    let recorded = |id: &str, at| routed(event_at("stripe", &large_text(id), at), &["ledger"]);
    store.record(&[recorded("evt_1", soon)]).await.unwrap();
    assert_eq!(database.number(BODIES).await, 2, "it may still be recorded");
    store.record(&[recorded("evt_2", begun_at + 2 * time::Duration::HOUR)]).await.unwrap();
    assert_eq!(database.number(BODIES).await, 2, "the abandoned one is gone");
    assert_eq!(database.number("SELECT count(*) FROM body_parts WHERE length(bytes) = 1").await, 0);
}

on_both! {
    a_large_body_comes_back_byte_for_byte
    an_empty_body_stays_empty
    the_body_of_a_resend_is_not_kept
    a_body_that_was_abandoned_is_cleared
}
