//! Clients that send the same event now and then once more, and know what they were promised, how often and in what order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hookfast_harness::{Client, eventually_within, signed};

const CLIENTS: u64 = 3;

/// One request in this many was sent before.
const RESENT: u64 = 4;

/// How many orders each client has.
const KEYS: u64 = 5;

const PAUSE: Duration = Duration::from_millis(20);

/// Clients at work.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Ledger>>,
}

struct Shared {
    gateway: Mutex<SocketAddr>,
    is_over: AtomicBool,
    promises: AtomicUsize,
}

/// What became of the events of some clients.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    events: BTreeMap<String, Sent>,
    /// By what they are to be handled in order with: the events that were promised at once, in their order.
    in_order: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Default)]
struct Sent {
    requests: usize,
    promises: usize,
}

impl Clients {
    pub(crate) fn start(gateway: SocketAddr, seed: u64) -> Self {
        let shared =
            Shared { gateway: Mutex::new(gateway), is_over: AtomicBool::default(), promises: AtomicUsize::default() };
        let shared = Arc::new(shared);
        let client = |number: u64| {
            let (shared, rng) = (Arc::clone(&shared), fastrand::Rng::with_seed(seed.wrapping_add(number)));
            std::thread::spawn(move || send(&shared, number, rng))
        };
        Self { threads: (0..CLIENTS).map(client).collect(), shared }
    }

    /// The gateway is somewhere else now.
    pub(crate) fn go_to(&self, gateway: SocketAddr) {
        *self.shared.gateway.lock().unwrap() = gateway;
    }

    pub(crate) fn wait_for_more_promises(&self, count: usize) {
        let enough = self.shared.promises.load(Relaxed) + count;
        eventually_within(Duration::from_secs(60), "clients are promised something", || {
            self.shared.promises.load(Relaxed) >= enough
        });
    }

    /// Stops them after the request each is at.
    pub(crate) fn end(self) -> Ledger {
        self.shared.is_over.store(true, Relaxed);
        let mut whole = Ledger::default();
        for thread in self.threads {
            let ledger = thread.join().expect("a client ends well");
            whole.events.extend(ledger.events);
            whole.in_order.extend(ledger.in_order);
        }
        whole
    }
}

fn send(shared: &Shared, client: u64, mut rng: fastrand::Rng) -> Ledger {
    let mut ledger = Ledger::default();
    let mut sent = 0;
    while !shared.is_over.load(Relaxed) {
        let is_resend = sent > 0 && rng.u64(..RESENT) == 0;
        let number = if is_resend { rng.u64(..sent) } else { sent };
        sent += u64::from(!is_resend);
        let id = format!("evt_{client}_{number}");
        let key = format!("{client}_{}", number % KEYS);
        let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"act":{{"key":"{key}"}}}}"#);
        let address = *shared.gateway.lock().unwrap();
        let answer = Client::try_connect(address).and_then(|mut connection| connection.send(&signed(&body)));
        let event = ledger.events.entry(id.clone()).or_default();
        event.requests += 1;
        if answer.is_ok_and(|answer| answer.status == 200) {
            event.promises += 1;
            shared.promises.fetch_add(1, Relaxed);
            if !is_resend {
                ledger.in_order.entry(key).or_default().push(id);
            }
        }
        // Sending without pause would leave a backlog that takes longer than the experiment.
        std::thread::sleep(PAUSE);
    }
    ledger
}

impl Ledger {
    pub(crate) fn promised(&self) -> usize {
        self.events.values().filter(|event| event.promises > 0).count()
    }

    /// How many requests were not answered with a promise.
    pub(crate) fn not_promised(&self) -> usize {
        self.events.values().map(|event| event.requests - event.promises).sum()
    }

    /// Compares with rows of key, resends, how often it was done, and its place among those of its client.
    pub(crate) fn broken_promises(&self, rows: &[Vec<String>]) -> Vec<String> {
        let number = |text: &String| text.parse::<usize>().unwrap_or_default();
        let mut broken = Vec::new();
        let mut places = BTreeMap::new();
        for row in rows {
            let (key, resends, done, place) = (row[0].as_str(), number(&row[1]), number(&row[2]), number(&row[3]));
            if places.insert(key, place).is_some() {
                broken.push(format!("{key} is there twice"));
            }
            if done != 1 {
                broken.push(format!("{key} was done {done} times"));
            }
            match self.events.get(key) {
                Some(sent) if (sent.promises..=sent.requests).contains(&(resends + 1)) => {}
                sent => broken.push(format!("{key} has {resends} resends, and {sent:?}")),
            }
        }
        let lost = self.events.iter().filter(|(key, sent)| sent.promises > 0 && !places.contains_key(key.as_str()));
        broken.extend(lost.map(|(key, _)| format!("{key} is not there")));
        for client in self.in_order.values() {
            let there: Vec<_> = client.iter().filter_map(|key| Some((places.get(key.as_str())?, key))).collect();
            let swapped = there.windows(2).filter(|pair| pair[0].0 >= pair[1].0);
            broken.extend(swapped.map(|pair| format!("{} was done before {}", pair[1].1, pair[0].1)));
        }
        broken
    }
}
