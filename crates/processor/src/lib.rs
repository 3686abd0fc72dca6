//! The working half: every job is done, once, or is visibly dead.
//!
//! - `worker` pulls messages, claims their jobs and runs the handler;
//! - `leases` renews the leases of what is on board;
//! - `suspects` are run in a process of their own;
//! - `settle` writes what came of it, and then acknowledges;
//! - `sweeper` dispatches again whatever is due and not finished;
//! - `hooks` adds shared commits and the faults of tests to the effects of a run.
//!
//! A message is only a hint. What decides is the job's row: who claims it gets a token, and without the current token
//! nothing can be written, neither an effect nor an outcome.

mod config;
mod faults;
mod hooks;
mod leases;
mod log;
mod metrics;
mod settle;
mod suspects;
mod sweeper;
#[cfg(test)]
mod testing;
mod trouble;
mod watched;
mod worker;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ::metrics::{counter, gauge};
use hookfast_handler::AnyHandler;
use hookfast_queue::Queue;
use hookfast_store::{JobId, Store, StoreError};
use hookfast_webhook::HandlerName;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::{Config, HandlerConfig};
pub use log::Log;
pub use metrics::describe as describe_metrics;
pub use suspects::RunApart;

use faults::Protection;
use leases::Leases;
use metrics::{BacklogGauges, HandlerMetrics};
use settle::Settler;
use sweeper::{LookAgain, Sweeper};
use trouble::Trouble;
use worker::{BodyMemory, Shared, Worker};

/// How often the metrics about the backlog are taken, at most: counting rests for a multiple of the time that it took.
const LOOK_AT_BACKLOG_EVERY: Duration = Duration::from_secs(10);
const COUNTING_RESTS: u32 = 20;

/// A claim is done by then, or fails.
const CLAIM_WITHIN: Duration = Duration::from_secs(10);

/// How long writing that runs were cut short may take.
const INTERRUPT_WITHIN: Duration = Duration::from_secs(3);

/// A handler that this process runs.
#[derive(Clone)]
pub struct Assigned {
    /// Its name.
    pub name: HandlerName,
    /// What it does.
    pub handler: Arc<dyn AnyHandler>,
    /// How it is run.
    pub config: HandlerConfig,
    /// Whether its jobs wait until [`Running::pause`] says otherwise.
    pub is_paused: bool,
}

/// What the workers need of the rest of the process.
#[derive(Clone)]
pub struct Surroundings {
    /// Where the jobs are.
    pub store: Arc<dyn Store>,
    /// Where the hints come from.
    pub queue: Arc<dyn Queue>,
    /// The runtime that handlers run on, with [`Config::threads`] threads of its own.
    pub handlers: Handle,
    /// How suspects are run in a process of their own. Without it they run here, beside the others.
    pub apart: Option<Arc<dyn RunApart>>,
}

/// Workers at work.
pub struct Running {
    shutdown: CancellationToken,
    shutdown_timeout: Duration,
    /// By handler.
    assigned: Vec<Arc<Worker>>,
    leases: Arc<Leases>,
    workers: TaskTracker,
    jobs: TaskTracker,
    settler: JoinHandle<()>,
    attendants: Vec<JoinHandle<()>>,
    /// Cancelled when the process should end: the store is damaged, a background task panicked, too many threads are lost to
    /// handlers that do not yield, or one is lost with a transaction.
    pub must_end: CancellationToken,
}

