//! Handing on what waits in the spool, the oldest first.
//!
//! What is drained is in the store first and leaves the spool second. A crash in between repeats the batch, and the store
//! knows its events by their ids.

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Recorded, Spool, SpoolStatus, Spooled, StoreError};
use metrics::{Counter, Gauge, counter, gauge};
use time::OffsetDateTime;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::dispatch::Dispatcher;
use crate::faults::{self, Protection};
use crate::record::BatchLimits;
use crate::spool::Spooling;

/// How long to wait before the store is asked again: so long at first, and up to so long.
const WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Draining must be faster than receiving, or it never ends. So its batches have more events, if these are small.
const TIMES_THE_BATCH: usize = 4;

/// Why draining does not go on.
enum Trouble {
    Store(StoreError),
    Spool(StoreError),
}

pub(crate) struct Drainer {
    spooling: Arc<Spooling>,
    dispatcher: Option<Dispatcher>,
    limits: BatchLimits,
    /// Cancelled when the process is about to end.
    last_call: CancellationToken,
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
        Self { spooling, dispatcher, limits, last_call, drained: counter!("hookfast_drained_events_total") }
    }

    /// Drains whenever there is something in the spool, until the last call, and then what can be drained without waiting.
    pub(crate) async fn run(self) {
        let mut wait = WAITS[0];
        while !self.is_over().await {
            match self.drain_some().await {
                Ok(()) => wait = WAITS[0],
                Err(trouble) => {
                    self.note(&trouble);
                    if self.last_call.is_cancelled() {
                        break;
                    }
                    self.rest(with_jitter(wait)).await;
                    wait = (wait * 2).min(WAITS[1]);
                }
            }
        }
        self.say_what_is_left().await;
    }

    /// Waits for something to do. Whether there is nothing more to wait for.
    async fn is_over(&self) -> bool {
        tokio::select! {
            biased;
            () = self.spooling.wait_for_work() => false,
            () = self.last_call.cancelled() => true,
        }
    }

    fn note(&self, trouble: &Trouble) {
        self.spooling.set_gets_on(false);
        match trouble {
            Trouble::Store(error) => {
                if self.spooling.set_away(true) {
                    tracing::warn!(%error, "the spool cannot be drained; it is tried again until the store is back");
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

    /// Hands on the oldest events, and tries to end spooling if there are no more.
    async fn drain_some(&self) -> Result<(), Trouble> {
        if self.spooling.is_away() {
            self.reach().await?;
        }
        let oldest = self.oldest(self.limits.events).await?;
        let are_all = oldest.len() < self.limits.events;
        self.hand_on(oldest).await?;
        if are_all {
            self.reach().await?;
            self.end_spooling().await?;
        }
        Ok(())
    }

    async fn oldest(&self, events: usize) -> Result<Vec<Spooled>, Trouble> {
        self.spooling.spool.oldest(events, self.limits.bytes).await.map_err(Trouble::Spool)
    }

    /// Hands on what has come meanwhile, and ends spooling. In this moment nobody may add to the spool: under steady traffic
    /// it would never be empty.
    async fn end_spooling(&self) -> Result<(), Trouble> {
        let (pause, at_most) = self.spooling.pause().await;
        let rest = async { self.hand_on(self.oldest(self.limits.events).await?).await };
        let too_slow = || Trouble::Store(StoreError::Unavailable(format!("it takes longer than {at_most:?}")));
        timeout(at_most, rest).await.unwrap_or_else(|_| Err(too_slow()))?;
        if self.oldest(1).await?.is_empty() {
            pause.end_spooling();
            tracing::info!("nothing waits in the spool; events are recorded in the store");
        }
        Ok(())
    }

    /// A store that was not there when we started is opened by this.
    async fn reach(&self) -> Result<(), Trouble> {
        self.spooling.store.reach().await.map_err(Trouble::Store)?;
        if self.spooling.set_away(false) {
            tracing::info!("the store can be used again");
        }
        Ok(())
    }

    /// Records events in the store. One that the store refuses is found by splitting; it stays, and the others go on.
    async fn hand_on(&self, events: Vec<Spooled>) -> Result<(), Trouble> {
        let mut parts = vec![events];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            if faults::is_off(Protection::SpoolOrder) {
                self.spooling.spool.remove(&part).await.map_err(Trouble::Spool)?;
            }
            match self.spooling.store.record_spooled(&part).await {
                Ok(recorded) => {
                    self.finish(&part, &recorded).await.map_err(Trouble::Spool)?;
                    self.spooling.set_gets_on(true);
                }
                Err(StoreError::Rejected(_)) if part.len() > 1 => {
                    let later = part.split_off(part.len() / 2);
                    parts.extend([later, part]);
                }
                Err(StoreError::Rejected(problem)) => self.set_aside(&part, &problem).await.map_err(Trouble::Spool)?,
                Err(error) => return Err(Trouble::Store(error)),
            }
        }
        Ok(())
    }

    async fn finish(&self, events: &[Spooled], recorded: &[Recorded]) -> Result<(), StoreError> {
        self.spooling.spool.remove(events).await?;
        self.drained.increment(events.len() as u64);
        for (event, recorded) in events.iter().zip(recorded) {
            let name = if *recorded == Recorded::New { "hookfast_events_total" } else { "hookfast_duplicates_total" };
            counter!(name, "source" => event.source().to_owned()).increment(1);
        }
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.tell(events.iter().map(|event| (event.id(), event.jobs())), recorded);
        }
        Ok(())
    }

    async fn set_aside(&self, events: &[Spooled], problem: &str) -> Result<(), StoreError> {
        for event in events {
            let (event_id, source) = (event.id(), event.source());
            tracing::error!(%event_id, source, problem, "the store refuses an event of the spool; it stays there");
            self.spooling.spool.set_aside(event_id, problem).await?;
        }
        Ok(())
    }

    async fn say_what_is_left(&self) {
        match self.spooling.spool.status().await {
            Ok(SpoolStatus { events: 0, .. }) => {}
            Ok(SpoolStatus { events, .. }) => {
                tracing::warn!(events, "events are left in the spool; they are drained at the next start");
            }
            Err(error) => tracing::warn!(%error, "how much is left in the spool cannot be said"),
        }
    }
}

/// Several gateways must not come back to the store in step.
fn with_jitter(wait: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u8;
    wait.mul_f64(0.5 + f64::from(random) / 512.0)
}

/// Shows once a second how the spool is.
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
        // If it fails, adding and draining fail as well and say so.
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
