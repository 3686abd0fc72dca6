//! Experiment 10: the same delivery, fifty times at once, at two gateways.

use std::net::SocketAddr;
use std::thread;

use hookfast_harness::{Client, eventually, signed};

use crate::rig::{Halves, Rig};

const COPIES: usize = 50;

/// Sends every event as often as there are copies, all copies at once, half of them to each gateway.
fn send_copies(gateways: [SocketAddr; 2], events: usize) {
    let senders: Vec<_> = (0..COPIES)
        .map(|copy| {
            thread::spawn(move || {
                let mut client = Client::connect(gateways[copy % 2]);
                for number in 0..events {
                    let body = format!(r#"{{"id":"evt_{number}","type":"invoice.paid","created":1}}"#);
                    assert_eq!(client.send(&signed(&body)).unwrap().status, 200);
                }
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
}

#[test]
fn fifty_copies_at_two_gateways_are_one_event_and_one_effect() {
    const EVENTS: usize = 200;
    let mut rig = Rig::new(Halves::Apart, "", "");
    let second = rig.another_receiver();
    rig.work("");
    send_copies([rig.gateway().ingest, second.ingest], EVENTS);
    rig.wait_for_the_end();
    assert_eq!((rig.count("events"), rig.count("jobs"), rig.count("done")), (EVENTS, EVENTS, EVENTS));
    assert_eq!(rig.resends(), EVENTS * (COPIES - 1));
    assert_eq!(rig.broken_promises(), Vec::<String>::new());
}

#[test]
fn without_the_unique_key_copies_are_events() {
    const EVENTS: usize = 5;
    let mut rig = Rig::new(Halves::Apart, "", "");
    rig.gateway().sql("ALTER TABLE dedupe_keys DROP CONSTRAINT dedupe_keys_pkey");
    let second = rig.another_receiver();
    rig.work("");
    send_copies([rig.gateway().ingest, second.ingest], EVENTS);
    eventually("effects are doubled", || rig.count("done") > EVENTS);
}
