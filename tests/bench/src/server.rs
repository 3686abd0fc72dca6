//! The servers that are measured, each a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hookfast_harness::{Signal, fresh_database, signal};
use serde::Serialize;
use tempfile::TempDir;

/// The program that users have, and one with a handler that we measure.
pub(crate) const HOOKFAST: &str = "hookfast";
pub(crate) const WITH_HANDLER: &str = "hookfast-bench-gateway";

/// Where events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Store {
    #[serde(rename = "sqlite")]
    Sqlite,
    #[serde(rename = "postgres")]
    Postgres,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "Postgres",
        }
    }
}

/// A gateway that is yet to start: its configuration in a folder of its own. Everything that is not said here is as by
/// default, or as variables such as `HOOKFAST_WORK__CONCURRENCY` say.
pub(crate) struct Gateway {
    folder: Arc<TempDir>,
    binary: &'static str,
    pub(crate) store_url: String,
}

/// What a gateway's configuration says beside its addresses and its source.
#[derive(Default)]
pub(crate) struct Sections<'a> {
    /// Further lines of `[ingest]`.
    pub(crate) ingest: &'a str,
    /// Further lines of `[store]`.
    pub(crate) store: &'a str,
    /// Further sections.
    pub(crate) more: &'a str,
}

impl Gateway {
    /// `binary` is one that was built with us. The store is new and empty.
    pub(crate) fn new(binary: &'static str, store: Store, sections: &Sections<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hookfast-bench-").tempdir()?;
        let store_url = match store {
            Store::Sqlite => format!("sqlite:{}", folder.path().join("hookfast.db").display()),
            Store::Postgres => fresh_database(),
        };
        let Sections { ingest, store, more } = sections;
        let secret = crate::requests::SECRET;
        let config = format!(
            "[ingest]\nlisten = \"127.0.0.1:0\"\n{ingest}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = \"{store_url}\"\n{store}\n\
             [sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"{secret}\"]\n{more}\n"
        );
        std::fs::write(folder.path().join("hookfast.toml"), config)?;
        Ok(Self { folder: Arc::new(folder), binary, store_url })
    }

    /// One that only receives: it records a job for each event, and no worker runs.
    pub(crate) fn that_receives(store: Store, ingest: &str, store_lines: &str) -> anyhow::Result<Self> {
        let more = "[handlers.bench]\nrun = \"log\"\npaused = true";
        Self::new(HOOKFAST, store, &Sections { ingest, store: store_lines, more })
    }

    /// Starts it as `serve`, `receive` or `work` and waits until it is ready.
    pub(crate) fn start(&self, role: &str, variables: &[(&str, &str)]) -> anyhow::Result<Server> {
        let mut command = Command::new(built_with_us(self.binary)?);
        command.args([role, "--migrate"]).current_dir(self.folder.path());
        // On a terminal it would log every request, and be another gateway than without one.
        command.env("HOOKFAST_LOG", "warn").envs(variables.iter().copied());
        Server::spawn(&mut command, Some(Arc::clone(&self.folder)))
    }
}

/// A process that is killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// How long it took until it said that it is ready.
    pub(crate) ready_after: Duration,
    process: Child,
    _folder: Option<Arc<TempDir>>,
}

impl Server {
    /// The floor: a server that only reads the body.
    pub(crate) fn floor() -> anyhow::Result<Self> {
        Self::spawn(&mut Command::new(built_with_us("hookfast-bench-floor")?), None)
    }

    /// Lets it finish what it was told, and waits for its end.
    pub(crate) fn shut_down(mut self) -> anyhow::Result<()> {
        signal(&self.process, Signal::Term);
        let status = self.process.wait()?;
        anyhow::ensure!(status.success(), "a server did not end well: {status}");
        Ok(())
    }

    /// The processor time it has used so far. Unlike requests per second, this hardly depends on who else uses the machine.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        const TICKS_PER_SECOND: u64 = 100;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    /// How much memory it has at this moment.
    pub(crate) fn resident_mb(&self) -> anyhow::Result<f64> {
        self.status_mb("VmRSS:")
    }

    /// The most it ever had.
    pub(crate) fn most_resident_mb(&self) -> anyhow::Result<f64> {
        self.status_mb("VmHWM:")
    }

    fn status_mb(&self, field: &str) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let value = status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"));
        let kibibytes: f64 = value.with_context(|| format!("the system does not say {field}"))?.parse()?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    fn spawn(command: &mut Command, folder: Option<Arc<TempDir>>) -> anyhow::Result<Self> {
        let start = Instant::now();
        let mut process = command.stdout(Stdio::piped()).spawn().context("a server does not start")?;
        let output = BufReader::new(process.stdout.take().context("piped")?);
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split("http://").nth(1)?.split('/').next()?.parse().ok());
        let ready_after = start.elapsed();
        let address = address.context("a server ended before it was ready")?;
        Ok(Self { address, ready_after, process, _folder: folder })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that was built with us.
pub(crate) fn built_with_us(name: &str) -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(binary.exists(), "{} is missing: build it with the same profile", binary.display());
    Ok(binary)
}
