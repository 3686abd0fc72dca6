//! A link that can be broken: a TCP proxy on loopback, which carries everything to a server until it is told otherwise.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

/// A narrow link carries its bytes in pieces of this part of a second, so that connections take turns.
const PIECES_A_SECOND: u64 = 50;

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Everything goes through.
    Whole,
    /// Every connection is reset, those that are there and those that come.
    Cut,
    /// Connections stay, new ones are accepted, and nothing comes through, not even their end. What was sent comes later.
    Blackhole,
    /// Every chunk is delayed by this, one after the other.
    Delayed(Duration),
    /// One byte at a time, each delayed by this.
    Dripping(Duration),
    /// All connections together carry this many bytes a second, in each direction.
    Narrow(u64),
    /// As if the client had closed its side and still listened. Healing does not mend connections that saw this.
    ClosedByClient,
    /// As if the server had closed its side and still listened.
    ClosedByServer,
}

/// A proxy before a server. It ends when dropped, and its connections with it.
#[derive(Debug)]
pub struct Proxy {
    upstream: SocketAddr,
    address: SocketAddr,
    link: watch::Sender<Link>,
    _runtime: Runtime,
}

impl Proxy {
    /// A whole link to a server, which need not be there yet.
    pub fn to(upstream: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().unwrap();
        let (link, state) = watch::channel(Link::Whole);
        runtime.spawn(accept(listener, upstream, state));
        Self { upstream, address, link, _runtime: runtime }
    }

    /// A whole link to the server of a URL such as `nats://127.0.0.1:4222`.
    pub fn to_server_of(url: &str) -> Self {
        let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let address = authority.rsplit('@').next().and_then(|address| address.parse().ok());
        Self::to(address.unwrap_or_else(|| panic!("{url} has no address with a port")))
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of the server, changed so that it leads through this link.
    pub fn through(&self, url: &str) -> String {
        let (server, ours) = (self.upstream.to_string(), self.address.to_string());
        assert!(url.contains(&server), "{url} does not lead to {server}");
        url.replacen(&server, &ours, 1)
    }

    /// Breaks the link, or breaks it in another way.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.set(Link::Whole);
    }
}

/// The two directions of a link. Whatever goes through a narrow one holds its direction meanwhile.
#[derive(Default)]
struct Directions {
    to_server: Mutex<()>,
    to_client: Mutex<()>,
}

async fn accept(listener: TcpListener, upstream: SocketAddr, link: watch::Receiver<Link>) {
    let directions = Arc::new(Directions::default());
    loop {
        // It may be out of descriptors, and then has some again.
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(connect(client, upstream, link.clone(), Arc::clone(&directions)))),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connect(
    client: TcpStream,
    upstream: SocketAddr,
    mut link: watch::Receiver<Link>,
    directions: Arc<Directions>,
) {
    let server = TcpStream::connect(upstream).await;
    pass_blackhole(&mut link).await;
    match server {
        Ok(server) => carry(client, server, link, &directions).await,
        Err(_) => reset(client),
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    link: watch::Receiver<Link>,
    Directions { to_server: way_out, to_client: way_back }: &Directions,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut is_cut = link.clone();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let ended = tokio::select! {
        _ = is_cut.wait_for(|link| *link == Link::Cut) => Err(io::ErrorKind::ConnectionReset.into()),
        ended = async {
            tokio::try_join!(
                pump(from_client, to_server, link.clone(), Link::ClosedByClient, way_out),
                pump(from_server, to_client, link.clone(), Link::ClosedByServer, way_back),
            )
        } => ended,
    };
    // Whatever broke one side breaks the other in the same way.
    if ended.is_err() {
        reset(client);
        reset(server);
    }
}

/// Carries everything in one direction, until the sender closes its side or `closed` says that it did.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut link: watch::Receiver<Link>,
    closed: Link,
    way: &Mutex<()>,
) -> io::Result<()> {
    let mut is_closed = link.clone();
    let carry = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = from.read(&mut buffer).await;
            pass_blackhole(&mut link).await;
            match read? {
                0 => return io::Result::Ok(()),
                length => hand_on(&buffer[..length], &mut to, &mut link, way).await?,
            }
        }
    };
    tokio::select! {
        _ = is_closed.wait_for(|link| *link == closed) => {}
        ended = carry => ended?,
    }
    to.shutdown().await?;
    // What comes after that is thrown away, and its end is the end of the connection.
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(drop)
}

