//! A walk through the pending jobs of one handler, in the order in which they are due.
//!
//! The walk remembers how far it got, so that each job is dispatched once. It starts over when the queue holds nothing of the
//! handler, because then a pending job's hint is lost or late; and `dispatch_again_after` after its end in any case, or later if
//! walks found nothing new.

use std::sync::Arc;
use std::time::Duration;

use hookfast_queue::Hint;
use hookfast_store::{DueJob, DueJobs, DuePlace, StoreError};
use hookfast_webhook::HandlerName;
use tokio::time::Instant;

use super::Sweeper;
use crate::Config;
use crate::worker::Worker;

/// How many jobs are dispatched at a time, at first and at most: after an outage everything is due at once, and the other
/// side of the handlers has just come back.
const FIRST_PART: u32 = 256;
const LARGEST_PART: u32 = 4096;

/// A walk that dispatched nothing new is repeated ever later, up to this multiple of `dispatch_again_after`.
const LATEST: u32 = 16;

pub(super) struct Walk {
    pub(super) worker: Arc<Worker>,
    sweep_every: Duration,
    dispatch_again_after: Duration,
    /// A job with this many crashes is dead if it crashes once more.
    suspect_from: u32,
    /// How far it got. `None` is the beginning.
    place: Option<DuePlace>,
    part: u32,
    begun_at: Instant,
    /// When it came to its end.
    ended_at: Option<Instant>,
    /// Whether it dispatched anything that the queue did not hold.
    found_something: bool,
    /// How long it rests at its end, if the queue is empty and if it is not.
    rest: Duration,
    long_rest: Duration,
}

impl Walk {
    pub(super) fn new(worker: &Arc<Worker>, config: &Config) -> Self {
        Self {
            worker: Arc::clone(worker),
            sweep_every: config.sweep_every,
            dispatch_again_after: config.dispatch_again_after,
            suspect_from: config.suspect_from(),
            place: None,
            part: FIRST_PART,
            begun_at: Instant::now(),
            ended_at: None,
            found_something: false,
            rest: config.sweep_every,
            long_rest: config.dispatch_again_after,
        }
    }

    pub(super) fn name(&self) -> &HandlerName {
        &self.worker.name
    }

    pub(super) fn start_over(&mut self) {
        self.place = None;
        self.begun_at = Instant::now();
        self.ended_at = None;
        self.found_something = false;
    }

    /// Starts over if it is time to. Otherwise it goes on from where it is: new jobs stand behind that place.
    pub(super) async fn begin_round(&mut self, sweeper: &Sweeper) {
        // Not again and again, or it would never get past its first parts.
        let may_start_over = self.ended_at.is_some() || self.begun_at.elapsed() >= self.dispatch_again_after;
        if may_start_over && sweeper.look_again.take(self.name()) {
            return self.start_over();
        }
        let Some(rested) = self.ended_at.map(|ended_at| ended_at.elapsed()) else { return };
        if rested >= self.long_rest
            || rested >= self.rest && sweeper.queue.waiting(self.name()).await.is_some_and(|waiting| waiting == 0)
        {
            self.start_over();
        }
    }

    /// Dispatches the next part. Says whether there may be more for now.
    pub(super) async fn step(&mut self, sweeper: &Sweeper) -> Result<bool, StoreError> {
        if !self.worker.gate().is_open() {
            self.start_over();
            return Ok(false);
        }
        let room = u32::try_from(sweeper.queue.room(self.name())).unwrap_or(u32::MAX);
        let limit = self.part.min(room);
        if limit == 0 {
            return Ok(false);
        }
        let ordering = self.worker.settings().config.ordering;
        let due = DueJobs { handler: self.name(), after: self.place, limit, ordering };
        let due = sweeper.store.due_jobs(&due).await?;
        if !self.dispatch(sweeper, &due).await {
            self.part = FIRST_PART;
            return Ok(false);
        }
        self.place = due.last().map(|job| job.place).or(self.place);
        let is_end = due.len() < limit as usize;
        if is_end {
            self.end();
        } else {
            self.part = (self.part * 2).min(LARGEST_PART);
        }
        Ok(!is_end)
    }

