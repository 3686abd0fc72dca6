//! Suspects run in a process of their own: this program runs itself again for one job.
//!
//! The child's standard input is the leash: when it ends, because the parent shuts down or dies, the child breaks off its run,
//! writes that it was interrupted, and ends. It heeds no signals: a supervisor may send them to all processes at once. The parent
//! waits for it, and kills it only when it is long past its time: a child that is killed is taken for a crash of the job.

use std::io::{Error, Read, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hookfast_parts::MustEnd;
use hookfast_processor::{RunApart, Surroundings};
use hookfast_queue::MemoryQueue;
use hookfast_store::{JobId, Migrate};
use hookfast_webhook::{EventId, HandlerName};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Config;
use crate::exit::Exit;
use crate::serve::{Role, assigned, handlers_runtime};

/// How often the parent looks whether the child has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How much longer than a run the child may take: while the store is away, its outcome waits.
const AROUND_A_RUN: Duration = Duration::from_secs(600);

/// How long closing the store may take. A handler that does not yield may hold its writer.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Runs this program again for one job.
pub(crate) struct OwnProcess {
    config_file: Option<PathBuf>,
    /// The longest deadline of a handler.
    longest_run: Mutex<Duration>,
}

#[async_trait]
impl RunApart for OwnProcess {
    async fn run_apart(&self, job: &JobId, stop: &CancellationToken) -> Result<()> {
        let mut child = self.start(job)?;
        tracing::info!(event_id = %job.event, handler = %job.handler, "a job that crashed before is run in a process of its own");
        let ended = async {
            match stop.run_until_cancelled(until_ended(&mut child)).await {
                Some(status) => status,
                None => {
                    drop(child.stdin.take());
                    until_ended(&mut child).await
                }
            }
        };
        match timeout(self.longest_run() + AROUND_A_RUN, ended).await {
            Ok(status) => said(status?),
            Err(_) => {
                tracing::error!(event_id = %job.event, handler = %job.handler, "a job that is run in a process of its own does not end; the process is killed, which counts as a crash of the job");
                child.kill()?;
                until_ended(&mut child).await.map(drop)
            }
        }
    }
}

impl OwnProcess {
    pub(crate) fn new(config_file: Option<&Path>, longest_run: Duration) -> Self {
        Self { config_file: config_file.map(Path::to_owned), longest_run: Mutex::new(longest_run) }
    }

    pub(crate) fn set_longest_run(&self, longest_run: Duration) {
        *self.longest_run.lock().unwrap_or_else(PoisonError::into_inner) = longest_run;
    }

    fn longest_run(&self) -> Duration {
        *self.longest_run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, job: &JobId) -> Result<Child> {
        // Also if the file was replaced meanwhile by a newer version.
        let program = PathBuf::from("/proc/self/exe");
        let program = if program.exists() { program } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        if let Some(file) = &self.config_file {
            command.arg("--config").arg(file);
        }
        command.args(["run-job", &job.event.to_string(), job.handler.as_str()]);
        // What handlers print goes where the log goes: the parent's own output is for people.
        command.stdin(Stdio::piped()).stdout(std::io::stderr()).spawn()
    }
}

async fn until_ended(child: &mut Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// A child that a signal ended, as after an abort, is what running apart is for. One that ended by itself with an error could
/// not run the job.
fn said(status: ExitStatus) -> Result<()> {
    match status.code() {
        Some(code) if code != 0 => Err(Error::other(format!("its process ended with {status}"))),
        _ => Ok(()),
    }
}

/// The child: runs one job and settles it.
pub(crate) fn run_job(config: &Config, event: Uuid, handler: &HandlerName) -> std::result::Result<(), Exit> {
    let for_handlers = handlers_runtime(config)?;
    let stop = CancellationToken::new();
    let leash = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        leash.cancel();
    });
    let ran = crate::in_runtime(async {
        heed_no_signals();
        let store = hookfast_store::open(&config.store, Migrate::Never).await?;
        let assigned = assigned(config, &Role::All).into_iter().find(|assigned| assigned.name == *handler);
        let assigned = assigned.ok_or_else(|| Exit::Failed(format!("there is no handler `{handler}`")))?;
        let must_end = MustEnd::default();
        let surroundings = Surroundings {
            store: Arc::clone(&store) as _,
            queue: Arc::new(MemoryQueue::new(1)),
            handlers: for_handlers.handle().clone(),
            apart: None,
            must_end: must_end.clone(),
        };
        let job = JobId { event: EventId(event), handler: handler.clone() };
        let run = hookfast_processor::run_one(surroundings, assigned, &job, config.work.clone(), stop);
        tokio::select! {
            ran = run => ran?,
            reason = must_end.wait() => return Err(Exit::Failed(reason.to_owned())),
            problem = store.broken() => return Err(Exit::Failed(problem)),
        }
        let _ = timeout(CLOSE_WITHIN, store.close()).await;
        Ok(())
    });
    for_handlers.shutdown_background();
    ran
}

/// A signal that is listened to does nothing else.
fn heed_no_signals() {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        if let Ok(mut heard) = signal(kind) {
            tokio::spawn(async move { while heard.recv().await.is_some() {} });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_could_not_run_the_job_is_told_from_one_that_died_of_it() {
        let after = |script: &str| said(Command::new("sh").args(["-c", script]).status().expect("there is a shell"));
        after("exit 0").expect("it ran the job");
        after("kill -ABRT $$").expect("the job took it along");
        let error = after("exit 2").expect_err("it could not start");
        assert!(error.to_string().contains("exit status: 2"), "{error}");
    }
}
