//! Recording into the spool while the store cannot take events.
//!
//! There are two ways: direct and spool. If the store does not take a batch in time, the batch goes into the spool.
//! From then on every later batch goes there too, without asking the store, so that the order of arrival is kept. Only
//! the drainer switches back to the direct way, once the spool is empty.

pub(crate) mod drain;
mod patience;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hookfast_store::{Behind, Recorded, Routed, Spool, StoreError};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{Instant, timeout};

use crate::spool::patience::patience;

/// The spool, and when it is used.
#[derive(Clone)]
pub struct SpoolWay {
    /// Where events wait.
    pub spool: Arc<Spool>,
    /// The store into which they are drained.
    pub store: Arc<dyn Behind>,
    /// The store gets at least this long to record a batch before the spool is used.
    pub after: Duration,
}

/// Where batches are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Spool,
}

/// The state that committers, drainer and readiness share.
pub(crate) struct Spooling {
    pub(crate) spool: Arc<Spool>,
    pub(crate) store: Arc<dyn Behind>,
    after: Duration,
    /// Locked for reading while a batch is added to the spool, so that the way cannot change meanwhile.
    way: RwLock<Way>,
    /// Set while the drainer cannot reach the store. Then only the drainer tries to.
    is_away: AtomicBool,
    begun: Notify,
    /// Set while the drainer makes progress; notified after every drained batch.
    is_progressing: AtomicBool,
    progressed: Notify,
    is_spooling: Gauge,
    spooled: Counter,
    not_spooled: Counter,
}

impl Spooling {
    /// Starts with the direct way, unless the spool holds events from an earlier run or the store cannot be reached.
    pub(crate) async fn start(way: SpoolWay) -> Self {
        let SpoolWay { spool, store, after } = way;
        let is_empty = spool.oldest(1, 0).await.is_ok_and(|oldest| oldest.is_empty());
        let way = if is_empty && store.check().await.is_ok() { Way::Direct } else { Way::Spool };
        let is_spooling = gauge!("hookfast_spooling");
        is_spooling.set(f64::from(u8::from(way == Way::Spool)));
        gauge!("hookfast_spool_max_bytes").set(spool.max_bytes() as f64);
        Self {
            spool,
            store,
            after,
            way: RwLock::new(way),
            is_away: AtomicBool::new(false),
            begun: Notify::new(),
            is_progressing: AtomicBool::new(false),
            progressed: Notify::new(),
            is_spooling,
            spooled: counter!("hookfast_spooled_events_total"),
            not_spooled: counter!("hookfast_spool_failures_total"),
        }
    }

    /// Records a batch in the store or in the spool. `Ok` means that it is durable.
    pub(crate) async fn record(&self, events: &[Routed], deadline: Instant) -> Result<Vec<Recorded>, StoreError> {
        self.wait_for_drainer().await;
        let way = self.way.read().await;
        let patience = patience(events, deadline.saturating_duration_since(Instant::now()), self.after);
        if *way == Way::Spool {
            match self.add(events, &way).await {
                // The spool or its disk is full. Recording out of order is better than not recording.
                Err(_) if !self.is_away() => {}
                added => return added,
            }
            drop(way);
            return self.record_directly(events, patience).await;
        }
        drop(way);
        match self.record_directly(events, patience).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Broken(_))) => {
                let way = self.begin(&error).await;
                self.add(events, &way).await
            }
            recorded => recorded,
        }
    }

    /// While the drainer makes progress, each new batch waits until one batch has been drained. The drainer's batches
    /// are larger, so the spool becomes empty however many requests come in.
    async fn wait_for_drainer(&self) {
        let progressed = self.progressed.notified();
        if self.is_progressing.load(Relaxed) && self.is_spooling().await {
            let _ = timeout(self.after, progressed).await;
        }
    }

    /// Notes whether the drainer makes progress, and wakes the batches that wait for it.
    pub(crate) fn set_progressing(&self, is_progressing: bool) {
        self.is_progressing.store(is_progressing, Relaxed);
        self.progressed.notify_waiters();
    }

    async fn record_directly(&self, events: &[Routed], patience: Duration) -> Result<Vec<Recorded>, StoreError> {
        match timeout(patience, self.store.record(events)).await {
            Ok(recorded) => recorded,
            // The store may still commit the batch. Its events have the same ids in the spool, so draining finds them
            // recorded.
            Err(_) => Err(StoreError::Unavailable(format!("no answer within {patience:?}"))),
        }
    }

    /// Switches to the spool, for this batch and all later ones.
    async fn begin(&self, error: &StoreError) -> RwLockReadGuard<'_, Way> {
        let mut way = self.way.write().await;
        if *way == Way::Direct {
            tracing::error!(%error, "events are recorded into the spool on this machine until the store takes them");
            *way = Way::Spool;
            self.is_spooling.set(1.0);
            self.begun.notify_one();
        }
        way.downgrade()
    }

    async fn add(&self, events: &[Routed], _: &RwLockReadGuard<'_, Way>) -> Result<Vec<Recorded>, StoreError> {
        match self.spool.add(events).await {
            Ok(added) => {
                self.spooled.increment(added as u64);
                Ok(vec![Recorded::Spooled; events.len()])
            }
            Err(StoreError::Rejected(problem)) => Err(StoreError::Rejected(problem)),
            // The store may still be reachable, so the process continues without the spool.
            Err(error) => {
                self.not_spooled.increment(events.len() as u64);
                Err(StoreError::Unavailable(format!("the spool cannot be used: {error}")))
            }
        }
    }

    /// Blocks all recording until the guard is dropped. Also returns how long that may take at most, because senders
    /// wait.
    pub(crate) async fn pause(&self) -> (Pause<'_>, Duration) {
        (Pause { way: self.way.write().await, is_spooling: &self.is_spooling }, self.after)
    }

    /// Waits until something goes into the spool.
    pub(crate) async fn wait_for_work(&self) {
        while !self.is_spooling().await {
            self.begun.notified().await;
        }
    }

    pub(crate) async fn is_spooling(&self) -> bool {
        *self.way.read().await == Way::Spool
    }

    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Relaxed)
    }

    /// Notes whether the drainer can reach the store. Returns whether that changed.
    pub(crate) fn set_away(&self, is_away: bool) -> bool {
        self.is_away.swap(is_away, Relaxed) != is_away
    }
}

/// A guard: nothing is recorded while it lives.
pub(crate) struct Pause<'a> {
    way: RwLockWriteGuard<'a, Way>,
    is_spooling: &'a Gauge,
}

impl Pause<'_> {
    /// Switches back to the direct way. The spool must be empty.
    pub(crate) fn end_spooling(mut self) {
        *self.way = Way::Direct;
        self.is_spooling.set(0.0);
    }
}

#[cfg(test)]
mod tests;
