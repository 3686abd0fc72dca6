//! The jobs this process holds: their leases are renewed while they wait, run, and wait to be settled.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookfast_queue::Delivery;
use hookfast_store::{Claimed, Interruption, JobId, LostRun, Outcome, Settlement, Store, StoreError, Token};
use time::OffsetDateTime;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use crate::faults::{self, Task};
use crate::trouble::Trouble;

/// A lease is renewed when this part of it has passed, and looked at twice as often.
const RENEWED_AFTER: u32 = 3;

/// A job of ours.
pub(crate) struct Held {
    token: Token,
    attempt: u32,
    claimed_at: OffsetDateTime,
    /// The message that told us of it.
    delivery: Option<Arc<Delivery>>,
    /// Cancelled when the job is not ours any more.
    lost: CancellationToken,
    since: Instant,
    renewed_at: Instant,
    /// When we give up on it: a handler that does not yield must not be kept alive.
    until: Option<Instant>,
}

/// All jobs of ours.
pub(crate) struct Flight {
    store: Arc<dyn Store>,
    trouble: Arc<Trouble>,
    /// Who we are, in the history of jobs.
    worker: Arc<str>,
    lease: Duration,
    jobs: Mutex<HashMap<JobId, Held>>,
}

impl Flight {
    pub(crate) fn new(store: Arc<dyn Store>, trouble: Arc<Trouble>, worker: Arc<str>, lease: Duration) -> Self {
        Self { store, trouble, worker, lease, jobs: Mutex::default() }
    }

    pub(crate) fn take_off(&self, claimed: &Claimed, delivery: Option<Arc<Delivery>>) -> CancellationToken {
        let (lost, now) = (CancellationToken::new(), Instant::now());
        let held = Held {
            token: claimed.token,
            attempt: claimed.attempt,
            claimed_at: OffsetDateTime::now_utc(),
            delivery,
            lost: lost.clone(),
            since: now,
            renewed_at: now,
            until: None,
        };
        // If our own lease ended and the job came back to us, the run before has lost it.
        if let Some(before) = self.lock().insert(claimed.job.clone(), held) {
            before.lost.cancel();
        }
        lost
    }

    /// Says until when the lease is renewed: the run has begun and should be over by then, or has ended and is yet to be
    /// settled, however long that takes.
    pub(crate) fn renew_until(&self, job: &JobId, token: Token, until: Option<Instant>) {
        if let Some(held) = self.lock().get_mut(job).filter(|held| held.token == token) {
            held.until = until;
        }
    }

    /// Lets go of a job, unless it is another run's by now. Gives its message.
    pub(crate) fn land(&self, job: &JobId, token: Token) -> Option<Arc<Delivery>> {
        let mut jobs = self.lock();
        if jobs.get(job)?.token == token { jobs.remove(job)?.delivery } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Held>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the leases of jobs that are held for long, until the task is dropped.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut timer = interval(self.lease / RENEWED_AFTER / 2);
        loop {
            timer.tick().await;
            faults::panic_in(Task::Leases);
            if let Err(error) = self.renew(self.lease / RENEWED_AFTER).await {
                tracing::warn!(%error, "leases could not be renewed; trying again");
            }
        }
    }

    /// Renews leases that may have ended meanwhile. A job that its own process still holds has not crashed.
    pub(crate) async fn renew_before_leases_are_judged(&self) -> Result<(), StoreError> {
        self.renew(self.lease / 2).await
    }

    async fn renew(&self, older_than: Duration) -> Result<(), StoreError> {
        let (jobs, deliveries) = self.to_renew(older_than);
        if jobs.is_empty() {
            return Ok(());
        }
        let asked_at = Instant::now();
        let renewed = self.trouble.noting(self.store.renew(&jobs, self.lease)).await?;
        let not_renewed: HashSet<_> = renewed.lost.iter().chain(&renewed.passed_over).collect();
        for (job, token) in jobs.iter().filter(|(job, _)| !not_renewed.contains(job)) {
            if let Some(held) = self.lock().get_mut(job).filter(|held| held.token == *token) {
                held.renewed_at = asked_at;
            }
        }
        let lost = jobs.iter().filter(|(job, _)| renewed.lost.contains(job));
        let lost: Vec<_> = lost.filter_map(|(job, token)| self.lose(job, *token)).collect();
        // The server of the queue may be slow, and the next renewal must not wait for it.
        tokio::spawn(async move {
            for delivery in deliveries {
                delivery.in_progress().await;
            }
        });
        self.pardon(&lost).await
    }

    fn to_renew(&self, older_than: Duration) -> (Vec<(JobId, Token)>, Vec<Arc<Delivery>>) {
        let now = Instant::now();
        let jobs = self.lock();
        let is_due = |held: &Held| now - held.renewed_at >= older_than && held.until.is_none_or(|until| now < until);
        let due = || jobs.iter().filter(|(_, held)| is_due(held));
        let ids = due().map(|(job, held)| (job.clone(), held.token)).collect();
        (ids, due().filter_map(|(_, held)| held.delivery.clone()).collect())
    }

    /// Breaks off a run that has lost its job, unless it has ended meanwhile or the job came back to us.
    fn lose(&self, job: &JobId, token: Token) -> Option<LostRun> {
        let jobs = self.lock();
        let held = jobs.get(job).filter(|held| held.token == token)?;
        tracing::warn!(event_id = %job.event, handler = %job.handler, "the lease was lost; the run is broken off");
        held.lost.cancel();
        Some(LostRun { job: job.clone(), attempt: held.attempt, worker: Arc::clone(&self.worker) })
    }

    /// Says of runs that lost their lease that they did not crash: this process lives.
    pub(crate) async fn pardon(&self, runs: &[LostRun]) -> Result<(), StoreError> {
        if runs.is_empty() { Ok(()) } else { self.store.pardon(runs).await }
    }

    /// Breaks off all runs, and writes that this was our doing: they run again at once elsewhere, and it costs them nothing.
    pub(crate) async fn interrupt_all(&self, why: &str) -> Result<(), StoreError> {
        let runs: Vec<_> = self.lock().drain().collect();
        let settlement = |(job, held): (JobId, Held)| {
            held.lost.cancel();
            Settlement {
                job,
                token: held.token,
                attempt: held.attempt,
                started_at: held.claimed_at,
                duration: held.since.elapsed(),
                worker: Arc::clone(&self.worker),
                outcome: Outcome::Interrupted {
                    by: Interruption::Process,
                    message: why.into(),
                    retry_in: Duration::ZERO,
                },
            }
        };
        let settlements: Vec<_> = runs.into_iter().map(settlement).collect();
        if settlements.is_empty() { Ok(()) } else { self.store.settle(&settlements).await.map(drop) }
    }
}
