//! Strangers that attack for as long as they are let: each kind with connections, a rate and addresses of its own, and all
//! together with no more than a bounded part of the network.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// What all attackers together may send: 100 Mbit/s.
const BYTES_PER_SECOND: u64 = 12_500_000;

/// What is written at once, so that a large body takes its turn with others.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// An attacker gives up a connection after this time, though the gateway should have ended it before.
const PATIENCE: Duration = Duration::from_secs(60);

/// The network that an attacker hops in, one /64 after the other; `tests/run attacks --siege` makes it.
const NETWORK: Ipv6Addr = Ipv6Addr::new(0xfd48, 7, 7, 0, 0, 0, 0, 1);

/// Where attackers come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// These addresses in turn.
    Addresses(Vec<IpAddr>, AtomicU64),
    /// Every connection from another /64 of one /48.
    Network(AtomicU64),
}

impl Origin {
    /// As many IPv4 addresses of the loopback range as `count` says.
    pub(crate) fn addresses(block: u8, count: u8) -> Self {
        let addresses = (1..=count).map(|host| Ipv4Addr::new(127, 0, block, host).into()).collect();
        Self::Addresses(addresses, AtomicU64::new(0))
    }

    pub(crate) fn network() -> Self {
        Self::Network(AtomicU64::new(0))
    }

    fn next(&self) -> IpAddr {
        match self {
            Self::Addresses(addresses, turn) => {
                addresses[turn.fetch_add(1, Ordering::Relaxed) as usize % addresses.len()]
            }
            Self::Network(turn) => {
                let subnet = u128::from(turn.fetch_add(1, Ordering::Relaxed) % (1 << 16));
                Ipv6Addr::from_bits(NETWORK.to_bits() | subnet << 64).into()
            }
        }
    }
}

/// What an attacker does on a connection.
#[derive(Clone)]
pub(crate) enum Visit {
    /// Sends a beginning, then a few bytes now and then, or none, and reads nothing until the gateway ends it.
    Hold { beginning: Vec<u8>, drip: &'static [u8] },
    /// Sends whole requests and reads the answers. It is given the number of the request.
    Ask(Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>),
    /// Sends this again and again and reads no answer.
    NeverRead(Vec<u8>),
    /// Connects and goes away.
    Leave,
}

/// One kind of attack.
#[derive(Clone)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// How many connections it has at once.
    pub(crate) connections: usize,
    /// How many connections it begins, or requests it sends, in a second.
    pub(crate) per_second: f64,
    /// Whether it is aimed at the admin listener.
    pub(crate) at_admin: bool,
    pub(crate) visit: Visit,
}

/// Attackers at work.
pub(crate) struct Attackers {
    runtime: Runtime,
    tallies: Vec<(&'static str, Arc<Tally>)>,
    start: Instant,
}

/// What one kind of attack sent, and what it got.
#[derive(Default)]
struct Tally {
    connections: AtomicU64,
    bytes: AtomicU64,
    /// How often each answer was given, or how a connection ended without one.
    outcomes: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    fn note(&self, outcome: impl Into<String>) {
        *self.outcomes.lock().unwrap().entry(outcome.into()).or_default() += 1;
    }
}

/// Spreads what is spent evenly over time.
struct Pace {
    each: Duration,
    start: Instant,
    spent: AtomicU64,
}

impl Pace {
    fn new(per_second: f64) -> Self {
        Self { each: Duration::from_secs_f64(1.0 / per_second), start: Instant::now(), spent: AtomicU64::new(0) }
    }

    /// Waits until this much more may be spent.
    async fn spend(&self, amount: usize) -> u64 {
        let before = self.spent.fetch_add(amount as u64, Ordering::Relaxed);
        sleep_until(self.start + self.each.mul_f64(before as f64)).await;
        before
    }
}

/// One kind of attack under way.
struct Attacker {
    attack: Attack,
    target: SocketAddr,
    origin: Origin,
    pace: Pace,
    network: Arc<Pace>,
    tally: Arc<Tally>,
}

impl Attackers {
    /// Begins these attacks.
    pub(crate) fn start(ingest: SocketAddr, admin: SocketAddr, attacks: Vec<(Attack, Origin)>) -> Self {
        // One thread, so that the gateway has the other core.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (start, mut tallies) = (Instant::now(), Vec::new());
        runtime.block_on(async {
            let network = Arc::new(Pace::new(BYTES_PER_SECOND as f64));
            for (attack, origin) in attacks {
                let tally = Arc::<Tally>::default();
                tallies.push((attack.name, Arc::clone(&tally)));
                let (target, pace) = (if attack.at_admin { admin } else { ingest }, Pace::new(attack.per_second));
                let attacker = Attacker { attack, target, origin, pace, network: Arc::clone(&network), tally };
                let attacker = Arc::new(attacker);
                for _ in 0..attacker.attack.connections {
                    tokio::spawn(Arc::clone(&attacker).run());
                }
            }
        });
        Self { runtime, tallies, start }
    }

