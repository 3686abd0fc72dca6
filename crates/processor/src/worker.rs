//! One handler's worker: pull, claim, run.

use std::collections::HashMap;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hookfast_handler::{AnyHandler, Handled, LARGE_BODY, Run};
use hookfast_queue::{Pulled, Queue};
use hookfast_store::{Claim, Claimed, Interruption, JobId, Outcome, Settlement, Store, StoreError, Token};
use hookfast_webhook::{EventId, Failure, FailureKind, HandlerName, Next, RetryPolicy};
use metrics::gauge;
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::faults::{self, Point};
use crate::hooks::WorkerHooks;
use crate::leases::Leases;
use crate::metrics::HandlerMetrics;
use crate::settle::Ended;
use crate::suspects::Suspects;
use crate::sweeper::LookAgain;
use crate::trouble::Trouble;
use crate::writes::Writer;
use crate::{Config, HandlerConfig};

/// How long a handler has to stop at its deadline, until it counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait before claiming again while the store is away.
const PAUSE: Duration = Duration::from_secs(1);

/// How soon a run is repeated that our own store has spoilt: at first, and at most if it happens again and again.
const AFTER_A_PIPELINE_FAULT: Duration = Duration::from_secs(5);
const LATEST_AFTER_A_PIPELINE_FAULT: Duration = Duration::from_secs(300);

/// What the workers of all handlers share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) config: Config,
    /// Who we are, in the history of jobs.
    pub(crate) name: Arc<str>,
    pub(crate) leases: Arc<Leases>,
    /// What is known about the store.
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) metrics: Arc<HashMap<HandlerName, HandlerMetrics>>,
    /// Places for jobs that run, of all handlers.
    pub(crate) running: Arc<Semaphore>,
    /// Memory for the bodies of jobs that run, in KiB.
    pub(crate) bodies: BodyMemory,
    pub(crate) ended: mpsc::Sender<Ended>,
    /// Jobs on board.
    pub(crate) jobs: TaskTracker,
    /// Where handlers run, away from everything else: one that does not yield must not stop renewing and receiving.
    pub(crate) handlers: Handle,
    /// The handlers whose walk is to start over.
    pub(crate) look_again: Arc<LookAgain>,
    /// No new runs.
    pub(crate) shutdown: CancellationToken,
    /// Threads that are lost to handlers that do not yield.
    pub(crate) stuck: AtomicUsize,
    /// The process cannot go on.
    pub(crate) must_end: CancellationToken,
}

/// The worker of one handler.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: HandlerName,
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) config: HandlerConfig,
    /// Places for its jobs that run.
    pub(crate) running: Arc<Semaphore>,
    /// For effects that share their commits with those of other jobs, and for effects that do not.
    sharing: Arc<WorkerHooks>,
    alone: Arc<WorkerHooks>,
    /// Places for its jobs on board: as many again wait, so that no place to run in is empty during a claim.
    pub(crate) on_board: Arc<Semaphore>,
    /// Its share of the memory for bodies.
    bodies: BodyMemory,
    /// The turn to fetch a large body.
    fetching_large: Semaphore,
    /// How many jobs are claimed at once: fewer after a claim that failed.
    claim_size: AtomicUsize,
    is_paused: AtomicBool,
    pause_changed: Notify,
    /// Its jobs that are dead if they crash once more.
    pub(crate) suspects: Suspects,
    /// Its jobs that were claimed and not begun, and the turn of those who hand them back.
    given_up: Mutex<Vec<(JobId, Token)>>,
    handing_back: tokio::sync::Mutex<()>,
}

/// What a run has while it runs.
struct Turn {
    /// Its place in the process.
    place: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _body: Option<[OwnedSemaphorePermit; 2]>,
}

