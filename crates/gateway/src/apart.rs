//! Suspects run in a process of their own: this program runs itself again for one job.
//!
//! The child's standard input is the leash: when it ends, because the parent shuts down or dies, the child breaks off its run,
//! writes that it was interrupted, and ends. What the parent never does is kill it in the middle of a run that is within its
//! time: that would be taken for a crash of the job.

use std::io::{Read, Result};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_processor::{RunApart, Surroundings};
use hookfast_queue::MemoryQueue;
use hookfast_store::{JobId, Migrate};
use hookfast_webhook::{EventId, HandlerName};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Config;
use crate::exit::Exit;
use crate::serve::{Role, handlers_runtime, staff};

/// How often the parent looks whether the child has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much longer than a run the child may take, to start and to settle.
const AROUND_A_RUN: Duration = Duration::from_secs(60);

/// Runs this program again for one job.
pub(crate) struct OwnProcess {
    pub(crate) config_file: Option<PathBuf>,
    /// The longest deadline of a handler.
    pub(crate) longest_run: Duration,
}

#[async_trait]
impl RunApart for OwnProcess {
    async fn run_apart(&self, job: &JobId) -> Result<()> {
        let mut child = self.start(job)?;
        tracing::info!(event_id = %job.event, handler = %job.handler, "a job that crashed before is run in a process of its own");
        let ended = timeout(self.longest_run + AROUND_A_RUN, ended(&mut child)).await;
        if ended.is_err() {
            child.kill()?;
        }
        Ok(())
    }
}

impl OwnProcess {
    fn start(&self, job: &JobId) -> Result<Child> {
        // Also if the file was replaced meanwhile by a newer version.
        let program = PathBuf::from("/proc/self/exe");
        let program = if program.exists() { program } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        if let Some(file) = &self.config_file {
            command.arg("--config").arg(file);
        }
        command.args(["run-job", &job.event.to_string(), job.handler.as_str()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
    }
}

async fn ended(child: &mut Child) {
    while matches!(child.try_wait(), Ok(None)) {
        sleep(LOOK_EVERY).await;
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
        let store = hookfast_store::open(&config.store, Migrate::Never).await?;
        let assigned = staff(config, &Role::All).into_iter().find(|staff| staff.name == *handler);
        let assigned = assigned.ok_or_else(|| Exit::Failed(format!("there is no handler `{handler}`")))?;
        let surroundings = Surroundings {
            store: Arc::clone(&store),
            queue: Arc::new(MemoryQueue::new(1)),
            handlers: for_handlers.handle().clone(),
            apart: None,
        };
        let job = JobId { event: EventId(event), handler: handler.clone() };
        hookfast_processor::run_one(surroundings, assigned, &job, config.work.clone(), stop).await?;
        store.close().await;
        Ok(())
    });
    for_handlers.shutdown_background();
    ran
}
