//! Exactly once: the marker of an effect and the effect itself in one transaction, and only while the job is ours.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hookfast_store::{
    BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, EffectWrite, JobId, Store, StoreError, Token,
    Value, Written, sqlx,
};
use hookfast_webhook::{Failure, FailureKind, HandlerName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::faults::{self, Point, Protection};
use crate::writes::Writer;

/// How long a transaction may stay open. On SQLite nobody else can write meanwhile.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A store that takes longer to answer a simple question is in trouble.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The effects of one run of a job. Each has a key of the handler's choice and happens once for this handler and event,
/// however often the job is run: an attempt resumes after the last one that was done.
pub struct Effects {
    store: Arc<dyn Store>,
    job: JobId,
    token: Token,
    /// What went wrong with the store, which is not the handler's fault whatever the handler makes of it.
    pipeline_fault: Mutex<Option<String>>,
    done: AtomicUsize,
    /// Transactions that are open, or waited for.
    open: AtomicUsize,
    /// How long this run has waited for the store, in microseconds.
    waited: AtomicU64,
    /// Who writes those that share their commits. Without, each has its own.
    writer: Option<Writer>,
    /// For the test kit: break off after so many effects.
    break_after: Option<usize>,
}

/// Sent along with a call to the outside, so that the other side knows a repetition when it sees one. The same over
/// attempts and ordinary replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub Uuid);

impl std::fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Effects {
    pub(crate) fn handler(&self) -> &HandlerName {
        &self.job.handler
    }

    pub(crate) fn new(store: Arc<dyn Store>, job: JobId, token: Token) -> Self {
        let (pipeline_fault, done, open, waited) = Default::default();
        Self { store, job, token, pipeline_fault, done, open, waited, writer: None, break_after: None }
    }

    pub(crate) fn sharing_commits(self, writer: Writer) -> Self {
        Self { writer: Some(writer), ..self }
    }

    pub(crate) fn breaking_after(self, effects: Option<usize>) -> Self {
        Self { break_after: effects, ..self }
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
        if is_done && !faults::is_off(Protection::Marker) {
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
        faults::pass(Point::BeforeEffect);
        let commit = transaction.commit(&effect, result.as_deref());
        self.waiting(commit).await.map_err(|error| self.fault(error))?;
        faults::pass(Point::AfterEffect);
        self.count()?;
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
            Some(Ok(Written::Now)) => self.count(),
            Some(Ok(Written::Before)) => Ok(()),
            Some(Ok(Written::LostLease)) => Err(self.fault(EffectError::LostLease)),
            Some(Err(error)) => Err(self.fault(error.into())),
            None => self.once(key, async |tx| tx.execute(statement, values).await.map(drop)).await,
        }
    }

    /// Nothing, if it is to be done alone.
    async fn write_with_others(
        &self,
        key: &str,
        statement: &'static str,
        values: &[Value],
    ) -> Option<Result<Written, StoreError>> {
        let writer = self.writer.as_ref().filter(|_| !faults::is_off(Protection::Marker))?;
        let (job, token, key, values) = (self.job.clone(), self.token, key.to_owned(), values.to_vec());
        match self.waiting(writer.write(EffectWrite { job, token, key, statement, values })).await {
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
        self.count()?;
        Ok(value)
    }

    /// What the store did to this run.
    pub(crate) fn pipeline_fault(&self) -> Option<String> {
        self.pipeline_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many effects this run has done.
    pub(crate) fn done(&self) -> usize {
        self.done.load(Relaxed)
    }

    /// What to make of a run that was not done by its deadline. If it waited for the store most of the time, as behind another
    /// job that kept its transaction open, the time was not its own.
    pub(crate) fn past_deadline(&self, allowed: Duration) -> Failure {
        let waited = Duration::from_micros(self.waited.load(Relaxed));
        if waited > allowed / 2 {
            return self
                .note_fault(&format!("it waited for the store for {waited:.1?} of its deadline of {allowed:?}"));
        }
        Failure::retry(FailureKind::Timeout, format!("it took longer than its deadline of {allowed:?}"))
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
        let _counted = Waiting { since: Instant::now(), total: &self.waited };
        verb.await
    }

    fn fault(&self, error: EffectError) -> Failure {
        match error {
            EffectError::LostLease => Failure::retry(FailureKind::Crash, error),
            EffectError::Store(StoreError::Rejected(problem)) => Failure::retry(FailureKind::Internal, problem),
            EffectError::Store(error) => self.note_fault(&error.to_string()),
        }
    }

    /// Asks the store itself. What it does in time is not to blame on it.
    async fn is_store_well(&self) -> bool {
        matches!(tokio::time::timeout(STORE_ANSWERS_WITHIN, self.store.check()).await, Ok(Ok(())))
    }

    fn note_fault(&self, problem: &str) -> Failure {
        *self.pipeline_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.to_owned());
        Failure::retry(FailureKind::Pipeline, problem)
    }

    fn count(&self) -> Result<(), Failure> {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if self.break_after == Some(done) {
            return Err(Failure::retry(FailureKind::Crash, "the test kit broke off here"));
        }
        Ok(())
    }
}

/// Counts a transaction for as long as it is open.
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

/// Counts the time of a wait.
struct Waiting<'a> {
    since: Instant,
    total: &'a AtomicU64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
        self.total.fetch_add(waited, Relaxed);
    }
}

