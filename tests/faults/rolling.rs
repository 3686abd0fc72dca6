//! Experiment 26: two gateways and two workers are restarted in turn while events come in. Nothing is lost, nobody is
//! refused whom a second try does not help, and no run is cut short.

use std::thread;
use std::time::Duration;

use hookfast_harness::{Address, Gateway, Rig, Sender, Senders, Signal, TestEvent};

use crate::rig::{Halves, rig};

const CLIENTS: u64 = 4;

/// How often a client tries; one of the gateways is always there.
const TRIES: usize = 20;

/// Sends events, and each of them to the next gateway when one does not take it.
fn send_to_any(sender: &mut Sender, gateways: &[Address; 2], handled_in: Duration) {
    let act = format!(r#"{{"sleep_ms":{}}}"#, handled_in.as_millis());
    let mut numbers = 0..;
    while !sender.is_told_to_end() {
        let id = format!("evt_{}_{}", sender.number, numbers.next().unwrap());
        let event = TestEvent::new(&id, &act);
        for attempt in 0..TRIES {
            let gateway = &gateways[(sender.number as usize + attempt) % gateways.len()];
            if sender.send_to(gateway.get(), &event) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Restarts every process in turn, this many times.
fn roll(rig: &Rig, rounds: usize, signal: Signal, handled_in: Duration) {
    let mut receivers = [rig.another_receiver(), rig.another_receiver()];
    let mut workers = [rig.another_worker(""), rig.another_worker("")];
    let addresses = receivers.each_ref().map(Gateway::address);
    let gateways = addresses.clone();
    let senders = Senders::start(&addresses[0], CLIENTS, move |sender| send_to_any(sender, &gateways, handled_in));
    let end = |process: &mut Gateway| {
        thread::sleep(Duration::from_secs(1));
        process.signal(signal);
        process.wait().success()
    };
    for _ in 0..rounds {
        for (receiver, address) in receivers.iter_mut().zip(&addresses) {
            assert_eq!(end(receiver), matches!(signal, Signal::Term));
            *receiver = rig.another_receiver();
            address.set(receiver.ingest);
        }
        for worker in &mut workers {
            assert_eq!(end(worker), matches!(signal, Signal::Term));
            *worker = rig.another_worker("");
        }
    }
    rig.note(senders);
    rig.wait_for_the_end();
}

#[test]
#[ignore = "nightly: twenty restarts"]
fn a_rolling_restart_loses_nothing_and_refuses_nobody() {
    let rig = rig(Halves::Apart, "", "");
    roll(&rig, 5, Signal::Term, Duration::from_millis(20));
    rig.assert_kept();
    let (sent, promised) = (rig.ledger().sent(), rig.ledger().promised());
    assert_eq!(promised, sent, "some were refused by both");
    assert!(sent > 200, "only {sent} were sent");
    assert_eq!(rig.count("attempts WHERE failure IS NOT NULL"), 0, "no run was cut short");
}

/// Nothing is lost in this case either, but it can be seen.
#[test]
fn killing_in_turn_cuts_runs_short() {
    let rig = rig(Halves::Apart, "", "");
    // Longer than from one sweep to the next, so that one of them runs at any time.
    roll(&rig, 1, Signal::Kill, Duration::from_millis(300));
    rig.assert_kept();
    assert!(rig.count("attempts WHERE failure = 'crash'") > 0, "no run was cut short");
}
