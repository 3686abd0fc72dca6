//! One handler's worker: it pulls hints, claims their jobs, and finds places for them. Before it, `ingest::dispatch`, `sweeper`
//! and `settle` call `Queue::dispatch`. After it, [`Worker::run_job`] in `run` runs a job that has its place.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookfast_handler::AnyHandler;
use hookfast_parts::{MustEnd, Tasks};
use hookfast_queue::{Pulled, Queue};
use hookfast_store::{Claim, Claimed, JobId, StoreError, Token, Work};
use hookfast_webhook::{EventId, HandlerName};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body_memory::BodyMemory;
use crate::faults::{self, Point};
use crate::gate::{Gate, Pause};
use crate::hooks::WorkerHooks;
use crate::leases::Leases;
use crate::metrics::{HandlerMetrics, Metrics};
use crate::places::Places;
use crate::settle::Ended;
use crate::suspects::Suspects;
use crate::sweeper::LookAgain;
use crate::trouble::Trouble;
use crate::writes::Writer;
use crate::{Assigned, Config, HandlerConfig};

/// How long to wait before claiming again while the store is away.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What the workers of all handlers share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Work>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) config: Config,
    /// Who we are, in the history of jobs.
    pub(crate) name: Arc<str>,
    pub(crate) leases: Arc<Leases>,
    /// What is known about the store.
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) metrics: Arc<Metrics>,
    /// Places for jobs that run, of all handlers.
    pub(crate) running: Arc<Semaphore>,
    /// Memory for the bodies of jobs that run, in KiB.
    pub(crate) bodies: BodyMemory,
    pub(crate) ended: mpsc::Sender<Ended>,
    /// Jobs that are claimed.
    pub(crate) jobs: TaskTracker,
    /// Where handlers run, away from everything else: one that does not yield must not stop renewing and receiving.
    pub(crate) for_handlers: Handle,
    /// The handlers whose walk is to start over.
    pub(crate) look_again: Arc<LookAgain>,
    /// No new runs.
    pub(crate) shutdown: CancellationToken,
    /// Threads that handlers keep that do not yield.
    pub(crate) stuck: Arc<AtomicUsize>,
    /// The tasks that all workers share, and those that write effects.
    pub(crate) background: Tasks,
    pub(crate) must_end: MustEnd,
}

/// The worker of one handler.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: HandlerName,
    /// What it runs and how, which can change while it runs.
    settings: watch::Sender<Arc<Settings>>,
    pub(crate) metrics: Arc<HandlerMetrics>,
    /// Closed while the handler is paused.
    pause: Pause,
    /// Cancelled at the shutdown, and when the handler is removed: no new runs.
    pub(crate) stop: CancellationToken,
    /// Places for its jobs that run.
    running: Places,
    /// For effects that share their commits with those of other jobs, and for effects that do not.
    pub(crate) sharing: Arc<WorkerHooks>,
    pub(crate) alone: Arc<WorkerHooks>,
    /// Places for its jobs that are claimed: as many again wait, so that no place to run in is empty during a claim.
    on_board: Places,
    /// Its share of the memory for bodies.
    bodies: BodyMemory,
    /// Large bodies are fetched one at a time.
    pub(crate) fetching_large: Semaphore,
    /// How many jobs are claimed at once: fewer after a claim that failed.
    claim_size: AtomicUsize,
    /// Its jobs that are dead if they crash once more.
    pub(crate) suspects: Suspects,
    /// Its jobs that were claimed and not begun, and the lock of the task that hands them back.
    given_up: Mutex<Vec<(JobId, Token)>>,
    handing_back: tokio::sync::Mutex<()>,
}

/// What a handler's worker runs, and how.
pub(crate) struct Settings {
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) config: HandlerConfig,
}

