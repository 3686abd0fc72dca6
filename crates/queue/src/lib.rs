//! How workers learn that there is something to do. The [`Queue`] trait speaks domain verbs; a queue in memory and NATS
//! JetStream implement it side by side, and one suite (`tests/conformance.rs`) runs every verb on both.
//!
//! The one thing to know: the store is the truth, and what is queued here is only a [`Hint`]. A hint may be lost, repeated,
//! late or wrong without harm, because a job is claimed in the store before it is run, and the sweeper finds what was lost.

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

/// What carries hints from those who record events to those who handle them.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Takes hints for these handlers from now on, and for no others. What waits for others is dropped: a handler that is
    /// paused or gone must not take room, and its jobs are safe in the store.
    async fn serve(&self, handlers: &[HandlerName]);

    /// Tells the workers of jobs. Best effort: it ends within two seconds whatever happens, and does not wait for a
    /// connection. A job that still waits, or is being handled, is not queued a second time. A hint for a handler that is not
    /// served is dropped.
    async fn dispatch(&self, hints: &[Hint]) -> Dispatched;

    /// Up to `max` hints for one handler; waits until there is at least one. High priority goes first, but low
    /// priority is never starved. May be dropped at any time: a hint that was on its way comes again.
    async fn pull(&self, handler: &HandlerName, max: usize) -> Vec<Pulled>;

    /// How many hints wait for a handler, if that can be known now.
    async fn waiting(&self, handler: &HandlerName) -> Option<u64>;

    /// How many more hints it would take for this handler now: none while it is away. Each handler has room of its own.
    fn room(&self, handler: &HandlerName) -> usize;

    /// Says why hints cannot get through now, if so.
    async fn check(&self) -> Result<(), QueueError>;

    /// Whether other processes get what is dispatched here.
    fn is_shared(&self) -> bool;

    /// Waits until the queue finds out that hints may have been lost: then all pending jobs should be dispatched again. What was
    /// found out before the call is told at once. Only one task may call this.
    async fn emptied(&self);

    /// Sends what is under way, and lets go of the connection. Nothing comes afterwards.
    async fn close(&self);
}

/// A hint that a job may be ready. The store is the truth: a hint may be lost, repeated, late or wrong without harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The event of the job.
    pub event: EventId,
    /// The handler of the job.
    pub handler: HandlerName,
    /// How urgent it is.
    pub priority: Priority,
}

/// What became of hints, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// They are queued.
    pub queued: usize,
    /// They waited already, or are being handled.
    pub waiting_already: usize,
    /// They did not get through, or it is not known whether they did: the queue is full, away, or too slow.
    pub not_queued: usize,
}

/// A hint that was pulled. Unless it is acknowledged, it comes again: at once from memory when this is dropped, and from
/// JetStream after `ack_wait`.
#[derive(Debug)]
pub struct Pulled {
    /// The hint.
    pub hint: Hint,
    receipt: Receipt,
}

impl Pulled {
    /// Says that this hint is done with, whatever came of it. Best effort.
    pub async fn acknowledge(self) {
        match self.receipt {
            Receipt::Memory(receipt) => receipt.acknowledge(),
            Receipt::JetStream(receipt) => receipt.acknowledge().await,
        }
    }

    /// Says that the work goes on, so that the hint is not given to another worker after `ack_wait`. Best effort.
    pub async fn in_progress(&self) {
        match &self.receipt {
            // The queue in memory gives it to no other worker meanwhile.
            Receipt::Memory(_) => {}
            Receipt::JetStream(receipt) => receipt.in_progress().await,
        }
    }
}

/// What is needed to acknowledge a hint.
#[derive(Debug)]
enum Receipt {
    Memory(memory::Receipt),
    JetStream(jetstream::Receipt),
}
