//! The working half: every job is done, once, or is visibly dead.
//!
//! - `table` holds the handlers that this process runs, each with its worker, and can change while they run;
//! - `worker` pulls hints and claims their jobs, if the handler's `gate` is open;
//! - `run` runs the handler for a claimed job, and `hooks` adds shared commits (`writes`) to its effects;
//! - `leases` are renewed for all jobs that are claimed;
//! - `settle` writes what came of a run, and then acknowledges the hint;
//! - `sweeper` dispatches again whatever is due and not finished;
//! - `suspects` are run in a process of their own.
//!
//! A message is only a hint. What decides is the job's row: who claims it gets a token, and without the current token
//! nothing can be written, neither an effect nor an outcome.

mod body_memory;
mod built_in;
mod config;
mod faults;
mod gate;
mod hooks;
mod leases;
mod metrics;
mod places;
mod run;
mod settle;
mod suspects;
mod sweeper;
mod table;
#[cfg(test)]
mod testing;
mod trouble;
mod worker;
mod writes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{counter, gauge};
use hookfast_handler::AnyHandler;
use hookfast_parts::{MustEnd, Tasks};
use hookfast_queue::Queue;
use hookfast_store::{JobId, StoreError, Work};
use hookfast_webhook::HandlerName;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use built_in::{Fail, Log};
pub use config::{Config, HandlerConfig};
pub use metrics::describe as describe_metrics;
pub use suspects::RunApart;

use body_memory::BodyMemory;
use faults::Protection;
use leases::Leases;
use metrics::{BacklogGauges, Metrics};
use settle::Settler;
use sweeper::{LookAgain, Sweeper};
use table::{SqlTables, Table};
use trouble::Trouble;
use worker::{Shared, Worker};

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
    /// Whether its jobs wait until [`Running::assign`] says otherwise.
    pub is_paused: bool,
    /// The configured sources from which it gets events. Their metrics begin at zero; events of others are counted as well.
    pub sources: Vec<String>,
}

/// What the workers need of the rest of the process.
#[derive(Clone)]
pub struct Surroundings {
    /// Where the jobs are.
    pub store: Arc<dyn Work>,
    /// Where the hints come from.
    pub queue: Arc<dyn Queue>,
    /// The runtime that handlers run on, with [`Config::threads`] threads of its own.
    pub handlers: Handle,
    /// How suspects are run in a process of their own. Without it they run here, beside the others.
    pub apart: Option<Arc<dyn RunApart>>,
    /// Says that the process must end: a background task panicked, or handlers that do not yield keep too many threads or an open
    /// transaction.
    pub must_end: MustEnd,
}

/// Workers at work.
pub struct Running {
    shutdown: CancellationToken,
    shutdown_timeout: Duration,
    table: Arc<Table>,
    leases: Arc<Leases>,
    jobs: TaskTracker,
    settler: JoinHandle<()>,
    attendants: Vec<JoinHandle<()>>,
}