/// What a run has while it runs: a place of its handler and of the process, and memory for its body.
struct Place {
    _of_handler: OwnedSemaphorePermit,
    _of_process: OwnedSemaphorePermit,
    _body: Option<[OwnedSemaphorePermit; 2]>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, assigned: Assigned) -> Arc<Self> {
        let Assigned { name, handler, config, is_paused, sources } = assigned;
        let concurrency = config.concurrency;
        let writer = Writer::start(Arc::clone(&shared.store), &shared.background);
        Arc::new(Self {
            metrics: shared.metrics.begin(&name, &sources),
            name,
            settings: watch::Sender::new(Arc::new(Settings { handler, config })),
            pause: Pause::new(is_paused),
            stop: shared.shutdown.child_token(),
            running: Places::new(concurrency),
            sharing: Arc::new(WorkerHooks { writer: Some(writer) }),
            alone: Arc::new(WorkerHooks { writer: None }),
            on_board: Places::new(concurrency * 2),
            // No handler can have all of it.
            bodies: BodyMemory::new(shared.config.body_memory / 2),
            fetching_large: Semaphore::new(1),
            claim_size: AtomicUsize::new(concurrency * 2),
            suspects: Suspects::default(),
            given_up: Mutex::default(),
            handing_back: tokio::sync::Mutex::default(),
            shared,
        })
    }

    /// What it runs, and how, at this moment.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// What decides whether its jobs may run now.
    pub(crate) fn gate(&self) -> &dyn Gate {
        &self.pause
    }

    /// Changes what is run and how. Runs that have begun end as they began.
    pub(crate) fn change(&self, assigned: Assigned) {
        let Assigned { handler, config, is_paused, sources, .. } = assigned;
        self.shared.metrics.begin(&self.name, &sources);
        if self.settings().config != config {
            tracing::info!(handler = %self.name, "the settings of the handler have changed");
        }
        let concurrency = config.concurrency;
        self.settings.send_replace(Arc::new(Settings { handler, config }));
        self.running.resize(concurrency);
        self.on_board.resize(concurrency * 2);
        self.pause(is_paused);
    }

    /// Stops taking jobs, or goes on. What runs comes to its end; what was claimed and not begun is handed back.
    pub(crate) fn pause(&self, is_paused: bool) {
        if self.pause.set(is_paused) {
            tracing::info!(handler = %self.name, "the handler {}", if is_paused { "is paused" } else { "goes on" });
        }
    }

    /// Works until it is stopped.
    pub(crate) async fn run(self: Arc<Self>) {
        let stop = self.stop.clone();
        let _ = stop.run_until_cancelled(self.work()).await;
    }

    async fn work(self: &Arc<Self>) {
        let mut changes = self.settings.subscribe();
        loop {
            self.gate().opened().await;
            let concurrency = changes.borrow_and_update().config.concurrency;
            let mut places = tokio::select! {
                places = self.some_places(concurrency) => places,
                _ = changes.changed() => continue,
            };
            let max = places.num_permits().min(self.claim_size.load(Relaxed)).max(1);
            drop(places.split(places.num_permits() - max));
            let pulled = tokio::select! {
                pulled = self.shared.queue.pull(&self.name, max) => pulled,
                () = self.gate().closed() => continue,
                _ = changes.changed() => continue,
            };
            if pulled.is_empty() {
                continue;
            }
            // Claiming is not broken off by a shutdown: the jobs would be ours without our knowing.
            let worker = Arc::clone(self);
            let boarding = self.shared.jobs.spawn(async move { worker.board(pulled, places).await });
            let is_claimed = match boarding.await {
                Ok(claimed) => claimed.is_ok(),
                // The task of this worker is watched.
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => return,
            };
            self.note_claim(max, is_claimed, concurrency);
            if !is_claimed {
                sleep(PAUSE).await;
            }
        }
    }

    /// After a claim that failed fewer jobs are asked for, so that a slow store gets something done.
    fn note_claim(&self, asked: usize, is_claimed: bool, concurrency: usize) {
        let next = if is_claimed { (asked * 2).min(concurrency * 2) } else { (asked / 2).max(1) };
        if !is_claimed || next > self.claim_size.load(Relaxed) {
            self.claim_size.store(next, Relaxed);
        }
    }

    /// Places for several jobs: one claim for each job would cost more than the job.
    async fn some_places(&self, concurrency: usize) -> OwnedSemaphorePermit {
        let worth_a_claim = u32::try_from(concurrency.div_ceil(2)).unwrap_or(u32::MAX);
        let mut places = self.on_board.take(worth_a_claim).await;
        self.on_board.take_all_free(&mut places);
        places
    }

    /// Claims what the messages tell of and starts it. A message about a job that cannot be claimed is done with: either
    /// the job is finished, or the sweeper has it.
    async fn board(self: &Arc<Self>, pulled: Vec<Pulled>, mut places: OwnedSemaphorePermit) -> Result<(), StoreError> {
        let events: Vec<_> = pulled.iter().map(|pulled| pulled.hint.event).collect();
        let claimed = self.claim(&self.claim_of(&events)).await?;
        let mut pulled: HashMap<EventId, Pulled> =
            pulled.into_iter().map(|pulled| (pulled.hint.event, pulled)).collect();
        for job in claimed {
            let pulled = pulled.remove(&job.job.event);
            let on_board = places.split(1).expect("no more jobs than messages, no more messages than places");
            self.start(job, pulled, on_board);
        }
        drop(places);
        for pulled in pulled.into_values() {
            pulled.acknowledge().await;
        }
        Ok(())
    }

    /// A claim that failed may have been done all the same, if only its answer was lost. So its jobs are handed back.
    async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.shared.store.claim(claim).await;
        if let Err(error) = &claimed {
            tracing::warn!(%error, handler = %self.name, "jobs could not be claimed; trying again");
            let job = |&event: &EventId| (JobId { event, handler: self.name.clone() }, claim.token);
            let jobs: Vec<_> = claim.events.iter().map(job).collect();
            self.hand_back(&jobs).await;
            self.shared.leases.doubt(jobs);
        } else {
            faults::pass(Point::AfterClaim);
        }
        claimed
    }

    fn claim_of<'a>(&'a self, events: &'a [EventId]) -> Claim<'a> {
        Claim {
            token: Token::new(),
            handler: &self.name,
            events,
            worker: &self.shared.name,
            lease: self.shared.config.lease,
            ordering: self.settings().config.ordering,
            crashes_below: Some(self.shared.config.suspect_from()),
        }
    }

    fn start(self: &Arc<Self>, claimed: Claimed, pulled: Option<Pulled>, on_board: OwnedSemaphorePermit) {
        let lost = self.shared.leases.hold(&claimed, pulled);
        let worker = Arc::clone(self);
        // Unwatched, a panic of ours would leave the job with a lease that is renewed for ever.
        let run = async move { worker.run_claimed(claimed, &lost, Some(on_board)).await };
        self.shared.jobs.spawn(self.shared.background.watched("run", run));
    }

    /// Runs one job, however often it has crashed, and settles it. Nothing if it cannot be claimed.
    pub(crate) async fn run_one(self: &Arc<Self>, event: EventId) -> Result<(), StoreError> {
        let claim = Claim { crashes_below: None, ..self.claim_of(std::slice::from_ref(&event)) };
        // Another process may have been faster.
        let Some(claimed) = self.claim(&claim).await?.pop() else { return Ok(()) };
        let lost = self.shared.leases.hold(&claimed, None);
        self.run_claimed(claimed, &lost, None).await;
        Ok(())
    }

    /// Runs a job that was claimed, from waiting for its place to handing over its outcome.
    async fn run_claimed(&self, claimed: Claimed, lost: &CancellationToken, on_board: Option<OwnedSemaphorePermit>) {
        let (job, token) = (claimed.job.clone(), claimed.token);
        let Some(place) = self.place(&claimed).await else { return self.give_up(job, token).await };
        let ended = self.run_job(claimed, lost, on_board).await;
        drop(place);
        self.end(&job, token, ended).await;
    }

    /// Waits for a place to run in, of this handler and of the process, and for memory for the body. `None` when the worker
    /// stops or its gate closes. The place of the process comes last: a job must not keep it from others while
    /// it waits for its body's memory.
    async fn place(&self, claimed: &Claimed) -> Option<Place> {
        let place = async {
            let of_handler = self.running.take(1).await;
            let body = self.room_for(claimed).await;
            let of_process = Arc::clone(&self.shared.running).acquire_owned().await;
            let of_process = of_process.expect("the semaphore is never closed");
            Place { _of_handler: of_handler, _of_process: of_process, _body: body }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = self.gate().closed() => None,
            place = place => Some(place),
        }
    }

    /// Memory for a body that did not come with the claim, out of the handler's share and of all.
    async fn room_for(&self, claimed: &Claimed) -> Option<[OwnedSemaphorePermit; 2]> {
        if claimed.event.body.is_some() {
            return None;
        }
        let own = self.bodies.take(claimed.event.size_bytes).await;
        Some([own, self.shared.bodies.take(claimed.event.size_bytes).await])
    }

    /// Hands the outcome to the settler, which lets go of the job when it is written. A run without an outcome has lost its
    /// job already.
    async fn end(&self, job: &JobId, token: Token, ended: Option<Ended>) {
        let Some(ended) = ended else {
            drop(self.shared.leases.let_go(job, token));
            return;
        };
        self.shared.leases.renew_until(job, token, None);
        // The settler outlives all jobs.
        let _ = self.shared.ended.send(ended).await;
    }

    /// Gives back a job that was not begun; another worker can have it at once. All that are given up at the same time share a
    /// statement: one for each would keep renewals waiting.
    async fn give_up(&self, job: JobId, token: Token) {
        self.given_up().push((job.clone(), token));
        {
            let _turn = self.handing_back.lock().await;
            let together = std::mem::take(&mut *self.given_up());
            self.hand_back(&together).await;
        }
        // The sweeper sends a new one.
        if let Some(pulled) = self.shared.leases.let_go(&job, token) {
            pulled.acknowledge().await;
        }
    }

    fn given_up(&self) -> MutexGuard<'_, Vec<(JobId, Token)>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands jobs back, for as long as it takes.
    async fn hand_back(&self, jobs: &[(JobId, Token)]) {
        if jobs.is_empty() {
            return;
        }
        while let Err(error) = self.shared.store.hand_back(jobs).await {
            tracing::warn!(%error, handler = %self.name, jobs = jobs.len(), "jobs could not be handed back");
            if !matches!(error, StoreError::Unavailable(_)) {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use hookfast_handler::testing::TestStore;
    use hookfast_queue::MemoryQueue;

    use super::*;
    use crate::testing::{Idle, workers};

    #[tokio::test]
    async fn a_claim_that_failed_is_followed_by_smaller_ones() {
        let store = TestStore::new::<Idle>().await;
        let (_running, worker) = workers(&store, Arc::new(MemoryQueue::new(10)), Config::default());
        let size = || worker.claim_size.load(Relaxed);
        assert_eq!(size(), 32);
        let mut sizes = Vec::new();
        for _ in 0..7 {
            worker.note_claim(size(), false, 16);
            sizes.push(size());
        }
        assert_eq!(sizes, [16, 8, 4, 2, 1, 1, 1]);
        for _ in 0..6 {
            worker.note_claim(size(), true, 16);
            sizes.push(size());
        }
        assert_eq!(sizes[7..], [2, 4, 8, 16, 32, 32]);
    }
}