/// Starts to work for these handlers.
pub async fn start(surroundings: Surroundings, assigned: Vec<Assigned>, config: Config) -> Result<Running, StoreError> {
    prepare(&*surroundings.store, &assigned).await?;
    let (mut running, shared) = start_workers(&surroundings, assigned, config);
    let Surroundings { store, queue, apart, .. } = surroundings;
    let (must_end, config) = (running.must_end.clone(), shared.config.clone());
    for worker in &running.assigned {
        running.workers.spawn(watched(Arc::clone(worker).run(), must_end.clone()));
    }
    let places = Arc::new(Semaphore::new(suspects::OF_ALL_HANDLERS));
    for worker in running.assigned.iter().flat_map(|worker| [worker; suspects::OF_ONE_HANDLER]) {
        let run = suspects::run(Arc::clone(worker), apart.clone(), Arc::clone(&places));
        running.workers.spawn(watched(run, must_end.clone()));
    }
    running.workers.close();
    let sweeper = Sweeper {
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        workers: running.assigned.clone(),
        metrics: Arc::clone(&shared.metrics),
        config: config.clone(),
        leases: Arc::clone(&running.leases),
        trouble: Arc::clone(&shared.trouble),
        look_again: Arc::clone(&shared.look_again),
        dispatched: counter!("hookfast_sweeper_dispatched_total"),
        failed: counter!("hookfast_dispatch_failed_total"),
    };
    gauge!("hookfast_stuck_runs").set(0.0);
    running.attendants.extend([
        watched::spawn("sweeper", &must_end, sweeper.run()),
        watched::spawn("backlog", &must_end, look_at_backlog(store, queue, running.assigned.clone())),
        watched::spawn("threads", &must_end, watch_threads(shared, config.threads)),
    ]);
    Ok(running)
}

/// Runs one job, however often it has crashed, until it is settled or `stop` says so. For a process of its own.
pub async fn run_one(
    surroundings: Surroundings,
    assigned: Assigned,
    job: &JobId,
    config: Config,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    let (running, shared) = start_workers(&surroundings, vec![assigned], config);
    let [worker] = &running.assigned[..] else { unreachable!("there is one handler") };
    // A claim that is broken off would leave the job to its lease, and that is a crash.
    let ran = tokio::select! {
        ran = worker.run_one(job.event) => ran,
        () = stopped_and_claimed(&stop, &running.leases) => {
            running.leases.interrupt_all("the process was shut down before the run ended").await
        }
    };
    // What came of it must be written, however long the store is away: otherwise it counts as a crash.
    stop.run_until_cancelled(running.leases.until_empty()).await;
    drop(shared);
    running.shut_down().await;
    ran
}

/// Waits for the word to stop, and for a claim that is under way, but not for a store that does not come back.
async fn stopped_and_claimed(stop: &CancellationToken, leases: &Leases) {
    stop.cancelled().await;
    let _ = timeout(CLAIM_WITHIN, leases.until_first()).await;
}

async fn prepare(store: &dyn Store, assigned: &[Assigned]) -> Result<(), StoreError> {
    for Assigned { handler, .. } in assigned.iter().filter(|assigned| !assigned.handler.tables().is_empty()) {
        store.prepare(handler.tables()).await?;
    }
    Ok(())
}

/// Makes the workers, with what writes outcomes and renews leases. They do not take jobs yet.
fn start_workers(surroundings: &Surroundings, assigned: Vec<Assigned>, mut config: Config) -> (Running, Arc<Shared>) {
    if faults::is_off(Protection::CrashLimit) {
        config.crash_limit = u32::MAX;
    }
    let Surroundings { store, queue, handlers, .. } = surroundings;
    let metrics: HashMap<_, _> =
        assigned.iter().map(|assigned| (assigned.name.clone(), HandlerMetrics::new(&assigned.name))).collect();
    let (metrics, name) = (Arc::new(metrics), Arc::<str>::from(worker_name()));
    // Each worker has the time for one renewal.
    let trouble = Arc::new(Trouble::new(config.lease / 2));
    let leases = Arc::new(Leases::new(Arc::clone(store), Arc::clone(&trouble), Arc::clone(&name), config.lease));
    let look_again = Arc::new(LookAgain::default());
    let (ended, to_settle) = mpsc::channel(1024);
    let (shutdown, must_end) = (CancellationToken::new(), CancellationToken::new());
    let settler = Settler {
        store: Arc::clone(store),
        queue: Arc::clone(queue),
        metrics: Arc::clone(&metrics),
        leases: Arc::clone(&leases),
        trouble: Arc::clone(&trouble),
        look_again: Arc::clone(&look_again),
        must_end: must_end.clone(),
    };
    let settler = watched::spawn("settler", &must_end, settler.run(to_settle));
    let (workers, jobs) = (TaskTracker::new(), TaskTracker::new());
    let shutdown_timeout = config.shutdown_timeout;
    let shared = Arc::new(Shared {
        store: Arc::clone(store),
        queue: Arc::clone(queue),
        name,
        leases: Arc::clone(&leases),
        trouble,
        metrics,
        running: Arc::new(Semaphore::new(config.concurrency)),
        bodies: BodyMemory::new(config.body_memory),
        ended,
        jobs: jobs.clone(),
        handlers: handlers.clone(),
        look_again,
        shutdown: shutdown.clone(),
        stuck: AtomicUsize::new(0),
        must_end: must_end.clone(),
        config,
    });
    let worker = |Assigned { name, handler, config, is_paused }: Assigned| {
        Worker::new(Arc::clone(&shared), name, handler, config, is_paused)
    };
    let assigned = assigned.into_iter().map(worker).collect();
    let attendants = vec![watched::spawn("leases", &must_end, Arc::clone(&leases).keep())];
    let running =
        Running { shutdown, shutdown_timeout, assigned, leases, workers, jobs, settler, attendants, must_end };
    (running, shared)
}

