//! Clients that send without pause, each with a ledger of what it was promised.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use hookfast_webhook::Request;

use crate::{Answer, Client, Gateway, eventually, sample};

/// How far apart the events of two clients are.
const ROW: u64 = 1_000_000_000;

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    progress: Arc<Progress>,
    clients: Vec<JoinHandle<Ledger>>,
}

#[derive(Debug, Default)]
struct Progress {
    is_over: AtomicBool,
    promises: AtomicUsize,
    refusals: AtomicUsize,
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
    /// Starts this many clients. No event is sent twice.
    pub fn start(address: SocketAddr, clients: u64) -> Self {
        Self::start_at(address, clients, 0, sample)
    }

    /// The same with other events: each client begins at `first` in its own row. The key of an event is that of the
    /// sample with its number.
    pub fn start_at(address: SocketAddr, clients: u64, first: u64, event: fn(u64) -> Request) -> Self {
        let progress = Arc::<Progress>::default();
        let clients = (0..clients)
            .map(|client| {
                let progress = Arc::clone(&progress);
                std::thread::spawn(move || send_until_over(&progress, address, client * ROW + first, event))
            })
            .collect();
        Self { progress, clients }
    }

    /// Waits until this many events are promised.
    pub fn wait_for_promises(&self, count: usize) {
        eventually("clients are promised something", || self.progress.promises.load(Relaxed) >= count);
    }

    /// Waits until this many more events are promised.
    pub fn wait_for_more_promises(&self, count: usize) {
        self.wait_for_promises(self.progress.promises.load(Relaxed) + count);
    }

    /// Waits until a client is refused.
    pub fn wait_for_refusal(&self) {
        eventually("a client is refused", || self.progress.refusals.load(Relaxed) > 0);
    }

    /// Stops the clients after the request each is at.
    pub fn end(self) -> Ledger {
        self.progress.is_over.store(true, Relaxed);
        let mut whole = Ledger::default();
        for client in self.clients {
            whole.add(client.join().expect("a client ends well"));
        }
        whole
    }
}

/// Sends until it is told to stop, or until the gateway no longer listens.
fn send_until_over(progress: &Progress, address: SocketAddr, first: u64, event: fn(u64) -> Request) -> Ledger {
    let mut ledger = Ledger::default();
    let mut connection = None;
    for serial in first.. {
        if progress.is_over.load(Relaxed) {
            break;
        }
        let connected = connection.take().map_or_else(|| Client::try_connect(address), Ok);
        let Ok(mut client) = connected else { break };
        // A client without an answer was promised nothing.
        let Ok(answer) = client.send(&event(serial)) else { continue };
        let count = if answer.status == 200 { &progress.promises } else { &progress.refusals };
        count.fetch_add(1, Relaxed);
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
