//! One handler's worker: pull, claim, run.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hookfast_queue::{Delivery, Queue};
use hookfast_store::{Claim, Claimed, JobId, Outcome, Settlement, Store, Token};
use hookfast_webhook::{EventId, Failure, FailureKind, HandlerName, Next, RetryPolicy};
use metrics::gauge;
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::effects::Effects;
use crate::faults::{self, Point};
use crate::flight::Flight;
use crate::handler::AnyHandler;
use crate::metrics::HandlerMetrics;
use crate::settle::Ended;
use crate::writes::Writer;
use crate::{Config, Handled, HandlerConfig};

/// How long a handler has to stop at its deadline, until it counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait before claiming again while the store is away.
const PAUSE: Duration = Duration::from_secs(1);

/// How soon a run is repeated that our own store has spoilt.
const AFTER_A_PIPELINE_FAULT: Duration = Duration::from_secs(5);

/// What the workers of all handlers share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) config: Config,
    /// Who we are, in the history of jobs.
    pub(crate) name: Arc<str>,
    pub(crate) flight: Arc<Flight>,
    pub(crate) metrics: Arc<HashMap<HandlerName, HandlerMetrics>>,
    /// Places for jobs that run, of all handlers.
    pub(crate) running: Arc<Semaphore>,
    pub(crate) ended: mpsc::Sender<Ended>,
    /// Jobs on board.
    pub(crate) jobs: TaskTracker,
    /// Where handlers run, away from everything else: one that does not yield must not stop renewing and receiving.
    pub(crate) handlers: Handle,
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
    /// Its effects that can share a commit.
    pub(crate) writer: Writer,
    /// Places for its jobs on board: as many again wait, so that nobody waits for a claim.
    pub(crate) on_board: Arc<Semaphore>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        name: HandlerName,
        handler: Arc<dyn AnyHandler>,
        config: HandlerConfig,
    ) -> Arc<Self> {
        let running = Arc::new(Semaphore::new(config.concurrency));
        let on_board = Arc::new(Semaphore::new(config.concurrency * 2));
        let writer = Writer::start(Arc::clone(&shared.store));
        Arc::new(Self { shared, name, handler, config, running, writer, on_board })
    }

    /// Works until the shutdown.
    pub(crate) async fn run(self: Arc<Self>) {
        let shutdown = self.shared.shutdown.clone();
        let _ = shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(self: &Arc<Self>) {
        loop {
            let places = self.some_places().await;
            let max = places.num_permits();
            let deliveries = self.shared.queue.pull(&self.name, max).await;
            if deliveries.is_empty() {
                continue;
            }
            // Claiming is not broken off by a shutdown: the jobs would be ours without our knowing.
            let worker = Arc::clone(self);
            let boarding = self.shared.jobs.spawn(async move { worker.claim(deliveries, places).await });
            if boarding.await.is_ok_and(|claimed| claimed.is_err()) {
                sleep(PAUSE).await;
            }
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
    async fn claim(
        self: &Arc<Self>,
        deliveries: Vec<Delivery>,
        mut places: OwnedSemaphorePermit,
    ) -> Result<(), hookfast_store::StoreError> {
        let events: Vec<_> = deliveries.iter().map(|delivery| delivery.hint.event).collect();
        let claimed = self.shared.store.claim(&self.claim_of(&events)).await.inspect_err(|error| {
            tracing::warn!(%error, handler = %self.name, "jobs could not be claimed; trying again");
        })?;
        faults::pass(Point::AfterClaim);
        let mut deliveries: HashMap<EventId, Delivery> =
            deliveries.into_iter().map(|delivery| (delivery.hint.event, delivery)).collect();
        for job in claimed {
            let delivery = deliveries.remove(&job.job.event).map(Arc::new);
            let place = places.split(1).expect("no more jobs than messages, no more messages than places");
            self.start(job, delivery, place);
        }
        drop(places);
        for delivery in deliveries.into_values() {
            delivery.acknowledge().await;
        }
        Ok(())
    }

    fn claim_of<'a>(&'a self, events: &'a [EventId]) -> Claim<'a> {
        Claim {
            handler: &self.name,
            events,
            worker: &self.shared.name,
            lease: self.shared.config.lease,
            ordering: self.config.ordering,
            crashes_below: Some(self.shared.config.crash_limit.saturating_sub(1).max(1)),
        }
    }

    fn start(self: &Arc<Self>, claimed: Claimed, delivery: Option<Arc<Delivery>>, place: OwnedSemaphorePermit) {
        let lost = self.shared.flight.take_off(claimed.job.clone(), claimed.token, delivery);
        let worker = Arc::clone(self);
        self.shared.jobs.spawn(async move {
            let (job, token) = (claimed.job.clone(), claimed.token);
            match worker.turn().await {
                Some(turn) => {
                    let settlement = worker.run_job(claimed, &lost).await;
                    drop(turn);
                    worker.end(&job, token, settlement, place).await;
                }
                None => worker.hand_back(job, token).await,
            }
        });
    }

    /// Runs a job that is dead if it crashes once more: claimed and run while nothing else runs, so that it dies of its own
    /// crash or not at all.
    pub(crate) async fn run_alone(self: &Arc<Self>, event: EventId) {
        let everything = u32::try_from(self.shared.config.concurrency).unwrap_or(u32::MAX);
        let alone = Arc::clone(&self.shared.running).acquire_many_owned(everything).await;
        let alone = alone.expect("the semaphore is never closed");
        if self.shared.shutdown.is_cancelled() {
            return;
        }
        let claim = Claim { crashes_below: None, ..self.claim_of(slice::from_ref(&event)) };
        let claimed = match self.shared.store.claim(&claim).await {
            Ok(mut claimed) => claimed.pop(),
            Err(error) => {
                tracing::warn!(%error, handler = %self.name, "a job could not be claimed; it is tried again");
                None
            }
        };
        // Somebody else may have been faster.
        if let Some(claimed) = claimed {
            faults::pass(Point::AfterClaim);
            let (job, token) = (claimed.job.clone(), claimed.token);
            let lost = self.shared.flight.take_off(job.clone(), token, None);
            let settlement = self.run_job(claimed, &lost).await;
            // It stays alone until it is settled: the next one may take the process with it.
            self.end(&job, token, settlement, alone).await;
        }
    }

    /// Waits for a place to run in, of this handler and of the process. There is none after a shutdown.
    async fn turn(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let turn = async {
            let own = Arc::clone(&self.running).acquire_owned().await;
            let all = Arc::clone(&self.shared.running).acquire_owned().await;
            [own, all].map(|permit| permit.expect("the semaphores are never closed"))
        };
        tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => None,
            turn = turn => Some(turn),
        }
    }

    /// Runs the handler and says what came of it. Nothing, if the job is not ours any more.
    async fn run_job(&self, claimed: Claimed, lost: &CancellationToken) -> Option<Settlement> {
        let Claimed { job, token, attempt, .. } = &claimed;
        let (job, token, attempt) = (job.clone(), *token, *attempt);
        self.count_lag(&claimed);
        let (started_at, start) = (OffsetDateTime::now_utc(), Instant::now());
        let deadline = start + self.config.deadline;
        self.shared.flight.expect_until(&job, deadline + GRACE);
        let effects = Effects::new(Arc::clone(&self.shared.store), job.clone(), token);
        let effects = Arc::new(effects.sharing_commits(self.writer.clone()));
        let run = self.spawn(claimed, Arc::clone(&effects), deadline);
        let abort = run.abort_handle();
        let handled = tokio::select! {
            handled = self.supervise(run, &job, &effects, deadline) => handled?,
            () = lost.cancelled() => {
                abort.abort();
                return None;
            }
        };
        let outcome = judge(&self.config.retry, attempt, handled, effects.pipeline_fault());
        log_failure(&job, attempt, &outcome);
        let duration = start.elapsed();
        let worker = Arc::clone(&self.shared.name);
        Some(Settlement { job, token, attempt, started_at, duration, worker, outcome })
    }

    /// Starts the handler where it can do no harm.
    fn spawn(&self, claimed: Claimed, effects: Arc<Effects>, deadline: Instant) -> JoinHandle<Handled> {
        let (handler, allowed) = (Arc::clone(&self.handler), self.config.deadline);
        self.shared.handlers.spawn(async move {
            let handled = timeout_at(deadline, handler.run(claimed, &effects)).await;
            handled.unwrap_or_else(|_| {
                Err(Failure::retry(FailureKind::Timeout, format!("it took longer than its deadline of {allowed:?}")))
            })
        })
    }

    /// Waits for the handler. One that does not stop at its deadline is left behind: its lease ends, and that counts as a
    /// crash.
    async fn supervise(
        &self,
        run: JoinHandle<Handled>,
        job: &JobId,
        effects: &Effects,
        deadline: Instant,
    ) -> Option<Handled> {
        match timeout_at(deadline + GRACE, run).await {
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
                if effects.are_in_a_transaction() {
                    tracing::error!(event_id = %job.event, handler = %job.handler, "it keeps a transaction, which others wait for: only the end of the process ends it");
                    self.shared.must_end.cancel();
                }
                None
            }
        }
    }

    async fn end(&self, job: &JobId, token: Token, settlement: Option<Settlement>, place: OwnedSemaphorePermit) {
        let delivery = self.shared.flight.land(job, token).and_then(|held| held.delivery);
        if let Some(settlement) = settlement {
            // The settler outlives all jobs.
            let _ = self.shared.ended.send(Ended { settlement, delivery, place }).await;
        }
    }

    /// Gives back a job that was not begun; another worker can have it at once.
    async fn hand_back(&self, job: JobId, token: Token) {
        let held = self.shared.flight.land(&job, token);
        if let Err(error) = self.shared.store.hand_back(&[(job, token)]).await {
            tracing::warn!(%error, "a job could not be handed back; it is run when its lease has ended");
        }
        // The sweeper sends a new one.
        if let Some(delivery) = held.and_then(|held| Arc::into_inner(held.delivery?)) {
            delivery.acknowledge().await;
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
fn judge(retry: &RetryPolicy, attempt: u32, handled: Handled, pipeline_fault: Option<String>) -> Outcome {
    // Also if the handler made light of it: an effect that it meant to have may be missing.
    if let Some(message) = pipeline_fault {
        return Outcome::Interrupted { message, retry_in: AFTER_A_PIPELINE_FAULT };
    }
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
    use super::*;

    #[test]
    fn a_run_that_our_store_has_spoilt_is_repeated_whatever_the_handler_made_of_it() {
        let policy = RetryPolicy::default();
        for handled in [Ok(()), Err(Failure::give_up("no"))] {
            let outcome = judge(&policy, 1, handled, Some("the store went away".into()));
            assert!(matches!(outcome, Outcome::Interrupted { .. }), "{outcome:?}");
        }
        assert_eq!(judge(&policy, 1, Ok(()), None), Outcome::Succeeded);
    }
}
