//! Settling: the outcome first, many in one statement, and then the hint is acknowledged.
//!
//! Before it, `Worker::end` sends the outcome of a run to [`Settler::run`]. After it, the path ends; with an ordering
//! key, the next job of the key is dispatched.

use std::sync::Arc;
use std::time::Duration;

use hookfast_queue::{Hint, Queue};
use hookfast_store::{JobId, LostRun, Settlement, StoreError, Work};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::faults::{self, Point, Task};
use crate::leases::Leases;
use crate::metrics::JobMetrics;
use crate::sweeper::{LookAgain, hint};
use crate::trouble::Trouble;

/// How many outcomes share a statement.
const BATCH: usize = 256;

/// How long to wait before trying again while the store is away.
const PAUSE: Duration = Duration::from_millis(500);

/// A run that ended.
pub(crate) struct Ended {
    pub(crate) settlement: Settlement,
    /// Where it is counted.
    pub(crate) metrics: Arc<JobMetrics>,
    /// The job's place among those that its worker has claimed, free once the job is settled. A job that runs apart has none.
    pub(crate) on_board: Option<OwnedSemaphorePermit>,
}

/// Writes outcomes.
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Work>,
    pub(crate) queue: Arc<dyn Queue>,
    /// Holds the jobs until they are settled, so that their leases are renewed while the store is away.
    pub(crate) leases: Arc<Leases>,
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) look_again: Arc<LookAgain>,
}

impl Settler {
    /// Settles whatever ended, until all senders are gone.
    pub(crate) async fn run(self, mut ended: mpsc::Receiver<Ended>) {
        let mut batch = Vec::new();
        while ended.recv_many(&mut batch, BATCH).await > 0 {
            self.settle(std::mem::take(&mut batch)).await;
        }
    }

    async fn settle(&self, batch: Vec<Ended>) {
        faults::panic_in(Task::Settler);
        faults::pass(Point::BeforeSettle);
        let settlements: Vec<_> = batch.iter().map(|ended| ended.settlement.clone()).collect();
        let metrics: Vec<_> = batch.iter().map(|ended| Arc::clone(&ended.metrics)).collect();
        self.write(&settlements, &metrics).await;
        faults::pass(Point::AfterSettle);
        let settled = |Ended { settlement, on_board, .. }: Ended| {
            drop(on_board);
            self.leases.let_go(&settlement.job, settlement.token)
        };
        let pulled: Vec<_> = batch.into_iter().filter_map(settled).collect();
        // The server of the queue may be slow, and the next outcomes must not wait for it.
        tokio::spawn(async move {
            for pulled in pulled {
                pulled.acknowledge().await;
            }
        });
    }

    /// Writes the outcomes, for as long as it takes. A lease that ends meanwhile makes them stale, and that is found out
    /// by the token.
    async fn write(&self, settlements: &[Settlement], metrics: &[Arc<JobMetrics>]) {
        let mut parts = vec![(settlements, metrics)];
        while let Some((part, metrics)) = parts.pop() {
            match self.trouble.noting(self.store.settle(part)).await {
                Ok(settled) => {
                    count(part, metrics, &settled.stale);
                    self.pardon(part, &settled.stale).await;
                    if !settled.next.is_empty() {
                        self.dispatch(settled.next.into_iter().map(hint).collect());
                    }
                }
                // One of them cannot be written: find it.
                Err(StoreError::Rejected(_)) if part.len() > 1 => {
                    let middle = part.len() / 2;
                    parts.push((&part[middle..], &metrics[middle..]));
                    parts.push((&part[..middle], &metrics[..middle]));
                }
                Err(StoreError::Rejected(problem)) => {
                    let job = &part[0].job;
                    tracing::error!(event_id = %job.event, handler = %job.handler, problem, "an outcome cannot be written; the run counts as a crash when its lease ends");
                }
                // The process ends, and the next one finds that the leases have ended.
                Err(error @ StoreError::Broken(_)) => {
                    tracing::error!(%error, jobs = part.len(), "outcomes could not be written");
                    return;
                }
                Err(error @ StoreError::Unavailable(_)) => {
                    tracing::warn!(%error, jobs = part.len(), "outcomes could not be written; trying again");
                    tokio::time::sleep(PAUSE).await;
                    parts.push((part, metrics));
                }
            }
        }
    }

    /// The walk may have passed these jobs while others of their key were before them. If the queue has no room, the walk starts
    /// over. The next outcomes do not wait for the queue's server.
    fn dispatch(&self, hints: Vec<Hint>) {
        let (queue, look_again) = (Arc::clone(&self.queue), Arc::clone(&self.look_again));
        tokio::spawn(async move {
            if queue.dispatch(&hints).await.not_queued > 0 {
                hints.iter().for_each(|hint| look_again.at(&hint.handler));
            }
        });
    }

    /// Runs that lost their lease have not crashed: they have just ended.
    async fn pardon(&self, settlements: &[Settlement], stale: &[JobId]) {
        let lost = settlements.iter().filter(|run| stale.contains(&run.job));
        let lost: Vec<_> = lost
            .map(|Settlement { job, attempt, worker, .. }| LostRun {
                job: job.clone(),
                attempt: *attempt,
                worker: Arc::clone(worker),
            })
            .collect();
        if let Err(error) = self.leases.pardon(lost).await {
            tracing::warn!(%error, "runs that lost their lease count as crashes until the store hears of them");
        }
    }
}

fn count(settlements: &[Settlement], metrics: &[Arc<JobMetrics>], stale: &[JobId]) {
    for (Settlement { job, outcome, duration, .. }, metrics) in settlements.iter().zip(metrics) {
        if stale.contains(job) {
            metrics.count_stale();
            tracing::warn!(event_id = %job.event, handler = %job.handler, "a run ended after it had lost its job; its outcome does not count");
        } else {
            metrics.count(outcome, *duration);
        }
    }
}
