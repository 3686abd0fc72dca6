//! Recording into the spool while the store cannot take events.
//!
//! There are two ways: direct and spool. A batch that the store does not take in time goes into the spool, and with it
//! everything that comes later, at once, so that the order of arrival holds. Only the drainer leads back to the direct way,
//! when nothing waits in the spool any more.

pub(crate) mod drain;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hookfast_store::{Behind, Recorded, Routed, Spool, StoreError};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{Instant, timeout};

/// The store may use one part in this many of the time until the first deadline of a batch; the rest is for the spool.
const PART_FOR_THE_STORE: u32 = 3;

/// The spool, and the time after which it is used.
#[derive(Clone)]
pub struct SpoolWay {
    /// Where events wait.
    pub spool: Arc<Spool>,
    /// The store that they wait for.
    pub store: Arc<dyn Behind>,
    /// The shortest time after which the store counts as away.
    pub after: Duration,
}

/// Which way events take.
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
    /// Held for reading while a batch is added to the spool, so that the way cannot change meanwhile.
    way: RwLock<Way>,
    /// Set while the store fails the drainer. Then only the drainer asks the store.
    is_away: AtomicBool,
    begun: Notify,
    /// Set while the drainer makes progress; notified after every drained batch.
    gets_on: AtomicBool,
    got_on: Notify,
    is_spooling: Gauge,
    spooled: Counter,
    not_spooled: Counter,
}

impl Spooling {
    /// Begins directly, unless something waits from before or the store is away.
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
            gets_on: AtomicBool::new(false),
            got_on: Notify::new(),
            is_spooling,
            spooled: counter!("hookfast_spooled_events_total"),
            not_spooled: counter!("hookfast_spool_failures_total"),
        }
    }

    /// Records a batch in the store or in the spool; durable on return.
    pub(crate) async fn record(&self, events: &[Routed], deadline: Instant) -> Result<Vec<Recorded>, StoreError> {
        self.let_the_drainer_get_on().await;
        let way = self.way.read().await;
        let patience = (deadline.saturating_duration_since(Instant::now()) / PART_FOR_THE_STORE).max(self.after);
        if *way == Way::Spool {
            match self.add(events, &way).await {
                // It is full, or its disk is. Out of order is better than not at all.
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

    /// While the spool is drained, one batch is handed on before another is added. The drainer's are larger: so the spool
    /// becomes empty however many requests come in.
    async fn let_the_drainer_get_on(&self) {
        let got_on = self.got_on.notified();
        if self.gets_on.load(Relaxed) && self.is_spooling().await {
            let _ = timeout(self.after, got_on).await;
        }
    }

    /// Notes whether the drainer gets on.
    pub(crate) fn set_gets_on(&self, gets_on: bool) {
        self.gets_on.store(gets_on, Relaxed);
        self.got_on.notify_waiters();
    }

    async fn record_directly(&self, events: &[Routed], patience: Duration) -> Result<Vec<Recorded>, StoreError> {
        match timeout(patience, self.store.record(events)).await {
            Ok(recorded) => recorded,
            // It may yet be committed. The event keeps its id in the spool, so that draining sees it.
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
            // The store may still be there, so the process goes on without the spool.
            Err(error) => {
                self.not_spooled.increment(events.len() as u64);
                Err(StoreError::Unavailable(format!("the spool cannot be used: {error}")))
            }
        }
    }

    /// Blocks all recording until the guard is dropped. Also gives the longest time for that, because senders wait.
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

    /// Notes whether the store failed the drainer. Returns whether that has changed.
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
    /// Back to the direct way; nothing may wait in the spool.
    pub(crate) fn end_spooling(mut self) {
        *self.way = Way::Direct;
        self.is_spooling.set(0.0);
    }
}

#[cfg(test)]
mod tests;
