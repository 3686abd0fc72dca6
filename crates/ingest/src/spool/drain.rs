//! Moves events from the spool to the store, the oldest first.
//!
//! A batch is first recorded in the store and then removed from the spool. After a crash between the two the batch is recorded
//! again, and the store recognises its events by their ids.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{NotTaken, Recorded, Spool, SpoolStatus, Spooled, StoreError};
use hookfast_webhook::EventId;
use metrics::{Counter, Gauge, counter, gauge};
use time::OffsetDateTime;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::commit::BatchLimits;
use crate::dispatch::Dispatcher;
use crate::faults::{self, Protection};
use crate::spool::Spooling;

/// Back-off while the store is unreachable: first and longest wait.
const WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// A batch of the drainer has this many times the events of a commit. Draining must be faster than receiving, or it never ends.
const TIMES_THE_BATCH: usize = 4;

/// After a batch that is too large for the store, the next batches are smaller by this factor.
const TIMES_SMALLER: usize = 4;

/// After this many batches in a row that the store recorded, batches become twice as large, up to the full size.
const LARGER_AFTER: u32 = 8;

/// If a batch fails this often in a row although the store can be reached, the batch counts as too large for it.
const BREAKS_AT_MOST: u32 = 5;

/// How long the drainer waits for the store, and between attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Longest wait for a batch.
    pub(crate) batch: Duration,
    /// Longest wait for one event alone, besides the time for its bytes.
    pub(crate) alone: Duration,
    /// The slowest connection to the store over which a single event can still be drained.
    pub(crate) bytes_a_second: u64,
    /// Back-off for an event that is set aside: first and longest wait.
    pub(crate) again: [Duration; 2],
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            batch: Duration::from_secs(5),
            alone: Duration::from_secs(15),
            bytes_a_second: 128 * 1024,
            again: [Duration::from_secs(5 * 60), Duration::from_secs(60 * 60)],
        }
    }
}

impl Patience {
    fn with(&self, event: &Spooled) -> Duration {
        self.alone + Duration::from_secs(event.size_bytes() / self.bytes_a_second)
    }
}

/// Why draining stops for now.
enum Trouble {
    Store(StoreError),
    Spool(StoreError),
}

/// What the drainer does next.
enum Next {
    Drain,
    /// Tries this event again, which is set aside.
    TryAgain(EventId),
    End,
}

/// When an event that is set aside is tried again.
struct Again {
    at: Instant,
    wait: Duration,
}

pub(crate) struct Drainer {
    spooling: Arc<Spooling>,
    dispatcher: Option<Dispatcher>,
    limits: BatchLimits,
    /// Cancelled when the process is about to end.
    last_call: CancellationToken,
    patience: Patience,
    /// A batch has the full size divided by this.
    divisor: usize,
    /// Batches that the store recorded since the size last changed.
    taken: u32,
    /// Batches in a row during which the store failed.
    breaks: u32,
    /// The event that the store did not record within the usual time. It gets more time.
    slow: Option<EventId>,
    /// The events that are set aside, and when each is tried again.
    aside: HashMap<EventId, Again>,
    /// The errors of the store that were logged since it was last reachable.
    said: HashSet<String>,
    drained: Counter,
}

