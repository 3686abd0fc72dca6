//! Clients that send until they are told to end, and remember what they were promised.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Answer, Client, Ledger, TestEvent, eventually_within};

/// How far apart the numbers of the samples of two senders are.
const ROW: u64 = 1_000_000_000;

/// The pause after an address that does not listen: as long as a start takes, senders would only use the processor.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a gateway receives. All copies change together, as the gateway has another port after each start.
#[derive(Debug, Clone)]
pub struct Address(Arc<Mutex<SocketAddr>>);

impl Address {
    /// An address that can change.
    pub fn new(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    /// Where it is now.
    pub fn get(&self) -> SocketAddr {
        *self.0.lock().unwrap()
    }

    /// From now on it is elsewhere.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap() = address;
    }
}

/// Clients at work, each in a thread.
#[derive(Debug)]
pub struct Senders {
    progress: Arc<Progress>,
    threads: Vec<JoinHandle<Ledger>>,
}

#[derive(Debug, Default)]
struct Progress {
    /// When they were told to end.
    end: OnceLock<Instant>,
    promises: AtomicUsize,
    refusals: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
pub struct Sender {
    /// Which one, from 0.
    pub number: u64,
    /// How long it waits for an answer; far longer than the gateway may take.
    pub patience: Duration,
    address: Address,
    progress: Arc<Progress>,
    /// It is kept as long as it leads to the right address.
    connection: Option<(SocketAddr, Client)>,
    ledger: Ledger,
}

impl Senders {
    /// Starts this many senders. Each does what `send` says, which asks now and then whether it is told to end.
    pub fn start(address: &Address, count: u64, send: impl Fn(&mut Sender) + Send + Sync + 'static) -> Self {
        let (progress, send) = (Arc::<Progress>::default(), Arc::new(send));
        let sender = |number| Sender {
            number,
            patience: Duration::from_secs(30),
            address: address.clone(),
            progress: Arc::clone(&progress),
            connection: None,
            ledger: Ledger::default(),
        };
        let threads = (0..count).map(sender).map(|mut sender| {
            let send = Arc::clone(&send);
            thread::spawn(move || {
                send(&mut sender);
                sender.ledger
            })
        });
        Self { threads: threads.collect(), progress }
    }

    /// Starts senders that send one event after the other and none twice. Each begins at `first` in its own row.
    pub fn of(address: &Address, count: u64, first: u64, event: fn(u64) -> TestEvent) -> Self {
        Self::start(address, count, move |sender| {
            let mut serials = sender.number * ROW + first..;
            while !sender.is_told_to_end() {
                sender.send(&event(serials.next().expect("there are enough numbers")));
            }
        })
    }

    /// The same with samples.
    pub fn of_samples(address: &Address, count: u64) -> Self {
        Self::of(address, count, 0, TestEvent::sample)
    }

    /// Waits until this many requests were answered with a promise.
    pub fn wait_for_promises(&self, count: usize) {
        let promises = || self.progress.promises.load(Relaxed);
        eventually_within(Duration::from_secs(60), "senders are promised something", || promises() >= count);
    }

    /// Waits until this many more requests were.
    pub fn wait_for_more_promises(&self, count: usize) {
        self.wait_for_promises(self.progress.promises.load(Relaxed) + count);
    }

    /// Waits until a sender is refused.
    pub fn wait_for_refusal(&self) {
        let refusals = || self.progress.refusals.load(Relaxed);
        eventually_within(Duration::from_secs(60), "a sender is refused", || refusals() > 0);
    }

    /// Tells the senders to end, waits until they have, and gives what they know.
    pub fn end(self) -> Ledger {
        self.progress.end.get_or_init(Instant::now);
        let mut whole = Ledger::default();
        for thread in self.threads {
            whole.add(thread.join().expect("a sender ends well"));
        }
        whole
    }
}

impl Sender {
    /// Whether it was told to end.
    pub fn is_told_to_end(&self) -> bool {
        self.progress.end.get().is_some()
    }

    /// Whether it was told so longer ago than this.
    pub fn is_late(&self, allowed: Duration) -> bool {
        self.progress.end.get().is_some_and(|told| told.elapsed() > allowed)
    }

    /// Notes what a sender must not have to live with; that is a broken promise.
    pub fn complain(&mut self, complaint: String) {
        self.ledger.complaints.push(complaint);
    }

    /// Sends an event once, and says whether it is promised.
    pub fn send(&mut self, event: &TestEvent) -> bool {
        self.send_to(self.address.get(), event)
    }

    /// The same to another gateway.
    pub fn send_to(&mut self, gateway: SocketAddr, event: &TestEvent) -> bool {
        let start = Instant::now();
        let answer = self.exchange(gateway, event);
        self.note(event, start, answer)
    }

    /// Sends an event twice at the same time.
    pub fn send_twice_at_once(&mut self, event: &TestEvent) {
        let (start, gateway, patience) = (Instant::now(), self.address.get(), self.patience);
        let send = || Client::try_connect(gateway)?.with_patience(patience).send(&event.request());
        let answers = thread::scope(|scope| [scope.spawn(send), scope.spawn(send)].map(|copy| copy.join().unwrap()));
        for answer in answers {
            self.note(event, start, answer);
        }
    }

    fn note(&mut self, event: &TestEvent, start: Instant, answer: io::Result<Answer>) -> bool {
        let is_answered = answer.is_ok();
        let is_promise = self.ledger.note(event, start, answer);
        if is_promise {
            self.progress.promises.fetch_add(1, Relaxed);
        } else if is_answered {
            self.progress.refusals.fetch_add(1, Relaxed);
        }
        is_promise
    }

    fn exchange(&mut self, gateway: SocketAddr, event: &TestEvent) -> io::Result<Answer> {
        let kept = self.connection.take().filter(|(to, _)| *to == gateway);
        let mut client = match kept {
            Some((_, client)) => client,
            None => Client::try_connect(gateway).inspect_err(|_| thread::sleep(PAUSE))?,
        }
        .with_patience(self.patience);
        let answer = client.send(&event.request())?;
        self.connection = Some((gateway, client));
        Ok(answer)
    }
}
