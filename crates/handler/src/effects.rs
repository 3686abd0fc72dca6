//! Exactly once: the marker of an effect and the effect itself in one transaction, and only while the job is ours.
//!
//! Before it, `processor::run` gives the handler its [`Effects`], and `Handler::handle` calls them. [`Effects::write`]
//! shares its commit with effects of other jobs: `processor::hooks` implements [`Hooks::shared_commits`], and
//! `processor::writes` calls `Work::write_effects` for many jobs. [`Effects::once`] and [`Effects::call`] use
//! `Work::begin_effect`. After it, the handler returns, and `processor::run` makes the outcome that `processor::settle`
//! writes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hookfast_store::{
    BegunEffect, EffectError, EffectKey, EffectKind, EffectWrite, JobId, StatementError, StoreError, Token, Value,
    Work, Written,
};
use hookfast_webhook::{Failure, FailureKind, HandlerName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Transaction;
use crate::run::Hooks;

/// The longest time that a transaction may stay open. On SQLite nothing else can be written meanwhile.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A store that takes longer to answer a simple question is in trouble.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The effects of one run of a job. Each has a key of the handler's choice and happens once for this handler and event,
/// however often the job is run: an attempt resumes after the last one that was done.
pub struct Effects {
    store: Arc<dyn Work>,
    job: JobId,
    token: Token,
    /// The error of the store, if there was one. Then the run is interrupted, even if the handler returns `Ok`.
    pipeline_fault: Mutex<Option<String>>,
    /// Transactions that are open, or waited for.
    open: AtomicUsize,
    /// How long this run has waited for the store.
    waited: Mutex<Waited>,
    /// What the worker adds.
    hooks: Arc<dyn Hooks>,
}

/// Sent along with a call to the outside, so that the other side knows a repetition when it sees one. The same over
/// attempts and ordinary replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub uuid::Uuid);

impl std::fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Effects {
    pub(crate) fn new(store: Arc<dyn Work>, job: JobId, token: Token, hooks: Arc<dyn Hooks>) -> Self {
        let (pipeline_fault, open, waited) = Default::default();
        Self { store, job, token, pipeline_fault, open, waited, hooks }
    }

    /// The name by which the handler is configured.
    pub fn handler(&self) -> &str {
        self.job.handler.as_str()
    }

    /// Does `work` once: what it writes through the transaction and the marker that it was done are committed together,
    /// and only if the job is still this worker's. If it was done in an earlier run, `work` is not called, and what came of
    /// it then is given back.
    ///
    /// Only writes through the transaction are covered; a call to the outside belongs into [`Effects::call`].
    pub async fn once<T, F>(&self, key: &str, work: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&mut Transaction<'_>) -> Result<T, Failure>,
    {
        let _open = Open::count(&self.open);
        let effect = self.key(key, EffectKind::Own);
        let BegunEffect { is_done, result, mut transaction, .. } = self.begin(&effect).await?;
        if is_done && self.hooks.trusts_markers() {
            return remembered(key, result.as_deref());
        }
        let mut open = Transaction { inner: &mut transaction, effects: self };
        let Ok(value) = tokio::time::timeout(TRANSACTION_TIMEOUT, work(&mut open)).await else {
            let problem = format!("the effect `{key}` kept its transaction open for {TRANSACTION_TIMEOUT:?}");
            // On SQLite the store could not be written to while it is open.
            drop(transaction);
            return Err(match self.is_store_well().await {
                true => Failure::retry(FailureKind::Timeout, problem),
                false => self.note_fault(&format!("{problem}, and the store does not answer")),
            });
        };
        let value = value?;
        let result = to_remember(&value)?;
        self.hooks.before_commit();
        let commit = transaction.commit(&effect, result.as_deref());
        self.waiting(commit).await.map_err(|error| self.fault(error))?;
        self.hooks.after_commit();
        self.hooks.after_effect()?;
        Ok(value)
    }

    /// Runs one statement once, as [`Effects::once`] does, in words that both databases understand and with `$1` and so on
    /// for the [`values!`](crate::values). As it is known beforehand, it shares its commit with those of other jobs, which is
    /// several times faster under load; if one of them fails, each is done alone.
    ///
    /// So the statement may run in one transaction with those of other jobs of this handler. Whatever needs an answer from the
    /// database, or more than one statement, belongs into [`Effects::once`].
    pub async fn write(&self, key: &str, statement: &'static str, values: Vec<Value>) -> Result<(), Failure> {
        match self.write_with_others(key, statement, &values).await {
            Some(Ok(Written::Now)) => self.hooks.after_effect(),
            Some(Ok(Written::Before)) => Ok(()),
            Some(Ok(Written::LostLease)) => Err(self.fault(EffectError::LostLease)),
            Some(Err(error)) => Err(self.fault(error.into())),
            None => self.once(key, async |tx| tx.execute(statement, values).await.map(drop)).await,
        }
    }

    /// `None` if the effect must be written in a transaction of its own.
    async fn write_with_others(
        &self,
        key: &str,
        statement: &'static str,
        values: &[Value],
    ) -> Option<Result<Written, StoreError>> {
        let shared = self.hooks.shared_commits()?;
        let (job, token, key, values) = (self.job.clone(), self.token, key.to_owned(), values.to_vec());
        let write = EffectWrite { job, token, key, statement, values };
        match self.waiting(shared.write(write)).await {
            Err(StoreError::Rejected(_)) => None,
            written => Some(written),
        }
    }

    /// Calls the outside. `call` gets a key that the other side can tell repetitions by; what it gives back is remembered,
    /// so that a later attempt does not call again.
    ///
    /// Between the call and remembering it this process can die, and then the call is repeated with the same key: only
    /// an other side that heeds the key makes it exactly once.
    pub async fn call<T, F>(&self, key: &str, call: F) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(IdempotencyKey) -> Result<T, Failure>,
    {
        let effect = self.key(key, EffectKind::Outside);
        let open = Open::count(&self.open);
        let BegunEffect { id, is_done, result, transaction } = self.begin(&effect).await?;
        if is_done {
            return remembered(key, result.as_deref());
        }
        self.waiting(transaction.commit_begun()).await.map_err(|error| self.fault(error))?;
        drop(open);
        let value = call(IdempotencyKey(id)).await?;
        let result = to_remember(&value)?;
        let _open = Open::count(&self.open);
        let finish = self.store.finish_effect(&effect, result.as_deref());
        self.waiting(finish).await.map_err(|error| self.fault(error))?;
        self.hooks.after_effect()?;
        Ok(value)
    }

    /// What the store did to this run.
    pub(crate) fn pipeline_fault(&self) -> Option<String> {
        self.pipeline_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The failure of a run that was not done by its deadline. If the run spent more than half of its deadline waiting
    /// for the store, such as behind a transaction of another job, the store is to blame and not the handler.
    pub(crate) fn past_deadline(&self, allowed: Duration) -> Failure {
        let waited = self.waited().total(Instant::now());
        if waited > allowed / 2 {
            return self
                .note_fault(&format!("it waited for the store for {waited:.1?} of its deadline of {allowed:?}"));
        }
        Failure::retry(FailureKind::Timeout, format!("it took longer than its deadline of {allowed:?}"))
    }

    pub(crate) fn handler_name(&self) -> &HandlerName {
        &self.job.handler
    }

    /// Whether others may be waiting for a transaction of this run to end.
    pub(crate) fn are_in_a_transaction(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    fn key<'a>(&'a self, key: &'a str, kind: EffectKind) -> EffectKey<'a> {
        EffectKey { job: &self.job, token: self.token, key, kind }
    }

    async fn begin(&self, effect: &EffectKey<'_>) -> Result<BegunEffect, Failure> {
        self.waiting(self.store.begin_effect(effect)).await.map_err(|error| self.fault(error))
    }

    /// Waits for the store, and counts the time, also if the wait is cut short.
    async fn waiting<T>(&self, verb: impl Future<Output = T>) -> T {
        self.waited().begin(Instant::now());
        let _counted = Waiting(self);
        verb.await
    }

    fn waited(&self) -> MutexGuard<'_, Waited> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, error: EffectError) -> Failure {
        match error {
            EffectError::LostLease => Failure::retry(FailureKind::Crash, error),
            EffectError::Store(StoreError::Rejected(problem)) => Failure::retry(FailureKind::Internal, problem),
            EffectError::Store(error) => self.note_fault(&error.to_string()),
        }
    }

    /// A statement that the database refuses is the handler's failure. So is one that it could not carry out although it
    /// answers everything else.
    pub(crate) async fn failure_of_statement(&self, error: StatementError) -> Failure {
        match error {
            StatementError::Refused(_) => error.into(),
            StatementError::TooSlow(_) => Failure::retry(FailureKind::Timeout, error),
            StatementError::Overwhelmed(_) if self.is_store_well().await => error.into(),
            StatementError::Overwhelmed(problem) | StatementError::Outage(problem) => self.note_fault(&problem),
        }
    }

    /// Whether the store answers a simple question in time. If it does, the handler's statement is at fault.
    pub(crate) async fn is_store_well(&self) -> bool {
        matches!(tokio::time::timeout(STORE_ANSWERS_WITHIN, self.store.check()).await, Ok(Ok(())))
    }

    pub(crate) fn note_fault(&self, problem: &str) -> Failure {
        *self.pipeline_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.to_owned());
        Failure::retry(FailureKind::Pipeline, problem)
    }
}

/// Counts a transaction while it is open.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn count(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Relaxed);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The time in which at least one effect of a run waits for the store.
#[derive(Default)]
struct Waited {
    before: Duration,
    /// How many wait now, and since when at least one does.
    now: usize,
    since: Option<Instant>,
}

impl Waited {
    fn begin(&mut self, at: Instant) {
        self.now += 1;
        self.since.get_or_insert(at);
    }

    fn end(&mut self, at: Instant) {
        self.now -= 1;
        if self.now == 0 {
            self.before = self.total(at);
            self.since = None;
        }
    }

    fn total(&self, at: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| at - since)
    }
}

/// A wait, which ends when this is dropped.
struct Waiting<'a>(&'a Effects);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waited().end(Instant::now());
    }
}

