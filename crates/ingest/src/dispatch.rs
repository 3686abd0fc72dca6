//! Tells the workers about new jobs, by hints through the queue. A lost hint does no harm: the sweeper finds its job.
//!
//! Before it, `Committer::commit` in `commit`, or `Drainer::finish` in `spool::drain`, has made jobs durable and calls
//! [`Dispatcher::tell`]. A task of its own calls `Queue::dispatch`. After it, `Worker::work` in `processor::worker` pulls
//! the hints.

use std::sync::Arc;

use hookfast_parts::Tasks;
use hookfast_queue::{Hint, Queue};
use hookfast_store::{NewJob, Recorded};
use hookfast_webhook::EventId;
use metrics::{Counter, counter};
use tokio::sync::mpsc;

/// Batches that may wait to be dispatched. Further batches are dropped, and the sweeper finds their jobs.
const WAITING_BATCHES: usize = 1024;

/// Waiting batches are joined until one call to the queue has this many hints.
const HINTS: usize = 1024;

/// Sends hints to the workers from a task of its own.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    batches: mpsc::Sender<Vec<Hint>>,
    failed: Counter,
}

impl Dispatcher {
    /// Starts the task. It ends when the last `Dispatcher` is dropped.
    pub(crate) fn start(queue: Arc<dyn Queue>, tasks: &Tasks) -> Self {
        let (batches, waiting) = mpsc::channel(WAITING_BATCHES);
        let failed = counter!("hookfast_dispatch_failed_total");
        tasks.spawn("dispatcher", run(queue, waiting, failed.clone()));
        Self { batches, failed }
    }

    /// Sends hints about the jobs of the events that are new.
    pub(crate) fn tell<'a>(&self, events: impl IntoIterator<Item = (EventId, &'a [NewJob])>, recorded: &[Recorded]) {
        let new = events.into_iter().zip(recorded).filter(|(_, recorded)| **recorded == Recorded::New);
        let hints: Vec<_> = new.flat_map(|((event, jobs), _)| hints(event, jobs)).collect();
        if hints.is_empty() {
            return;
        }
        if let Err(error) = self.batches.try_send(hints) {
            self.failed.increment(error.into_inner().len() as u64);
        }
    }
}

/// A hint for each job. The queue ignores hints for handlers that it does not serve.
fn hints(event: EventId, jobs: &[NewJob]) -> impl Iterator<Item = Hint> {
    jobs.iter().map(move |job| Hint { event, handler: job.handler.clone(), priority: job.priority })
}

async fn run(queue: Arc<dyn Queue>, mut waiting: mpsc::Receiver<Vec<Hint>>, failed: Counter) {
    while let Some(mut hints) = waiting.recv().await {
        while hints.len() < HINTS
            && let Ok(more) = waiting.try_recv()
        {
            hints.extend(more);
        }
        let dispatched = queue.dispatch(&hints).await;
        failed.increment(dispatched.not_queued as u64);
    }
}
