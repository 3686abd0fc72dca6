//! Clients that send without pause, each with a ledger of what it was promised.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::{Answer, Client, Gateway, eventually, sample};

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    promises: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Ledger>>,
}

/// What became of the events that were sent.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The keys of those that were answered 2xx.
    pub promised: BTreeSet<String>,
    /// Those among them whose client had been refused before.
    pub promised_after_refusal: Vec<String>,
    /// All other answers.
    pub others: Vec<Answer>,
}

impl Load {
    /// Starts so many clients. Every event is another one.
    pub fn start(address: SocketAddr, clients: u64) -> Self {
        Self::start_at(address, clients, 0)
    }

    /// The same with other events: each client begins so much later in its own row of a million.
    pub fn start_at(address: SocketAddr, clients: u64, first: u64) -> Self {
        let (stop, promises) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..clients)
            .map(|client| {
                let (stop, promises) = (Arc::clone(&stop), Arc::clone(&promises));
                std::thread::spawn(move || send_until(&stop, &promises, address, client * 1_000_000 + first))
            })
            .collect();
        Self { stop, promises, clients }
    }

    /// Waits until so many events are promised.
    pub fn wait_for_promises(&self, count: usize) {
        eventually("clients get answers", || self.promises.load(Ordering::Relaxed) >= count);
    }

    /// Stops the clients after the request each is at.
    pub fn end(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        let mut whole = Ledger::default();
        for client in self.clients {
            whole.add(client.join().expect("a client ends well"));
        }
        whole
    }
}

/// Sends until it is told to stop, or until nobody listens any more.
fn send_until(stop: &AtomicBool, promises: &AtomicUsize, address: SocketAddr, first: u64) -> Ledger {
    let mut ledger = Ledger::default();
    let mut connection = None;
    for serial in first.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let connected = connection.take().map_or_else(|| Client::try_connect(address), Ok);
        let Ok(mut client) = connected else { break };
        // Whoever gets no answer was promised nothing.
        let Ok(answer) = client.send(&sample(serial)) else { continue };
        if answer.status == 200 {
            promises.fetch_add(1, Ordering::Relaxed);
        }
        ledger.note(sample_key(serial), answer);
        connection = Some(client);
    }
    ledger
}

/// The dedupe key of a sample.
pub fn sample_key(serial: u64) -> String {
    format!("evt_sample_{serial}")
}

impl Ledger {
    fn note(&mut self, key: String, answer: Answer) {
        if answer.status != 200 {
            self.others.push(answer);
            return;
        }
        if !self.others.is_empty() {
            self.promised_after_refusal.push(key.clone());
        }
        self.promised.insert(key);
    }

    /// Adds what another client was told.
    pub fn add(&mut self, other: Self) {
        self.promised.extend(other.promised);
        self.promised_after_refusal.extend(other.promised_after_refusal);
        self.others.extend(other.others);
    }

    /// Every promise is kept: the event is there, once, with its job.
    pub fn assert_kept(&self, gateway: &Gateway) {
        let lost = self.lost(gateway);
        assert!(lost.is_empty(), "{} of {} promised events are lost: {lost:?}", lost.len(), self.promised.len());
    }

    /// What was promised and is not there. Whatever is there must be there once, with its job.
    pub fn lost(&self, gateway: &Gateway) -> Vec<String> {
        let events = gateway.events();
        assert!(events.iter().all(|event| event.jobs == 1), "every event has its job");
        let keys: BTreeSet<_> = events.iter().map(|event| event.dedupe_key.clone()).collect();
        assert_eq!(keys.len(), events.len(), "every event is there once");
        self.promised.difference(&keys).cloned().collect()
    }
}
