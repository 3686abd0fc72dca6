//! The jobs this process holds: their leases are renewed while they wait, run, and wait to be settled.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookfast_queue::Pulled;
use hookfast_store::{Claimed, Interruption, JobId, LostRun, Outcome, Settlement, StoreError, Token, Work};
use time::OffsetDateTime;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::faults::{self, Task};
use crate::trouble::Trouble;

/// A lease is renewed when a third of it has passed, which is looked at every sixth of it.
const RENEWED_AFTER: u32 = 3;

/// How often to look whether a job is held.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A job that this process holds.
pub(crate) struct Held {
    token: Token,
    attempt: u32,
    claimed_at: OffsetDateTime,
    /// The message that told us of it. A renewal shares it, to tell the queue that the job is in progress.
    pulled: Option<Arc<Pulled>>,
    /// Cancelled when the job is not ours any more.
    lost: CancellationToken,
    since: Instant,
    renewed_at: Instant,
    /// When we give up on it: a handler that does not yield must not be kept alive.
    until: Option<Instant>,
}

/// All jobs that this process holds.
pub(crate) struct Leases {
    store: Arc<dyn Work>,
    trouble: Arc<Trouble>,
    /// Who we are, in the history of jobs.
    worker: Arc<str>,
    lease: Duration,
    jobs: Mutex<HashMap<JobId, Held>>,
    /// Runs that lost their lease, and that the store is yet to hear of.
    lost: Mutex<Vec<LostRun>>,
    unanswered: Mutex<Vec<Unanswered>>,
}

/// A claim without an answer.
struct Unanswered {
    jobs: Vec<(JobId, Token)>,
    since: Instant,
}