async fn hand_on(
    mut bytes: &[u8],
    to: &mut WriteHalf<'_>,
    link: &mut watch::Receiver<Link>,
    way: &Mutex<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        pass_blackhole(link).await;
        let is_narrow = matches!(*link.borrow(), Link::Narrow(_));
        let _alone = if is_narrow { Some(way.lock().await) } else { None };
        let (pause, length) = match *link.borrow_and_update() {
            Link::Delayed(pause) => (pause, bytes.len()),
            Link::Dripping(pause) => (pause, 1),
            Link::Narrow(bytes_a_second) => piece(bytes.len(), bytes_a_second),
            _ => (Duration::ZERO, bytes.len()),
        };
        let is_other = matches!(timeout(pause, link.changed()).await, Ok(Ok(())));
        if !is_other {
            to.write_all(&bytes[..length]).await?;
            bytes = &bytes[length..];
        }
    }
    Ok(())
}

/// How much of some bytes goes through a narrow link next, and how long that takes.
fn piece(bytes: usize, bytes_a_second: u64) -> (Duration, usize) {
    let length = bytes.min(usize::try_from(bytes_a_second / PIECES_A_SECOND).unwrap_or(bytes).max(1));
    (Duration::from_secs_f64(length as f64 / bytes_a_second.max(1) as f64), length)
}

async fn pass_blackhole(link: &mut watch::Receiver<Link>) {
    let _ = link.wait_for(|link| *link != Link::Blackhole).await;
}

fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
    drop(stream);
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{Link, Proxy};

    const SHORT: Duration = Duration::from_millis(200);

    /// Both ends of a connection, and the link between them.
    struct Line {
        proxy: Proxy,
        listener: TcpListener,
        client: TcpStream,
        server: TcpStream,
    }

    impl Line {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let proxy = Proxy::to(listener.local_addr().unwrap());
            let (client, server) = connect(&proxy, &listener);
            Self { proxy, listener, client, server }
        }
    }

    fn connect(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(proxy.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        (client, server)
    }

    fn read(stream: &mut TcpStream, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    fn assert_silent(stream: &mut TcpStream) {
        stream.set_read_timeout(Some(SHORT)).unwrap();
        let answer = read(stream, 1).map_err(|error| error.kind());
        assert_eq!(answer, Err(ErrorKind::WouldBlock));
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }

    fn assert_goes_through(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"hello").unwrap();
        assert_eq!(read(to, 5).unwrap(), "hello");
    }

    #[test]
    fn a_whole_link_carries_bytes_and_the_end_of_them() {
        let Line { proxy: _proxy, mut client, mut server, .. } = Line::new();
        assert_goes_through(&mut client, &mut server);
        assert_goes_through(&mut server, &mut client);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert_goes_through(&mut server, &mut client);
    }

    #[test]
    fn a_cut_resets_both_ends_and_every_new_connection_until_it_heals() {
        let Line { proxy, listener, mut client, mut server } = Line::new();
        proxy.set(Link::Cut);
        for end in [&mut client, &mut server] {
            assert_eq!(read(end, 1).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        let refused = TcpStream::connect(proxy.address()).and_then(|mut stream| read(&mut stream, 1));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(listener.accept().unwrap());
        proxy.heal();
        let (mut client, mut server) = connect(&proxy, &listener);
        assert_goes_through(&mut client, &mut server);
    }

    #[test]
    fn a_blackhole_swallows_nothing_but_shows_nothing() {
        let Line { proxy, mut client, mut server, .. } = Line::new();
        proxy.set(Link::Blackhole);
        client.write_all(b"held").unwrap();
        assert_silent(&mut server);
        let mut late = TcpStream::connect(proxy.address()).unwrap();
        late.write_all(b"late").unwrap();
        assert_silent(&mut late);
        client.shutdown(Shutdown::Write).unwrap();
        assert_silent(&mut server);
        proxy.heal();
        assert_eq!(read(&mut server, 4).unwrap(), "held");
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_delay_holds_each_chunk_back_and_ends_with_healing() {
        let Line { proxy, mut client, mut server, .. } = Line::new();
        proxy.set(Link::Delayed(SHORT));
        let start = Instant::now();
        assert_goes_through(&mut client, &mut server);
        assert!(start.elapsed() >= SHORT);
        proxy.set(Link::Delayed(Duration::from_secs(3600)));
        client.write_all(b"hello").unwrap();
        assert_silent(&mut server);
        proxy.heal();
        assert_eq!(read(&mut server, 5).unwrap(), "hello");
    }

    #[test]
    fn a_drip_is_one_byte_at_a_time() {
        let Line { proxy, mut client, mut server, .. } = Line::new();
        proxy.set(Link::Dripping(Duration::from_millis(50)));
        client.write_all(b"abc").unwrap();
        let start = Instant::now();
        assert_eq!(read(&mut server, 3).unwrap(), "abc");
        assert!(start.elapsed() >= Duration::from_millis(100), "the last came at least two pauses after the first");
        proxy.set(Link::Dripping(Duration::from_secs(3600)));
        client.write_all(&[b'x'; 10_000]).unwrap();
        assert_silent(&mut server);
        proxy.heal();
        assert_eq!(read(&mut server, 10_000).unwrap(), "x".repeat(10_000));
    }

    #[test]
    fn a_narrow_link_is_shared_by_its_connections() {
        let Line { proxy, listener, mut client, mut server } = Line::new();
        proxy.set(Link::Narrow(10_000));
        let (mut other_client, mut other_server) = connect(&proxy, &listener);
        let start = Instant::now();
        client.write_all(&[b'x'; 1_000]).unwrap();
        other_client.write_all(&[b'y'; 1_000]).unwrap();
        assert_eq!(read(&mut server, 1_000).unwrap(), "x".repeat(1_000));
        assert_eq!(read(&mut other_server, 1_000).unwrap(), "y".repeat(1_000));
        assert!(start.elapsed() >= Duration::from_millis(200), "both together are a fifth of a second");
        proxy.set(Link::Narrow(1));
        client.write_all(&[b'x'; 10_000]).unwrap();
        proxy.heal();
        assert_eq!(read(&mut server, 10_000).unwrap(), "x".repeat(10_000));
    }

    #[test]
    fn one_side_is_closed_and_the_other_goes_on() {
        let Line { proxy, mut client, mut server, .. } = Line::new();
        proxy.set(Link::ClosedByClient);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert_goes_through(&mut server, &mut client);
        let Line { proxy, listener, mut client, mut server } = Line::new();
        proxy.set(Link::ClosedByServer);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_goes_through(&mut client, &mut server);
        proxy.heal();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "a side that was closed stays closed");
        let (mut client, mut server) = connect(&proxy, &listener);
        assert_goes_through(&mut server, &mut client);
    }

    #[test]
    fn a_server_that_is_not_there_resets_the_client() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let proxy = Proxy::to(gone);
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(read(&mut client, 1).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_url_leads_through_the_link() {
        let url = "postgres://postgres@127.0.0.1:5432/shop";
        let proxy = Proxy::to_server_of(url);
        assert_eq!(proxy.through(url), format!("postgres://postgres@{}/shop", proxy.address()));
    }
}
