//! The load: many connections, each sending one request after the other. It does as little as possible, because it shares
//! the machine with the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::requests::Requests;

/// What was seen in one turn.
pub(crate) struct Seen {
    pub(crate) elapsed: Duration,
    /// The latency of every request, in microseconds.
    pub(crate) latencies: Vec<u32>,
}

/// Sends requests for some time, or until there are no more.
pub(crate) fn run(
    address: SocketAddr,
    requests: &Arc<Requests>,
    connections: usize,
    time: Duration,
    reuse: bool,
) -> anyhow::Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut streams = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await.context("the server does not accept connections")?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| tokio::spawn(send(stream, Arc::clone(requests), Arc::clone(&next), start + time, reuse)))
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await??);
        }
        Ok(Seen { elapsed: start.elapsed(), latencies })
    })
}

async fn send(
    mut stream: TcpStream,
    requests: Arc<Requests>,
    next: Arc<AtomicUsize>,
    end: Instant,
    reuse: bool,
) -> anyhow::Result<Vec<u32>> {
    let mut latencies = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let index = if reuse { index % requests.len() } else { index };
        let start = Instant::now();
        let Some(request) = requests.get(index).filter(|_| start < end) else { return Ok(latencies) };
        stream.write_all(request).await?;
        read_answer(&mut stream, &mut buffer).await?;
        latencies.push(u32::try_from(start.elapsed().as_micros())?);
    }
}

/// Every answer must be a 200 without a body: anything else would make the numbers meaningless.
async fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<()> {
    let mut length = 0;
    loop {
        let count = stream.read(&mut buffer[length..]).await?;
        ensure!(count > 0, "the server closed a connection");
        length += count;
        if buffer[..length].ends_with(b"\r\n\r\n") {
            break;
        }
        ensure!(length < buffer.len(), "an answer is not what it should be: {}", buffer.escape_ascii());
    }
    ensure!(buffer.starts_with(b"HTTP/1.1 200 "), "not a 200: {}", buffer[..length].escape_ascii());
    Ok(())
}
