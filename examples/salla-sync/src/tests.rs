#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::HashSet;
use std::sync::Mutex;

use hookfast::testing::{Kit, TestEvent};
use hookfast::{FailureKind, IdempotencyKey};
use time::{Duration, OffsetDateTime};

use super::*;

const ORDERS: &str = "SELECT order_id, state, status, total, currency, receipt FROM orders";
const REVIEWS: &str = "SELECT order_id, reason, is_open FROM reviews";
const NOON: OffsetDateTime = time::macros::datetime!(2025-10-09 12:00 +3);

/// A warehouse that remembers what it was told, and answers as the test says.
#[derive(Default)]
struct FakeWarehouse {
    told: Mutex<Vec<(IdempotencyKey, &'static str)>>,
    /// What it answers to some calls, by their number from 1; to all others, that all is well.
    trouble: Vec<(usize, Failure)>,
}

impl FakeWarehouse {
    fn with_trouble(trouble: impl IntoIterator<Item = (usize, Failure)>) -> OrderSync<Self> {
        OrderSync { warehouse: Self { told: Mutex::default(), trouble: trouble.into_iter().collect() } }
    }

    fn states(&self) -> Vec<&'static str> {
        self.told.lock().unwrap().iter().map(|(_, state)| *state).collect()
    }

    fn different_keys(&self) -> usize {
        self.told.lock().unwrap().iter().map(|(key, _)| *key).collect::<HashSet<_>>().len()
    }
}

impl Warehouse for FakeWarehouse {
    async fn tell(&self, key: IdempotencyKey, change: &Change) -> Result<Receipt, Failure> {
        let mut told = self.told.lock().unwrap();
        told.push((key, change.state));
        match self.trouble.iter().find(|(call, _)| *call == told.len()) {
            Some((_, failure)) => Err(failure.clone()),
            None => Ok(Receipt { receipt: format!("W-{}", change.order) }),
        }
    }
}