/// A worker's own loop is watched like the other tasks, and counted as one of the workers until it ends.
async fn watched(task: impl Future<Output = ()> + Send + 'static, must_end: CancellationToken) {
    let _ = watched::spawn("worker", &must_end, task).await;
}

impl Running {
    /// Pauses these handlers, and lets all others go on.
    pub fn pause(&self, paused: &HashSet<HandlerName>) {
        for worker in &self.assigned {
            worker.pause(paused.contains(&worker.name));
        }
    }

    /// Takes no more jobs, hands back what was not begun, finishes what runs, and settles it. What takes too long is broken
    /// off and runs again elsewhere, at once and without a loss.
    pub async fn shut_down(self) {
        self.shutdown.cancel();
        self.jobs.close();
        let all_ended = async {
            // One of them may wait for the store.
            self.workers.close();
            self.workers.wait().await;
            self.jobs.wait().await;
        };
        if timeout(self.shutdown_timeout, all_ended).await.is_err() {
            let jobs = self.jobs.len();
            tracing::warn!(jobs, "jobs were still running at the end of the shutdown; they are run again at once");
            let why = "the process was shut down before the run ended";
            match timeout(INTERRUPT_WITHIN, self.leases.interrupt_all(why)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "they are run again when their leases have ended"),
                Err(_) => tracing::warn!("the store does not answer: they are run again when their leases have ended"),
            }
            self.settler.abort();
        }
        for attendant in &self.attendants {
            attendant.abort();
        }
        // Those who watch hold the way to the settler, which ends when all of them are gone.
        for attendant in self.attendants {
            let _ = attendant.await;
        }
        drop(self.assigned);
        let _ = timeout(INTERRUPT_WITHIN, self.settler).await;
    }
}

/// Who we are in the history of jobs: the machine and the process.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "worker" } else { host }, std::process::id())
}

async fn look_at_backlog(store: Arc<dyn Store>, queue: Arc<dyn Queue>, workers: Vec<Arc<Worker>>) {
    let names: Vec<_> = workers.iter().map(|worker| worker.name.clone()).collect();
    let is_paused = |name: &str| workers.iter().any(|worker| worker.name.as_str() == name && worker.is_paused());
    let mut gauges = BacklogGauges::default();
    loop {
        let start = Instant::now();
        match store.backlog().await {
            Ok(backlog) => gauges.show(&backlog, &names, is_paused),
            Err(error) => tracing::warn!(%error, "the backlog could not be counted; the metrics show an older one"),
        }
        gauge!("hookfast_queue_up").set(if queue.check().await.is_ok() { 1.0 } else { 0.0 });
        for handler in &names {
            if let Some(waiting) = queue.waiting(handler).await {
                gauge!("hookfast_queue_waiting", "handler" => handler.to_string()).set(waiting as f64);
            }
        }
        sleep((start.elapsed() * COUNTING_RESTS).max(LOOK_AT_BACKLOG_EVERY)).await;
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
