//! Group commit: all requests that wait when a commit ends share the next one.
//!
//! Before it, `RoutedRequest::record` in `record` calls [`Recorder::record`] with the events of one request. A committer
//! calls `Record::record` of the store, or `Spooling::record` if there is a spool. After it, `Dispatcher::tell` gets the
//! new jobs, and the request goes on to `RecordedRequest::answer`.
//!
//! A commit costs an fsync, so one commit for each request would be slow. There is no artificial delay: an idle gateway
//! commits at once, and a busy gateway commits larger batches.
//!
//! A request that is larger than a batch, or has a body that the store writes in parts, takes long to write. It goes into a
//! second queue, so that smaller requests need not wait for it.
//!
//! A request puts its events into a queue and waits. From then on the commit does not depend on the request: a caller
//! who hangs up, or a deadline that passes, does not stop the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hookfast_parts::{MustEnd, Tasks};
use hookfast_store::{LARGE_BYTES, Record, Recorded, Routed, StoreError};
use metrics::{Histogram, histogram};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::dispatch::Dispatcher;
use crate::memory::MemoryShare;
use crate::rejection::Rejection;
use crate::spool::Spooling;
use crate::weight::weigh;

/// The size of a batch. The bytes include everything that is kept for a request, not only its body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) events: usize,
    pub(crate) bytes: u64,
}

impl BatchLimits {
    /// Whether enough waits for a second concurrent commit. `waiting` is a number of events, or of requests where the
    /// events are not counted: each request has at least one.
    fn are_worth_a_commit(self, waiting: usize) -> bool {
        waiting >= self.events / WORTH_A_COMMIT
    }
}

/// A second concurrent commit starts only once a full batch divided by this (a quarter) is waiting.
const WORTH_A_COMMIT: usize = 4;

/// How long a batch waits for the commit under way before it starts a second one.
const PATIENCE: Duration = Duration::from_millis(10);

/// Takes the events of requests for the next commit.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    small: Line,
    /// For requests with more bytes than a batch, or with a large body.
    large: Line,
}

/// A queue with committers of its own.
#[derive(Debug, Clone)]
struct Line {
    queue: mpsc::Sender<Submission>,
    under_way: Arc<UnderWay>,
    limits: BatchLimits,
}

/// What the committers need besides the queue.
pub(crate) struct Committing<'a> {
    pub(crate) store: &'a Arc<dyn Record>,
    /// Where batches go while the store cannot take them.
    pub(crate) spooling: Option<&'a Arc<Spooling>>,
    pub(crate) limits: BatchLimits,
    /// Ends the process when the store promises nothing more.
    pub(crate) must_end: &'a MustEnd,
    pub(crate) dispatcher: Option<&'a Dispatcher>,
}

/// The events of one request. They are committed together or not at all.
#[derive(Debug)]
struct Submission {
    events: Vec<Routed>,
    bytes: u64,
    deadline: Instant,
    reply: oneshot::Sender<Result<Vec<Recorded>, NotRecorded>>,
    _memory: Option<MemoryShare>,
}

/// The store did not take the events; the cause is in the log.
#[derive(Debug, Clone, Copy)]
struct NotRecorded;

impl Recorder {
    /// Starts as many committers as the store can use, and one for large requests on another runtime. They end when the
    /// last `Recorder` is dropped and the queues are empty.
    pub(crate) fn start(
        committing: &Committing<'_>,
        queue_requests: usize,
        committers: &Tasks,
        elsewhere: &Tasks,
    ) -> Self {
        let parallel = committing.store.parallel_records();
        Self {
            small: Line::start(committing, parallel, queue_requests, committers),
            large: Line::start(committing, 1, queue_requests, elsewhere),
        }
    }