    /// Stops at once, which closes all connections, and gives a table of what was sent and what it got.
    pub(crate) fn end(self) -> String {
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        let seconds = self.start.elapsed().as_secs_f64();
        let mut table = format!("{:<20} {:>11} {:>9} {:>7}  outcomes\n", "attack", "connections", "MB", "Mbit/s");
        for (name, tally) in self.tallies {
            let (connections, bytes) = (tally.connections.load(Ordering::Relaxed), tally.bytes.load(Ordering::Relaxed));
            let (megabytes, outcomes) = (bytes as f64 / 1e6, tally.outcomes.lock().unwrap());
            let outcomes: Vec<_> = outcomes.iter().map(|(outcome, count)| format!("{count} x {outcome}")).collect();
            table += &format!(
                "{name:<20} {connections:>11} {megabytes:>9.1} {:>7.1}  {}\n",
                megabytes * 8.0 / seconds,
                outcomes.join(", ")
            );
        }
        table
    }
}

impl Attacker {
    async fn run(self: Arc<Self>) {
        loop {
            self.pace.spend(1).await;
            self.tally.connections.fetch_add(1, Ordering::Relaxed);
            match timeout(PATIENCE, self.visit()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.tally.note(error.kind().to_string()),
                Err(_) => self.tally.note("still open"),
            }
        }
    }

    async fn visit(&self) -> io::Result<()> {
        let mut stream = connect(self.origin.next(), self.target).await?;
        match &self.attack.visit {
            Visit::Hold { beginning, drip } => {
                self.write(&mut stream, beginning).await?;
                self.hold(stream, drip).await
            }
            Visit::Ask(request) => self.ask(stream, request.as_ref()).await,
            Visit::NeverRead(requests) => loop {
                self.write(&mut stream, requests).await?;
            },
            Visit::Leave => {
                self.tally.note("left");
                Ok(())
            }
        }
    }

    /// Until the gateway closes the connection. One that was answered closes, too.
    async fn hold(&self, mut stream: TcpStream, drip: &[u8]) -> io::Result<()> {
        const DRIP_EVERY: Duration = Duration::from_secs(1);
        loop {
            if drip.is_empty() {
                stream.readable().await?;
                let status = read_status(&mut stream).await?;
                self.tally.note(status.to_string());
                return Ok(());
            }
            sleep(DRIP_EVERY).await;
            self.write(&mut stream, drip).await?;
        }
    }

    async fn ask(&self, mut stream: TcpStream, request: &(dyn Fn(u64) -> Vec<u8> + Send + Sync)) -> io::Result<()> {
        loop {
            let number = self.pace.spend(1).await;
            let request = request(number);
            // A gateway that answers before it has read everything may close in between: the answer is what counts.
            let written = self.write(&mut stream, &request).await;
            let status = read_status(&mut stream).await.map_err(|error| written.err().unwrap_or(error))?;
            self.tally.note(status.to_string());
        }
    }

    async fn write(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(WRITTEN_AT_ONCE) {
            self.network.spend(piece.len()).await;
            self.tally.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            stream.write_all(piece).await?;
        }
        Ok(())
    }
}

/// A connection from this address.
pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let (socket, to) = match from {
        IpAddr::V4(_) => (TcpSocket::new_v4()?, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), to.port())),
        IpAddr::V6(_) => (TcpSocket::new_v6()?, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), to.port())),
    };
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads the whole answer.
pub(crate) async fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<u16> {
    stream.write_all(request).await?;
    read_status(stream).await
}

/// The status of one answer, which is read to its end.
async fn read_status(stream: &mut TcpStream) -> io::Result<u16> {
    let mut answer = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(status) = status_if_whole(&answer) {
            return Ok(status);
        }
    }
}

fn status_if_whole(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    (body.len() >= length.unwrap_or(0)).then(|| head.split(' ').nth(1)?.parse().ok())?
}
