//! The test kit: a handler's test needs no server, only a struct and a call.
//!
//! ```
//! # use hookfast_handler::{Effects, Event, Handled, Handler, values};
//! use hookfast_handler::testing::{Kit, TestEvent};
//!
//! struct Refunds;
//!
//! impl Handler for Refunds {
//!     const NAME: &'static str = "refunds";
//!     const SUBSCRIBES: &'static [&'static str] = &["stripe/charge.refunded"];
//!     const TABLES: &'static str = "CREATE TABLE IF NOT EXISTS refunds (charge TEXT NOT NULL)";
//!     type Payload = serde_json::Value;
//!
//!     async fn handle(&self, event: &Event<serde_json::Value>, effects: &Effects) -> Handled {
//!         let charge = event.payload["charge"].as_str().unwrap_or("?").to_owned();
//!         effects
//!             .once("refund", async |tx| {
//!                 tx.execute("INSERT INTO refunds (charge) VALUES ($1)", values![charge]).await?;
//!                 Ok(())
//!             })
//!             .await
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let event = TestEvent::new("stripe", "charge.refunded", r#"{"charge": "ch_1"}"#);
//! Kit::assert_exactly_once(&Refunds, &event, "SELECT charge FROM refunds").await;
//! # });
//! ```

mod provider;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hookfast_store::{JobId, Outcome, Settlement};
use hookfast_webhook::{Failure, FailureKind, ProofKind};
use time::OffsetDateTime;

pub use store::TestStore;

use crate::event::handle;
use crate::{Handled, Handler, Hooks, Run};

/// An event to test with.
#[derive(Debug, Clone)]
pub struct TestEvent {
    /// The source.
    pub source: &'static str,
    /// What happened.
    pub event_type: &'static str,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Whose event it is.
    pub account: Option<String>,
    /// The thing that it is about.
    pub object_id: Option<String>,
    /// When it happened.
    pub occurred_at: Option<OffsetDateTime>,
    /// How its request is proved genuine.
    pub proof: ProofKind,
}

impl TestEvent {
    /// An event with a signature, of which nothing more is known.
    pub fn new(source: &'static str, event_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let (account, object_id, occurred_at) = (None, None, None);
        Self { source, event_type, body: body.into(), account, object_id, occurred_at, proof: ProofKind::Signature }
    }

    /// The same at another time.
    pub fn at(self, occurred_at: OffsetDateTime) -> Self {
        Self { occurred_at: Some(occurred_at), ..self }
    }

    /// The same with another proof.
    pub fn proved_by(self, proof: ProofKind) -> Self {
        Self { proof, ..self }
    }
}

/// A store of its own, and the part of a worker that a test needs. Everything fails by panicking with a sentence.
pub struct Kit {
    store: TestStore,
}

/// No handler has more effects than this; one that seems to makes up a new key each time.
const EFFECTS_MAX: usize = 1000;

/// How a run in the kit ended.
struct Ended {
    handled: Handled,
    effects: usize,
}

/// Counts the effects of a run, and breaks the run off after some number of them.
struct BreakAfter {
    effects: Option<usize>,
    done: AtomicUsize,
}

impl Hooks for BreakAfter {
    fn after_effect(&self) -> Result<(), Failure> {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if self.effects == Some(done) {
            return Err(Failure::retry(FailureKind::Crash, "the test kit broke off here"));
        }
        Ok(())
    }
}

impl Kit {
    /// An empty store with the handler's tables.
    pub async fn new<H: Handler>(_: &H) -> Self {
        Self { store: TestStore::new::<H>().await }
    }

    /// Runs the handler for a new event, as a worker would.
    pub async fn run<H: Handler>(&self, handler: &H, event: &TestEvent) -> Handled {
        let job = self.store.record::<H>(event).await;
        self.attempt(handler, &job, None).await.handled
    }

    /// The rows of a query, as texts.
    pub async fn rows(&self, query: &'static str) -> Vec<Vec<String>> {
        self.store.rows(query).await
    }

    /// Runs the handler once to see what it does; then, in another store, breaks it off after every effect and runs it
    /// again until it is through, and once more as an operator's replay does. Panics unless both times `query` gives the
    /// same rows.
    pub async fn assert_exactly_once<H: Handler>(handler: &H, event: &TestEvent, query: &'static str) {
        let undisturbed = Self::new(handler).await;
        undisturbed.run(handler, event).await.unwrap_or_else(|failure| panic!("it fails undisturbed: {failure}"));
        let expected = undisturbed.rows(query).await;
        assert!(!expected.is_empty(), "`{query}` gives nothing after the handler ran: it cannot show a second effect");

        let disturbed = Self::new(handler).await;
        let job = disturbed.store.record::<H>(event).await;
        let mut attempts = 0;
        while disturbed.attempt(handler, &job, Some(1)).await.effects > 0 {
            attempts += 1;
            assert!(
                attempts < EFFECTS_MAX,
                "each attempt does another effect: are the keys the same in every attempt?"
            );
        }
        disturbed.attempt(handler, &job, None).await.handled.unwrap_or_else(|failure| {
            panic!("it fails when it is run again after all effects are done: {failure}");
        });
        assert_eq!(disturbed.rows(query).await, expected, "broken off after every effect and run again");
    }

    /// One run, broken off after this number of effects. A job that is done is replayed.
    async fn attempt<H: Handler>(&self, handler: &H, job: &JobId, break_after: Option<usize>) -> Ended {
        let claimed = match self.store.claim(job).await {
            Some(claimed) => claimed,
            None => {
                self.store.replay(job).await;
                self.store.claim(job).await.expect("a replayed job can be claimed")
            }
        };
        let (token, attempt) = (claimed.token, claimed.attempt);
        let hooks = Arc::new(BreakAfter { effects: break_after, done: AtomicUsize::new(0) });
        let run = Run::new(Arc::clone(self.store.store()) as _, job.clone(), token, Arc::clone(&hooks) as _);
        let handled = handle(handler, claimed, run.effects()).await;
        let outcome = match &handled {
            Ok(()) => Outcome::Succeeded,
            Err(Failure { kind, message, .. }) => Outcome::Dead { kind: *kind, message: message.clone() },
        };
        let settlement = Settlement {
            job: job.clone(),
            token,
            attempt,
            started_at: OffsetDateTime::now_utc(),
            duration: Duration::ZERO,
            worker: "test".into(),
            outcome,
        };
        self.store.store().settle(&[settlement]).await.expect("the run is settled");
        Ended { handled, effects: hooks.done.load(Relaxed) }
    }
}

/// A handler for tests that need none to run.
#[cfg(test)]
pub(crate) struct Idle;

#[cfg(test)]
impl Handler for Idle {
    const NAME: &'static str = "idle";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/*"];
    type Payload = serde_json::Value;

    async fn handle(&self, _: &crate::Event<serde_json::Value>, _: &crate::Effects) -> Handled {
        Ok(())
    }
}
