//! A store that takes events as the test wants it.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_store::{Behind, Check, NotTaken, Record, Recorded, Routed, Spooled, StoreError};
use hookfast_webhook::EventId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    Away,
    /// Takes events after this time.
    Slow(Duration),
    /// Commits, but does not answer.
    Silent,
    /// Takes every event of the spool but this one, and no event directly.
    Refusing(EventId),
    /// This event is too large for the store, unless it comes alone and the store has at least this time.
    Overwhelmed(EventId, Duration),
    /// Answers, but every event is too large for it.
    Stuck,
}

pub(super) struct MoodyStore {
    pub(super) mood: Mutex<Mood>,
    /// The recorded events in order, each with the way that it came.
    pub(super) recorded: Mutex<Vec<(EventId, &'static str)>>,
    pub(super) asked: Mutex<usize>,
}

impl MoodyStore {
    pub(super) fn set(&self, mood: Mood) {
        *self.mood.lock().expect("no panic") = mood;
    }

    pub(super) fn mood(&self) -> Mood {
        *self.asked.lock().expect("no panic") += 1;
        *self.mood.lock().expect("no panic")
    }

    pub(super) fn asked(&self) -> usize {
        *self.asked.lock().expect("no panic")
    }

    pub(super) fn note(&self, ids: impl Iterator<Item = EventId>, how: &'static str) {
        self.recorded.lock().expect("no panic").extend(ids.map(|id| (id, how)));
    }

    pub(super) fn recorded(&self) -> Vec<(EventId, &'static str)> {
        self.recorded.lock().expect("no panic").clone()
    }
}

pub(super) fn away() -> StoreError {
    StoreError::Unavailable("away".into())
}

#[async_trait]
impl Record for MoodyStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        match self.mood() {
            Mood::Away => return Err(away()),
            Mood::Silent => {
                self.note(events.iter().map(|routed| routed.event.id()), "silently");
                std::future::pending::<()>().await;
            }
            Mood::Refusing(_) => return Err(StoreError::Rejected("refused".into())),
            Mood::Stuck => return Err(away()),
            Mood::Slow(time) => tokio::time::sleep(time).await,
            Mood::Well | Mood::Overwhelmed(..) => self.note(events.iter().map(|routed| routed.event.id()), "directly"),
        }
        Ok(vec![Recorded::New; events.len()])
    }

    async fn first_of(&self, _: &str, _: &str) -> Result<Option<EventId>, StoreError> {
        Ok(None)
    }
}

#[async_trait]
impl Check for MoodyStore {
    async fn check(&self) -> Result<(), StoreError> {
        if self.mood() == Mood::Away { Err(away()) } else { Ok(()) }
    }
}

#[async_trait]
impl Behind for MoodyStore {
    async fn record_spooled(&self, events: &[Spooled], within: Duration) -> Result<Vec<Recorded>, NotTaken> {
        match self.mood() {
            Mood::Away | Mood::Silent => return Err(away().into()),
            Mood::Refusing(id) if events.iter().any(|event| event.id() == id) => {
                return Err(NotTaken::Refused("refused".into()));
            }
            Mood::Overwhelmed(id, needs)
                if events.iter().any(|event| event.id() == id) && (events.len() > 1 || within < needs) =>
            {
                return Err(NotTaken::TooMuch("too slow".into()));
            }
            Mood::Stuck => return Err(NotTaken::TooMuch("too slow".into())),
            Mood::Well | Mood::Slow(_) | Mood::Refusing(_) | Mood::Overwhelmed(..) => {
                self.note(events.iter().map(Spooled::id), "from the spool");
            }
        }
        Ok(vec![Recorded::New; events.len()])
    }

    async fn takes_events(&self) -> Result<(), StoreError> {
        if matches!(self.mood(), Mood::Away | Mood::Silent | Mood::Stuck) { Err(away()) } else { Ok(()) }
    }

    async fn reach(&self) -> Result<(), StoreError> {
        if matches!(self.mood(), Mood::Away | Mood::Silent) { Err(away()) } else { Ok(()) }
    }
}
