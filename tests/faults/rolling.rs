//! Experiment 26: two gateways and two workers are restarted in turn while events come in. Nothing is lost, nobody is
//! refused whom a second try does not help, and no run is cut short.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hookfast_harness::{Client, Gateway, Signal, signed};

use crate::rig::{Halves, Rig};

const CLIENTS: usize = 4;

/// How often a client tries; one of the gateways is always there.
const TRIES: usize = 20;

/// Clients that go to the next gateway when one does not take an event.
struct Traffic {
    gateways: Arc<Mutex<Vec<SocketAddr>>>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Sent>>,
}

#[derive(Default)]
struct Sent {
    promised: Vec<String>,
    refused: Vec<String>,
}

impl Traffic {
    fn start(gateways: &[&Gateway], handled_in: Duration) -> Self {
        let gateways = Arc::new(Mutex::new(gateways.iter().map(|gateway| gateway.ingest).collect::<Vec<_>>()));
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |client| {
            let (gateways, is_over) = (Arc::clone(&gateways), Arc::clone(&is_over));
            thread::spawn(move || send_until(client, handled_in, &gateways, &is_over))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { gateways, is_over, clients }
    }

    fn end(self) -> Sent {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Sent::default();
        for client in self.clients {
            let Sent { promised, refused } = client.join().unwrap();
            all.promised.extend(promised);
            all.refused.extend(refused);
        }
        all
    }
}

fn send_until(client: usize, handled_in: Duration, gateways: &Mutex<Vec<SocketAddr>>, is_over: &AtomicBool) -> Sent {
    let mut sent = Sent::default();
    let sleep_ms = handled_in.as_millis();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("evt_{client}_{number}");
        let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"act":{{"sleep_ms":{sleep_ms}}}}}"#);
        let is_taken = (0..TRIES).any(|attempt| {
            let gateway = {
                let gateways = gateways.lock().unwrap();
                gateways[(client + attempt) % gateways.len()]
            };
            let answer = Client::try_connect(gateway).and_then(|mut client| client.send(&signed(&body)));
            let is_taken = answer.is_ok_and(|answer| answer.status == 200);
            if !is_taken {
                thread::sleep(Duration::from_millis(100));
            }
            is_taken
        });
        if is_taken { &mut sent.promised } else { &mut sent.refused }.push(id);
        thread::sleep(Duration::from_millis(10));
    }
    sent
}

/// Restarts every process in turn, this many times.
fn roll(rig: &mut Rig, rounds: usize, signal: Signal, handled_in: Duration) -> Sent {
    let mut receivers = [rig.another_receiver(), rig.another_receiver()];
    let mut workers = [rig.another_worker(""), rig.another_worker("")];
    let traffic = Traffic::start(&receivers.each_ref(), handled_in);
    let end = |process: &mut Gateway| {
        thread::sleep(Duration::from_secs(1));
        process.signal(signal);
        process.wait().success()
    };
    for _ in 0..rounds {
        for (number, receiver) in receivers.iter_mut().enumerate() {
            assert_eq!(end(receiver), matches!(signal, Signal::Term));
            *receiver = rig.another_receiver();
            traffic.gateways.lock().unwrap()[number] = receiver.ingest;
        }
        for worker in &mut workers {
            assert_eq!(end(worker), matches!(signal, Signal::Term));
            *worker = rig.another_worker("");
        }
    }
    let sent = traffic.end();
    rig.note_promises(&sent.promised);
    rig.wait_for_the_end();
    sent
}

#[test]
#[ignore = "nightly: twenty restarts"]
fn a_rolling_restart_loses_nothing_and_refuses_nobody() {
    let mut rig = Rig::new(Halves::Apart, "", "");
    let sent = roll(&mut rig, 5, Signal::Term, Duration::from_millis(20));
    rig.assert_kept();
    assert_eq!(sent.refused, Vec::<String>::new());
    assert!(sent.promised.len() > 200, "only {} were sent", sent.promised.len());
    assert_eq!(rig.count("attempts WHERE failure IS NOT NULL"), 0, "no run was cut short");
}

/// Nothing is lost in this case either, but it can be seen.
#[test]
fn killing_in_turn_cuts_runs_short() {
    let mut rig = Rig::new(Halves::Apart, "", "");
    // Longer than from one sweep to the next, so that one of them runs at any time.
    roll(&mut rig, 1, Signal::Kill, Duration::from_millis(300));
    rig.assert_kept();
    assert!(rig.count("attempts WHERE failure = 'crash'") > 0, "no run was cut short");
}
