//! The queue of a gateway that is one process. Its hints are lost when the process ends, and the sweeper finds their
//! jobs again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hookfast_webhook::{EventId, HandlerName, Priority};
use tokio::sync::Notify;

use crate::shares::{LANES, Shares, lane};
use crate::{Dispatched, Hint, Pulled, Queue, QueueError};

/// A queue in memory.
#[derive(Debug)]
pub struct MemoryQueue {
    shared: Arc<Shared>,
}

impl MemoryQueue {
    /// An empty queue for at most `capacity` hints of each handler, including those that are being handled. It serves
    /// all handlers until [`Queue::serve`] is called.
    pub fn new(capacity: usize) -> Self {
        Self { shared: Arc::new(Shared { capacity, hints: Mutex::default() }) }
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn serve(&self, handlers: &[HandlerName]) {
        let mut hints = self.shared.lock();
        let served: HashSet<_> = handlers.iter().cloned().collect();
        for (handler, waiting) in &mut hints.handlers {
            if !served.contains(handler) {
                waiting.clear();
            }
        }
        hints.served = Some(served);
    }

    async fn dispatch(&self, hints: &[Hint]) -> Dispatched {
        let mut queue = self.shared.lock();
        let mut dispatched = Dispatched::default();
        for hint in hints.iter().filter(|hint| queue.serves(&hint.handler)).collect::<Vec<_>>() {
            let waiting = queue.handler(&hint.handler);
            if waiting.jobs.contains(&hint.event) {
                dispatched.waiting_already += 1;
            } else if waiting.jobs.len() >= self.shared.capacity {
                dispatched.not_queued += 1;
            } else {
                waiting.add(hint);
                dispatched.queued += 1;
            }
        }
        dispatched
    }

    async fn pull(&self, handler: &HandlerName, max: usize) -> Vec<Pulled> {
        loop {
            let (hints, arrived) = self.shared.lock().handler(handler).take(handler, max);
            if !hints.is_empty() || max == 0 {
                return hints.into_iter().map(|hint| self.shared.deliver(hint)).collect();
            }
            arrived.notified().await;
        }
    }

    async fn waiting(&self, handler: &HandlerName) -> Option<u64> {
        Some(self.shared.lock().handler(handler).len() as u64)
    }

    fn room(&self, handler: &HandlerName) -> usize {
        self.shared.capacity.saturating_sub(self.shared.lock().handler(handler).jobs.len())
    }

    async fn check(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn is_shared(&self) -> bool {
        false
    }

    /// Never returns: hints are lost only with the process, and the next process dispatches them when it starts.
    async fn emptied(&self) {
        std::future::pending::<()>().await;
    }

    async fn close(&self) {}
}

struct Shared {
    capacity: usize,
    hints: Mutex<Hints>,
}

#[derive(Default)]
struct Hints {
    /// The handlers for which hints are taken. `None` means all.
    served: Option<HashSet<HandlerName>>,
    handlers: HashMap<HandlerName, Waiting>,
}

/// The hints of one handler.
#[derive(Default)]
struct Waiting {
    /// The events whose hints wait or are being handled.
    jobs: HashSet<EventId>,
    lanes: [VecDeque<EventId>; LANES],
    shares: Shares,
    arrived: Arc<Notify>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(self: &Arc<Self>, hint: Hint) -> Pulled {
        let receipt = Receipt { queue: Arc::clone(self), hint: Some(hint.clone()) };
        Pulled { hint, receipt: crate::Receipt::Memory(receipt) }
    }
}

impl Hints {
    fn handler(&mut self, handler: &HandlerName) -> &mut Waiting {
        self.handlers.entry(handler.clone()).or_default()
    }

    fn serves(&self, handler: &HandlerName) -> bool {
        self.served.as_ref().is_none_or(|served| served.contains(handler))
    }

    /// Puts a hint that was not acknowledged back to the front of its lane.
    fn put_back(&mut self, hint: &Hint) {
        let is_served = self.serves(&hint.handler);
        let waiting = self.handler(&hint.handler);
        if is_served {
            waiting.lanes[lane(hint.priority)].push_front(hint.event);
            waiting.arrived.notify_one();
        } else {
            waiting.jobs.remove(&hint.event);
        }
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    fn add(&mut self, hint: &Hint) {
        self.jobs.insert(hint.event);
        self.lanes[lane(hint.priority)].push_back(hint.event);
        self.arrived.notify_one();
    }

    /// Drops the waiting hints. Those that are being handled stay until they are acknowledged.
    fn clear(&mut self) {
        for event in self.lanes.iter_mut().flat_map(|lane| lane.drain(..)) {
            self.jobs.remove(&event);
        }
    }

    /// Takes up to `max` hints, the most urgent first. Also returns the notification of further ones.
    fn take(&mut self, handler: &HandlerName, max: usize) -> (Vec<Hint>, Arc<Notify>) {
        let mut taken = Vec::with_capacity(max.min(self.len()));
        while taken.len() < max {
            let Some(lane) = self.shares.next(|lane| !self.lanes[lane].is_empty()) else { break };
            let event = self.lanes[lane].pop_front().expect("an empty lane is never next");
            taken.push(Hint { event, handler: handler.clone(), priority: Priority::ALL[lane] });
        }
        taken.sort_by_key(|hint| lane(hint.priority));
        if self.len() > 0 {
            // A notification wakes one worker. Hints are left, so wake the next.
            self.arrived.notify_one();
        }
        (taken, Arc::clone(&self.arrived))
    }
}

/// Puts its hint back when dropped, unless the hint was acknowledged.
pub(crate) struct Receipt {
    queue: Arc<Shared>,
    hint: Option<Hint>,
}

impl Receipt {
    pub(crate) fn acknowledge(mut self) {
        if let Some(hint) = self.hint.take() {
            self.queue.lock().handler(&hint.handler).jobs.remove(&hint.event);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(hint) = self.hint.take() {
            self.queue.lock().put_back(&hint);
        }
    }
}

/// Leaves out the hints, because there can be a million of them.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("hint", &self.hint).finish_non_exhaustive()
    }
}
