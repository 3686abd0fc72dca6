//! Experiment 23: five times as many requests as the database can take. Each is answered in time, with a promise that is
//! kept or with a plain refusal, and memory does not grow with what waits.

use std::thread;
use std::time::Duration;

use hookfast_harness::{
    Database, Gateway, Ledger, Link, PrivatePostgres, Proxy, Senders, Setup, TestEvent, eventually,
};

use crate::rig::BINARY;

/// As each of them waits for its answer, so many are five times as many as get a place in the queue.
const CLIENTS: u64 = 80;
const QUEUE: u64 = 16;

/// Far longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway whose database is far away.
struct Slow {
    gateway: Gateway,
    store: String,
    link: Proxy,
    _postgres: PrivatePostgres,
}

impl Slow {
    fn new(ingest: &str) -> Self {
        let postgres = PrivatePostgres::start(&[]);
        let store = postgres.database();
        let link = Proxy::to_server_of(&store);
        let gateway = Setup::new(BINARY, Database::Sqlite)
            .store(&link.through(&store))
            .ingest(&format!("{ingest}\nbatch_events = 1"))
            .handlers("[handlers.actor]\npaused = true")
            // It would take what the database cannot.
            .variable("HOOKFAST_STORE__SPOOL", "false")
            .start();
        link.set(Link::Delayed(Duration::from_millis(20)));
        Self { gateway, store, link, _postgres: postgres }
    }
}

/// Sends from many clients for this time.
fn send_for(gateway: &Gateway, time: Duration) -> Ledger {
    let senders = Senders::start(&gateway.address(), CLIENTS, |sender| {
        sender.patience = PATIENCE;
        let mut serials = sender.number * 1_000_000..;
        while !sender.is_told_to_end() {
            sender.send(&TestEvent::sample(serials.next().unwrap()));
        }
    });
    thread::sleep(time);
    senders.end()
}

#[test]
#[ignore = "nightly: it lasts a minute"]
fn five_times_too_much_is_answered_in_time_and_keeps_its_promises() {
    let slow = Slow::new(&format!("queue_requests = {QUEUE}"));
    let before = slow.gateway.peak_memory_bytes();
    let ledger = send_for(&slow.gateway, Duration::from_secs(60));
    assert_eq!((ledger.wrong_answers(), ledger.unanswered), (vec![], 0));
    let (refused, promised) = (ledger.refusals.len(), ledger.promised());
    assert!(refused > 4 * promised, "{refused} refused, {promised} not");
    assert!(promised > 0, "no sender gets through");
    let grown = slow.gateway.peak_memory_bytes() - before;
    assert!(grown < 64 << 20, "it took {grown} bytes more");
    slow.link.heal();
    eventually("it takes everything again", || {
        TestEvent::sample(u64::MAX).send_to(slow.gateway.ingest).is_ok_and(|answer| answer.status == 200)
    });
    ledger.assert_recorded(&slow.store);
}

#[test]
fn without_a_deadline_and_a_short_queue_too_much_hangs() {
    let slow = Slow::new("queue_requests = 100000\nanswer_deadline = \"10m\"");
    slow.link.set(Link::Delayed(Duration::from_secs(1)));
    let ledger = send_for(&slow.gateway, Duration::from_secs(1));
    assert!(ledger.unanswered > 0, "every sender was answered in time: {ledger:?}");
}
