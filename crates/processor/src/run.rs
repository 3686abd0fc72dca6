//! One run of a claimed job: the body is fetched, and the handler runs until its deadline.
//!
//! Before it, `Worker::run_claimed` has a claimed job and its place. `AnyHandler::run` reads the payload and calls the team's
//! `Handler::handle`; its effects are in `handler::effects`. After it, `Worker::end` sends the outcome to `settle`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use hookfast_handler::{Handled, LARGE_BODY, Run};
use hookfast_store::{Claimed, Interruption, JobId, Outcome, Settlement, StoreError};
use hookfast_webhook::{Failure, FailureKind, Next, RetryPolicy};
use metrics::gauge;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::settle::Ended;
use crate::worker::{Settings, Worker};

/// How long a handler has to stop at its deadline, until it counts as stuck.
const GRACE: Duration = Duration::from_secs(5);

/// How soon a run is repeated that our own store has spoilt: at first, and at most if it happens again and again.
const AFTER_A_PIPELINE_FAULT: Duration = Duration::from_secs(5);
const LATEST_AFTER_A_PIPELINE_FAULT: Duration = Duration::from_secs(300);

impl Worker {
    /// Runs the handler and says what came of it. Nothing, if the job is not ours any more.
    pub(crate) async fn run_job(
        &self,
        mut claimed: Claimed,
        lost: &CancellationToken,
        on_board: Option<OwnedSemaphorePermit>,
    ) -> Option<Ended> {
        let metrics = self.metrics.of(&claimed.event.source);
        let (job, token, attempt) = (claimed.job.clone(), claimed.token, claimed.attempt);
        self.count_lag(&claimed);
        let (started_at, start) = (OffsetDateTime::now_utc(), Instant::now());
        let outcome = match self.fetch_body(&mut claimed, lost).await? {
            Ok(()) => self.handle(claimed, lost).await?,
            Err(outcome) => outcome,
        };
        log_failure(&job, attempt, &outcome);
        let (duration, worker) = (start.elapsed(), Arc::clone(&self.shared.name));
        let settlement = Settlement { job, token, attempt, started_at, duration, worker, outcome };
        Some(Ended { settlement, metrics, on_board })
    }

    /// Reads a body among the handlers: copying a large one takes time, in which claims and commits would wait. Large ones of
    /// one handler are read one after the other, which leaves the cores to the jobs of the others.
    async fn body(&self, claimed: &Claimed) -> Result<Option<Bytes>, StoreError> {
        let (store, event, size_bytes) = (Arc::clone(&self.shared.store), claimed.job.event, claimed.event.size_bytes);
        let _turn = match size_bytes < LARGE_BODY {
            true => None,
            false => Some(self.fetching_large.acquire().await.expect("the semaphore is never closed")),
        };
        let reading = self.shared.for_handlers.spawn(async move { store.body(event, size_bytes).await });
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
        let settings = self.settings();
        let deadline = Instant::now() + settings.config.deadline;
        self.shared.leases.renew_until(&job, token, Some(deadline + GRACE));
        let run = self.begin(&claimed);
        let mut task = self.spawn(claimed, Arc::clone(&run), &settings, deadline);
        let ended = tokio::select! {
            ended = timeout_at(deadline + GRACE, &mut task) => Some(ended),
            () = lost.cancelled() => None,
        };
        let handled = match ended {
            Some(Ok(ended)) => handled(ended)?,
            Some(Err(_)) => {
                self.leave_behind(task, &job, &run);
                return None;
            }
            None => {
                task.abort();
                if timeout(GRACE, &mut task).await.is_err() {
                    self.leave_behind(task, &job, &run);
                }
                return None;
            }
        };
        // This applies even if the handler returned `Ok`: one of its effects may be missing.
        Some(match run.pipeline_fault() {
            Some(message) => self.interrupted(interruptions, message),
            None => outcome_of(&settings.config.retry, attempt, handled),
        })
    }

    /// A job that failed before does not share its commits: should it fail again, only its own are undone.
    fn begin(&self, claimed: &Claimed) -> Arc<Run> {
        let is_first = claimed.attempt == 1 && claimed.interruptions == 0 && claimed.crashes == 0;
        let hooks = Arc::clone(if is_first { &self.sharing } else { &self.alone });
        Arc::new(Run::new(Arc::clone(&self.shared.store), claimed.job.clone(), claimed.token, hooks))
    }

    /// The store failed during the run. The job runs again, after a longer wait each time. After `interruption_limit` such runs
    /// in a row it is a dead letter.
    fn interrupted(&self, before: u32, message: String) -> Outcome {
        if before + 1 >= self.shared.config.interruption_limit {
            return Outcome::Dead { kind: FailureKind::Pipeline, message };
        }
        let retry_in = AFTER_A_PIPELINE_FAULT.saturating_mul(1 << before.min(16)).min(LATEST_AFTER_A_PIPELINE_FAULT);
        Outcome::Interrupted { by: Interruption::Store, message, retry_in }
    }

