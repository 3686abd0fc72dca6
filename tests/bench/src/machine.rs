//! What it was measured on, and what was measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::database::Database;
use crate::disk::median_fsync_ms;
use crate::graphile;
use crate::table::{NOT_MEASURED, Table};

/// Where numbers come from.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    /// Of one minute, before anything was measured: what others do with the machine.
    pub(crate) load_before: String,
    pub(crate) median_fsync_ms: f64,
    pub(crate) postgres: String,
    pub(crate) nats_server: String,
    pub(crate) graphile_worker: String,
}

impl Machine {
    pub(crate) fn look() -> anyhow::Result<Self> {
        let words: Vec<_> = std::env::args().skip(1).collect();
        let day = OffsetDateTime::now_utc().format(format_description!("[year]-[month]-[day]"))?;
        let (meminfo, cpuinfo) = (fs::read_to_string("/proc/meminfo")?, fs::read_to_string("/proc/cpuinfo")?);
        let kibibytes: f64 = field(&meminfo, "MemTotal").trim_end_matches(" kB").parse().unwrap_or_default();
        Ok(Self {
            command: format!("tests/run bench {}", words.join(" ")).trim_end().into(),
            date: day,
            commit: commit(),
            processor: field(&cpuinfo, "model name"),
            cores: std::thread::available_parallelism()?.get(),
            memory: format!("{:.1} GB", kibibytes * 1024.0 / 1e9),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
            load_before: fs::read_to_string("/proc/loadavg")?.split(' ').next().unwrap_or_default().into(),
            median_fsync_ms: median_fsync_ms()?,
            postgres: Database::open(&hookfast_harness::fresh_database())?.version()?,
            nats_server: nats_server(),
            graphile_worker: graphile::version().unwrap_or_else(|| NOT_MEASURED.into()),
        })
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(&["what", "which"]);
        for (what, which) in [
            ("command", format!("`{}`", self.command)),
            ("date", self.date.clone()),
            ("commit", self.commit.clone()),
            ("processor", self.processor.clone()),
            ("cores", self.cores.to_string()),
            ("memory", self.memory.clone()),
            ("Linux", self.kernel.clone()),
            ("load average before the run", self.load_before.clone()),
            ("disk, median fsync of 4 KiB before the run", format!("{:.2} ms", self.median_fsync_ms)),
            ("Postgres", self.postgres.clone()),
            ("nats-server", self.nats_server.clone()),
            ("graphile-worker", self.graphile_worker.clone()),
        ] {
            table.row([what.into(), which]);
        }
        table
    }
}

/// The one that `tests/run` has chosen, if it was needed.
fn nats_server() -> String {
    let said = std::env::var_os("TEST_NATS_SERVER").map(|server| output_of(Command::new(server).arg("--version")));
    said.map_or(NOT_MEASURED.into(), |said| said.trim_start_matches("nats-server: v").to_owned())
}

/// What the program was built from.
fn commit() -> String {
    let commit = output_of(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    let is_ours = |line: &&str| !line.ends_with("docs/benchmarks.md");
    let changed = output_of(Command::new("git").args(["status", "--porcelain"]));
    let has_changes = changed != UNKNOWN && changed.lines().filter(is_ours).count() > 0;
    if has_changes { format!("{commit}, with changes that are not committed") } else { commit }
}

const UNKNOWN: &str = "unknown";

/// What a program says, if it can be run.
fn output_of(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    said.unwrap_or_else(|| UNKNOWN.into())
}

/// The value of a line such as `MemTotal:   24 kB`.
fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    value.map_or(UNKNOWN.into(), |value| value.trim().to_owned())
}

/// The version in a `package.json`.
pub(crate) fn version_in(folder: &Path) -> Option<String> {
    let manifest = fs::read(folder.join("package.json")).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
    Some(manifest.get("version")?.as_str()?.to_owned())
}