impl Drainer {
    pub(crate) fn new(
        spooling: Arc<Spooling>,
        dispatcher: Option<Dispatcher>,
        limits: BatchLimits,
        last_call: CancellationToken,
    ) -> Self {
        let limits = BatchLimits { events: limits.events * TIMES_THE_BATCH, ..limits };
        Self {
            spooling,
            dispatcher,
            limits,
            last_call,
            patience: Patience::default(),
            divisor: 1,
            taken: 0,
            breaks: 0,
            slow: None,
            aside: HashMap::new(),
            said: HashSet::new(),
            drained: counter!("hookfast_drained_events_total"),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// Drains whenever the spool holds events. After the last call it drains until the spool is empty or something fails.
    pub(crate) async fn run(mut self) {
        let mut wait = WAITS[0];
        loop {
            match self.next().await {
                Next::End => break,
                Next::TryAgain(event) => self.try_again(event).await,
                Next::Drain => match self.drain_some().await {
                    Ok(()) => wait = WAITS[0],
                    Err(trouble) => {
                        self.note(&trouble);
                        if self.last_call.is_cancelled() {
                            break;
                        }
                        self.rest(with_jitter(wait)).await;
                        wait = (wait * 2).min(WAITS[1]);
                    }
                },
            }
        }
        self.say_what_is_left().await;
    }

    /// Waits for something to do.
    async fn next(&self) -> Next {
        let again = self.aside.iter().min_by_key(|(_, again)| again.at).map(|(event, again)| (*event, again.at));
        let time_comes = async {
            match again {
                Some((event, at)) => {
                    sleep_until(at).await;
                    event
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.spooling.wait_for_work() => Next::Drain,
            () = self.last_call.cancelled() => Next::End,
            event = time_comes => Next::TryAgain(event),
        }
    }

    fn note(&mut self, trouble: &Trouble) {
        self.spooling.set_progressing(false);
        match trouble {
            Trouble::Store(error) => {
                self.spooling.set_away(true);
                // Each error is logged once. A different error of the same outage is worth a line of its own.
                if self.said.insert(error.to_string()) {
                    tracing::warn!(%error, "the spool cannot be drained; the gateway tries again until the store is back");
                }
            }
            Trouble::Spool(error) => tracing::error!(%error, "the spool cannot be read or emptied"),
        }
    }

    async fn rest(&self, wait: Duration) {
        tokio::select! {
            () = sleep(wait) => {}
            () = self.last_call.cancelled() => {}
        }
    }

    /// Drains the oldest events, and ends spooling if no others wait.
    async fn drain_some(&mut self) -> Result<(), Trouble> {
        if self.spooling.is_away() {
            self.reach().await?;
        }
        let limits = self.limits_now();
        let oldest = self.oldest(limits).await?;
        let may_be_all = oldest.len() < limits.events;
        self.drain_batch(oldest).await?;
        if may_be_all && !self.spooling.spool.is_waiting().await.map_err(Trouble::Spool)? {
            self.reach().await?;
            self.end_spooling().await?;
        }
        Ok(())
    }

    fn limits_now(&self) -> BatchLimits {
        let BatchLimits { events, bytes } = self.limits;
        BatchLimits { events: (events / self.divisor).max(1), bytes: bytes / self.divisor as u64 }
    }

    async fn oldest(&self, limits: BatchLimits) -> Result<Vec<Spooled>, Trouble> {
        self.spooling.spool.oldest(limits.events, limits.bytes).await.map_err(Trouble::Spool)
    }

    /// Drains the events that came meanwhile, and ends spooling. Pauses recording, or the spool might never be empty.
    async fn end_spooling(&mut self) -> Result<(), Trouble> {
        let spooling = Arc::clone(&self.spooling);
        let (pause, at_most) = spooling.pause().await;
        let rest = async { self.drain_batch(self.oldest(self.limits_now()).await?).await };
        let too_slow = || Trouble::Store(StoreError::Unavailable(format!("no answer within {at_most:?}")));
        timeout(at_most, rest).await.unwrap_or_else(|_| Err(too_slow()))?;
        if !spooling.spool.is_waiting().await.map_err(Trouble::Spool)? {
            pause.end_spooling();
            tracing::info!("the spool is empty; events are recorded in the store again");
        }
        Ok(())
    }

    /// Connects to the store. This also opens a store that could not be reached when the process started.
    async fn reach(&mut self) -> Result<(), Trouble> {
        self.spooling.store.reach().await.map_err(Trouble::Store)?;
        if self.spooling.set_away(false) {
            tracing::info!("the store can be used again");
        }
        self.said.clear();
        Ok(())
    }

    /// Records events in the store. If the store refuses the batch, splitting finds the event that is the cause: it is set
    /// aside, and the others are recorded. A batch that is too large for the store stays in the spool for smaller batches.
    async fn drain_batch(&mut self, events: Vec<Spooled>) -> Result<(), Trouble> {
        let mut pieces = vec![events];
        while let Some(mut piece) = pieces.pop() {
            if piece.is_empty() {
                continue;
            }
            if faults::is_off(Protection::SpoolOrder) {
                self.spooling.spool.remove(&piece).await.map_err(Trouble::Spool)?;
            }
            match self.record(&piece).await {
                Ok(recorded) => {
                    self.finish(&piece, &recorded).await.map_err(Trouble::Spool)?;
                    self.note_taken();
                }
                Err(NotTaken::Refused(_)) if piece.len() > 1 => {
                    let later = piece.split_off(piece.len() / 2);
                    pieces.extend([later, piece]);
                }
                Err(NotTaken::Refused(problem)) => self.set_aside(&piece[0], &problem).await?,
                Err(NotTaken::TooMuch(problem)) => return self.ask_less(&piece, &problem).await,
                Err(NotTaken::Away(error)) => return Err(Trouble::Store(error)),
            }
        }
        Ok(())
    }

    async fn record(&mut self, events: &[Spooled]) -> Result<Vec<Recorded>, NotTaken> {
        let recorded = match events {
            [event] if self.slow == Some(event.id()) => {
                // This can take minutes. Requests must not wait for it.
                self.spooling.set_progressing(false);
                self.record_patiently(event).await
            }
            _ => self.spooling.store.record_spooled(events, self.patience.batch).await,
        };
        match recorded {
            Err(NotTaken::Away(error)) => {
                self.breaks += 1;
                let is_too_much = self.breaks >= BREAKS_AT_MOST;
                Err(if is_too_much { NotTaken::TooMuch(error.to_string()) } else { NotTaken::Away(error) })
            }
            other => {
                self.breaks = 0;
                other
            }
        }
    }

    /// Records one event, with time according to its size. Gives up when the process is about to end.
    async fn record_patiently(&self, event: &Spooled) -> Result<Vec<Recorded>, NotTaken> {
        let (store, within) = (&self.spooling.store, self.patience.with(event));
        tokio::select! {
            recorded = store.record_spooled(std::slice::from_ref(event), within) => recorded,
            () = self.last_call.cancelled() => {
                Err(NotTaken::Away(StoreError::Unavailable("the gateway shuts down".into())))
            }
        }
    }

    fn note_taken(&mut self) {
        self.spooling.set_progressing(true);
        self.slow = None;
        self.taken += 1;
        if self.taken >= LARGER_AFTER {
            (self.divisor, self.taken) = ((self.divisor / 2).max(1), 0);
        }
    }

    /// Continues with smaller batches, then gives a single event more time, then sets that event aside. If the store does not
    /// take a small test event either, the problem is the store, and the events stay as they are.
    async fn ask_less(&mut self, events: &[Spooled], problem: &str) -> Result<(), Trouble> {
        self.spooling.store.takes_events().await.map_err(Trouble::Store)?;
        (self.taken, self.breaks) = (0, 0);
        match events {
            [event] if self.slow == Some(event.id()) => self.set_aside(event, problem).await,
            [event] => {
                let (event_id, source, size_bytes) = (event.id(), event.source(), event.size_bytes());
                tracing::warn!(
                    %event_id, source, size_bytes, problem,
                    "the store did not record an event from the spool in time; the event gets more time"
                );
                self.slow = Some(event_id);
                Ok(())
            }
            _ => {
                self.divisor = (self.divisor * TIMES_SMALLER).min(self.limits.events);
                tracing::warn!(
                    events = events.len(),
                    problem,
                    "the store did not record a batch from the spool in time; the next batches are smaller"
                );
                Ok(())
            }
        }
    }

    async fn finish(&self, events: &[Spooled], recorded: &[Recorded]) -> Result<(), StoreError> {
        self.spooling.spool.remove(events).await?;
        self.drained.increment(events.len() as u64);
        for (event, recorded) in events.iter().zip(recorded) {
            let is_new = u64::from(*recorded == Recorded::New);
            let source = || event.source().to_owned();
            counter!("hookfast_events_total", "source" => source()).increment(is_new);
            counter!("hookfast_duplicates_total", "source" => source()).increment(1 - is_new + event.resends());
        }
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.tell(events.iter().map(|event| (event.id(), event.jobs())), recorded);
        }
        Ok(())
    }

    async fn set_aside(&mut self, event: &Spooled, problem: &str) -> Result<(), Trouble> {
        let (event_id, source, size_bytes) = (event.id(), event.source(), event.size_bytes());
        tracing::error!(
            %event_id, source, size_bytes, problem,
            "the store does not take an event from the spool; the event is set aside there and tried again later"
        );
        self.slow = None;
        let wait = self.patience.again[0];
        self.aside.insert(event_id, Again { at: Instant::now() + wait, wait });
        match self.spooling.spool.set_aside(event_id, problem).await {
            Err(error @ StoreError::Broken(_)) => Err(Trouble::Spool(error)),
            Err(error) => {
                tracing::warn!(%event_id, %error, "an event is set aside, but the spool could not store that");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Tries an event again that is set aside. Gives way to other events that wait in the spool.
    async fn try_again(&mut self, id: EventId) {
        let Some(event) = self.spooling.spool.event(id).await.ok().flatten() else { return self.postpone(id) };
        let recorded = tokio::select! {
            recorded = self.record_patiently(&event) => recorded,
            () = self.spooling.wait_for_work() => return self.postpone(id),
        };
        match recorded {
            Ok(recorded) => match self.finish(std::slice::from_ref(&event), &recorded).await {
                Ok(()) => {
                    self.aside.remove(&id);
                    tracing::info!(event_id = %id, "the store has taken an event from the spool that was set aside");
                }
                Err(error) => {
                    self.note(&Trouble::Spool(error));
                    self.postpone(id);
                }
            },
            Err(error) => {
                tracing::warn!(event_id = %id, %error, "the store still does not take an event of the spool; it stays set aside");
                self.postpone(id);
            }
        }
    }

    fn postpone(&mut self, id: EventId) {
        let longest = self.patience.again[1];
        if let Some(again) = self.aside.get_mut(&id) {
            again.wait = (again.wait * 2).min(longest);
            again.at = Instant::now() + again.wait;
        }
    }

    async fn say_what_is_left(&self) {
        match self.spooling.spool.status().await {
            Ok(SpoolStatus { events: 0, .. }) => {}
            Ok(SpoolStatus { events, .. }) => {
                tracing::warn!(events, "events are left in the spool; the next start of this gateway drains them");
            }
            Err(error) => tracing::warn!(%error, "the number of events left in the spool is unknown"),
        }
    }
}

/// Spreads the waits of several gateways, so that they do not ask the store at the same moment.
fn with_jitter(wait: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u8;
    wait.mul_f64(0.5 + f64::from(random) / 512.0)
}

/// Updates the gauges of the spool once a second.
pub(crate) async fn show(spool: Arc<Spool>, last_call: CancellationToken) {
    let gauges = Gauges {
        events: gauge!("hookfast_spool_events"),
        refused: gauge!("hookfast_spool_refused_events"),
        bytes: gauge!("hookfast_spool_bytes"),
        age: gauge!("hookfast_spool_oldest_age_seconds"),
    };
    let mut timer = interval(Duration::from_secs(1));
    while !last_call.is_cancelled() {
        tokio::select! {
            _ = timer.tick() => {}
            () = last_call.cancelled() => return,
        }
        // If this fails, adding and draining fail as well, and both are logged.
        if let Ok(status) = spool.status().await {
            gauges.set(status);
        }
    }
}

struct Gauges {
    events: Gauge,
    refused: Gauge,
    bytes: Gauge,
    age: Gauge,
}

impl Gauges {
    fn set(&self, status: SpoolStatus) {
        let SpoolStatus { events, refused, oldest, bytes } = status;
        self.events.set(events as f64);
        self.refused.set(refused as f64);
        self.bytes.set(bytes as f64);
        let age = oldest.map_or(time::Duration::ZERO, |oldest| OffsetDateTime::now_utc() - oldest);
        self.age.set(age.as_seconds_f64().max(0.0));
    }
}
