//! The yardstick: graphile-worker with the same jobs in the same Postgres.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};
use time::OffsetDateTime;

use crate::machine::version_in;
use crate::requests::Requests;

/// Where `tests/run` has installed it.
const FOLDER_VARIABLE: &str = "TEST_GRAPHILE";

/// Which one it is, if it is installed.
pub(crate) fn version() -> Option<String> {
    version_in(&PathBuf::from(std::env::var_os(FOLDER_VARIABLE)?).join("node_modules/graphile-worker"))
}

/// Makes a job of each event.
pub(crate) fn add(url: &str, events: &Requests) -> anyhow::Result<()> {
    let mut adding = command("add", url)?.stdin(Stdio::piped()).spawn()?;
    let mut input = adding.stdin.take().context("piped")?;
    for body in events.bodies() {
        input.write_all(body)?;
        input.write_all(b"\n")?;
    }
    drop(input);
    let status = adding.wait()?;
    ensure!(status.success(), "jobs could not be added: {status}");
    Ok(())
}

/// Processes that work, until they are dropped.
pub(crate) struct Workers {
    processes: Vec<Worker>,
}

struct Worker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Workers {
    /// Starts this many, and lets them begin once all are ready.
    pub(crate) fn start(url: &str, count: usize) -> anyhow::Result<Self> {
        let processes = (0..count).map(|_| Worker::start(url)).collect::<anyhow::Result<_>>()?;
        let mut workers = Self { processes };
        for worker in &mut workers.processes {
            ensure!(worker.line()? == "ready", "graphile-worker does not start");
        }
        for worker in &mut workers.processes {
            worker.process.stdin.as_mut().context("piped")?.write_all(b"begin\n")?;
        }
        Ok(workers)
    }

    /// Ends them, and says when the first job began. One of them may have had none.
    pub(crate) fn first_start(self) -> anyhow::Result<OffsetDateTime> {
        let starts = self.processes.into_iter().map(Worker::first_start).collect::<anyhow::Result<Vec<_>>>()?;
        starts.into_iter().flatten().min().context("graphile-worker did nothing")
    }
}

impl Worker {
    fn start(url: &str) -> anyhow::Result<Self> {
        let mut process = command("work", url)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().context("piped")?);
        Ok(Self { process, output })
    }

    fn first_start(mut self) -> anyhow::Result<Option<OffsetDateTime>> {
        self.process.kill()?;
        let mut output = String::new();
        self.output.read_to_string(&mut output)?;
        let millis = output.lines().find_map(|line| line.strip_prefix("first ")).map(str::parse).transpose()?;
        Ok(millis.map(|millis| OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(millis)))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "graphile-worker has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With the Node.js that is installed beside it: the system's may be too old.
fn command(what: &str, url: &str) -> anyhow::Result<Command> {
    let folder = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let folder = folder.with_context(|| format!("{FOLDER_VARIABLE} is not set: use `tests/run bench process`"))?;
    let mut command = Command::new(folder.join("node_modules/.bin/node"));
    // As in its own measurements: no line for every job that is done.
    command.arg(folder.join("bench.js")).args([what, url]).env("NO_LOG_SUCCESS", "1").env("NODE_ENV", "production");
    Ok(command)
}
