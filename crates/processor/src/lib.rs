//! The working half: every job is done, once, or is visibly dead.
//!
//! - `worker` pulls messages, claims their jobs and runs the handler;
//! - `flight` renews the leases of what is on board;
//! - `settle` writes what came of it, and then acknowledges;
//! - `sweeper` dispatches again whatever is due and not finished;
//! - `effects` makes side effects happen once, however often a job is run;
//! - `handler` is what backend teams write, `testing` what they test it with.
//!
//! A message is only a hint. What decides is the job's row: who claims it gets a token, and without the current token
//! nothing can be written, neither an effect nor an outcome.

mod config;
mod effects;
mod faults;
mod flight;
mod handler;
mod log;
mod metrics;
mod settle;
mod sweeper;
pub mod testing;
mod worker;
mod writes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ::metrics::{counter, gauge};
use hookfast_queue::Queue;
use hookfast_store::{JobId, Store, StoreError};
use hookfast_webhook::HandlerName;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::{Config, HandlerConfig};
pub use effects::{Effects, IdempotencyKey, Transaction};
pub use handler::{AnyHandler, Anything, Event, Handled, Handler, Handlers};
pub use hookfast_store::Value;
pub use log::Log;
pub use metrics::describe as describe_metrics;

use faults::Protection;
use flight::Flight;
use metrics::{HandlerMetrics, show_backlog};
use settle::Settler;
use sweeper::Sweeper;
use worker::{Shared, Worker};

/// How often the metrics about the backlog are taken.
const LOOK_AT_BACKLOG_EVERY: Duration = Duration::from_secs(10);

/// How many jobs may wait to be run alone.
const SUSPECTS_WAITING: usize = 16;

/// A handler to be worked for.
#[derive(Clone)]
pub struct Staff {
    /// Its name.
    pub name: HandlerName,
    /// What it does.
    pub handler: Arc<dyn AnyHandler>,
    /// How it is run.
    pub config: HandlerConfig,
}

/// Workers at work.
pub struct Running {
    shutdown: CancellationToken,
    shutdown_timeout: Duration,
    workers: TaskTracker,
    jobs: TaskTracker,
    settler: JoinHandle<()>,
    attendants: Vec<JoinHandle<()>>,
    /// Cancelled when the process should end: the store is damaged, or too many threads are lost to handlers that do not
    /// yield, or one with a transaction.
    pub must_end: CancellationToken,
}

/// Starts to work for these handlers. They run on `handlers`, a runtime of their own with [`Config::threads`] threads.
pub async fn start(
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    staff: Vec<Staff>,
    mut config: Config,
    handlers: Handle,
) -> Result<Running, StoreError> {
    if faults::is_off(Protection::CrashLimit) {
        config.crash_limit = u32::MAX;
    }
    for Staff { handler, .. } in staff.iter().filter(|staff| !staff.handler.tables().is_empty()) {
        store.prepare(handler.tables()).await?;
    }
    let names: Vec<_> = staff.iter().map(|staff| staff.name.clone()).collect();
    let metrics: HashMap<_, _> = names.iter().map(|name| (name.clone(), HandlerMetrics::new(name))).collect();
    let metrics = Arc::new(metrics);
    let (ended, to_settle) = mpsc::channel(1024);
    let (shutdown, must_end) = (CancellationToken::new(), CancellationToken::new());
    let settler = Settler {
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        metrics: Arc::clone(&metrics),
        must_end: must_end.clone(),
    };
    let settler = tokio::spawn(settler.run(to_settle));
    let (workers, jobs) = (TaskTracker::new(), TaskTracker::new());
    let flight = Arc::new(Flight::default());
    let shared = Arc::new(Shared {
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        name: worker_name().into(),
        flight: Arc::clone(&flight),
        metrics: Arc::clone(&metrics),
        running: Arc::new(Semaphore::new(config.concurrency)),
        ended,
        jobs: jobs.clone(),
        handlers,
        shutdown: shutdown.clone(),
        stuck: AtomicUsize::new(0),
        must_end: must_end.clone(),
        config: config.clone(),
    });
    let mut by_name = HashMap::new();
    for Staff { name, handler, config } in staff {
        let worker = Worker::new(Arc::clone(&shared), name.clone(), handler, config);
        workers.spawn(Arc::clone(&worker).run());
        by_name.insert(name, worker);
    }
    let (suspects, to_run_alone) = mpsc::channel(SUSPECTS_WAITING);
    workers.spawn(run_suspects(by_name, to_run_alone, shutdown.clone()));
    workers.close();
    let sweeper = Sweeper {
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        handlers: names.clone(),
        metrics,
        config: config.clone(),
        suspects,
        dispatched: counter!("hookfast_sweeper_dispatched_total"),
        failed: counter!("hookfast_dispatch_failed_total"),
    };
    gauge!("hookfast_stuck_runs").set(0.0);
    let attendants = vec![
        tokio::spawn(flight.keep(Arc::clone(&store), config.lease)),
        tokio::spawn(sweeper.run()),
        tokio::spawn(look_at_backlog(store, queue, names)),
        tokio::spawn(watch_threads(shared, config.threads)),
    ];
    let shutdown_timeout = config.shutdown_timeout;
    Ok(Running { shutdown, shutdown_timeout, workers, jobs, settler, attendants, must_end })
}

