//! Suspects run in a process of their own: this program runs itself again, for one job after the other. Should one crash, only
//! that one was running.
//!
//! The parent writes the job into the child's standard input and reads a line when it has come to its end. When that input ends,
//! because the parent shuts down or dies, the child breaks off its run, writes that it was interrupted, and ends. What the
//! parent never does is kill it in the middle of a run that is within its time: that would be taken for a crash of the job.

use std::io::{BufRead, BufReader, Error, Result, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_processor::{RunApart, Surroundings};
use hookfast_queue::MemoryQueue;
use hookfast_store::{JobId, Migrate, Store};
use hookfast_webhook::{EventId, HandlerName};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Config;
use crate::exit::Exit;
use crate::serve::{Role, handlers_runtime, staff};

/// How much longer than a run the child may take, to start and to settle.
const AROUND_A_RUN: Duration = Duration::from_secs(60);

/// A child without a job ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// Runs this program again for jobs that crashed before.
pub(crate) struct OwnProcess {
    config_file: Option<PathBuf>,
    /// The longest deadline of a handler.
    longest_run: Duration,
    child: Mutex<Option<Apart>>,
}

/// The child, and how to talk to it.
struct Apart {
    child: Child,
    jobs: ChildStdin,
    done: BufReader<ChildStdout>,
}

#[async_trait]
impl RunApart for OwnProcess {
    async fn run_apart(&self, job: &JobId) -> Result<()> {
        let mut child = self.child.lock().await;
        let mut apart = match child.take().and_then(Apart::if_it_lives) {
            Some(apart) => apart,
            None => self.start()?,
        };
        tracing::info!(event_id = %job.event, handler = %job.handler, "a job that crashed before is run in a process of its own");
        apart.begin(job)?;
        let ran = timeout(self.longest_run + AROUND_A_RUN, tokio::task::spawn_blocking(move || apart.wait())).await;
        *child = ran.map_err(Error::other)?.map_err(Error::other)?;
        Ok(())
    }
}

impl OwnProcess {
    pub(crate) fn new(config_file: Option<PathBuf>, longest_run: Duration) -> Self {
        Self { config_file, longest_run, child: Mutex::default() }
    }

    fn start(&self) -> Result<Apart> {
        // Also if the file was replaced meanwhile by a newer version.
        let program = PathBuf::from("/proc/self/exe");
        let program = if program.exists() { program } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        if let Some(file) = &self.config_file {
            command.arg("--config").arg(file);
        }
        let mut child = command.arg("run-jobs").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let jobs = child.stdin.take().ok_or_else(|| Error::other("the process has no input"))?;
        let done = child.stdout.take().ok_or_else(|| Error::other("the process has no output"))?;
        Ok(Apart { child, jobs, done: BufReader::new(done) })
    }
}

impl Apart {
    fn if_it_lives(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    fn begin(&mut self, job: &JobId) -> Result<()> {
        writeln!(self.jobs, "{} {}", job.event, job.handler)?;
        self.jobs.flush()
    }

    /// Waits for the end of the job. Gives the child back, unless it ended with the job.
    fn wait(mut self) -> Option<Self> {
        let mut line = String::new();
        if matches!(self.done.read_line(&mut line), Ok(length) if length > 0) {
            return Some(self);
        }
        let _ = self.child.wait();
        None
    }
}

/// A job as a line of the child's input.
struct Line(JobId);

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> std::result::Result<Self, String> {
        let (event, handler) = line.split_once(' ').ok_or("a line is an event and a handler")?;
        let event = EventId(Uuid::parse_str(event).map_err(|error| error.to_string())?);
        let handler = HandlerName::new(handler).map_err(|error| error.to_string())?;
        Ok(Self(JobId { event, handler }))
    }
}

/// The child: runs the jobs of its input, one after the other, until the input ends.
pub(crate) fn run_jobs(config: &Config) -> std::result::Result<(), Exit> {
    let for_handlers = handlers_runtime(config)?;
    let stop = CancellationToken::new();
    let mut lines = read_lines(stop.clone());
    let ran = crate::in_runtime(async {
        let store = hookfast_store::open(&config.store, Migrate::Never).await?;
        while let Ok(Some(line)) = timeout(IDLE, lines.recv()).await {
            let Line(job) = line.parse().map_err(Exit::Failed)?;
            run_job(config, &store, for_handlers.handle(), &job, stop.clone()).await?;
            outln!("done");
        }
        store.close().await;
        Ok(())
    });
    for_handlers.shutdown_background();
    ran
}

/// The lines of the standard input, read on a thread of their own. At their end the run under way is to stop.
fn read_lines(stop: CancellationToken) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
        stop.cancel();
    });
    lines
}

async fn run_job(
    config: &Config,
    store: &Arc<dyn Store>,
    handlers: &tokio::runtime::Handle,
    job: &JobId,
    stop: CancellationToken,
) -> std::result::Result<(), Exit> {
    let assigned = staff(config, &Role::All).into_iter().find(|staff| staff.name == job.handler);
    let assigned = assigned.ok_or_else(|| Exit::Failed(format!("there is no handler `{}`", job.handler)))?;
    let surroundings = Surroundings {
        store: Arc::clone(store),
        queue: Arc::new(MemoryQueue::new(1)),
        handlers: handlers.clone(),
        apart: None,
    };
    hookfast_processor::run_one(surroundings, assigned, job, config.work.clone(), stop).await?;
    Ok(())
}
