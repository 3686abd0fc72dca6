//! A blocking HTTP/1.1 client of a few lines, so that a test decides every byte it sends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hookfast_webhook::Request;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON: {error}: {}", self.text()))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the gateway accepts a connection")
    }

    /// Connects, or says why not.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Long beyond every deadline of the gateway: it ends a test that would hang.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Waits this long for an answer instead of the usual time.
    pub fn with_patience(self, patience: Duration) -> Self {
        self.stream.get_ref().set_read_timeout(Some(patience)).expect("it is not zero");
        self
    }

    /// Connects from another loopback address, as another client would.
    pub fn connect_from(client: IpAddr, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(client, 0)).expect("every 127.x.x.x address is ours");
            socket.connect(address).await.expect("the gateway accepts a connection").into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a request and reads the answer.
    pub fn send(&mut self, request: &Request) -> io::Result<Answer> {
        self.write(&wire(request))?;
        self.read_answer()
    }

    /// Sends bytes and reads the answer.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<Answer> {
        // A gateway that answers before it has read everything may close in between: the answer is what counts.
        let written = self.write(bytes);
        self.read_answer().or_else(|error| written.and(Err(error)))
    }

    /// Reads one answer.
    pub fn read_answer(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| io::Error::other("no header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if status == 100 {
            return Ok(answer);
        }
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        answer.body = vec![0; length];
        self.stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// Whether the gateway has closed the connection; waits for it.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(rest) => rest.is_empty(),
            Err(error) => !is_timeout(&error),
        }
    }

    /// Waits until the gateway has taken everything that was sent so far out of its socket.
    pub fn wait_until_read(&self) {
        eventually("the gateway reads what was sent", || !self.is_unread());
    }

    /// What the kernel says: bytes that we have not got across, or that the gateway has not fetched.
    fn is_unread(&self) -> bool {
        let stream = self.stream.get_ref();
        // A connection that the gateway has closed has no other side any more, and nothing to wait for.
        let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let [ours, theirs] = [ours, theirs].map(|address| format!(":{:04X}", address.port()));
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let between = |from: &str, to: &str| fields[1].ends_with(from) && fields[2].ends_with(to);
            let (sent, received) = fields[4].split_once(':').unwrap_or_default();
            let is_waiting = |bytes: &str| bytes.bytes().any(|digit| digit != b'0');
            between(&ours, &theirs) && is_waiting(sent) || between(&theirs, &ours) && is_waiting(received)
        })
    }

    /// Everything until the gateway closes the connection; waits for it.
    pub fn read_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut rest) {
            assert!(!is_timeout(&error), "the gateway did not close the connection");
        }
        rest
    }

    /// Sends no more, but still reads.
    pub fn finish_writing(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Our own read time-out: the connection is still open.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A request as bytes. The path is taken from the URL.
pub(crate) fn wire(request: &Request) -> Vec<u8> {
    let path = request.url.splitn(4, '/').nth(3).unwrap_or_default();
    let mut bytes = format!("{} /{path} HTTP/1.1\r\nhost: hooks.example.com\r\n", request.method).into_bytes();
    for (name, value) in &request.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", request.body.len()).as_bytes());
    bytes.extend_from_slice(&request.body);
    bytes
}

/// Waits for a condition, and fails when it does not come true within half a minute.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(30), what, condition);
}

/// The same, with another patience.
pub fn eventually_within(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
