//! Suspects: jobs that are dead letters if they crash once more. A crash takes every run of its process with it, the innocent
//! with the guilty. So a suspect runs in a process of its own, where it dies of its own crash or not at all, and where it
//! stops no other job.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hookfast_store::JobId;
use tokio::sync::Notify;

/// Runs a job in a process of its own.
#[async_trait]
pub trait RunApart: Send + Sync {
    /// Runs the job to its end, whatever that is, or until this is dropped.
    async fn run_apart(&self, job: &JobId) -> std::io::Result<()>;
}

/// How many suspects wait at most. The sweeper finds the others again.
const WAITING: usize = 1024;

/// Suspects that wait for their turn.
#[derive(Default)]
pub(crate) struct Suspects {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<JobId>,
    /// Those that wait, and the one that runs.
    known: HashSet<JobId>,
}

impl Suspects {
    pub(crate) fn add(&self, job: JobId) {
        let mut waiting = self.lock();
        if waiting.queue.len() < WAITING && waiting.known.insert(job.clone()) {
            waiting.queue.push_back(job);
            self.added.notify_one();
        }
    }

    /// The next one, once there is one. It counts as waiting until [`Suspects::done`].
    pub(crate) async fn next(&self) -> JobId {
        loop {
            if let Some(job) = self.lock().queue.pop_front() {
                return job;
            }
            self.added.notified().await;
        }
    }

    pub(crate) fn done(&self, job: &JobId) {
        self.lock().known.remove(job);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::{EventId, HandlerName};

    use super::*;

    fn job() -> JobId {
        JobId { event: EventId::new(), handler: HandlerName::new("ledger").expect("a name") }
    }

    fn waiting(suspects: &Suspects) -> usize {
        suspects.lock().queue.len()
    }

    #[tokio::test]
    async fn a_suspect_waits_once_and_in_its_turn() {
        let suspects = Suspects::default();
        let [first, second] = [job(), job()];
        for job in [&first, &second, &first, &second] {
            suspects.add(job.clone());
        }
        assert_eq!(waiting(&suspects), 2);
        assert_eq!([suspects.next().await, suspects.next().await], [first, second]);
        assert_eq!(waiting(&suspects), 0);
    }

    #[tokio::test]
    async fn a_suspect_that_runs_does_not_wait_again_until_it_is_done() {
        let suspects = Suspects::default();
        let suspect = job();
        suspects.add(suspect.clone());
        let running = suspects.next().await;
        suspects.add(suspect.clone());
        assert_eq!(waiting(&suspects), 0, "the sweeper finds it while it runs");
        suspects.done(&running);
        suspects.add(suspect.clone());
        assert_eq!(suspects.next().await, suspect, "it crashed again, or could not be run");
    }

    #[tokio::test]
    async fn what_does_not_fit_is_forgotten_and_can_come_again() {
        let suspects = Suspects::default();
        let late = job();
        for _ in 0..WAITING {
            suspects.add(job());
        }
        suspects.add(late.clone());
        assert_eq!(waiting(&suspects), WAITING);
        let first = suspects.next().await;
        suspects.done(&first);
        suspects.add(late.clone());
        assert_eq!(waiting(&suspects), WAITING);
        assert_eq!(suspects.lock().queue.back(), Some(&late));
    }

    #[tokio::test]
    async fn who_waits_for_a_suspect_is_told() {
        let suspects = std::sync::Arc::new(Suspects::default());
        let told = tokio::spawn({
            let suspects = std::sync::Arc::clone(&suspects);
            async move { suspects.next().await }
        });
        tokio::task::yield_now().await;
        let suspect = job();
        suspects.add(suspect.clone());
        assert_eq!(told.await.expect("it does not panic"), suspect);
    }
}