    /// Starts the handler where it can do no harm.
    fn spawn(&self, claimed: Claimed, run: Arc<Run>, settings: &Settings, deadline: Instant) -> JoinHandle<Handled> {
        let (handler, allowed) = (Arc::clone(&settings.handler), settings.config.deadline);
        self.shared.for_handlers.spawn(async move {
            let handled = timeout_at(deadline, handler.run(claimed, run.effects())).await;
            handled.unwrap_or_else(|_| Err(run.past_deadline(allowed)))
        })
    }

    /// A handler that does not stop at its deadline, or when its job is lost, is left behind: its lease ends, and that counts as
    /// a crash. It keeps its thread until it ends after all.
    fn leave_behind(&self, task: JoinHandle<Handled>, job: &JobId, run: &Run) {
        let stuck = Arc::clone(&self.shared.stuck);
        gauge!("hookfast_stuck_runs").set((stuck.fetch_add(1, Relaxed) + 1) as f64);
        tracing::error!(event_id = %job.event, handler = %job.handler, "the handler does not stop and does not yield; it keeps a thread");
        if run.is_in_a_transaction() {
            tracing::error!(event_id = %job.event, handler = %job.handler, "the handler holds an open transaction that blocks other writes; the process must end");
            self.shared.must_end.because(
                "a handler that does not yield keeps a transaction, which others wait for; the log names it. Start again: its \
                 job counts as crashed, and others that were not finished are run again",
            );
        }
        tokio::spawn(async move {
            let _ = task.await;
            gauge!("hookfast_stuck_runs").set((stuck.fetch_sub(1, Relaxed) - 1) as f64);
        });
    }

    fn count_lag(&self, claimed: &Claimed) {
        if claimed.attempt == 1 {
            let lag = OffsetDateTime::now_utc() - claimed.event.received_at;
            self.metrics.lag.record(lag.as_seconds_f64().max(0.0));
        }
    }
}

/// What the handler said. Nothing if its runtime was shut down, as at the end of the process.
fn handled(ended: Result<Handled, JoinError>) -> Option<Handled> {
    let panic = match ended {
        Ok(handled) => return Some(handled),
        Err(error) => error.try_into_panic().ok()?,
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
    Some(Err(Failure::retry(FailureKind::Panic, text)))
}

/// What a run comes to.
fn outcome_of(retry: &RetryPolicy, attempt: u32, handled: Handled) -> Outcome {
    let Err(failure) = handled else { return Outcome::Succeeded };
    if failure.kind == FailureKind::Snoozed {
        return snoozed(&failure);
    }
    let Failure { kind, ref message, .. } = failure;
    match retry.after(attempt, &failure, fastrand::f64()) {
        Next::RetryIn(retry_in) => Outcome::Failed { kind, message: message.clone(), retry_in },
        Next::GiveUp => Outcome::Dead { kind, message: message.clone() },
    }
}

fn snoozed(failure: &Failure) -> Outcome {
    let retry_in = RetryPolicy::snooze(failure);
    let until = OffsetDateTime::now_utc() + retry_in;
    let until = until.replace_nanosecond(0).unwrap_or(until);
    let message = match until.format(&Rfc3339) {
        Ok(until) => format!("put off until {until}: {}", failure.message),
        Err(_) => failure.message.clone(),
    };
    Outcome::Snoozed { message, retry_in }
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
        Outcome::Snoozed { message, .. } => {
            tracing::info!(event_id = %event, %handler, "a job was {message}");
        }
        Outcome::Interrupted { message, .. } => {
            tracing::warn!(event_id = %event, %handler, "the store failed during a run; the job runs again: {message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use hookfast_handler::testing::{TestEvent, TestStore};
    use hookfast_queue::MemoryQueue;

    use super::*;
    use crate::Config;
    use crate::testing::{Idle, workers};

    #[tokio::test]
    async fn a_run_that_the_store_spoils_again_and_again_is_repeated_ever_later_and_then_given_up() {
        let store = TestStore::new::<Idle>().await;
        let config = Config { interruption_limit: 9, ..Config::default() };
        let (_running, worker) = workers(&store, Arc::new(MemoryQueue::new(10)), config);
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
    async fn a_handler_that_ends_late_gives_its_thread_back() {
        let store = TestStore::new::<Idle>().await;
        let (_running, worker) = workers(&store, Arc::new(MemoryQueue::new(10)), Config::default());
        let job = store.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
        let claimed = store.claim(&job).await.expect("it is new");
        let (end, ended) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let _ = ended.await;
            Ok(())
        });
        worker.leave_behind(task, &job, &worker.begin(&claimed));
        assert_eq!(worker.shared.stuck.load(Relaxed), 1);
        end.send(()).expect("it waits");
        let given_back = async {
            while worker.shared.stuck.load(Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), given_back).await.expect("it is counted no more");
    }

    #[tokio::test]
    async fn with_no_limit_to_speak_of_it_is_repeated_for_ever() {
        let store = TestStore::new::<Idle>().await;
        let config = Config { interruption_limit: u32::MAX, ..Config::default() };
        let (_running, worker) = workers(&store, Arc::new(MemoryQueue::new(10)), config);
        let outcome = worker.interrupted(100_000, String::new());
        assert!(matches!(outcome, Outcome::Interrupted { retry_in: LATEST_AFTER_A_PIPELINE_FAULT, .. }), "{outcome:?}");
    }
}
