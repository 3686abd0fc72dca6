//! How workers learn that a job is ready. The [`Queue`] trait has two implementations, a queue in memory and NATS
//! JetStream. One suite (`tests/conformance.rs`) runs every method on both.
//!
//! Before it, `Dispatcher::tell` in `ingest::dispatch` has hints about new jobs, or the sweeper about jobs that are due,
//! and [`Queue::dispatch`] takes them. After it, `Worker::work` in `processor::worker` gets them from [`Queue::pull`] and
//! claims their jobs.
//!
//! The one thing to know: the store is the truth, and the queue carries only [`Hint`]s. A hint may be lost, repeated,
//! late or wrong without harm: a worker claims a job in the store before it runs it, and the sweeper finds jobs whose
//! hints were lost.

mod error;
mod jetstream;
mod memory;
mod open;
mod shares;

use async_trait::async_trait;
use hookfast_webhook::{EventId, HandlerName, Priority};

pub use error::QueueError;
pub use memory::MemoryQueue;
pub use open::{Config, QueueUrl, Servers, open};

/// Carries hints from the processes that record events to the workers that run handlers.
#[async_trait]
pub trait Queue: Send + Sync {
    /// From now on takes hints for these handlers only. Waiting hints for other handlers are dropped: a handler that is
    /// paused or removed must not take room, and its jobs are safe in the store.
    async fn serve(&self, handlers: &[HandlerName]);

    /// Sends hints to the workers. Best effort: it returns within two seconds whatever happens, and does not wait for a
    /// connection. A job whose hint waits or is being handled is not queued a second time. A hint for a handler that is
    /// not served is dropped.
    async fn dispatch(&self, hints: &[Hint]) -> Dispatched;

    /// Waits for hints for one handler, and returns up to `max` of them. High priority goes first, but low priority is
    /// never starved. The future may be dropped at any time: a hint that was on its way comes again.
    async fn pull(&self, handler: &HandlerName, max: usize) -> Vec<Pulled>;

    /// The number of hints that wait for a handler, or `None` if it cannot be known now.
    async fn waiting(&self, handler: &HandlerName) -> Option<u64>;

    /// How many more hints the queue would take for this handler now; 0 while the queue cannot be reached. Each handler
    /// has room of its own.
    fn room(&self, handler: &HandlerName) -> usize;

    /// Fails with the reason if hints cannot get through now.
    async fn check(&self) -> Result<(), QueueError>;

    /// Whether other processes also get the hints that this process dispatches.
    fn is_shared(&self) -> bool;

    /// Waits until the queue finds out that hints may have been lost. Then all pending jobs should be dispatched again.
    /// Returns at once if the queue found that out before the call. Only one task may call this.
    async fn emptied(&self);

    /// Sends pending messages and closes the connection. No hint comes afterwards.
    async fn close(&self);
}

/// A hint that a job may be ready. The store is the truth: a hint may be lost, repeated, late or wrong without harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The event of the job.
    pub event: EventId,
    /// The handler of the job.
    pub handler: HandlerName,
    /// The priority of the job.
    pub priority: Priority,
}

/// How many hints were queued, and how many not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Hints that are queued now.
    pub queued: usize,
    /// Hints whose jobs were already queued, or are being handled.
    pub waiting_already: usize,
    /// Hints that were not queued, or perhaps not: the queue is full, cannot be reached, or is too slow.
    pub not_queued: usize,
}

/// A hint that a worker pulled. Unless it is acknowledged, it comes again: the queue in memory gives it out again when
/// this value is dropped, and JetStream after `ack_wait`.
#[derive(Debug)]
pub struct Pulled {
    /// The hint.
    pub hint: Hint,
    receipt: Receipt,
}

impl Pulled {
    /// Acknowledges the hint, so that it does not come again. Best effort.
    pub async fn acknowledge(self) {
        match self.receipt {
            Receipt::Memory(receipt) => receipt.acknowledge(),
            Receipt::JetStream(receipt) => receipt.acknowledge().await,
        }
    }

    /// Tells the queue that the job still runs, so that no other worker gets the hint after `ack_wait`. Best effort.
    pub async fn in_progress(&self) {
        match &self.receipt {
            // The queue in memory never gives the hint to another worker while this value lives.
            Receipt::Memory(_) => {}
            Receipt::JetStream(receipt) => receipt.in_progress().await,
        }
    }
}

/// Acknowledges a hint to the queue that it came from.
#[derive(Debug)]
enum Receipt {
    Memory(memory::Receipt),
    JetStream(jetstream::Receipt),
}