fn to_remember<T: Serialize>(value: &T) -> Result<Option<String>, Failure> {
    let json = serde_json::to_string(value)?;
    Ok((json != "null").then_some(json))
}

fn remembered<T: DeserializeOwned>(key: &str, result: Option<&str>) -> Result<T, Failure> {
    serde_json::from_str(result.unwrap_or("null")).map_err(|error| {
        Failure::give_up(format!("what came of the effect `{key}` in an earlier run cannot be read any more: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;
    use crate::NoHooks;
    use crate::testing::{Idle, TestEvent, TestStore};

    const DEADLINE: Duration = Duration::from_millis(200);

    async fn run(store: &TestStore) -> Effects {
        let job = store.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
        let claimed = store.claim(&job).await.expect("it is new");
        Effects::new(Arc::clone(store.store()) as _, claimed.job, claimed.token, Arc::new(NoHooks))
    }

    #[tokio::test]
    async fn a_failed_statement_is_the_handlers_failure_unless_the_store_is_in_trouble() {
        let store = TestStore::new::<Idle>().await;
        let run = run(&store).await;
        let problem = || "no space".to_owned();
        for (error, kind) in [
            (StatementError::Refused(problem()), FailureKind::Internal),
            (StatementError::TooSlow(problem()), FailureKind::Timeout),
            (StatementError::Overwhelmed(problem()), FailureKind::Internal),
        ] {
            assert_eq!(run.failure_of_statement(error).await.kind, kind);
            assert_eq!(run.pipeline_fault(), None);
        }
        assert_eq!(run.failure_of_statement(StatementError::Outage(problem())).await.kind, FailureKind::Pipeline);
        assert_eq!(run.pipeline_fault(), Some(problem()));
        store.store().close().await;
        let too_much = run.failure_of_statement(StatementError::Overwhelmed(problem())).await;
        assert_eq!(too_much.kind, FailureKind::Pipeline, "the store does not answer anything else");
    }

    /// On SQLite one writes at a time.
    #[tokio::test]
    async fn a_run_that_waited_for_another_did_not_take_too_long_itself() {
        let store = TestStore::new::<Idle>().await;
        let (guilty, innocent) = (run(&store).await, run(&store).await);
        let mut holding = pin!(guilty.once("hold", async |_| {
            tokio::time::sleep(DEADLINE * 20).await;
            Ok(())
        }));
        timeout(DEADLINE, &mut holding).await.expect_err("it keeps its transaction open");
        timeout(DEADLINE, innocent.once("effect", async |_| Ok(()))).await.expect_err("it waits for the other one");
        assert_eq!(guilty.past_deadline(DEADLINE).kind, FailureKind::Timeout);
        assert_eq!(innocent.past_deadline(DEADLINE).kind, FailureKind::Pipeline);
        assert!(innocent.pipeline_fault().is_some_and(|fault| fault.contains("waited for the store")));
    }

    #[test]
    fn effects_that_wait_at_the_same_time_count_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut waited = Waited::default();
        for _ in 0..10 {
            waited.begin(start);
        }
        assert_eq!(waited.total(start + second), second);
        for _ in 0..10 {
            waited.end(start + 2 * second);
        }
        assert_eq!(waited.total(start + 9 * second), 2 * second);
        waited.begin(start + 9 * second);
        waited.end(start + 10 * second);
        assert_eq!(waited.total(start + 20 * second), 3 * second);
    }
}