/// Starts to work for these handlers.
pub async fn start(surroundings: Surroundings, assigned: Vec<Assigned>, config: Config) -> Result<Running, StoreError> {
    table::make_all(&*surroundings.store, &assigned).await?;
    let (mut running, shared) = start_shared(&surroundings, config);
    running.table.assign(assigned, SqlTables::Made);
    let sweeper = Sweeper {
        store: Arc::clone(&shared.store),
        queue: Arc::clone(&shared.queue),
        table: Arc::clone(&running.table),
        metrics: Arc::clone(&shared.metrics),
        config: shared.config.clone(),
        leases: Arc::clone(&running.leases),
        trouble: Arc::clone(&shared.trouble),
        look_again: Arc::clone(&shared.look_again),
        dispatched: counter!("hookfast_sweeper_dispatched_total"),
        failed: counter!("hookfast_dispatch_failed_total"),
    };
    gauge!("hookfast_stuck_runs").set(0.0);
    let background = shared.background.clone();
    running.attendants.extend([
        background.spawn("sweeper", sweeper.run()),
        background.spawn("backlog", look_at_backlog(Arc::clone(&shared), Arc::clone(&running.table))),
        background.spawn("threads", watch_threads(shared)),
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
    let (running, shared) = start_shared(&surroundings, config);
    let worker = Worker::new(Arc::clone(&shared), assigned);
    // A claim that is broken off would leave the job to its lease, and that is a crash.
    let ran = tokio::select! {
        ran = worker.run_one(job.event) => ran,
        () = stopped_and_claimed(&stop, &running.leases) => {
            running.leases.interrupt_all("the process was shut down before the run ended").await
        }
    };
    // What came of it must be written, however long the store is away: otherwise it counts as a crash.
    stop.run_until_cancelled(running.leases.until_empty()).await;
    drop((worker, shared));
    running.shut_down().await;
    ran
}

/// Waits for the word to stop, and for a claim that is under way, but not for a store that does not come back.
async fn stopped_and_claimed(stop: &CancellationToken, leases: &Leases) {
    stop.cancelled().await;
    let _ = timeout(CLAIM_WITHIN, leases.until_first()).await;
}

/// Starts what all workers share: what writes outcomes and renews leases.
fn start_shared(surroundings: &Surroundings, mut config: Config) -> (Running, Arc<Shared>) {
    if faults::is_off(Protection::CrashLimit) {
        config.crash_limit = u32::MAX;
    }
    let Surroundings { store, queue, handlers, must_end, .. } = surroundings;
    let name = Arc::<str>::from(worker_name());
    // Each worker has the time for one renewal.
    let trouble = Arc::new(Trouble::new(config.lease / 2));
    let leases = Arc::new(Leases::new(Arc::clone(store), Arc::clone(&trouble), Arc::clone(&name), config.lease));
    let look_again = Arc::new(LookAgain::default());
    let (ended, to_settle) = mpsc::channel(1024);
    let (shutdown, jobs) = (CancellationToken::new(), TaskTracker::new());
    let background = Tasks::new(&Handle::current(), must_end);
    let shutdown_timeout = config.shutdown_timeout;
    let shared = Arc::new(Shared {
        store: Arc::clone(store),
        queue: Arc::clone(queue),
        name,
        leases: Arc::clone(&leases),
        trouble,
        metrics: Arc::new(Metrics::default()),
        running: Arc::new(Semaphore::new(config.concurrency)),
        bodies: BodyMemory::new(config.body_memory),
        ended,
        jobs: jobs.clone(),
        for_handlers: handlers.clone(),
        look_again,
        shutdown: shutdown.clone(),
        stuck: Arc::default(),
        background: background.clone(),
        must_end: must_end.clone(),
        config,
    });
    let settler = background.spawn("settler", settler(&shared).run(to_settle));
    let table = Arc::new(Table::new(Arc::clone(&shared), surroundings));
    let attendants = vec![background.spawn("leases", Arc::clone(&leases).keep())];
    let running = Running { shutdown, shutdown_timeout, table, leases, jobs, settler, attendants };
    (running, shared)
}

/// What writes outcomes, for all workers.
fn settler(shared: &Shared) -> Settler {
    Settler {
        store: Arc::clone(&shared.store),
        queue: Arc::clone(&shared.queue),
        leases: Arc::clone(&shared.leases),
        trouble: Arc::clone(&shared.trouble),
        look_again: Arc::clone(&shared.look_again),
    }
}

impl Running {
    /// Runs these handlers from now on and no others: adds, removes, pauses and resumes handlers, and changes how they are run.
    /// What a removed handler runs comes to its end and is settled. Its other jobs stay where they are.
    pub fn assign(&self, assigned: Vec<Assigned>) {
        self.table.assign(assigned, SqlTables::ToMake);
    }

    /// Takes no more jobs, hands back what was not begun, finishes what runs, and settles it. What takes too long is broken
    /// off and runs again elsewhere, at once and without a loss.
    pub async fn shut_down(self) {
        self.shutdown.cancel();
        self.jobs.close();
        let all_ended = async {
            // One of them may wait for the store.
            self.table.tasks.ended().await;
            self.jobs.wait().await;
            // Their outcomes are written, too, which takes as long as the store is away.
            self.leases.until_empty().await;
        };
        if timeout(self.shutdown_timeout, all_ended).await.is_err() {
            let jobs = self.jobs.len();
            tracing::warn!(
                jobs,
                "jobs were still running or not settled at the end of the shutdown; they are run again at once"
            );
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
        // These tasks hold senders of the settler's channel. The settler ends when the last sender is dropped.
        for attendant in self.attendants {
            let _ = attendant.await;
        }
        drop(self.table);
        let _ = timeout(INTERRUPT_WITHIN, self.settler).await;
    }
}

/// Who we are in the history of jobs: the machine and the process.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "worker" } else { host }, std::process::id())
}

async fn look_at_backlog(shared: Arc<Shared>, table: Arc<Table>) {
    let mut gauges = BacklogGauges::default();
    let mut counted = BTreeSet::new();
    loop {
        let start = Instant::now();
        let workers = table.workers();
        let names: Vec<_> = workers.iter().map(|worker| worker.name.clone()).collect();
        let is_paused =
            |name: &str| workers.iter().any(|worker| worker.name.as_str() == name && !worker.gate().is_open());
        match shared.store.backlog().await {
            Ok(backlog) => gauges.show(&backlog, &names, is_paused),
            Err(error) => tracing::warn!(%error, "the backlog could not be counted; the metrics show an older one"),
        }
        let queue = &shared.queue;
        gauge!("hookfast_queue_up").set(if queue.check().await.is_ok() { 1.0 } else { 0.0 });
        for handler in &names {
            if let Some(waiting) = queue.waiting(handler).await {
                gauge!("hookfast_queue_waiting", "handler" => handler.to_string()).set(waiting as f64);
            }
        }
        // A handler that was removed has no hints any more: the queue does not serve it.
        for gone in counted.iter().filter(|name| !names.contains(name)) {
            gauge!("hookfast_queue_waiting", "handler" => gone.to_string()).set(0.0);
        }
        counted.extend(names);
        sleep((start.elapsed() * COUNTING_RESTS).max(LOOK_AT_BACKLOG_EVERY)).await;
    }
}

/// When handlers that do not yield keep half of the threads, starting anew is better than going on.
async fn watch_threads(shared: Arc<Shared>) {
    let threads = shared.config.threads;
    let mut timer = interval(Duration::from_secs(1));
    loop {
        timer.tick().await;
        if shared.stuck.load(std::sync::atomic::Ordering::Relaxed) * 2 >= threads {
            tracing::error!(threads, "handlers that do not yield keep half of the threads");
            shared.must_end.because(
                "handlers that do not yield keep half of the threads of `[work]`; the log names them. Start again: their jobs \
                 count as crashed, and others that were not finished are run again",
            );
            return;
        }
    }
}