    /// Records the events of one request. `Ok` means that they are durable.
    pub(crate) async fn record(
        &self,
        events: Vec<Routed>,
        mut memory: Option<MemoryShare>,
        deadline: Instant,
    ) -> Result<Vec<Recorded>, Rejection> {
        let bytes = weigh(&events)?;
        if let Some(memory) = &mut memory {
            memory.grow_for_genuine(bytes)?;
        }
        let (reply, answer) = oneshot::channel();
        let submission = Submission { events, bytes, deadline, reply, _memory: memory };
        self.line_for(&submission).join(submission)?;
        match timeout_at(deadline, answer).await {
            Err(_) => Err(Rejection::Late),
            Ok(Ok(Ok(recorded))) => Ok(recorded),
            // `Err(_)`: the committer panicked, so the outcome is unknown.
            Ok(Ok(Err(NotRecorded)) | Err(_)) => Err(Rejection::NotRecorded),
        }
    }

    fn line_for(&self, submission: &Submission) -> &Line {
        let has_large_body = || submission.events.iter().any(|routed| routed.event.body().len() > LARGE_BYTES);
        if submission.bytes > self.small.limits.bytes || has_large_body() { &self.large } else { &self.small }
    }
}

impl Line {
    fn start(committing: &Committing<'_>, committers: usize, queue_requests: usize, tasks: &Tasks) -> Self {
        let Committing { store, spooling, limits, must_end, dispatcher } = *committing;
        let (queue, waiting) = mpsc::channel(queue_requests);
        let waiting = Arc::new(Mutex::new(waiting));
        let under_way = Arc::new(UnderWay::default());
        for _ in 0..committers {
            let committer = Committer {
                store: Arc::clone(store),
                spooling: spooling.cloned(),
                waiting: Arc::clone(&waiting),
                under_way: Arc::clone(&under_way),
                limits,
                must_end: must_end.clone(),
                dispatcher: dispatcher.cloned(),
                batch_events: histogram!("hookfast_commit_events"),
                duration: histogram!("hookfast_commit_duration_seconds"),
            };
            tasks.spawn("committer", committer.run());
        }
        Self { queue, under_way, limits }
    }

    fn join(&self, submission: Submission) -> Result<(), Rejection> {
        self.queue.try_send(submission).map_err(|error| match error {
            TrySendError::Full(_) => Rejection::Overloaded,
            TrySendError::Closed(_) => Rejection::NotRecorded,
        })?;
        // The committer that gathers the batch has already taken one request out of the queue.
        if self.limits.are_worth_a_commit(self.queue.max_capacity() - self.queue.capacity() + 1) {
            self.under_way.news.notify_one();
        }
        Ok(())
    }
}

/// How many commits are under way.
#[derive(Debug, Default)]
struct UnderWay {
    count: AtomicUsize,
    /// Notified when a commit has ended, or when enough requests wait for another. Only the committer that gathers the
    /// next batch waits for it, and is not woken for each request.
    news: Notify,
}

impl UnderWay {
    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.news.notify_one();
    }
}

/// A batch that is being gathered.
struct Batch {
    submissions: Vec<Submission>,
    events: usize,
    bytes: u64,
}

impl Batch {
    fn new(first: Submission) -> Self {
        let mut batch = Self { submissions: Vec::new(), events: 0, bytes: 0 };
        batch.push(first);
        batch
    }

    fn push(&mut self, submission: Submission) {
        self.events += submission.events.len();
        self.bytes += submission.bytes;
        self.submissions.push(submission);
    }

    fn is_within(&self, limits: BatchLimits) -> bool {
        self.events < limits.events && self.bytes < limits.bytes
    }
}

struct Committer {
    store: Arc<dyn Record>,
    spooling: Option<Arc<Spooling>>,
    waiting: Arc<Mutex<mpsc::Receiver<Submission>>>,
    under_way: Arc<UnderWay>,
    limits: BatchLimits,
    must_end: MustEnd,
    /// `None` if this process has no queue to the workers.
    dispatcher: Option<Dispatcher>,
    batch_events: Histogram,
    duration: Histogram,
}

impl Committer {
    async fn run(self) {
        while let Some(batch) = self.next_batch().await {
            self.commit(batch).await;
            self.under_way.end();
        }
    }

