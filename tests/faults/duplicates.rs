//! Experiment 10: the same delivery, fifty times at once, at two gateways.

use hookfast_harness::{Gateway, Rig, Senders, TestEvent, eventually};

use crate::rig::{Halves, rig};

const COPIES: usize = 50;

/// Sends every event as often as there are copies, all copies at once, half of them to each gateway.
fn send_copies(rig: &Rig, second: &Gateway, events: usize) {
    let gateways = [rig.gateway().ingest, second.ingest];
    rig.note(Senders::start(&rig.gateway().address(), COPIES as u64, move |sender| {
        let gateway = gateways[sender.number as usize % 2];
        for number in 0..events {
            assert!(sender.send_to(gateway, &TestEvent::new(&format!("evt_{number}"), "{}")));
        }
    }));
}

#[test]
fn fifty_copies_at_two_gateways_are_one_event_and_one_effect() {
    const EVENTS: usize = 200;
    let mut rig = rig(Halves::Apart, "", "");
    let second = rig.another_receiver();
    rig.work("");
    send_copies(&rig, &second, EVENTS);
    rig.wait_for_the_end();
    assert_eq!((rig.count("events"), rig.count("jobs"), rig.count("done")), (EVENTS, EVENTS, EVENTS));
    let resends = rig.gateway().query("SELECT sum(resends) FROM dedupe_keys");
    assert_eq!(resends, [[(EVENTS * (COPIES - 1)).to_string()]]);
    assert_eq!(rig.broken_promises(), Vec::<String>::new());
}

#[test]
fn without_the_unique_key_copies_are_events() {
    const EVENTS: usize = 5;
    let mut rig = rig(Halves::Apart, "", "");
    rig.gateway().sql("ALTER TABLE dedupe_keys DROP CONSTRAINT dedupe_keys_pkey");
    let second = rig.another_receiver();
    rig.work("");
    send_copies(&rig, &second, EVENTS);
    eventually("effects are doubled", || rig.count("done") > EVENTS);
}
