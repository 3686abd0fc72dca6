//! Ending when asked to, without losing what was promised.

use std::path::Path;
use std::time::{Duration, Instant};

use hookfast_harness::{
    Client, Database, Gateway, PrivatePostgres, Senders, Signal, TestEvent, eventually, post, query, sample,
};

use crate::patient;

/// A client in the middle of its request, and the rest of that.
fn client_half_way(gateway: &Gateway) -> (Client, Vec<u8>) {
    let mut whole = post(&sample(1));
    let rest = whole.split_off(whole.len() - 10);
    let mut client = gateway.client();
    client.write(&whole).unwrap();
    client.wait_until_read();
    (client, rest)
}

fn ask_to_end(gateway: &Gateway, signal: Signal) {
    gateway.signal(signal);
    eventually("it begins to shut down", || gateway.log().contains("shutting down"));
}

fn every_promise_made_under_load_is_kept(database: Database) {
    let mut gateway = patient(database).start();
    let load = Senders::of_samples(&gateway.address(), 8);
    load.wait_for_promises(200);
    gateway.signal(Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(gateway.log().contains("everything that was accepted is recorded"));
    let ledger = load.end();
    ledger.assert_recorded(gateway.store_url());
    for answer in &ledger.refusals {
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
}

fn a_request_under_way_is_finished(database: Database) {
    for signal in [Signal::Term, Signal::Interrupt] {
        let mut gateway = patient(database).start();
        let (mut client, rest) = client_half_way(&gateway);
        ask_to_end(&gateway, signal);
        client.write(&rest).unwrap();
        assert_eq!(client.read_answer().unwrap().status, 200);
        assert!(client.is_closed());
        assert_eq!(gateway.wait().code(), Some(0));
        assert_eq!(gateway.events().len(), 1);
    }
}

fn whoever_does_not_finish_is_cut_off_in_the_end(database: Database) {
    let mut gateway = patient(database).ingest("shutdown_timeout = \"200ms\"").start();
    let (mut client, _) = client_half_way(&gateway);
    ask_to_end(&gateway, Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(client.is_closed());
    assert!(gateway.events().is_empty());
}

fn a_second_signal_ends_it_at_once(database: Database) {
    let mut gateway = patient(database).start();
    let _client = client_half_way(&gateway);
    ask_to_end(&gateway, Signal::Interrupt);
    gateway.signal(Signal::Interrupt);
    assert_eq!(gateway.wait().code(), Some(130));
}

fn an_idle_connection_does_not_hold_it_up(database: Database) {
    let mut gateway = patient(database).ingest("shutdown_timeout = \"10m\"").start();
    let mut used = gateway.client();
    assert_eq!(used.send(&sample(1)).unwrap().status, 200);
    let mut unused = gateway.client();
    eventually("both are open", || gateway.metric("hookfast_connections") == 2.0);
    gateway.signal(Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(used.is_closed() && unused.is_closed());
}

/// A copy of the file after a stop, as a backup, is complete.
#[test]
fn after_a_stop_the_sqlite_file_alone_is_complete() {
    let mut gateway = patient(Database::Sqlite).start();
    let file = gateway.folder().join("hookfast.db");
    for round in 0..5 {
        let load = Senders::of(&gateway.address(), 4, round * 1_000_000, TestEvent::sample);
        load.wait_for_promises(50);
        gateway.signal(Signal::Term);
        assert_eq!(gateway.wait().code(), Some(0));
        let copy = gateway.folder().join(format!("copy-{round}.db"));
        std::fs::copy(&file, &copy).unwrap();
        load.end();
        let count = |file: &Path| query(&format!("sqlite:{}", file.display()), "SELECT count(*) FROM events");
        assert_eq!(count(&copy), count(&file), "round {round}");
        assert_eq!(query(&format!("sqlite:{}", copy.display()), "PRAGMA integrity_check"), [["ok"]]);
        gateway = gateway.restart();
    }
}

/// The bound stands in docs/operating.md: the two time-outs and 12 seconds.
#[test]
fn a_stop_has_an_end_also_while_postgres_stands_still() {
    let postgres = PrivatePostgres::start(&[]);
    let mut gateway = patient(Database::Sqlite)
        .store(&postgres.database())
        .ingest("shutdown_timeout = \"5s\"")
        .handlers("[handlers.audit]\nrun = \"log\"")
        .sections("[work]\nshutdown_timeout = \"5s\"")
        .start();
    eventually("it records", || gateway.client().send(&sample(1)).unwrap().status == 200);
    let _half_way = client_half_way(&gateway);
    let frozen = postgres.freeze();
    let mut waiting = gateway.client();
    waiting.write(&post(&sample(2))).unwrap();
    waiting.wait_until_read();
    let start = Instant::now();
    gateway.signal(Signal::Term);
    gateway.wait();
    assert!(start.elapsed() < Duration::from_secs(5 + 5 + 12), "{:?}", start.elapsed());
    drop(frozen);
}

on_both! {
    every_promise_made_under_load_is_kept
    a_request_under_way_is_finished
    whoever_does_not_finish_is_cut_off_in_the_end
    a_second_signal_ends_it_at_once
    an_idle_connection_does_not_hold_it_up
}