/// Memory for bodies, counted in KiB.
pub(crate) struct BodyMemory {
    kibibytes: Arc<Semaphore>,
    total: usize,
}

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let total = usize::try_from(bytes / 1024).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self { kibibytes: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for room for a body. One that is larger than everything has everything to itself.
    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let wanted = u32::try_from((bytes / 1024 + 1).min(self.total)).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.kibibytes).acquire_many_owned(wanted).await;
        taken.expect("the semaphore is never closed")
    }
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        name: HandlerName,
        handler: Arc<dyn AnyHandler>,
        config: HandlerConfig,
        is_paused: bool,
    ) -> Arc<Self> {
        let running = Arc::new(Semaphore::new(config.concurrency));
        let on_board = Arc::new(Semaphore::new(config.concurrency * 2));
        let writer = Writer::start(Arc::clone(&shared.store), &shared.must_end);
        // No handler can have all of it.
        let bodies = BodyMemory::new(shared.config.body_memory / 2);
        let claim_size = AtomicUsize::new(config.concurrency * 2);
        Arc::new(Self {
            shared,
            name,
            handler,
            config,
            running,
            sharing: Arc::new(WorkerHooks { writer: Some(writer) }),
            alone: Arc::new(WorkerHooks { writer: None }),
            on_board,
            bodies,
            fetching_large: Semaphore::new(1),
            claim_size,
            is_paused: AtomicBool::new(is_paused),
            pause_changed: Notify::new(),
            suspects: Suspects::default(),
            given_up: Mutex::default(),
            handing_back: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    /// Stops taking jobs, or goes on. What runs comes to its end; what was claimed and not begun is handed back.
    pub(crate) fn pause(&self, is_paused: bool) {
        if self.is_paused.swap(is_paused, Relaxed) != is_paused {
            match is_paused {
                true => tracing::info!(handler = %self.name, "the handler is paused"),
                false => tracing::info!(handler = %self.name, "the handler goes on"),
            }
            self.pause_changed.notify_waiters();
        }
    }

    /// Waits until the handler is paused, or until it goes on.
    async fn until_paused_is(&self, is_paused: bool) {
        loop {
            let changed = self.pause_changed.notified();
            if self.is_paused() == is_paused {
                return;
            }
            changed.await;
        }
    }

    /// Works until the shutdown.
    pub(crate) async fn run(self: Arc<Self>) {
        let shutdown = self.shared.shutdown.clone();
        let _ = shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(self: &Arc<Self>) {
        loop {
            self.until_paused_is(false).await;
            let mut places = self.some_places().await;
            let max = places.num_permits().min(self.claim_size.load(Relaxed)).max(1);
            drop(places.split(places.num_permits() - max));
            let pulled = tokio::select! {
                pulled = self.shared.queue.pull(&self.name, max) => pulled,
                () = self.until_paused_is(true) => continue,
            };
            if pulled.is_empty() {
                continue;
            }
            // Claiming is not broken off by a shutdown: the jobs would be ours without our knowing.
            let worker = Arc::clone(self);
            let boarding = self.shared.jobs.spawn(async move { worker.board(pulled, places).await });
            let is_claimed = boarding.await.is_ok_and(|claimed| claimed.is_ok());
            self.note_claim(max, is_claimed);
            if !is_claimed {
                sleep(PAUSE).await;
            }
        }
    }

    /// After a claim that failed fewer jobs are asked for, so that a slow store gets something done.
    fn note_claim(&self, asked: usize, is_claimed: bool) {
        let next = if is_claimed { (asked * 2).min(self.config.concurrency * 2) } else { (asked / 2).max(1) };
        if !is_claimed || next > self.claim_size.load(Relaxed) {
            self.claim_size.store(next, Relaxed);
        }
    }

    /// Places for several jobs: one claim for each job would cost more than the job.
    async fn some_places(&self) -> OwnedSemaphorePermit {
        let worth_a_claim = u32::try_from(self.config.concurrency.div_ceil(2)).unwrap_or(u32::MAX);
        let places = Arc::clone(&self.on_board).acquire_many_owned(worth_a_claim).await;
        let mut places = places.expect("the semaphore is never closed");
        while let Ok(more) = Arc::clone(&self.on_board).try_acquire_owned() {
            places.merge(more);
        }
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
            let pulled = pulled.remove(&job.job.event).map(Arc::new);
            let place = places.split(1).expect("no more jobs than messages, no more messages than places");
            self.start(job, pulled, place);
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
            ordering: self.config.ordering,
            crashes_below: Some(self.shared.config.suspect_from()),
        }
    }

    fn start(self: &Arc<Self>, claimed: Claimed, pulled: Option<Arc<Pulled>>, place: OwnedSemaphorePermit) {
        let lost = self.shared.leases.hold(&claimed, pulled);
        let worker = Arc::clone(self);
        self.shared.jobs.spawn(async move {
            let (job, token) = (claimed.job.clone(), claimed.token);
            match worker.turn(&claimed).await {
                Some(turn) => {
                    let settlement = worker.run_job(claimed, &lost).await;
                    drop(turn);
                    worker.end(&job, token, settlement, place).await;
                }
                None => worker.give_up(job, token).await,
            }
        });
    }

    /// Runs one job, however often it has crashed, and settles it. Nothing if it cannot be claimed.
    pub(crate) async fn run_one(self: &Arc<Self>, event: EventId) -> Result<(), StoreError> {
        let claim = Claim { crashes_below: None, ..self.claim_of(slice::from_ref(&event)) };
        // Another process may have been faster.
        let Some(claimed) = self.claim(&claim).await?.pop() else { return Ok(()) };
        let (job, token) = (claimed.job.clone(), claimed.token);
        let lost = self.shared.leases.hold(&claimed, None);
        let Some(turn) = self.turn(&claimed).await else {
            self.give_up(job, token).await;
            return Ok(());
        };
        let settlement = self.run_job(claimed, &lost).await;
        self.end(&job, token, settlement, turn.place).await;
        Ok(())
    }

    /// Waits for a place to run in, of this handler and of the process, and for memory for the body. There is none after a
    /// shutdown or while the handler is paused. The place of the process comes last: a job must not keep it from others while
    /// it waits for its body's memory.
    async fn turn(&self, claimed: &Claimed) -> Option<Turn> {
        let turn = async {
            let own = Arc::clone(&self.running).acquire_owned().await.expect("the semaphore is never closed");
            let body = self.room_for(claimed).await;
            let place = Arc::clone(&self.shared.running).acquire_owned().await.expect("the semaphore is never closed");
            Turn { place, _own: own, _body: body }
        };
        tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => None,
            () = self.until_paused_is(true) => None,
            turn = turn => Some(turn),
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

    /// Runs the handler and says what came of it. Nothing, if the job is not ours any more.
    async fn run_job(&self, mut claimed: Claimed, lost: &CancellationToken) -> Option<Settlement> {
        let (job, token, attempt) = (claimed.job.clone(), claimed.token, claimed.attempt);
        self.count_lag(&claimed);
        let (started_at, start) = (OffsetDateTime::now_utc(), Instant::now());
        let outcome = match self.fetch_body(&mut claimed, lost).await? {
            Ok(()) => self.handle(claimed, lost).await?,
            Err(outcome) => outcome,
        };
        log_failure(&job, attempt, &outcome);
        let (duration, worker) = (start.elapsed(), Arc::clone(&self.shared.name));
        Some(Settlement { job, token, attempt, started_at, duration, worker, outcome })
    }

    /// Reads a body among the handlers: copying a large one takes time, in which claims and commits would wait. Large ones of
    /// one handler are read one after the other, which leaves the cores to the jobs of the others.
    async fn body(&self, claimed: &Claimed) -> Result<Option<Bytes>, StoreError> {
        let (store, event, size_bytes) = (Arc::clone(&self.shared.store), claimed.job.event, claimed.event.size_bytes);
        let _turn = match size_bytes < LARGE_BODY {
            true => None,
            false => Some(self.fetching_large.acquire().await.expect("the semaphore is never closed")),
        };
        let reading = self.shared.handlers.spawn(async move { store.body(event, size_bytes).await });
        AbortOnDropHandle::new(reading).await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Fetches a body that did not come with the claim. Without it the run comes to the outcome that is given.
    async fn fetch_body(&self, claimed: &mut Claimed, lost: &CancellationToken) -> Option<Result<(), Outcome>> {
        if claimed.event.body.is_some() {
            return Some(Ok(()));
        }
        match lost.run_until_cancelled(self.body(claimed)).await? {
            Ok(Some(body)) => {
                claimed.event.body = Some(body);
                Some(Ok(()))
            }
            Ok(None) => {
                let message = "its event is not in the store".into();
                Some(Err(Outcome::Dead { kind: FailureKind::Pipeline, message }))
            }
            Err(error) => {
                Some(Err(self.interrupted(claimed.interruptions, format!("its body could not be fetched: {error}"))))
            }
        }
    }

    async fn handle(&self, claimed: Claimed, lost: &CancellationToken) -> Option<Outcome> {
        let Claimed { token, attempt, interruptions, .. } = claimed;
        let job = claimed.job.clone();
        let deadline = Instant::now() + self.config.deadline;
        self.shared.leases.renew_until(&job, token, Some(deadline + GRACE));
        let run = self.begin(&claimed);
        let task = self.spawn(claimed, Arc::clone(&run), deadline);
        let abort = task.abort_handle();
        let handled = tokio::select! {
            handled = self.supervise(task, &job, &run, deadline) => handled?,
            () = lost.cancelled() => {
                abort.abort();
                return None;
            }
        };
        // Also if the handler made light of it: an effect that it meant to have may be missing.
        Some(match run.pipeline_fault() {
            Some(message) => self.interrupted(interruptions, message),
            None => outcome_of(&self.config.retry, attempt, handled),
        })
    }

    /// A job that failed before does not share its commits: should it fail again, only its own are undone.
    fn begin(&self, claimed: &Claimed) -> Arc<Run> {
        let is_first = claimed.attempt == 1 && claimed.interruptions == 0 && claimed.crashes == 0;
        let hooks = Arc::clone(if is_first { &self.sharing } else { &self.alone });
        Arc::new(Run::new(Arc::clone(&self.shared.store), claimed.job.clone(), claimed.token, hooks))
    }

    /// Our own store has spoilt the run: it is repeated, ever later, until that has happened too often in a row.
    fn interrupted(&self, before: u32, message: String) -> Outcome {
        if before + 1 >= self.shared.config.interruption_limit {
            return Outcome::Dead { kind: FailureKind::Pipeline, message };
        }
        let retry_in = AFTER_A_PIPELINE_FAULT.saturating_mul(1 << before.min(16)).min(LATEST_AFTER_A_PIPELINE_FAULT);
        Outcome::Interrupted { by: Interruption::Store, message, retry_in }
    }

    /// Starts the handler where it can do no harm.
    fn spawn(&self, claimed: Claimed, run: Arc<Run>, deadline: Instant) -> JoinHandle<Handled> {
        let (handler, allowed) = (Arc::clone(&self.handler), self.config.deadline);
        self.shared.handlers.spawn(async move {
            let handled = timeout_at(deadline, handler.run(claimed, run.effects())).await;
            handled.unwrap_or_else(|_| Err(run.past_deadline(allowed)))
        })
    }

    /// Waits for the handler. One that does not stop at its deadline is left behind: its lease ends, and that counts as a
    /// crash.
    async fn supervise(&self, task: JoinHandle<Handled>, job: &JobId, run: &Run, deadline: Instant) -> Option<Handled> {
        match timeout_at(deadline + GRACE, task).await {
            Ok(Ok(handled)) => Some(handled),
            Ok(Err(error)) => {
                let panic = error.into_panic();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
                Some(Err(Failure::retry(FailureKind::Panic, text)))
            }
            Err(_) => {
                let stuck = self.shared.stuck.fetch_add(1, Relaxed) + 1;
                gauge!("hookfast_stuck_runs").set(stuck as f64);
                tracing::error!(event_id = %job.event, handler = %job.handler, "the handler is past its deadline and does not yield; a thread is lost to it");
                if run.is_in_a_transaction() {
                    tracing::error!(event_id = %job.event, handler = %job.handler, "it keeps a transaction, which others wait for: only the end of the process ends it");
                    self.shared.must_end.cancel();
                }
                None
            }
        }
    }

    /// Hands the outcome to the settler, which lets go of the job when it is written. A run without an outcome has lost its
    /// job already.
    async fn end(&self, job: &JobId, token: Token, settlement: Option<Settlement>, place: OwnedSemaphorePermit) {
        let Some(settlement) = settlement else {
            drop(self.shared.leases.let_go(job, token));
            return;
        };
        self.shared.leases.renew_until(job, token, None);
        // The settler outlives all jobs.
        let _ = self.shared.ended.send(Ended { settlement, place }).await;
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
        if let Some(pulled) = self.shared.leases.let_go(&job, token).and_then(Arc::into_inner) {
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

    fn count_lag(&self, claimed: &Claimed) {
        if claimed.attempt == 1
            && let Some(metrics) = self.shared.metrics.get(&self.name)
        {
            let lag = OffsetDateTime::now_utc() - claimed.event.received_at;
            metrics.lag.record(lag.as_seconds_f64().max(0.0));
        }
    }
}

/// What a run comes to.
fn outcome_of(retry: &RetryPolicy, attempt: u32, handled: Handled) -> Outcome {
    let Err(failure) = handled else { return Outcome::Succeeded };
    let Failure { kind, ref message, .. } = failure;
    match retry.after(attempt, &failure, fastrand::f64()) {
        Next::RetryIn(retry_in) => Outcome::Failed { kind, message: message.clone(), retry_in },
        Next::GiveUp => Outcome::Dead { kind, message: message.clone() },
    }
}

fn log_failure(job: &JobId, attempt: u32, outcome: &Outcome) {
    let JobId { event, handler } = job;
    match outcome {
        Outcome::Succeeded => {}
        Outcome::Failed { kind, message, retry_in } => {
            tracing::warn!(event_id = %event, %handler, attempt, reason = %kind, retry_in_seconds = retry_in.as_secs(), "a job failed and will be tried again: {message}");
        }
        Outcome::Dead { kind, message } => {
            tracing::error!(event_id = %event, %handler, attempt, reason = %kind, "a job is a dead letter: {message}");
        }
        Outcome::Interrupted { message, .. } => {
            tracing::warn!(event_id = %event, %handler, "the store went away under a job, which will be run again: {message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use hookfast_queue::MemoryQueue;

    use super::*;
    use crate::testing::Idle;
    use crate::testing::workers;
    use hookfast_handler::testing::TestStore;

    #[tokio::test]
    async fn a_run_that_the_store_spoils_again_and_again_is_repeated_ever_later_and_then_given_up() {
        let store = TestStore::new::<Idle>().await;
        let config = Config { interruption_limit: 9, ..Config::default() };
        let (running, _shared) = workers(&store, Arc::new(MemoryQueue::new(10)), config);
        let worker = &running.assigned[0];
        let mut waits = Vec::new();
        for before in 0..8 {
            match worker.interrupted(before, "no route".into()) {
                Outcome::Interrupted { by: Interruption::Store, message, retry_in } if message == "no route" => {
                    waits.push(retry_in.as_secs());
                }
                other => panic!("after {before}: {other:?}"),
            }
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        for before in [8, 9, u32::MAX - 1] {
            let expected = Outcome::Dead { kind: FailureKind::Pipeline, message: "no route".into() };
            assert_eq!(worker.interrupted(before, "no route".into()), expected, "after {before}");
        }
    }

    #[tokio::test]
    async fn with_no_limit_to_speak_of_it_is_repeated_for_ever() {
        let store = TestStore::new::<Idle>().await;
        let config = Config { interruption_limit: u32::MAX, ..Config::default() };
        let (running, _shared) = workers(&store, Arc::new(MemoryQueue::new(10)), config);
        let outcome = running.assigned[0].interrupted(100_000, String::new());
        assert!(matches!(outcome, Outcome::Interrupted { retry_in: LATEST_AFTER_A_PIPELINE_FAULT, .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_claim_that_failed_is_followed_by_smaller_ones() {
        let store = TestStore::new::<Idle>().await;
        let (running, _shared) = workers(&store, Arc::new(MemoryQueue::new(10)), Config::default());
        let worker = &running.assigned[0];
        let size = || worker.claim_size.load(Relaxed);
        assert_eq!(size(), 32);
        let mut sizes = Vec::new();
        for _ in 0..7 {
            worker.note_claim(size(), false);
            sizes.push(size());
        }
        assert_eq!(sizes, [16, 8, 4, 2, 1, 1, 1]);
        for _ in 0..6 {
            worker.note_claim(size(), true);
            sizes.push(size());
        }
        assert_eq!(sizes[7..], [2, 4, 8, 16, 32, 32]);
    }

    #[tokio::test]
    async fn a_body_larger_than_all_memory_has_it_to_itself() {
        let memory = BodyMemory::new(10 * 1024);
        let all = memory.take(1 << 30).await;
        assert_eq!((all.num_permits(), memory.kibibytes.available_permits()), (10, 0));
        drop(all);
        let some = memory.take(2048).await;
        assert_eq!((some.num_permits(), memory.kibibytes.available_permits()), (3, 7));
    }
}
