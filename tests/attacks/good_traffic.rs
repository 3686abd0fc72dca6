//! Genuine requests at a steady rate, and what they were told. Each is sent when it is due, however slow the answers to
//! others are, and its time counts from then.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hookfast_harness::{post, sample, sample_key};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::attackers::{connect, exchange};

/// The address that genuine requests come from.
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A sender that hears nothing for this time was not served.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every request with a serial that this divides ends its connection, so that connecting is a part of what is measured.
const ENDS_CONNECTION: u64 = 10;

/// Senders at work.
pub(crate) struct GoodTraffic {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Served>,
}

/// What genuine requests were told.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// The keys of those that were answered 2xx.
    pub(crate) promised: BTreeSet<String>,
    /// How often each other answer was given, or why there was none.
    pub(crate) refused: BTreeMap<String, usize>,
    latencies: Vec<Duration>,
}

impl GoodTraffic {
    /// Begins to send events with serials from `first` on.
    pub(crate) fn start(gateway: SocketAddr, per_second: u32, first: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        // A thread of its own, so that the times are the gateway's and not those of the attackers in this process.
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(send(gateway, Duration::from_secs(1) / per_second, first, &until))
        });
        Self { is_over, thread }
    }

    /// Stops, waits for the last answers, and says what came of it.
    pub(crate) fn end(self) -> Served {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the senders end well")
    }
}

async fn send(gateway: SocketAddr, interval: Duration, first: u64, is_over: &AtomicBool) -> Served {
    let idle = Arc::<Mutex<Vec<TcpStream>>>::default();
    let (mut due, mut under_way) = (Instant::now(), JoinSet::new());
    let mut served = Served::default();
    for serial in first.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        due += interval;
        sleep_until(due).await;
        let idle = Arc::clone(&idle);
        under_way.spawn(async move { (serial, deliver(gateway, serial, &idle).await, due.elapsed()) });
        while let Some(done) = under_way.try_join_next() {
            served.note(done.unwrap());
        }
    }
    while let Some(done) = under_way.join_next().await {
        served.note(done.unwrap());
    }
    served
}

/// The status, or why there is none.
async fn deliver(gateway: SocketAddr, serial: u64, idle: &Mutex<Vec<TcpStream>>) -> Result<u16, String> {
    let exchanged = async {
        let kept = idle.lock().unwrap().pop();
        let mut stream = match kept {
            Some(stream) => stream,
            None => connect(SENDER, gateway).await?,
        };
        let status = exchange(&mut stream, &post(&sample(serial))).await?;
        if !serial.is_multiple_of(ENDS_CONNECTION) {
            idle.lock().unwrap().push(stream);
        }
        Ok(status)
    };
    match timeout(PATIENCE, exchanged).await {
        Ok(answered) => answered.map_err(|error: std::io::Error| error.kind().to_string()),
        Err(_) => Err("no answer in time".into()),
    }
}

impl Served {
    fn note(&mut self, (serial, answer, latency): (u64, Result<u16, String>, Duration)) {
        self.latencies.push(latency);
        match answer {
            Ok(200..300) => drop(self.promised.insert(sample_key(serial))),
            Ok(status) => *self.refused.entry(status.to_string()).or_default() += 1,
            Err(why) => *self.refused.entry(why).or_default() += 1,
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.latencies.len()
    }

    /// The part of the requests that was not answered 2xx.
    pub(crate) fn refused_percent(&self) -> f64 {
        100.0 * self.refused.values().sum::<usize>() as f64 / self.requests() as f64
    }

    /// The time within which this part of the requests had its answer, in milliseconds.
    pub(crate) fn percentile_ms(&self, part: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let place = ((sorted.len() as f64 * part) as usize).min(sorted.len() - 1);
        sorted[place].as_secs_f64() * 1_000.0
    }
}