impl Leases {
    pub(crate) fn new(store: Arc<dyn Work>, trouble: Arc<Trouble>, worker: Arc<str>, lease: Duration) -> Self {
        Self {
            store,
            trouble,
            worker,
            lease,
            jobs: Mutex::default(),
            lost: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }

    pub(crate) fn hold(&self, claimed: &Claimed, pulled: Option<Pulled>) -> CancellationToken {
        let (lost, now) = (CancellationToken::new(), Instant::now());
        let held = Held {
            token: claimed.token,
            attempt: claimed.attempt,
            claimed_at: OffsetDateTime::now_utc(),
            pulled: pulled.map(Arc::new),
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

    /// Lets go of a job, unless it is another run's by now. Gives its message; not if a renewal is just about it, and then it
    /// comes again and is done with.
    pub(crate) fn let_go(&self, job: &JobId, token: Token) -> Option<Pulled> {
        let mut jobs = self.lock();
        let is_ours = jobs.get(job)?.token == token;
        let pulled = if is_ours { jobs.remove(job)?.pulled } else { None };
        pulled.and_then(Arc::into_inner)
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
            // Both come after it, because they may wait for an effect of another worker.
            if let Err(error) = self.pardon(Vec::new()).await {
                tracing::warn!(%error, "runs that lost their lease count as crashes until the store hears of them");
            }
            if let Err(error) = self.hand_back_unanswered().await {
                tracing::warn!(%error, "jobs of claims without an answer could not be handed back; trying again");
            }
        }
    }

    /// Renews leases that may have ended meanwhile, before the sweeper counts ended leases as crashes: a job that this process
    /// still holds has not crashed.
    pub(crate) async fn renew_before_sweeping(&self) -> Result<(), StoreError> {
        self.renew(self.lease / 2).await
    }

    async fn renew(&self, older_than: Duration) -> Result<(), StoreError> {
        let (jobs, pulled) = self.to_renew(older_than);
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
        self.unheard().extend(lost.filter_map(|(job, token)| self.lose(job, *token)));
        // The server of the queue may be slow, and the next renewal must not wait for it.
        tokio::spawn(async move {
            for pulled in pulled {
                pulled.in_progress().await;
            }
        });
        Ok(())
    }

    fn to_renew(&self, older_than: Duration) -> (Vec<(JobId, Token)>, Vec<Arc<Pulled>>) {
        let now = Instant::now();
        let jobs = self.lock();
        let is_due = |held: &Held| now - held.renewed_at >= older_than && held.until.is_none_or(|until| now < until);
        let due = || jobs.iter().filter(|(_, held)| is_due(held));
        let ids = due().map(|(job, held)| (job.clone(), held.token)).collect();
        (ids, due().filter_map(|(_, held)| held.pulled.clone()).collect())
    }

    /// Breaks off a run that has lost its job, unless it has ended meanwhile or the job came back to us.
    fn lose(&self, job: &JobId, token: Token) -> Option<LostRun> {
        let jobs = self.lock();
        let held = jobs.get(job).filter(|held| held.token == token)?;
        tracing::warn!(event_id = %job.event, handler = %job.handler, "the lease was lost; the run is broken off");
        held.lost.cancel();
        Some(LostRun { job: job.clone(), attempt: held.attempt, worker: Arc::clone(&self.worker) })
    }

    /// Says of runs that lost their lease that they did not crash: this process lives. What the store does not hear now, it
    /// hears with a later renewal.
    pub(crate) async fn pardon(&self, runs: Vec<LostRun>) -> Result<(), StoreError> {
        self.unheard().extend(runs);
        let unheard = self.unheard().clone();
        if unheard.is_empty() {
            return Ok(());
        }
        let pardoned = self.store.pardon(&unheard).await;
        // Something that the store refuses will be refused again: they stay crashes.
        if !matches!(pardoned, Err(StoreError::Unavailable(_))) {
            self.unheard().retain(|run| !unheard.contains(run));
        }
        pardoned
    }

    fn unheard(&self) -> MutexGuard<'_, Vec<LostRun>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes jobs whose claim was not answered. They are handed back for as long as their lease would last: a statement that
    /// was given up may come through late.
    pub(crate) fn doubt(&self, jobs: Vec<(JobId, Token)>) {
        self.unanswered().push(Unanswered { jobs, since: Instant::now() });
    }

    async fn hand_back_unanswered(&self) -> Result<(), StoreError> {
        self.unanswered().retain(|claim| claim.since.elapsed() < self.lease);
        let jobs: Vec<_> = self.unanswered().iter().flat_map(|claim| claim.jobs.clone()).collect();
        if jobs.is_empty() { Ok(()) } else { self.store.hand_back(&jobs).await }
    }

    fn unanswered(&self) -> MutexGuard<'_, Vec<Unanswered>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no job is held and the store has heard of everything.
    pub(crate) async fn until_empty(&self) {
        while !self.lock().is_empty() || !self.unheard().is_empty() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a job is held.
    pub(crate) async fn until_first(&self) {
        while self.lock().is_empty() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Breaks off all runs, and writes that this was our doing: they run again at once elsewhere, and it costs them nothing.
    pub(crate) async fn interrupt_all(&self, why: &str) -> Result<(), StoreError> {
        let mut runs: Vec<_> = self.lock().drain().collect();
        let pulled: Vec<_> = runs.iter_mut().filter_map(|(_, held)| held.pulled.take()).collect();
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
        if settlements.is_empty() {
            return Ok(());
        }
        self.store.settle(&settlements).await?;
        // A message that is not acknowledged would keep the sweeper's new one out.
        for pulled in pulled.into_iter().filter_map(Arc::into_inner) {
            pulled.acknowledge().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Idle;
    use hookfast_handler::testing::{TestEvent, TestStore};

    const LEASE: Duration = Duration::from_secs(60);

    /// The leases of the process that claims as the test store does.
    fn leases(store: &TestStore) -> Leases {
        Leases::new(Arc::clone(store.store()) as _, Arc::new(Trouble::new(LEASE / 2)), "test".into(), LEASE)
    }

    async fn claimed(store: &TestStore) -> Claimed {
        let job = store.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
        store.claim(&job).await.expect("it is new")
    }

    /// Lets all leases end, and the sweeper notice.
    async fn lose_leases(store: &TestStore, job: &JobId) {
        store.rows("UPDATE jobs SET due_at = 1").await;
        let handlers = [job.handler.clone()];
        let sweep = hookfast_store::Sweep {
            handlers: &handlers,
            limit: 10,
            crash_limit: 3,
            judge_leases_within: Some(Duration::MAX),
        };
        store.store().sweep(&sweep).await.expect("the store answers");
    }

    #[tokio::test]
    async fn what_is_said_of_a_former_run_does_not_break_off_the_next_one() {
        let store = TestStore::new::<Idle>().await;
        let leases = leases(&store);
        let first = claimed(&store).await;
        let first_lost = leases.hold(&first, None);
        lose_leases(&store, &first.job).await;
        let second = store.claim(&first.job).await.expect("it is pending again");
        let second_lost = leases.hold(&second, None);
        assert!(first_lost.is_cancelled() && !second_lost.is_cancelled(), "the first run has lost the job");

        assert_eq!(leases.lose(&first.job, first.token), None);
        assert!(leases.let_go(&first.job, first.token).is_none());
        leases.renew_until(&first.job, first.token, Some(Instant::now()));
        leases.renew(Duration::ZERO).await.expect("the store answers");
        assert!(!second_lost.is_cancelled());
        assert_eq!(leases.to_renew(Duration::ZERO).0, [(second.job.clone(), second.token)], "it is still held");
        assert_eq!(store.rows("SELECT state, attempts FROM jobs").await, [["processing", "2"]]);

        let lost = leases.lose(&second.job, second.token).expect("it is the run's");
        assert_eq!((lost.job, lost.attempt, &*lost.worker), (second.job.clone(), 2, "test"));
        assert!(second_lost.is_cancelled());
    }

    #[tokio::test]
    async fn a_run_that_lost_its_lease_is_broken_off_and_pardoned() {
        let store = TestStore::new::<Idle>().await;
        let leases = leases(&store);
        let (lost, kept) = (claimed(&store).await, claimed(&store).await);
        let (is_lost, is_kept_lost) = (leases.hold(&lost, None), leases.hold(&kept, None));
        lose_leases(&store, &lost.job).await;
        // The sweeper has seen both; the second one is claimed for this process again.
        let kept = store.claim(&kept.job).await.expect("it is pending again");
        let kept_token = leases.hold(&kept, None);
        leases.renew(Duration::ZERO).await.expect("the store answers");
        leases.pardon(Vec::new()).await.expect("the store answers");
        assert!(is_lost.is_cancelled() && is_kept_lost.is_cancelled() && !kept_token.is_cancelled());
        let history = "SELECT failure FROM attempts ORDER BY event_id";
        assert_eq!(store.rows(history).await, [["interrupted"], ["crash"]], "this process lives");
        let counts = "SELECT state, attempts, crashes FROM jobs ORDER BY event_id";
        assert_eq!(store.rows(counts).await, [["pending", "0", "0"], ["processing", "2", "1"]]);
    }

    #[tokio::test]
    async fn a_lease_is_renewed_until_the_run_must_be_over() {
        let store = TestStore::new::<Idle>().await;
        let leases = leases(&store);
        let run = claimed(&store).await;
        leases.hold(&run, None);
        let is_renewed = || !leases.to_renew(Duration::ZERO).0.is_empty();
        assert!(is_renewed());
        leases.renew_until(&run.job, run.token, Some(Instant::now() + LEASE));
        assert!(is_renewed(), "it has time");
        leases.renew_until(&run.job, run.token, Some(Instant::now()));
        assert!(!is_renewed(), "a handler that does not yield is not kept alive");
        leases.renew_until(&run.job, run.token, None);
        assert!(is_renewed(), "it has ended, and is yet to be settled");
        leases.renew(Duration::ZERO).await.expect("the store answers");
        assert_eq!(leases.to_renew(LEASE / RENEWED_AFTER).0, [], "it was renewed a moment ago");
        leases.let_go(&run.job, run.token);
        assert!(!is_renewed());
    }

    #[tokio::test]
    async fn interrupting_all_costs_the_jobs_nothing() {
        let store = TestStore::new::<Idle>().await;
        let leases = leases(&store);
        let runs = [claimed(&store).await, claimed(&store).await];
        let lost = runs.each_ref().map(|run| leases.hold(run, None));
        leases.interrupt_all("the test is over").await.expect("the store answers");
        assert!(lost.iter().all(CancellationToken::is_cancelled));
        assert!(leases.to_renew(Duration::ZERO).0.is_empty(), "they are not ours any more");
        let due = "SELECT state, attempts, crashes, interruptions, due_at <= unixepoch() * 1000000 + 1000000, token
                   FROM jobs";
        assert_eq!(store.rows(due).await, [["failed", "0", "0", "0", "1", "NULL"]; 2]);
        let history = "SELECT number, failure, message, worker FROM attempts";
        assert_eq!(store.rows(history).await, [["1", "interrupted", "the test is over", "test"]; 2]);
        leases.interrupt_all("nothing is left").await.expect("that is no error");
        assert_eq!(store.rows(history).await.len(), 2);
    }

    #[tokio::test]
    async fn an_interruption_writes_nothing_about_a_job_that_another_has() {
        let store = TestStore::new::<Idle>().await;
        let leases = leases(&store);
        let run = claimed(&store).await;
        leases.hold(&run, None);
        lose_leases(&store, &run.job).await;
        store.claim(&run.job).await.expect("another process takes it");
        leases.interrupt_all("the test is over").await.expect("the store answers");
        assert_eq!(store.rows("SELECT state, attempts FROM jobs").await, [["processing", "2"]]);
        assert_eq!(store.rows("SELECT failure FROM attempts").await, [["crash"]]);
    }
}