    /// Takes everything that waits, up to the limits. The last request may exceed them.
    ///
    /// While a commit is under way, a second one starts only if enough events wait or the first one takes long.
    /// Otherwise a few early requests would use up a commit, and the many requests right behind them would wait for the
    /// next.
    async fn next_batch(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.waiting.lock().await;
        let mut batch = Batch::new(waiting.recv().await?);
        let patience = Instant::now() + PATIENCE;
        while self.under_way.any()
            && !self.limits.are_worth_a_commit(batch.events + waiting.len())
            && Instant::now() < patience
        {
            tokio::select! {
                () = self.under_way.news.notified() => {}
                () = sleep_until(patience) => {}
            }
        }
        while batch.is_within(self.limits)
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        self.under_way.begin();
        Some(batch.submissions)
    }

    async fn commit(&self, mut batch: Vec<Submission>) {
        // The senders of late requests were told to try again. Under overload, recording these would make others late,
        // too.
        let now = Instant::now();
        batch.retain(|submission| submission.deadline > now);
        let first_deadline = batch.iter().map(|submission| submission.deadline).min().unwrap_or(now);

        let mut pieces = vec![Piece::of(batch)];
        while let Some(piece) = pieces.pop() {
            if piece.waiting.is_empty() {
                continue;
            }
            match self.record(&piece.events, first_deadline).await {
                Ok(recorded) => {
                    if let Some(dispatcher) = &self.dispatcher {
                        let jobs = piece.events.iter().map(|routed| (routed.event.id(), routed.jobs.as_slice()));
                        dispatcher.tell(jobs, &recorded);
                    }
                    piece.reply(recorded);
                }
                Err(StoreError::Rejected(_)) if piece.waiting.len() > 1 => pieces.extend(piece.split()),
                Err(error) => self.refuse(piece, &error),
            }
        }
    }

    async fn record(&self, events: &[Routed], deadline: Instant) -> Result<Vec<Recorded>, StoreError> {
        let start = Instant::now();
        let recorded = match &self.spooling {
            Some(spooling) => spooling.record(events, deadline).await?,
            None => self.store.record(events).await?,
        };
        self.batch_events.record(events.len() as f64);
        self.duration.record(start.elapsed());
        Ok(recorded)
    }

    fn refuse(&self, piece: Piece, error: &StoreError) {
        let requests = piece.waiting.len();
        tracing::error!(%error, requests, "events could not be recorded; their senders are told to try again");
        if matches!(error, StoreError::Broken(_)) {
            self.must_end.because_of_the_store();
        }
        for waiting in piece.waiting {
            // Fails if the caller hung up or the deadline passed.
            let _ = waiting.reply.send(Err(NotRecorded));
        }
    }
}

/// A batch, or a piece of one that the store refused as a whole: the events of several requests, and the requests that wait.
struct Piece {
    events: Vec<Routed>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    events: usize,
    reply: oneshot::Sender<Result<Vec<Recorded>, NotRecorded>>,
    _memory: Option<MemoryShare>,
}

impl Piece {
    fn of(batch: Vec<Submission>) -> Self {
        let mut piece = Self { events: Vec::with_capacity(batch.len()), waiting: Vec::with_capacity(batch.len()) };
        for Submission { events, reply, _memory, .. } in batch {
            piece.waiting.push(Waiting { events: events.len(), reply, _memory });
            piece.events.extend(events);
        }
        piece
    }

    fn split(mut self) -> [Self; 2] {
        let waiting = self.waiting.split_off(self.waiting.len() / 2);
        let kept = self.waiting.iter().map(|waiting| waiting.events).sum();
        let events = self.events.split_off(kept);
        [self, Self { events, waiting }]
    }

    fn reply(self, recorded: Vec<Recorded>) {
        let mut recorded = recorded.into_iter();
        for waiting in self.waiting {
            let outcome = recorded.by_ref().take(waiting.events).collect();
            // Fails if the caller hung up or the deadline passed.
            let _ = waiting.reply.send(Ok(outcome));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
