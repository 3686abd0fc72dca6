//! What comes again is counted, and takes the room of a few however often it comes.

use std::sync::Arc;

use hookfast_store::{Recorded, Routed};

use crate::database::{Database, event_with_body, paid, routed};

fn copies(count: usize) -> Vec<Routed> {
    (0..count).map(|_| paid("evt_1")).collect()
}

async fn of_a_thousand_replays_the_first_and_last_few_are_kept(database: Database) {
    let store = database.open().await;
    let all: Vec<_> = copies(1001);
    let (first, again) = all.split_first().unwrap();
    store.record(std::slice::from_ref(first)).await.unwrap();
    for batch in again.chunks(125) {
        assert_eq!(store.record(batch).await.unwrap(), vec![Recorded::Duplicate; batch.len()]);
    }
    assert_eq!(database.number("SELECT count(*) FROM dedupe_keys").await, 1);
    assert_eq!(database.number("SELECT count(*) FROM resend_arrivals").await, 10);
    assert_eq!(database.number("SELECT count(*) FROM resends").await, 0);
    let stored = store.event(first.event.id()).await.unwrap().unwrap();
    assert_eq!((stored.summary.resends, store.latest_events(1).await.unwrap()[0].resends), (1000, 1000));
    let requests: Vec<_> = stored.came_again.iter().map(|arrival| arrival.request_id).collect();
    let expected = again[..5].iter().chain(&again[995..]).map(|routed| routed.event.delivery().arrival.request_id.0);
    assert_eq!(requests, expected.collect::<Vec<_>>());
    let numbers: Vec<_> = stored.came_again.iter().map(|arrival| arrival.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 996, 997, 998, 999, 1000]);
    let arrival = &again[0].event.delivery().arrival;
    assert_eq!(stored.came_again[0].received_at, arrival.received_at);
    assert_eq!(stored.came_again[0].remote_address, arrival.remote_address.to_string());
}

/// A gateway of the version before still inserts a row for each.
async fn what_an_older_gateway_notes_counts_as_well(database: Database) {
    let store = database.open().await;
    store.record(&copies(3)).await.unwrap();
    let older = "INSERT INTO resends (source, dedupe_key, received_at, request_id, remote_address) VALUES ";
    let sqlite = format!("{older} ('stripe', 'evt_1', 1, x'01890000000070008000000000000002', '::1')");
    let postgres = format!("{older} ('stripe', 'evt_1', now(), '01890000-0000-7000-8000-000000000002', '::1')");
    database.execute(sqlite.leak(), postgres.leak()).await;
    assert_eq!(store.latest_events(1).await.unwrap()[0].resends, 3);
}

/// Batches with the same keys in opposite order, of which some are too large for one statement, at the same time.
async fn concurrent_counts_of_the_same_keys_lose_none_and_wait_for_none_forever(database: Database) {
    let store = database.open().await;
    let large = |key: usize| {
        let body = format!(r#"{{"id":"evt_{key}","type":"t","data":"{}"}}"#, "x".repeat(1024 * 1024));
        routed(event_with_body("stripe", &body), &["ledger"])
    };
    let small = |key: usize| paid(&format!("evt_{key}"));
    let mut tasks = Vec::new();
    for round in 0..24 {
        let store = Arc::clone(&store);
        let mut batch: Vec<_> = (0..24).map(|key| if round % 6 == 0 { large(key) } else { small(key % 12) }).collect();
        if round % 2 == 1 {
            batch.reverse();
        }
        tasks.push(tokio::spawn(async move { store.record(&batch).await.unwrap() }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let resends: Vec<_> = store.latest_events(100).await.unwrap().iter().map(|event| event.resends).collect();
    assert_eq!((resends.len(), resends.iter().sum::<i64>()), (24, 24 * 24 - 24));
}

on_both! {
    of_a_thousand_replays_the_first_and_last_few_are_kept
    what_an_older_gateway_notes_counts_as_well
    concurrent_counts_of_the_same_keys_lose_none_and_wait_for_none_forever
}
