//! Providers send events again, at once and by the hundred.

use std::sync::Barrier;

use hookfast_harness::{Client, Database, PrivatePostgres, eventually, sample, sample_key};

use crate::{patient, setup};

fn copies_that_come_at_the_same_time_give_one_event(database: Database) {
    const COPIES: usize = 100;
    let gateway = patient(database).sections("[handlers.mail]\nrun = \"log\"").start();
    let start = Barrier::new(COPIES);
    std::thread::scope(|scope| {
        for _ in 0..COPIES {
            scope.spawn(|| {
                let mut client = gateway.client();
                start.wait();
                assert_eq!(client.send(&sample(1)).unwrap().status, 200);
            });
        }
    });
    let events = gateway.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].resends, 99);
    assert_eq!(gateway.jobs(events[0].id), ["ledger", "mail"]);
    assert_eq!(gateway.metric(r#"hookfast_events_total{source="stripe"}"#), 1.0);
    assert_eq!(gateway.metric(r#"hookfast_duplicates_total{source="stripe"}"#), 99.0);
}

fn the_log_of_a_duplicate_names_the_first_event(database: Database) {
    let gateway = patient(database).start();
    let [first, again] = [(), ()].map(|()| gateway.client().send(&sample(1)).unwrap());
    assert_eq!((first.status, again.status), (200, 200));
    let sentence = format!("came again: {} ", gateway.events()[0].id);
    let request_id = again.header("x-request-id").unwrap();
    eventually("the line is there", || {
        gateway.log().lines().any(|line| line.contains(&sentence) && line.contains(request_id))
    });
    assert_eq!(gateway.log().matches("recorded: ").count(), 1, "the other one was new");
}

fn a_resend_after_a_restart_is_still_a_duplicate(database: Database) {
    let mut gateway = patient(database).start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    gateway.signal(hookfast_harness::Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0));
    let gateway = gateway.restart();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    let events = gateway.events();
    assert_eq!((events.len(), events[0].resends, events[0].jobs), (1, 1, 1));
}

fn the_same_key_at_two_sources_is_two_events(database: Database) {
    let other = format!("[sources.other]\nprovider = \"stripe\"\nsecrets = [\"{}\"]", hookfast_harness::SECRET);
    let gateway = patient(database).sections(&other).start();
    let mut request = sample(1);
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    request.url = request.url.replace("/stripe", "/other");
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    let sources: Vec<_> = gateway.events().into_iter().map(|event| event.source).collect();
    assert_eq!(sources, ["other", "stripe"]);
}

on_both! {
    the_log_of_a_duplicate_names_the_first_event
    copies_that_come_at_the_same_time_give_one_event
    a_resend_after_a_restart_is_still_a_duplicate
    the_same_key_at_two_sources_is_two_events
}

/// Several batches are under way at each gateway, in opposite order at the two: no deadlock, one event each.
#[test]
fn two_gateways_on_one_database_agree_on_every_event() {
    const EVENTS: u64 = 200;
    let postgres = PrivatePostgres::start(&[]);
    let url = postgres.database();
    let gateway = || {
        let batches = "batch_events = 8\nanswer_deadline = \"20s\"";
        setup(Database::Sqlite).store(&url).ingest(batches).start()
    };
    let gateways = [gateway(), gateway()];
    std::thread::scope(|scope| {
        for client in 0..16 {
            let gateway = &gateways[client % 2];
            scope.spawn(move || {
                let mut connection = Client::connect(gateway.ingest);
                for step in 0..EVENTS {
                    let serial = if client % 4 < 2 { step } else { EVENTS - 1 - step };
                    assert_eq!(connection.send(&sample(serial)).unwrap().status, 200);
                }
            });
        }
    });
    let mut events = gateways[0].events();
    events.sort_by(|one, other| one.dedupe_key.cmp(&other.dedupe_key));
    let mut keys: Vec<_> = (0..EVENTS).map(sample_key).collect();
    keys.sort();
    assert_eq!(events.iter().map(|event| event.dedupe_key.clone()).collect::<Vec<_>>(), keys);
    assert!(events.iter().all(|event| event.resends == 15 && event.jobs == 1));
    let counted = |series: &str| gateways.iter().map(|gateway| gateway.metric(series)).sum::<f64>();
    assert_eq!(counted(r#"hookfast_events_total{source="stripe"}"#), 200.0);
    assert_eq!(counted(r#"hookfast_duplicates_total{source="stripe"}"#), 3000.0);
    for gateway in &gateways {
        assert!(!gateway.log().contains("deadlock"));
    }
}
