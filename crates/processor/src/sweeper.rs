//! The sweeper: whatever is due and not finished is dispatched again. Lost messages, dead workers, retries and replays are
//! all the same to it.
//!
//! Each round has two parts. First, retries that are due and jobs whose lease has ended become pending, which is the only
//! thing that is written. Then the pending jobs of each handler are read in the order in which they are due, as far as the
//! queue has room for that handler: a standing backlog costs nothing but reading as much of it as fits.

mod walk;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hookfast_queue::{Hint, Queue};
use hookfast_store::{Crash, Ready, StoreError, Sweep, Swept, Work};
use hookfast_webhook::{FailureKind, HandlerName};
use metrics::Counter;
use tokio::time::{MissedTickBehavior, interval};

use crate::Config;
use crate::faults::{self, Protection, Task};
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::table::Table;
use crate::trouble::Trouble;
use walk::Walk;

/// How many jobs become pending at a time. After a failure fewer are asked for, so that a slow store gets something done.
const BATCH: u32 = 4096;

/// How many parts of a handler's backlog are dispatched before other handlers' due jobs are looked for again.
const PARTS: usize = 8;

/// The handlers whose walk is to start over, because a job that it has passed may be ready now.
#[derive(Default)]
pub(crate) struct LookAgain(Mutex<HashSet<HandlerName>>);

impl LookAgain {
    pub(crate) fn at(&self, handler: &HandlerName) {
        self.handlers().insert(handler.clone());
    }

    fn take(&self, handler: &HandlerName) -> bool {
        self.handlers().remove(handler)
    }

    fn handlers(&self) -> MutexGuard<'_, HashSet<HandlerName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Sweeper {
    pub(crate) store: Arc<dyn Work>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) table: Arc<Table>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Config,
    pub(crate) leases: Arc<Leases>,
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) look_again: Arc<LookAgain>,
    pub(crate) dispatched: Counter,
    pub(crate) failed: Counter,
}

impl Sweeper {
    /// Sweeps until the task is dropped.
    pub(crate) async fn run(self) {
        let mut timer = interval(self.config.sweep_every);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut walks: Vec<Walk> = Vec::new();
        let mut batch = BATCH;
        loop {
            tokio::select! {
                _ = timer.tick() => {}
                () = self.queue.emptied() => walks.iter_mut().for_each(Walk::start_over),
            }
            faults::panic_in(Task::Sweeper);
            if faults::is_off(Protection::Sweeper) {
                continue;
            }
            self.follow_table(&mut walks);
            let names: Vec<_> = walks.iter().map(|walk| walk.name().clone()).collect();
            match self.make_pending(&names, batch).await {
                Ok(()) => batch = (batch * 2).min(BATCH),
                Err(error) => {
                    tracing::warn!(%error, "due jobs could not be made pending; trying again with fewer");
                    batch = (batch / 2).max(1);
                }
            }
            self.dispatch(&mut walks).await;
        }
    }

    /// Ends the walks of workers that are gone, and begins those of workers that are new.
    fn follow_table(&self, walks: &mut Vec<Walk>) {
        let workers = self.table.workers();
        walks.retain(|walk| workers.iter().any(|worker| Arc::ptr_eq(worker, &walk.worker)));
        for worker in &workers {
            if !walks.iter().any(|walk| Arc::ptr_eq(worker, &walk.worker)) {
                walks.push(Walk::new(worker, &self.config));
            }
        }
    }

    /// Makes pending what is due, of all handlers.
    async fn make_pending(&self, names: &[HandlerName], batch: u32) -> Result<(), StoreError> {
        let of_each = batch.div_ceil(u32::try_from(names.len()).unwrap_or(u32::MAX).max(1));
        loop {
            let swept = self.sweep(names, of_each).await?;
            self.note(&swept);
            if !swept.has_more {
                return Ok(());
            }
        }
    }

    /// A lease that has ended is a crash, unless its worker may not have been able to renew it: after trouble with the store
    /// each worker has the time for one renewal.
    async fn sweep(&self, names: &[HandlerName], limit: u32) -> Result<Swept, StoreError> {
        let renewed = self.leases.renew_before_sweeping().await;
        let judge_leases_within = self.trouble.judge_leases_within().filter(|_| renewed.is_ok());
        let sweep = Sweep { handlers: names, limit, crash_limit: self.config.crash_limit, judge_leases_within };
        let swept = self.trouble.noting(self.store.sweep(&sweep)).await?;
        if swept.came_late {
            self.trouble.note();
        }
        Ok(swept)
    }

    fn note(&self, swept: &Swept) {
        for Crash { job, source, is_buried } in &swept.crashed {
            let metrics = self.metrics.of(&job.handler).of(source);
            metrics.count_crash();
            if !is_buried {
                continue;
            }
            metrics.count_dead(FailureKind::Crash);
            // Jobs may have waited behind it.
            self.look_again.at(&job.handler);
            tracing::error!(event_id = %job.event, handler = %job.handler, "too many runs of a job in a row ended without a word, and it is a dead letter");
        }
    }

    /// Dispatches a part of each handler's backlog in turn, so that a long one holds up no other.
    async fn dispatch(&self, walks: &mut [Walk]) {
        for walk in walks.iter_mut() {
            walk.begin_round(self).await;
        }
        let mut under_way: Vec<_> = walks.iter_mut().collect();
        for _ in 0..PARTS {
            let mut go_on = Vec::new();
            for walk in under_way {
                if self.step(walk).await {
                    go_on.push(walk);
                }
            }
            under_way = go_on;
        }
    }

    /// Dispatches the next part of a handler's backlog. Says whether there may be more for now.
    async fn step(&self, walk: &mut Walk) -> bool {
        match walk.step(self).await {
            Ok(goes_on) => goes_on,
            Err(error) => {
                tracing::warn!(%error, handler = %walk.name(), "due jobs could not be looked for; trying again");
                false
            }
        }
    }
}

pub(crate) fn hint(ready: Ready) -> Hint {
    Hint { event: ready.job.event, handler: ready.job.handler, priority: ready.priority }
}
