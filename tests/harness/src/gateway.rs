//! The real binary, started in a folder of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hookfast_store::{EventSummary, Migrate, Store, StoredEvent, open};
use hookfast_webhook::EventId;
use tempfile::TempDir;

use crate::{Client, SECRET, Signal, fresh_database, signal};

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// A file beside the gateway.
    Sqlite,
    /// A new database on the private Postgres.
    Postgres,
}

/// A gateway that is yet to start.
#[derive(Debug)]
pub struct Setup {
    binary: PathBuf,
    folder: TempDir,
    store_url: String,
    ingest: String,
    source: String,
    rest: String,
    wrapper: Vec<String>,
}

impl Setup {
    /// A gateway with the source `stripe` and the handler `ledger`. `binary` is `env!("CARGO_BIN_EXE_hookfast")`.
    pub fn new(binary: &str, database: Database) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-test-").tempdir().expect("a temporary folder");
        let store_url = match database {
            Database::Sqlite => format!("sqlite:{}", folder.path().join("hookfast.db").display()),
            Database::Postgres => fresh_database(),
        };
        let empty = String::new;
        Self {
            binary: binary.into(),
            folder,
            store_url,
            ingest: empty(),
            source: empty(),
            rest: empty(),
            wrapper: vec![],
        }
    }

    /// Adds lines to the section `[ingest]`.
    pub fn ingest(mut self, lines: &str) -> Self {
        self.ingest += lines;
        self.ingest += "\n";
        self
    }

    /// Adds lines to the section `[sources.stripe]`.
    pub fn source(mut self, lines: &str) -> Self {
        self.source += lines;
        self.source += "\n";
        self
    }

    /// Adds whole sections.
    pub fn sections(mut self, lines: &str) -> Self {
        self.rest += lines;
        self.rest += "\n";
        self
    }

    /// Runs the binary under another program, such as `strace`.
    pub fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
        self
    }

    /// The folder the gateway runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Gateway {
        let config = format!(
            "[ingest]\nlisten = \"127.0.0.1:0\"\n{}\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n\
             [sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"{SECRET}\"]\n{}\n[handlers.ledger]\n{}\n",
            self.ingest, self.store_url, self.source, self.rest
        );
        fs::write(self.folder.path().join("hookfast.toml"), config).unwrap();
        let (process, ingest, admin, log) = self.spawn();
        Gateway { setup: self, process, ingest, admin, log }
    }

    fn spawn(&self) -> (Child, SocketAddr, SocketAddr, PathBuf) {
        let mut words = self.wrapper.clone();
        words.push(self.binary.display().to_string());
        let log = self.folder.path().join("log.jsonl");
        let mut process = Command::new(&words[0])
            .args(&words[1..])
            .args(["serve", "--migrate", "--log-format", "json"])
            .current_dir(self.folder.path())
            .env("HOOKFAST_LOG", "debug,sqlx=info")
            .stdout(Stdio::piped())
            .stderr(fs::OpenOptions::new().create(true).append(true).open(&log).unwrap())
            .spawn()
            .expect("hookfast starts");
        let (ingest, admin) = addresses(&mut process, &log);
        (process, ingest, admin, log)
    }
}

/// Reads the addresses that `serve` prints once it is ready.
fn addresses(process: &mut Child, log: &Path) -> (SocketAddr, SocketAddr) {
    let (sender, receiver) = mpsc::channel();
    let output = process.stdout.take().expect("piped");
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
            if let Some(address) = address {
                let _ = sender.send(address);
            }
        }
    });
    let next = || {
        receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| {
            panic!("hookfast did not start: {}", fs::read_to_string(log).unwrap_or_default());
        })
    };
    (next(), next())
}

/// A running gateway; it is killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    setup: Setup,
    process: Child,
    /// Where providers post.
    pub ingest: SocketAddr,
    /// Where operators look.
    pub admin: SocketAddr,
    log: PathBuf,
}

impl Gateway {
    /// A connection to the ingest listener.
    pub fn client(&self) -> Client {
        Client::connect(self.ingest)
    }

    /// What the gateway logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The folder it runs in.
    pub fn folder(&self) -> &Path {
        self.setup.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The store's URL.
    pub fn store_url(&self) -> &str {
        &self.setup.store_url
    }

    /// What the metrics say, as text.
    pub fn metrics(&self) -> String {
        let mut client = Client::connect(self.admin);
        client.raw(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("metrics answer").text()
    }

    /// The value of one series, such as `hookfast_duplicates_total{source="stripe"}`.
    pub fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics();
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no series {series} in:\n{metrics}"))
    }

    /// Sends a signal.
    pub fn signal(&self, which: Signal) {
        signal(&self.process, which);
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("the process is ours")
    }

    /// Starts the binary again on the same folder and store, without the wrapper.
    pub fn restart(mut self) -> Self {
        self.setup.wrapper.clear();
        (self.process, self.ingest, self.admin, self.log) = self.setup.spawn();
        self
    }

    /// Everything in the store, newest first.
    pub fn events(&self) -> Vec<EventSummary> {
        self.with_store(async |store| store.latest_events(u32::MAX >> 1).await.expect("the store answers"))
    }

    /// One event, whole.
    pub fn event(&self, id: EventId) -> StoredEvent {
        self.with_store(async move |store| store.event(id).await.expect("the store answers").expect("it is there"))
    }

    /// The handlers that have a job for an event.
    pub fn jobs(&self, id: EventId) -> Vec<String> {
        let jobs = self.with_store(async move |store| store.jobs_of(id).await.expect("the store answers"));
        jobs.into_iter().map(|job| job.handler).collect()
    }

    fn with_store<T>(&self, ask: impl AsyncFnOnce(&dyn Store) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = self.setup.store_url.parse().expect("a store's URL");
            let config = hookfast_store::Config { url, parallel_batches: 1 };
            let store = open(&config, Migrate::Never).await.expect("the store opens");
            let answer = ask(&*store).await;
            store.close().await;
            answer
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            signal(&self.process, Signal::Kill);
            let _ = self.process.wait();
        }
    }
}

/// The command, to be run in `folder`.
pub fn hookfast(binary: &str, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(folder);
    command
}
