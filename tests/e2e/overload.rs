//! More than the database can take: a plain answer at once, never a hang, never a promise that is not kept.

use hookfast_harness::{Database, Gateway, Senders, eventually, post, sample};

use crate::setup;

fn count(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(r#"hookfast_ingest_requests_total{{source="stripe",outcome="{outcome}"}}"#))
}

fn a_full_queue_is_said_at_once_and_passes(database: Database) {
    let gateway = setup(database).ingest("queue_requests = 1\nanswer_deadline = \"200ms\"").start();
    let load = Senders::of_samples(&gateway.address(), 16);
    load.wait_for_promises(1);
    let hold = gateway.hold_writes();
    eventually("requests find the queue full", || count(&gateway, "overloaded") > 0.0);
    eventually("requests wait in vain", || count(&gateway, "late") > 0.0);
    drop(hold);
    eventually("it works again", || {
        let accepted = count(&gateway, "accepted");
        gateway.client().send(&sample(u64::MAX)).unwrap().status == 200 && count(&gateway, "accepted") > accepted
    });

    let ledger = load.end();
    for answer in &ledger.refusals {
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text());
    }
    ledger.assert_recorded(gateway.store_url());
}

fn memory_for_bodies_is_bounded(database: Database) {
    let gateway = setup(database).ingest("body_memory = \"2KiB\"\nanswer_deadline = \"20s\"").start();
    let mut large = sample(1);
    large.body = vec![b' '; 4096].into();
    let answer = gateway.client().send(&large).unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200, "and what was taken is given back");
}

fn connections_beyond_the_cap_are_refused_and_come_back(database: Database) {
    let gateway = setup(database).ingest("connections = 2\nanswer_deadline = \"20s\"").start();
    // Both have a request under way: one that waits for its sender would give way.
    let hold = gateway.hold_writes();
    let mut clients = [gateway.client(), gateway.client()];
    for client in &mut clients {
        client.write(&post(&sample(1))).unwrap();
        client.wait_until_read();
    }
    let answer = gateway.client().read_answer().unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    drop(hold);
    for client in &mut clients {
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    drop(clients);
    eventually("there is a place again", || gateway.client().send(&sample(1)).is_ok_and(|answer| answer.status == 200));
}

on_both! {
    a_full_queue_is_said_at_once_and_passes
    memory_for_bodies_is_bounded
    connections_beyond_the_cap_are_refused_and_come_back
}
