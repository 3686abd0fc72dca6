//! The servers that are measured, each a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hookfast_harness::{Signal, signal};
use tempfile::TempDir;

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
    /// `binary` is one that was built with us; without a URL it has a SQLite file in its folder.
    pub(crate) fn new(
        binary: &'static str,
        store_url: Option<String>,
        sections: &Sections<'_>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hookfast-bench-").tempdir()?;
        let store_url = store_url.unwrap_or_else(|| format!("sqlite:{}", folder.path().join("hookfast.db").display()));
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

    /// Starts it as `serve`, `receive` or `work` and waits until it is ready.
    pub(crate) fn start(&self, role: &str, variables: &[(&str, &str)]) -> anyhow::Result<Server> {
        let mut command = Command::new(built_with_us(self.binary)?);
        command.args([role, "--migrate"]).current_dir(self.folder.path());
        // Or it would log every request when somebody watches, and be another gateway than when nobody does.
        command.env("HOOKFAST_LOG", "warn").envs(variables.iter().copied());
        Server::spawn(&mut command, Some(Arc::clone(&self.folder)))
    }
}

/// A process that is killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    _folder: Option<Arc<TempDir>>,
}

impl Server {
    pub(crate) fn floor() -> anyhow::Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).arg("floor"), None)
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

    fn spawn(command: &mut Command, folder: Option<Arc<TempDir>>) -> anyhow::Result<Self> {
        let mut process = command.stdout(Stdio::piped()).spawn().context("a server does not start")?;
        let output = BufReader::new(process.stdout.take().context("piped")?);
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split("http://").nth(1)?.split('/').next()?.parse().ok());
        Ok(Self { address: address.context("a server ended before it was ready")?, process, _folder: folder })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn built_with_us(name: &str) -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(binary.exists(), "{} is missing: build it with the same profile", binary.display());
    Ok(binary)
}
