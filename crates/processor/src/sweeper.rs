//! The sweeper: whatever is due and not finished is dispatched again. Lost messages, dead workers, retries and replays are
//! all the same to it.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_queue::{Hint, Queue};
use hookfast_store::{JobId, Ready, Store, StoreError, Sweep};
use hookfast_webhook::{FailureKind, HandlerName};
use metrics::Counter;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::Config;
use crate::faults::{self, Protection};
use crate::metrics::HandlerMetrics;

/// How many jobs are dispatched at a time, at first and at most: after an outage everything is due at once, and whoever
/// the handlers talk to has just come back.
const FIRST_BATCH: u32 = 256;
const LARGEST_BATCH: u32 = 4096;

/// How soon a job that crashed is looked at again if nobody has claimed it: those that must run alone take turns.
const LOOK_AT_SUSPECTS_IN: Duration = Duration::from_secs(1);

pub(crate) struct Sweeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) handlers: Vec<HandlerName>,
    pub(crate) metrics: Arc<HashMap<HandlerName, HandlerMetrics>>,
    pub(crate) config: Config,
    /// To whoever runs jobs alone. Those for which there is no place are found again soon.
    pub(crate) suspects: mpsc::Sender<JobId>,
    pub(crate) dispatched: Counter,
    pub(crate) failed: Counter,
}

impl Sweeper {
    /// Sweeps until the task is dropped.
    pub(crate) async fn run(self) {
        let mut timer = interval(self.config.sweep_every);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batches = vec![FIRST_BATCH; self.handlers.len()];
        // What this process had in its memory when it last ended is lost.
        let mut lost_hints = !self.queue.is_shared();
        loop {
            tokio::select! {
                _ = timer.tick() => {}
                () = self.queue.emptied() => lost_hints = !faults::is_off(Protection::Repair),
            }
            if faults::is_off(Protection::Sweeper) {
                continue;
            }
            if lost_hints {
                lost_hints = self.look_at_all_again().await.is_err();
            }
            // One after the other, so that none waits for another's backlog.
            for (handler, batch) in self.handlers.iter().zip(&mut batches) {
                *batch = self.sweep_all(handler, *batch).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, %handler, "due jobs could not be looked for; trying again");
                    FIRST_BATCH
                });
            }
        }
    }

    /// Sweeps until nothing of the handler is due or the queue is full. Gives the size of the next batch.
    async fn sweep_all(&self, handler: &HandlerName, mut batch: u32) -> Result<u32, StoreError> {
        loop {
            let room = u32::try_from(self.queue.room()).unwrap_or(u32::MAX);
            let limit = batch.min(room);
            if limit == 0 {
                return Ok(batch);
            }
            let sweep = Sweep {
                handlers: slice::from_ref(handler),
                limit,
                look_again_in: self.config.dispatch_again_after,
                look_at_suspects_in: LOOK_AT_SUSPECTS_IN,
                crash_limit: self.config.crash_limit,
            };
            let swept = self.store.sweep(&sweep).await?;
            for job in &swept.crashed {
                self.of(&job.handler, HandlerMetrics::count_crash);
            }
            for job in &swept.buried {
                self.of(&job.handler, |metrics| metrics.count_dead(FailureKind::Crash));
                tracing::error!(event_id = %job.event, handler = %job.handler, "a job took its process with it too often and is a dead letter");
            }
            for job in swept.suspects {
                let _ = self.suspects.try_send(job);
            }
            let is_all = swept.due < limit as usize;
            let hints: Vec<_> = swept.ready.into_iter().map(hint).collect();
            if !hints.is_empty() {
                let dispatched = self.queue.dispatch(&hints).await;
                self.dispatched.increment((dispatched.queued + dispatched.waiting_already) as u64);
                if dispatched.not_queued > 0 {
                    // They are looked at again later. More would not get through either.
                    self.failed.increment(dispatched.not_queued as u64);
                    return Ok(FIRST_BATCH);
                }
            }
            if is_all {
                return Ok(FIRST_BATCH);
            }
            batch = (batch * 2).min(LARGEST_BATCH);
        }
    }

    /// Makes everything due that waits in a queue that is empty now.
    async fn look_at_all_again(&self) -> Result<(), StoreError> {
        let mut jobs = 0;
        loop {
            let found = self.store.look_again(&self.handlers, LARGEST_BATCH).await.inspect_err(|error| {
                tracing::warn!(%error, "pending jobs could not be made due; trying again");
            })?;
            jobs += found;
            if found < u64::from(LARGEST_BATCH) {
                break;
            }
        }
        if jobs > 0 {
            tracing::info!(jobs, "the queue has lost what it held; pending jobs are dispatched again");
        }
        Ok(())
    }

    fn of(&self, handler: &HandlerName, count: impl FnOnce(&HandlerMetrics)) {
        if let Some(metrics) = self.metrics.get(handler) {
            count(metrics);
        }
    }
}

pub(crate) fn hint(ready: Ready) -> Hint {
    Hint { event: ready.job.event, handler: ready.job.handler, priority: ready.priority }
}
