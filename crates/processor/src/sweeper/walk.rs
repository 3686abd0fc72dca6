//! A walk through the pending jobs of one handler, in the order in which they are due.
//!
//! The walk remembers how far it got, so that each job is dispatched once. It starts over when the queue holds nothing of the
//! handler, because then a pending job's hint is lost or late; and every `dispatch_again_after` in any case.

use std::sync::Arc;
use std::time::Duration;

use hookfast_queue::{Hint, Queue};
use hookfast_store::{DueJob, DueJobs, DuePlace, JobId, StoreError};
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
    worker: Arc<Worker>,
    sweep_every: Duration,
    dispatch_again_after: Duration,
    /// A job with this many crashes is dead if it crashes once more.
    suspect_from: u32,
    /// How far it got. `None` is the beginning.
    place: Option<DuePlace>,
    part: u32,
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
        self.ended_at = None;
        self.found_something = false;
    }

    /// Starts over if it is time to. Otherwise it goes on from where it is: new jobs stand behind that place.
    pub(super) async fn begin_round(&mut self, queue: &dyn Queue) {
        let Some(rested) = self.ended_at.map(|ended_at| ended_at.elapsed()) else { return };
        if rested >= self.long_rest
            || rested >= self.rest && queue.waiting(self.name()).await.is_some_and(|waiting| waiting == 0)
        {
            self.start_over();
        }
    }

    /// Dispatches the next part. Says whether there may be more for now.
    pub(super) async fn step(&mut self, sweeper: &Sweeper) -> Result<bool, StoreError> {
        if self.worker.is_paused() {
            self.start_over();
            return Ok(false);
        }
        let room = u32::try_from(sweeper.queue.room(self.name())).unwrap_or(u32::MAX);
        let limit = self.part.min(room);
        if limit == 0 {
            return Ok(false);
        }
        let ordering = self.worker.config.ordering;
        let due = DueJobs { handler: self.name(), after: self.place, limit, ordering };
        let due = sweeper.trouble.noting(sweeper.store.due_jobs(&due)).await?;
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
            sweeper.suspects.add(JobId { event: job.place.event, handler: self.name().clone() });
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
