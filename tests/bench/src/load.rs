//! The load: many connections that send requests. It does as little as possible, because it shares the machine with the
//! server.
//!
//! In a closed loop each connection sends the next request when it has the answer to the last: that finds out how much a
//! server can take. In an open loop requests are due at fixed times, whether or not the server keeps up, and an answer is
//! as late as it is after that time: a request that waits behind a stall is counted, too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::requests::Requests;
use crate::statistics::micros;

/// How often it is looked which requests are due. Finer would cost more of the machine than it says about the server.
const PACE: Duration = Duration::from_micros(100);

/// What was seen in one turn.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) elapsed: Duration,
    /// The latency of every request that was answered 200, in microseconds.
    pub(crate) latencies: Vec<u32>,
    /// How many were answered 503.
    pub(crate) refused: usize,
}

impl Seen {
    /// Requests that were answered 200 in a second.
    pub(crate) fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn count(&mut self, answer: Answer, start: Instant) {
        match answer {
            Answer::Taken => self.latencies.push(micros(start.elapsed())),
            Answer::Refused => self.refused += 1,
        }
    }
}

/// Sends one request after the other on each connection, for some time or until there are no more. A server that keeps
/// nothing can have the same ones again.
pub(crate) fn closed(
    address: SocketAddr,
    requests: &Arc<Requests>,
    connections: usize,
    time: Duration,
    again: bool,
) -> anyhow::Result<Seen> {
    in_runtime(async {
        let links = connect(address, connections).await?;
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let senders = links.into_iter().map(|link| {
            let (requests, next) = (Arc::clone(requests), Arc::clone(&next));
            one_after_the_other(link, requests, next, start + time, again)
        });
        collect(start, senders).await
    })
}

/// Sends every request when it is due, this many in a second, on whichever connection is free.
pub(crate) fn open(
    address: SocketAddr,
    requests: &Arc<Requests>,
    connections: usize,
    per_second: f64,
) -> anyhow::Result<Seen> {
    in_runtime(async {
        let links = connect(address, connections).await?;
        let due = Arc::new(Semaphore::new(0));
        let next = Arc::new(AtomicUsize::new(0));
        let pace = Pace { start: Instant::now(), per_second };
        // A thread of its own: a timer of the runtime is as coarse as a millisecond.
        let (released, count) = (Arc::clone(&due), requests.len());
        let pacer = std::thread::spawn(move || {
            pace.release(&released, count);
            // Each connection looks once more, and finds that there is nothing left.
            released.add_permits(connections);
        });
        let senders = links.into_iter().map(|link| {
            let (requests, next, due) = (Arc::clone(requests), Arc::clone(&next), Arc::clone(&due));
            when_due(link, requests, next, due, pace)
        });
        let seen = collect(pace.start, senders).await;
        ensure!(pacer.join().is_ok(), "requests were not released");
        seen
    })
}

/// When requests are due.
#[derive(Clone, Copy)]
struct Pace {
    start: Instant,
    per_second: f64,
}

impl Pace {
    fn due(&self, index: usize) -> Instant {
        self.start + Duration::from_secs_f64(index as f64 / self.per_second)
    }

    /// Lets requests go when they are due.
    fn release(&self, due: &Semaphore, count: usize) {
        let mut released = 0;
        while released < count {
            std::thread::sleep(PACE);
            let due_by_now = (self.start.elapsed().as_secs_f64() * self.per_second) as usize + 1;
            let more = due_by_now.min(count).saturating_sub(released);
            due.add_permits(more);
            released += more;
        }
    }
}

async fn one_after_the_other(
    mut link: Link,
    requests: Arc<Requests>,
    next: Arc<AtomicUsize>,
    end: Instant,
    again: bool,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let index = if again { index % requests.len() } else { index };
        let start = Instant::now();
        let Some(request) = requests.get(index).filter(|_| start < end) else { return Ok(seen) };
        seen.count(link.send(request).await?, start);
    }
}

async fn when_due(
    mut link: Link,
    requests: Arc<Requests>,
    next: Arc<AtomicUsize>,
    due: Arc<Semaphore>,
    pace: Pace,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    loop {
        due.acquire().await?.forget();
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(request) = requests.get(index) else { return Ok(seen) };
        seen.count(link.send(request).await?, pace.due(index));
    }
}

fn in_runtime(load: impl Future<Output = anyhow::Result<Seen>>) -> anyhow::Result<Seen> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(load)
}

async fn collect(
    start: Instant,
    senders: impl Iterator<Item = impl Future<Output = anyhow::Result<Seen>> + Send + 'static>,
) -> anyhow::Result<Seen> {
    let mut senders: JoinSet<_> = senders.collect();
    let mut all = Seen::default();
    while let Some(seen) = senders.join_next().await {
        let seen = seen??;
        all.latencies.extend(seen.latencies);
        all.refused += seen.refused;
    }
    all.elapsed = start.elapsed();
    Ok(all)
}

#[derive(Clone, Copy)]
enum Answer {
    Taken,
    Refused,
}

/// A connection.
struct Link {
    address: SocketAddr,
    stream: TcpStream,
    buffer: [u8; 1024],
}

async fn connect(address: SocketAddr, count: usize) -> anyhow::Result<Vec<Link>> {
    let mut links = Vec::with_capacity(count);
    for _ in 0..count {
        links.push(Link { address, stream: stream(address).await?, buffer: [0; 1024] });
    }
    Ok(links)
}

async fn stream(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("the server does not accept connections")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Link {
    /// Every answer must be a 200 without a body, or a 503: anything else would make the numbers meaningless. What
    /// follows a 503 is not read, but the connection begun anew.
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.stream.write_all(request).await?;
        let mut length = 0;
        loop {
            let count = self.stream.read(&mut self.buffer[length..]).await?;
            ensure!(count > 0, "the server closed a connection");
            length += count;
            let answer = &self.buffer[..length];
            if answer.starts_with(b"HTTP/1.1 503 ") {
                self.stream = stream(self.address).await?;
                return Ok(Answer::Refused);
            }
            if answer.ends_with(b"\r\n\r\n") && answer.starts_with(b"HTTP/1.1 200 ") {
                return Ok(Answer::Taken);
            }
            if length == self.buffer.len() || answer.ends_with(b"\r\n\r\n") {
                bail!("an answer is not what it should be: {}", answer.escape_ascii());
            }
        }
    }
}

#[cfg(test)]
mod tests;
