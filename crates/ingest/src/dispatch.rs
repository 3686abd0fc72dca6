//! Telling the workers what was recorded. Best effort: the sweeper finds what gets lost here.

use std::collections::HashSet;
use std::sync::Arc;

use hookfast_queue::{Hint, Queue};
use hookfast_store::{NewJob, Recorded};
use hookfast_webhook::{EventId, HandlerName};
use metrics::{Counter, counter};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// How many batches may wait to be dispatched. While the queue is slow or away, the others are left to the sweeper.
const WAITING_BATCHES: usize = 1024;

/// How many hints are sent together.
const HINTS: usize = 1024;

/// Whom to tell, and how.
pub struct Dispatch {
    /// How.
    pub queue: Arc<dyn Queue>,
    /// The handlers that somebody works for: nobody else would ever take a hint out of the queue.
    pub handlers: HashSet<HandlerName>,
}

/// The way to the workers.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    batches: mpsc::Sender<Vec<Hint>>,
    handlers: Arc<HashSet<HandlerName>>,
    failed: Counter,
}

impl Dispatcher {
    /// Starts to dispatch; ends when the last `Dispatcher` is gone.
    pub(crate) fn start(dispatch: Dispatch, tasks: &TaskTracker, runtime: &Handle) -> Self {
        let Dispatch { queue, handlers } = dispatch;
        let (batches, waiting) = mpsc::channel(WAITING_BATCHES);
        let failed = counter!("hookfast_dispatch_failed_total");
        tasks.spawn_on(run(queue, waiting, failed.clone()), runtime);
        Self { batches, handlers: Arc::new(handlers), failed }
    }

    /// Tells of the jobs of events that are new.
    pub(crate) fn tell<'a>(&self, events: impl IntoIterator<Item = (EventId, &'a [NewJob])>, recorded: &[Recorded]) {
        let new = events.into_iter().zip(recorded).filter(|(_, recorded)| **recorded == Recorded::New);
        let hints: Vec<_> = new.flat_map(|((event, jobs), _)| self.hints(event, jobs)).collect();
        if hints.is_empty() {
            return;
        }
        if let Err(error) = self.batches.try_send(hints) {
            self.failed.increment(error.into_inner().len() as u64);
        }
    }

    fn hints(&self, event: EventId, jobs: &[NewJob]) -> impl Iterator<Item = Hint> {
        let told = jobs.iter().filter(|job| self.handlers.contains(&job.handler));
        told.map(move |job| Hint { event, handler: job.handler.clone(), priority: job.priority })
    }
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
