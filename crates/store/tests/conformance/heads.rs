//! URL and headers of a request that gave several events: kept once, and read back with each of them.

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Recorded, Routed, Store};

use crate::database::{
    Database, batch, batch_with_padding, claim, claim_one, handler, job_of, paid, record_jobs, wish,
};

const HEADS: &str = "SELECT count(*) FROM request_heads";

/// The event reads back with URL and headers of the request that it came in, for operators and for handlers.
pub(crate) async fn assert_has_head(store: &Arc<dyn Store>, routed: &Routed) {
    let request = &routed.event.delivery().request;
    let sent: Vec<_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let stored = store.event(routed.event.id()).await.unwrap().expect("it is there");
    assert_eq!(stored.url, request.url);
    assert_eq!(stored.headers.iter().collect::<Vec<_>>(), sent);
    assert_eq!(stored.body, routed.event.body()[..]);
    let claimed = claim_one(store, &job_of(routed.event.id(), "ledger")).await;
    assert_eq!(claimed.event.url, request.url);
    assert_eq!(claimed.event.headers.iter().collect::<Vec<_>>(), sent);
}

async fn the_events_of_a_request_have_one_head(database: Database) {
    let store = database.open().await;
    let (several, others) = (batch(&["evt_1", "evt_2", "evt_3"]), batch(&["evt_4", "evt_5"]));
    let events = [several, vec![paid("evt_6")], others].concat();
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::New; 6]);
    assert_eq!(database.number(HEADS).await, 2);
    assert_eq!(database.number("SELECT count(*) FROM events WHERE url = '' AND length(headers) = 0").await, 5);
    for routed in &events {
        assert_has_head(&store, routed).await;
    }
}

async fn what_only_came_again_leaves_no_head(database: Database) {
    let store = database.open().await;
    let first = batch(&["evt_1", "evt_2"]);
    store.record(&first).await.unwrap();
    // The first time Postgres has to find out that not all is new, then it asks.
    for _ in 0..2 {
        assert_eq!(store.record(&batch(&["evt_1", "evt_2"])).await.unwrap(), [Recorded::Duplicate; 2]);
    }
    assert_eq!(database.number(HEADS).await, 1);
    assert_has_head(&store, &first[0]).await;
}

async fn a_request_of_which_some_events_are_new_has_a_head_for_those(database: Database) {
    let store = database.open().await;
    let (first, second) = (batch(&["evt_1", "evt_2"]), batch(&["evt_2", "evt_3"]));
    store.record(&first).await.unwrap();
    assert_eq!(store.record(&second).await.unwrap(), [Recorded::Duplicate, Recorded::New]);
    assert_eq!(database.number(HEADS).await, 2);
    for routed in [&first[0], &first[1], &second[1]] {
        assert_has_head(&store, routed).await;
    }
    // And where the same is so within one batch.
    let both = [batch(&["evt_4", "evt_5"]), batch(&["evt_5", "evt_6"])].concat();
    let recorded = store.record(&both).await.unwrap();
    assert_eq!(recorded.iter().filter(|recorded| **recorded == Recorded::New).count(), 3);
    for (routed, _) in both.iter().zip(&recorded).filter(|(_, recorded)| **recorded == Recorded::New) {
        assert_has_head(&store, routed).await;
    }
}

/// On Postgres the events of one request are then recorded by several statements.
async fn a_request_too_large_for_one_statement_has_one_head(database: Database) {
    let store = database.open().await;
    let ids: Vec<_> = (0..5).map(|number| format!("evt_{number}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let events = batch_with_padding(&ids, 5 << 20);
    assert_eq!(store.record(&events).await.unwrap(), [Recorded::New; 5]);
    assert_eq!(database.number(HEADS).await, 1);
    let job = job_of(events[4].event.id(), "ledger");
    let claimed = claim_one(&store, &job).await;
    assert_eq!(claimed.event.url, events[4].event.delivery().request.url);
    assert_eq!(store.record(&batch_with_padding(&ids, 5 << 20)).await.unwrap(), [Recorded::Duplicate; 5]);
    assert_eq!(database.number(HEADS).await, 1);
}

/// Postgres may have planned the claim when there were no heads.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_claim_does_not_read_the_heads_of_others() {
    let database = Database::postgres();
    let store = database.open().await;
    let jobs = record_jobs(&store, 64).await;
    assert_eq!(claim(&store, &jobs[..32]).await.len(), 32);
    let many = "INSERT INTO request_heads SELECT gen_random_uuid(), '/', '' FROM generate_series(1, 5000)";
    database.execute("", many).await;
    assert_eq!(claim(&store, &jobs[32..]).await.len(), 32);
    let several = batch(&["evt_1", "evt_2"]);
    store.record(&several).await.unwrap();
    let ids: Vec<_> = several.iter().map(|routed| routed.event.id()).collect();
    assert_eq!(store.claim(&wish(&handler("ledger"), &ids)).await.unwrap().len(), 2);
    store.close().await;
    let connections = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while database.number(connections).await > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let read = "SELECT (coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint FROM pg_stat_user_tables
                WHERE relname = 'request_heads'";
    let read = database.number(read).await;
    assert!((2..100).contains(&read), "{read} heads were read");
}

on_both! {
    the_events_of_a_request_have_one_head
    what_only_came_again_leaves_no_head
    a_request_of_which_some_events_are_new_has_a_head_for_those
    a_request_too_large_for_one_statement_has_one_head
}
