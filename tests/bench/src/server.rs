//! The servers that are measured, each a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

/// A process that is killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Child,
    _folder: Option<TempDir>,
}

impl Server {
    pub(crate) fn floor() -> anyhow::Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).arg("floor"), None)
    }

    /// The gateway as it is by default, but for the lines of `ingest` and `store`.
    pub(crate) fn hookfast(store_url: Option<&str>, ingest: &str, store: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("hookfast-bench-").tempdir()?;
        let url = store_url.unwrap_or("sqlite:hookfast.db");
        let secret = crate::requests::SECRET;
        let config = format!(
            "[ingest]\nlisten = \"127.0.0.1:0\"\n{ingest}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = \"{url}\"\n{store}\n\
             [sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"{secret}\"]\n[handlers.bench]\n"
        );
        std::fs::write(folder.path().join("hookfast.toml"), config)?;
        let mut command = Command::new(binary()?);
        command.args(["serve", "--migrate"]).current_dir(folder.path());
        Self::spawn(&mut command, Some(folder))
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

    fn spawn(command: &mut Command, folder: Option<TempDir>) -> anyhow::Result<Self> {
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

/// The gateway that was built with us.
fn binary() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("hookfast");
    anyhow::ensure!(binary.exists(), "{} is missing: build it with the same profile", binary.display());
    Ok(binary)
}
