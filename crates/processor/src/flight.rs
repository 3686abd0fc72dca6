//! The jobs this process holds: their leases are renewed while they wait and run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookfast_queue::Delivery;
use hookfast_store::{JobId, Store, Token};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

/// A job of ours.
pub(crate) struct Held {
    pub(crate) token: Token,
    /// The message that told us of it.
    pub(crate) delivery: Option<Arc<Delivery>>,
    /// Cancelled when the job is not ours any more.
    pub(crate) lost: CancellationToken,
    since: Instant,
    /// When we give up on it: a handler that does not yield must not be kept alive.
    until: Option<Instant>,
}

/// All jobs of ours.
#[derive(Default)]
pub(crate) struct Flight {
    jobs: Mutex<HashMap<JobId, Held>>,
}

impl Flight {
    pub(crate) fn take_off(&self, job: JobId, token: Token, delivery: Option<Arc<Delivery>>) -> CancellationToken {
        let lost = CancellationToken::new();
        let held = Held { token, delivery, lost: lost.clone(), since: Instant::now(), until: None };
        // If our own lease ended and the job came back to us, the run before has lost it.
        if let Some(before) = self.lock().insert(job, held) {
            before.lost.cancel();
        }
        lost
    }

    /// The run has begun and should be over by then.
    pub(crate) fn expect_until(&self, job: &JobId, until: Instant) {
        if let Some(held) = self.lock().get_mut(job) {
            held.until = Some(until);
        }
    }

    /// Lets go of a job, unless it is another run's by now.
    pub(crate) fn land(&self, job: &JobId, token: Token) -> Option<Held> {
        let mut jobs = self.lock();
        if jobs.get(job)?.token == token { jobs.remove(job) } else { None }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Held>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the leases of jobs that are held for long, until the task is dropped.
    pub(crate) async fn keep(self: Arc<Self>, store: Arc<dyn Store>, lease: Duration) {
        let mut timer = interval(lease / 3);
        loop {
            timer.tick().await;
            let due = self.to_renew(lease / 3);
            let jobs: Vec<_> = due.iter().map(|(job, token, _)| (job.clone(), *token)).collect();
            if jobs.is_empty() {
                continue;
            }
            match store.renew(&jobs, lease).await {
                Ok(lost) => lost.iter().for_each(|job| self.lose(job)),
                Err(error) => tracing::warn!(%error, jobs = jobs.len(), "leases could not be renewed; trying again"),
            }
            for (_, _, delivery) in due {
                if let Some(delivery) = delivery {
                    delivery.in_progress().await;
                }
            }
        }
    }

    fn to_renew(&self, older_than: Duration) -> Vec<(JobId, Token, Option<Arc<Delivery>>)> {
        let now = Instant::now();
        let jobs = self.lock();
        let due = jobs
            .iter()
            .filter(|(_, held)| now - held.since >= older_than && held.until.is_none_or(|until| now < until));
        due.map(|(job, held)| (job.clone(), held.token, held.delivery.clone())).collect()
    }

    fn lose(&self, job: &JobId) {
        // It may have landed meanwhile, and then all is well.
        if let Some(held) = self.lock().get(job) {
            tracing::warn!(event_id = %job.event, handler = %job.handler, "the lease was lost; the run is broken off");
            held.lost.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::{EventId, HandlerName};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_that_lost_its_job_does_not_let_go_of_it_for_the_next_one() {
        let flight = Flight::default();
        let job = JobId { event: EventId::new(), handler: HandlerName::new("ledger").expect("a name") };
        let [first, second] = [Token(Uuid::from_u128(1)), Token(Uuid::from_u128(2))];
        let first_lost = flight.take_off(job.clone(), first, None);
        let second_lost = flight.take_off(job.clone(), second, None);
        assert!(first_lost.is_cancelled() && !second_lost.is_cancelled());
        assert!(flight.land(&job, first).is_none(), "it is the second run's");
        assert!(flight.land(&job, second).is_some_and(|held| held.token == second));
    }
}