impl Running {
    /// Takes no more jobs, hands back what was not begun, finishes what runs, and settles it. What takes too long is left
    /// to the sweeper of whoever comes after us.
    pub async fn shut_down(self) {
        self.shutdown.cancel();
        // One of them may wait for the store.
        let _ = timeout(self.shutdown_timeout, self.workers.wait()).await;
        self.jobs.close();
        if timeout(self.shutdown_timeout, self.jobs.wait()).await.is_err() {
            let jobs = self.jobs.len();
            tracing::warn!(jobs, "jobs were still running at the end of the shutdown; they are run again later");
            self.settler.abort();
        }
        for attendant in &self.attendants {
            attendant.abort();
        }
        // Those who watch hold the way to the settler, which ends when all of them are gone.
        for attendant in self.attendants {
            let _ = attendant.await;
        }
        let _ = timeout(self.shutdown_timeout, self.settler).await;
    }
}

/// Runs those jobs one after the other that must be alone.
async fn run_suspects(
    workers: HashMap<HandlerName, Arc<Worker>>,
    mut suspects: mpsc::Receiver<JobId>,
    shutdown: CancellationToken,
) {
    while let Some(Some(JobId { event, handler })) = shutdown.run_until_cancelled(suspects.recv()).await {
        if let Some(worker) = workers.get(&handler) {
            worker.run_alone(event).await;
        }
    }
}

/// Who we are in the history of jobs: the machine and the process.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "worker" } else { host }, std::process::id())
}

async fn look_at_backlog(store: Arc<dyn Store>, queue: Arc<dyn Queue>, handlers: Vec<HandlerName>) {
    let mut timer = interval(LOOK_AT_BACKLOG_EVERY);
    loop {
        timer.tick().await;
        match store.backlog().await {
            Ok(backlog) => show_backlog(&backlog, &handlers),
            Err(error) => tracing::debug!(%error, "the backlog could not be counted"),
        }
        gauge!("hookfast_queue_up").set(if queue.check().await.is_ok() { 1.0 } else { 0.0 });
        for handler in &handlers {
            if let Some(waiting) = queue.waiting(handler).await {
                gauge!("hookfast_queue_waiting", "handler" => handler.to_string()).set(waiting as f64);
            }
        }
    }
}

/// A thread that a handler keeps does not come back. When half of them are gone, starting anew is better than going on.
async fn watch_threads(shared: Arc<Shared>, threads: usize) {
    let mut timer = interval(Duration::from_secs(1));
    loop {
        timer.tick().await;
        if shared.stuck.load(std::sync::atomic::Ordering::Relaxed) * 2 >= threads {
            tracing::error!(threads, "half of the threads are lost to handlers that do not yield");
            shared.must_end.cancel();
            return;
        }
    }
}