/// The transaction of an effect, for the handler's own writes into the gateway's database.
pub struct Transaction<'a> {
    inner: &'a mut EffectTransaction,
    effects: &'a Effects,
}

impl Transaction<'_> {
    /// Runs a statement that both databases understand, with `$1` and so on for the [`values!`](crate::values), and says
    /// how many rows it changed.
    pub async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, Failure> {
        let done = self.inner.execute(statement, values).await;
        self.judged(done).await
    }

    /// The first value that a query gives, if any.
    pub async fn fetch(&mut self, statement: &'static str, values: Vec<Value>) -> Result<Option<Value>, Failure> {
        let found = self.inner.fetch(statement, values).await;
        self.judged(found).await
    }

    /// Whether nothing newer was handled about `object`. Events may come late: with this an older `updated` never
    /// overwrites a newer `deleted`.
    pub async fn is_newest(&mut self, object: &str, occurred_at: OffsetDateTime) -> Result<bool, Failure> {
        let newest = self.inner.is_newest(&self.effects.job.handler, object, occurred_at).await;
        self.judged(newest).await
    }

    /// The driver's own connection, if the gateway runs on Postgres.
    pub fn postgres(&mut self) -> Option<&mut sqlx::PgConnection> {
        self.inner.postgres()
    }

    /// The driver's own connection, if the gateway runs on SQLite.
    pub fn sqlite(&mut self) -> Option<&mut sqlx::SqliteConnection> {
        self.inner.sqlite()
    }

    /// A statement that the database disliked is the handler's failure. So is one that it could not carry out although it
    /// answers everything else.
    async fn judged<T>(&self, result: Result<T, sqlx::Error>) -> Result<T, Failure> {
        let Err(error) = result else { return result.map_err(Failure::from) };
        if hookfast_store::is_too_slow(&error) {
            let problem = format!("a statement took longer than the store allows: {error}");
            return Err(Failure::retry(FailureKind::Timeout, problem));
        }
        if hookfast_store::is_outage(&error) {
            let is_statements = hookfast_store::is_about_statement(&error) && self.effects.is_store_well().await;
            if !is_statements {
                return Err(self.effects.note_fault(&error.to_string()));
            }
        }
        Err(Failure::from(error))
    }
}

/// The values of a statement: `values![order.id, order.total]`.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::Value::from($value)),*] };
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
    use crate::testing::{Idle, Kit, TestEvent};

    const DEADLINE: Duration = Duration::from_millis(200);

    async fn run(kit: &Kit) -> Effects {
        let job = kit.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
        let claimed = kit.claim(&job).await.expect("it is new");
        Effects::new(Arc::clone(&kit.store), claimed.job, claimed.token)
    }

    /// On SQLite one writes at a time.
    #[tokio::test]
    async fn a_run_that_waited_for_another_did_not_take_too_long_itself() {
        let kit = Kit::new(&Idle).await;
        let (guilty, innocent) = (run(&kit).await, run(&kit).await);
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
}
