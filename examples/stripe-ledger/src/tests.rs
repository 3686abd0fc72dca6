#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use hookfast::testing::{Kit, TestEvent};

use super::*;

const POSTINGS: &str = "SELECT order_id, debit, credit, amount, currency FROM ledger_postings";
const BALANCES: &str = "SELECT account, SUM(amount) FROM (
    SELECT debit AS account, amount FROM ledger_postings
    UNION ALL SELECT credit, -amount FROM ledger_postings
) AS entries GROUP BY account ORDER BY account";

fn paid(metadata: &str) -> TestEvent {
    let body = format!(
        r#"{{"id":"evt_1","object":"event","type":"payment_intent.succeeded","data":{{"object":{{"id":"pi_1","amount":2599,
            "amount_received":2599,"currency":"eur","status":"succeeded","metadata":{metadata}}}}}}}"#
    );
    TestEvent::new("stripe", "payment_intent.succeeded", body)
}

fn refunded(amount: i64, currency: &str, payment: &str) -> TestEvent {
    let body = format!(
        r#"{{"id":"evt_2","object":"event","type":"charge.refunded","data":{{"object":{{"id":"ch_1","amount":2599,
            "amount_refunded":{amount},"currency":"{currency}","payment_intent":{payment},"refunded":false}}}}}}"#
    );
    TestEvent::new("stripe", "charge.refunded", body)
}

fn refund(amount: i64) -> TestEvent {
    refunded(amount, "eur", r#""pi_1""#)
}

async fn kit_with_payment() -> Kit {
    let kit = Kit::new(&OrderLedger).await;
    kit.run(&OrderLedger, &paid(r#"{"order_id":"A-1"}"#)).await.unwrap();
    kit
}

/// The kit begins with empty tables, so the payment is booked in the same run.
struct AfterPayment;

impl Handler for AfterPayment {
    const NAME: &'static str = OrderLedger::NAME;
    const SUBSCRIBES: &'static [&'static str] = OrderLedger::SUBSCRIBES;
    const TABLES: &'static str = OrderLedger::TABLES;
    type Payload = Notice;

    async fn handle(&self, event: &Event<Notice>, effects: &Effects) -> Handled {
        let payment = serde_json::from_str(r#"{"id":"pi_1","amount_received":2599,"currency":"eur"}"#)?;
        effects.once("before", async |tx| book_payment(tx, "before", &payment).await).await?;
        OrderLedger.handle(event, effects).await
    }
}

#[tokio::test]
async fn a_payment_is_booked_exactly_once() {
    Kit::assert_exactly_once(&OrderLedger, &paid(r#"{"order_id":"A-1"}"#), POSTINGS).await;
}

#[tokio::test]
async fn a_refund_is_booked_exactly_once() {
    Kit::assert_exactly_once(&AfterPayment, &refund(600), POSTINGS).await;
}

#[tokio::test]
async fn a_payment_is_booked_for_the_order_that_the_shop_names() {
    let kit = kit_with_payment().await;
    assert_eq!(kit.rows(POSTINGS).await, [["A-1", "stripe", "sales", "2599", "eur"]]);
}

#[tokio::test]
async fn a_payment_without_an_order_is_an_order_of_its_own() {
    let kit = Kit::new(&OrderLedger).await;
    kit.run(&OrderLedger, &paid("{}")).await.unwrap();
    assert_eq!(kit.rows(POSTINGS).await, [["pi_1", "stripe", "sales", "2599", "eur"]]);
}

#[tokio::test]
async fn a_payment_that_two_events_tell_of_is_booked_once() {
    let kit = kit_with_payment().await;
    kit.run(&OrderLedger, &paid(r#"{"order_id":"A-1"}"#)).await.unwrap();
    assert_eq!(kit.rows(POSTINGS).await.len(), 1);
}

#[tokio::test]
async fn of_each_refund_only_what_is_new_is_booked() {
    let kit = kit_with_payment().await;
    for so_far in [600, 1600, 2599] {
        kit.run(&OrderLedger, &refund(so_far)).await.unwrap();
    }
    let refunds = kit.rows("SELECT amount FROM ledger_postings WHERE debit = 'refunds'").await;
    assert_eq!(refunds, [["600"], ["1000"], ["999"]]);
    assert_eq!(kit.rows(BALANCES).await, [["refunds", "2599"], ["sales", "-2599"], ["stripe", "0"]]);
}

#[tokio::test]
async fn a_refund_that_comes_after_a_later_one_adds_nothing() {
    let kit = kit_with_payment().await;
    for so_far in [1600, 600] {
        kit.run(&OrderLedger, &refund(so_far)).await.unwrap();
    }
    assert_eq!(kit.rows("SELECT amount FROM ledger_postings WHERE debit = 'refunds'").await, [["1600"]]);
    assert_eq!(kit.rows("SELECT refunded FROM ledger_payments").await, [["1600"]]);
}

#[tokio::test]
async fn a_refund_that_comes_before_its_payment_is_tried_again_later() {
    let kit = Kit::new(&OrderLedger).await;
    let failure = kit.run(&OrderLedger, &refund(600)).await.unwrap_err();
    assert!(!failure.is_permanent, "{failure}");
    assert_eq!(kit.rows(POSTINGS).await, Vec::<Vec<String>>::new());

    kit.run(&OrderLedger, &paid("{}")).await.unwrap();
    kit.run(&OrderLedger, &refund(600)).await.unwrap();
    assert_eq!(kit.rows(BALANCES).await, [["refunds", "600"], ["sales", "-2599"], ["stripe", "1999"]]);
}

#[tokio::test]
async fn what_cannot_be_booked_is_given_up() {
    let kit = kit_with_payment().await;
    let nothing =
        String::from_utf8(paid("{}").body).unwrap().replace("\"amount_received\":2599", "\"amount_received\":0");
    for (event, why) in [
        (refunded(600, "eur", "null"), "belongs to no payment"),
        (refunded(600, "usd", r#""pi_1""#), "does not fit"),
        (refund(2600), "does not fit"),
        (TestEvent::new("stripe", "payment_intent.succeeded", nothing), "nothing was received"),
    ] {
        let failure = kit.run(&OrderLedger, &event).await.unwrap_err();
        assert!(failure.is_permanent && failure.message.contains(why), "{failure}");
    }
    assert_eq!(kit.rows(POSTINGS).await.len(), 1, "only the payment");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_payload() {
    let kit = Kit::new(&OrderLedger).await;
    for body in
        ["no JSON", "{}", r#"{"type":"charge.refunded","data":{"object":{"id":"ch_1","amount_refunded":"6.00"}}}"#]
    {
        let failure = kit.run(&OrderLedger, &TestEvent::new("stripe", "charge.refunded", body)).await.unwrap_err();
        assert_eq!((failure.kind, failure.is_permanent), (FailureKind::BadPayload, true), "{body}");
    }
}

#[test]
fn refunds_wait_for_each_other_and_payments_for_nobody() {
    let key = |event: TestEvent| OrderLedger.ordering_key(&serde_json::from_slice(&event.body).unwrap());
    assert_eq!(key(refund(600)).as_deref(), Some("pi_1"));
    assert_eq!(key(paid("{}")), None);
}
