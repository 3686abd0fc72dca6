//! Suspects: jobs that are dead letters if they crash once more. A crash takes every run of its process with it, the innocent
//! with the guilty. So a suspect runs in a process of its own, where only its own crash can end it, and where it ends no
//! other run. Each handler has a line of its own.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hookfast_store::JobId;
use hookfast_webhook::EventId;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Runs a job in a process of its own.
#[async_trait]
pub trait RunApart: Send + Sync {
    /// Runs the job to its end, whatever that is. When `stop` says so, the run is broken off in order.
    async fn run_apart(&self, job: &JobId, stop: &CancellationToken) -> std::io::Result<()>;
}

/// How many suspects run at once: of one handler, and of all handlers of a process.
pub(crate) const OF_ONE_HANDLER: usize = 2;
pub(crate) const OF_ALL_HANDLERS: usize = 4;

/// How long to wait after a suspect could not be run: its process may fail to start for as long as a deploy lasts.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);

/// How many suspects of a handler wait at most. The sweeper finds the others again.
const WAITING: usize = 1024;

/// The suspects of a handler that wait for a place to run in.
#[derive(Default)]
pub(crate) struct Suspects {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<EventId>,
    /// Those that wait, and those that run.
    known: HashSet<EventId>,
}

impl Suspects {
    pub(crate) fn add(&self, event: EventId) {
        let mut waiting = self.lock();
        if waiting.queue.len() < WAITING && waiting.known.insert(event) {
            waiting.queue.push_back(event);
            self.added.notify_one();
        }
    }

    /// The next one, once there is one. It counts as waiting until [`Suspects::done`].
    pub(crate) async fn next(&self) -> EventId {
        loop {
            if let Some(event) = self.lock().queue.pop_front() {
                return event;
            }
            self.added.notified().await;
        }
    }

    pub(crate) fn done(&self, event: EventId) {
        self.lock().known.remove(&event);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the suspects of a handler, until its worker stops.
pub(crate) async fn run(worker: Arc<Worker>, apart: Option<Arc<dyn RunApart>>, places: Arc<Semaphore>) {
    let stop = worker.stop.clone();
    while let Some(event) = stop.run_until_cancelled(worker.suspects.next()).await {
        let place = stop.run_until_cancelled(places.acquire()).await;
        if place.is_some()
            && worker.gate().is_open()
            && let Err(error) = run_suspect(&worker, apart.as_deref(), event).await
        {
            tracing::warn!(%error, event_id = %event, handler = %worker.name, "a job that crashed before could not be run apart; it is tried again");
            stop.run_until_cancelled(sleep(AFTER_A_FAILURE)).await;
        }
        worker.suspects.done(event);
        // Jobs may have waited behind it, and it may have to run again.
        worker.shared.look_again.at(&worker.name);
    }
}

async fn run_suspect(worker: &Arc<Worker>, apart: Option<&dyn RunApart>, event: EventId) -> std::io::Result<()> {
    let job = JobId { event, handler: worker.name.clone() };
    match apart {
        // A handler that is removed finishes what it runs.
        Some(apart) => apart.run_apart(&job, &worker.shared.shutdown).await,
        None => worker.run_one(event).await.map_err(std::io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> EventId {
        EventId::new()
    }

    fn waiting(suspects: &Suspects) -> usize {
        suspects.lock().queue.len()
    }

    #[tokio::test]
    async fn a_suspect_waits_once_and_in_its_turn() {
        let suspects = Suspects::default();
        let [first, second] = [job(), job()];
        for job in [first, second, first, second] {
            suspects.add(job);
        }
        assert_eq!(waiting(&suspects), 2);
        assert_eq!([suspects.next().await, suspects.next().await], [first, second]);
        assert_eq!(waiting(&suspects), 0);
    }

    #[tokio::test]
    async fn a_suspect_that_runs_does_not_wait_again_until_it_is_done() {
        let suspects = Suspects::default();
        let suspect = job();
        suspects.add(suspect);
        let running = suspects.next().await;
        suspects.add(suspect);
        assert_eq!(waiting(&suspects), 0, "the sweeper finds it while it runs");
        suspects.done(running);
        suspects.add(suspect);
        assert_eq!(suspects.next().await, suspect, "it crashed again, or could not be run");
    }

    #[tokio::test]
    async fn what_does_not_fit_is_forgotten_and_can_come_again() {
        let suspects = Suspects::default();
        let late = job();
        for _ in 0..WAITING {
            suspects.add(job());
        }
        suspects.add(late);
        assert_eq!(waiting(&suspects), WAITING);
        let first = suspects.next().await;
        suspects.done(first);
        suspects.add(late);
        assert_eq!(waiting(&suspects), WAITING);
        assert_eq!(suspects.lock().queue.back(), Some(&late));
    }

    #[tokio::test]
    async fn who_waits_for_a_suspect_is_told() {
        let suspects = Arc::new(Suspects::default());
        let told = tokio::spawn({
            let suspects = Arc::clone(&suspects);
            async move { suspects.next().await }
        });
        tokio::task::yield_now().await;
        let suspect = job();
        suspects.add(suspect);
        assert_eq!(told.await.expect("it does not panic"), suspect);
    }
}
