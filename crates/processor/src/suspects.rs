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