fn event(event_type: &'static str, data: &str) -> TestEvent {
    let body = format!(r#"{{"event":"{event_type}","merchant":1029384756,"created_at":"…","data":{data}}}"#);
    TestEvent::new("salla", event_type, body).at(NOON)
}

fn with_total(event_type: &'static str, total: &str) -> TestEvent {
    let data = format!(
        r#"{{"id":7,"reference_id":48927,"status":{{"id":1,"name":"بانتظار الدفع"}},"amounts":{{"total":{{"amount":{total},"currency":"SAR"}}}}}}"#
    );
    event(event_type, &data)
}

fn created() -> TestEvent {
    with_total("order.created", "120.5")
}

fn deleted() -> TestEvent {
    event("order.deleted", r#"{"id":7}"#)
}

#[tokio::test]
async fn an_order_is_kept_and_told_exactly_once() {
    let sync = FakeWarehouse::with_trouble([]);
    Kit::assert_exactly_once(&sync, &created(), ORDERS).await;
    assert_eq!(sync.warehouse.states(), ["open", "open"], "once undisturbed, and once with a crash after every effect");
}

#[tokio::test]
async fn when_the_answer_is_lost_the_warehouse_hears_the_same_key_again() {
    // The first call is that of the undisturbed run.
    let sync = FakeWarehouse::with_trouble([(2, Failure::network("it took note, but the line broke"))]);
    Kit::assert_exactly_once(&sync, &created(), ORDERS).await;
    assert_eq!((sync.warehouse.states().len(), sync.warehouse.different_keys()), (3, 2));
}

#[tokio::test]
async fn an_order_is_kept_as_salla_wrote_it() {
    let sync = FakeWarehouse::with_trouble([]);
    let kit = Kit::new(&sync).await;
    kit.run(&sync, &created()).await.unwrap();
    assert_eq!(kit.rows(ORDERS).await, [["7", "open", "بانتظار الدفع", "120.5", "SAR", "W-7"]]);
}

#[tokio::test]
async fn an_older_update_after_a_newer_delete_does_nothing() {
    let sync = FakeWarehouse::with_trouble([]);
    let kit = Kit::new(&sync).await;
    kit.run(&sync, &created()).await.unwrap();
    kit.run(&sync, &deleted().at(NOON + Duration::seconds(10))).await.unwrap();
    kit.run(&sync, &with_total("order.updated", "99").at(NOON + Duration::seconds(5))).await.unwrap();
    assert_eq!(kit.rows(ORDERS).await, [["7", "deleted", "بانتظار الدفع", "120.5", "SAR", "W-7"]]);
    assert_eq!(sync.warehouse.states(), ["open", "deleted"]);
}

#[tokio::test]
async fn an_update_of_the_same_second_counts() {
    let sync = FakeWarehouse::with_trouble([]);
    let kit = Kit::new(&sync).await;
    kit.run(&sync, &created()).await.unwrap();
    kit.run(&sync, &with_total("order.updated", "99")).await.unwrap();
    assert_eq!(kit.rows("SELECT total FROM orders").await, [["99"]]);
}

#[tokio::test]
async fn a_cancelled_order_stays_in_the_table() {
    let sync = FakeWarehouse::with_trouble([]);
    let kit = Kit::new(&sync).await;
    kit.run(&sync, &event("order.cancelled", r#"{"id":7}"#)).await.unwrap();
    assert_eq!(kit.rows("SELECT state, total FROM orders").await, [["cancelled", "NULL"]]);
}

#[tokio::test]
async fn an_order_that_the_warehouse_refuses_is_reviewed_and_given_up() {
    let sync = FakeWarehouse::with_trouble([(1, Failure::give_up("no such article"))]);
    let kit = Kit::new(&sync).await;
    let failure = kit.run(&sync, &created()).await.unwrap_err();
    assert_eq!(failure, Failure::give_up("no such article"));
    assert_eq!(kit.rows(REVIEWS).await, [["7", "refused: no such article", "1"]]);
    assert_eq!(kit.rows("SELECT state, receipt FROM orders").await, [["open", "NULL"]]);

    // What comes later about the order goes through, and settles the matter.
    kit.run(&sync, &with_total("order.updated", "99").at(NOON + Duration::seconds(5))).await.unwrap();
    assert_eq!(kit.rows(REVIEWS).await, [["7", "refused: no such article", "0"]]);
}

#[tokio::test]
async fn a_review_is_written_once_and_closed_when_the_replay_succeeds() {
    // Refused in the run that is broken off after the review, and refused again in the next; accepted at last.
    let refused = || Failure::give_up("no such article");
    let sync = FakeWarehouse::with_trouble([(2, refused()), (3, refused())]);
    let trouble = "SELECT state FROM orders
                   UNION ALL SELECT 'open' FROM reviews WHERE is_open = 1
                   UNION ALL SELECT 'twice' FROM reviews GROUP BY event_id HAVING COUNT(*) > 1";
    Kit::assert_exactly_once(&sync, &created(), trouble).await;
    assert_eq!((sync.warehouse.states().len(), sync.warehouse.different_keys()), (4, 2));
}

#[tokio::test]
async fn what_cannot_be_synced_is_reviewed_and_given_up() {
    let sync = FakeWarehouse::with_trouble([]);
    let kit = Kit::new(&sync).await;
    for (event, kind) in [
        (event("order.created", r#"{"id":8}"#), FailureKind::Refused),
        (event("order.updated", r#"{"id":"nine"}"#), FailureKind::BadPayload),
        (event("order.updated", "[]"), FailureKind::BadPayload),
    ] {
        let failure = kit.run(&sync, &event).await.unwrap_err();
        assert_eq!((failure.kind, failure.is_permanent), (kind, true), "{failure}");
    }
    let orders = kit.rows("SELECT order_id FROM reviews WHERE is_open = 1").await;
    assert_eq!(orders, [["8"], ["\"nine\""], ["NULL"]]);
    assert_eq!(sync.warehouse.states(), Vec::<&str>::new());
}

#[tokio::test]
async fn while_the_warehouse_is_away_there_is_nothing_to_review() {
    let sync = FakeWarehouse::with_trouble([(1, Failure::network("connection refused"))]);
    let kit = Kit::new(&sync).await;
    let failure = kit.run(&sync, &created()).await.unwrap_err();
    assert_eq!((failure.kind, failure.is_permanent), (FailureKind::Network, false));
    assert_eq!(kit.rows(REVIEWS).await, Vec::<Vec<String>>::new());
}

#[test]
fn the_events_of_one_order_wait_for_each_other() {
    let key =
        |event: TestEvent| FakeWarehouse::with_trouble([]).ordering_key(&serde_json::from_slice(&event.body).unwrap());
    assert_eq!(key(created()).as_deref(), Some("1029384756/7"));
    assert_eq!(key(created()), key(deleted()));
    assert_eq!(key(event("order.updated", "[]")), None);
}