    /// Says whether the queue took all of them.
    async fn dispatch(&mut self, sweeper: &Sweeper, due: &[DueJob]) -> bool {
        let (suspects, ready): (Vec<_>, Vec<_>) =
            due.iter().filter(|job| job.is_ready).partition(|job| job.crashes >= self.suspect_from);
        for job in suspects {
            self.worker.suspects.add(job.place.event);
        }
        if ready.is_empty() {
            return true;
        }
        let hint =
            |job: &&DueJob| Hint { event: job.place.event, handler: self.name().clone(), priority: job.priority };
        let hints: Vec<_> = ready.iter().map(hint).collect();
        let dispatched = sweeper.queue.dispatch(&hints).await;
        if dispatched.queued > 0 {
            self.found_something = true;
            (self.rest, self.long_rest) = (self.sweep_every, self.dispatch_again_after);
        }
        sweeper.dispatched.increment((dispatched.queued + dispatched.waiting_already) as u64);
        sweeper.failed.increment(dispatched.not_queued as u64);
        dispatched.not_queued == 0
    }

    /// At the end there is nothing more to dispatch for now. A walk in vain is repeated later than the last one.
    fn end(&mut self) {
        self.part = FIRST_PART;
        if self.ended_at.is_none() {
            self.ended_at = Some(Instant::now());
            if !self.found_something {
                self.rest = (self.rest * 2).min(self.dispatch_again_after);
                self.long_rest = (self.long_rest * 2).min(self.dispatch_again_after * LATEST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use hookfast_handler::testing::{TestEvent, TestStore};
    use hookfast_queue::{Dispatched, MemoryQueue, Pulled, Queue, QueueError};
    use hookfast_webhook::EventId;
    use metrics::Counter;

    use super::*;
    use crate::Running;
    use crate::testing::{Idle, workers};

    const HOUR: Duration = Duration::from_secs(3600);

    /// A queue in memory that remembers what was dispatched.
    struct Watched {
        inner: MemoryQueue,
        dispatched: Mutex<Vec<EventId>>,
        /// Whether it says how much room it has, as memory does and servers do not.
        tells_room: bool,
    }

    impl Watched {
        fn new(capacity: usize, tells_room: bool) -> Arc<Self> {
            Arc::new(Self { inner: MemoryQueue::new(capacity), dispatched: Mutex::default(), tells_room })
        }

        /// What was dispatched since the last time.
        fn dispatched(&self) -> Vec<EventId> {
            std::mem::take(&mut *self.dispatched.lock().expect("no test panics with it"))
        }
    }

    #[async_trait]
    impl Queue for Watched {
        async fn serve(&self, handlers: &[HandlerName]) {
            self.inner.serve(handlers).await;
        }

        async fn dispatch(&self, hints: &[Hint]) -> Dispatched {
            self.dispatched.lock().expect("no test panics with it").extend(hints.iter().map(|hint| hint.event));
            self.inner.dispatch(hints).await
        }

        async fn pull(&self, handler: &HandlerName, max: usize) -> Vec<Pulled> {
            self.inner.pull(handler, max).await
        }

        async fn waiting(&self, handler: &HandlerName) -> Option<u64> {
            self.inner.waiting(handler).await
        }

        fn room(&self, handler: &HandlerName) -> usize {
            if self.tells_room { self.inner.room(handler) } else { usize::MAX }
        }

        async fn check(&self) -> Result<(), QueueError> {
            self.inner.check().await
        }

        fn is_shared(&self) -> bool {
            self.inner.is_shared()
        }

        async fn emptied(&self) {
            self.inner.emptied().await;
        }

        async fn close(&self) {
            self.inner.close().await;
        }
    }

    /// A walk, with all that it needs.
    struct Field {
        store: TestStore,
        queue: Arc<Watched>,
        sweeper: Sweeper,
        walk: Walk,
        _running: Running,
    }

    impl Field {
        async fn new(queue: Arc<Watched>, config: Config) -> Self {
            let store = TestStore::new::<Idle>().await;
            let dyn_queue: Arc<dyn Queue> = Arc::clone(&queue) as _;
            let (running, worker) = workers(&store, Arc::clone(&dyn_queue), config.clone());
            let sweeper = Sweeper {
                store: Arc::clone(store.store()) as _,
                queue: dyn_queue,
                table: Arc::clone(&running.table),
                metrics: Arc::clone(&worker.shared.metrics),
                config: config.clone(),
                leases: Arc::clone(&worker.shared.leases),
                trouble: Arc::clone(&worker.shared.trouble),
                look_again: Arc::clone(&worker.shared.look_again),
                dispatched: Counter::noop(),
                failed: Counter::noop(),
            };
            let walk = Walk::new(&worker, &config);
            Self { store, queue, sweeper, walk, _running: running }
        }

        /// Records jobs that are due, in their order.
        async fn due(&self, count: usize) -> Vec<EventId> {
            let mut events = Vec::new();
            for _ in 0..count {
                let job = self.store.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
                events.push(job.event);
            }
            self.store.rows("UPDATE jobs SET due_at = 1").await;
            events
        }

        async fn rows(&self) -> Vec<Vec<String>> {
            self.store.rows("SELECT hex(event_id), state, due_at, attempts, crashes FROM jobs ORDER BY 1").await
        }

        /// A round of the sweeper. Gives what was dispatched.
        async fn round(&mut self) -> Vec<EventId> {
            self.walk.begin_round(&self.sweeper).await;
            while self.walk.step(&self.sweeper).await.expect("the store answers") {}
            self.queue.dispatched()
        }

        /// Takes hints from the queue, as workers do.
        async fn take(&self, count: usize) -> HashSet<EventId> {
            let mut taken = HashSet::new();
            for pulled in self.queue.pull(self.walk.name(), count).await {
                taken.insert(pulled.hint.event);
                pulled.acknowledge().await;
            }
            assert_eq!(taken.len(), count);
            taken
        }
    }

    fn restless() -> Config {
        Config { sweep_every: Duration::ZERO, dispatch_again_after: HOUR, ..Config::default() }
    }

    #[tokio::test]
    async fn a_standing_backlog_is_dispatched_once_as_far_as_there_is_room_and_not_written() {
        let mut field = Field::new(Watched::new(4, true), restless()).await;
        let events = field.due(10).await;
        let before = field.rows().await;
        assert_eq!(field.round().await, events[..4], "as far as there is room");
        for _ in 0..3 {
            assert_eq!(field.round().await, [], "there is no room");
        }
        field.take(1).await;
        assert_eq!(field.round().await, events[4..5]);
        field.take(4).await;
        assert_eq!(field.round().await, events[5..9]);
        field.take(2).await;
        assert_eq!(field.round().await, events[9..]);
        assert_eq!(field.round().await, [], "each of them once");
        assert_eq!(field.rows().await, before);
    }

    #[tokio::test]
    async fn jobs_that_become_due_later_are_dispatched_without_starting_over() {
        let mut field = Field::new(Watched::new(100, true), restless()).await;
        let first = field.due(3).await;
        assert_eq!(field.round().await, first);
        let job = field.store.record::<Idle>(&TestEvent::new("stripe", "t", "{}")).await;
        field.store.rows("UPDATE jobs SET due_at = 2 WHERE due_at > 2").await;
        assert_eq!(field.round().await, [job.event]);
    }

    #[tokio::test]
    async fn the_walk_starts_over_when_the_queue_holds_nothing_of_the_handler() {
        let mut field = Field::new(Watched::new(100, true), restless()).await;
        let events = field.due(3).await;
        assert_eq!(field.round().await, events);
        field.take(2).await;
        assert_eq!(field.round().await, [], "one still waits");
        field.take(1).await;
        assert_eq!(field.round().await, events, "they are pending, and all hints are gone");
    }

    #[tokio::test]
    async fn the_walk_rests_before_it_starts_over() {
        let config = Config { sweep_every: HOUR, dispatch_again_after: HOUR, ..Config::default() };
        let mut field = Field::new(Watched::new(100, true), config).await;
        let events = field.due(3).await;
        assert_eq!(field.round().await, events);
        field.take(3).await;
        assert_eq!(field.round().await, [], "the queue is empty because workers are about to claim them");
        field.walk.start_over();
        assert_eq!(field.round().await, events, "the queue has lost everything");
    }

    #[tokio::test]
    async fn the_walk_starts_over_after_a_long_rest_in_any_case() {
        let config = Config { sweep_every: HOUR, dispatch_again_after: Duration::ZERO, ..Config::default() };
        let mut field = Field::new(Watched::new(100, true), config).await;
        let events = field.due(3).await;
        assert_eq!(field.round().await, events);
        assert_eq!(field.round().await, events);
        assert_eq!(field.queue.waiting(field.walk.name()).await, Some(3), "the queue knows them already");
    }

    #[tokio::test]
    async fn what_the_queue_refuses_is_dispatched_when_there_is_room() {
        let mut field = Field::new(Watched::new(4, false), restless()).await;
        let events = field.due(6).await;
        assert_eq!(field.round().await, events, "a server does not say how much room it has");
        assert_eq!(field.walk.place, None, "two were refused");
        let mut taken = field.take(4).await;
        field.round().await;
        taken.extend(field.take(4).await);
        // The first four come again; the two that were refused come as soon as those are claimed.
        field
            .store
            .rows("DELETE FROM jobs WHERE event_id IN (SELECT event_id FROM jobs ORDER BY event_id LIMIT 4)")
            .await;
        field.round().await;
        taken.extend(field.take(2).await);
        assert_eq!(taken, events.into_iter().collect());
        assert!(field.walk.place.is_some(), "all were taken");
    }

    #[tokio::test]
    async fn a_paused_handler_is_not_read() {
        let mut field = Field::new(Watched::new(100, true), restless()).await;
        let events = field.due(2).await;
        assert_eq!(field.round().await, events);
        let worker = Arc::clone(&field.walk.worker);
        worker.pause(true);
        field.store.rows("ALTER TABLE jobs RENAME TO away").await;
        assert_eq!(field.walk.step(&field.sweeper).await.ok(), Some(false), "the store was not asked");
        worker.pause(false);
        field.walk.step(&field.sweeper).await.expect_err("now it is asked");
        field.store.rows("ALTER TABLE away RENAME TO jobs").await;
        assert_eq!(field.round().await, events, "its hints were dropped when it was paused");
    }

    #[tokio::test]
    async fn a_walk_in_vain_is_repeated_ever_later() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let config = Config { sweep_every: second, dispatch_again_after: minute, ..Config::default() };
        let mut field = Field::new(Watched::new(100, true), config).await;
        let mut rests = Vec::new();
        for _ in 0..8 {
            field.walk.start_over();
            assert_eq!(field.round().await, []);
            assert_eq!(field.round().await, [], "at its end it rests as long as it did before");
            rests.push((field.walk.rest.as_secs(), field.walk.long_rest.as_secs()));
        }
        let expected = [(2, 120), (4, 240), (8, 480), (16, 960), (32, 960), (60, 960), (60, 960), (60, 960)];
        assert_eq!(rests, expected);
        field.due(1).await;
        assert_eq!(field.round().await.len(), 1, "what is new stands behind the place where it rests");
        assert_eq!((field.walk.rest, field.walk.long_rest), (second, minute));
        field.walk.start_over();
        field.round().await;
        assert_eq!((field.walk.rest, field.walk.long_rest), (2 * second, 2 * minute), "the queue knew it already");
    }

    #[tokio::test]
    async fn a_suspect_is_not_dispatched_with_the_others() {
        let mut field = Field::new(Watched::new(100, true), restless()).await;
        let events = field.due(3).await;
        let crash = "UPDATE jobs SET crashes = 2
                     WHERE event_id IN (SELECT event_id FROM jobs ORDER BY event_id LIMIT 1)";
        field.store.rows(crash).await;
        assert_eq!(field.round().await, events[1..], "it is dead if it crashes once more");
        assert_eq!(field.walk.worker.suspects.next().await, events[0]);
    }
}
