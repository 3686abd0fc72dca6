//! The test kit: a handler's test needs no server, only a struct and a call.
//!
//! ```
//! # use hookfast_processor::{Effects, Event, Handled, Handler, values};
//! use hookfast_processor::testing::{Kit, TestEvent};
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

use std::sync::Arc;

use hookfast_store::sqlx::{self, Column as _, Connection as _, Row as _};
use hookfast_store::{
    Act, Action, Audit, Claim, Claimed, Config, JobId, Migrate, NewJob, Outcome, Routed, Settlement, Step, Store,
    Token, open,
};
use hookfast_webhook::signature::prove_token;
use hookfast_webhook::{
    Arrival, EventId, Failure, HandlerName, NoSample, Priority, Proved, Provider, Reading, Refusal, Request, RequestId,
    SampleOrder, Secret, Secrets, SourceName, Unreadable, verify,
};
use tempfile::TempDir;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::handler::handle;
use crate::{Effects, Handled, Handler};

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
}

impl TestEvent {
    /// An event of which nothing more is known.
    pub fn new(source: &'static str, event_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { source, event_type, body: body.into(), account: None, object_id: None, occurred_at: None }
    }

    /// The same at another time.
    pub fn at(self, occurred_at: OffsetDateTime) -> Self {
        Self { occurred_at: Some(occurred_at), ..self }
    }
}

/// A store of its own, and the part of a worker that a test needs. Everything fails by panicking with a sentence.
pub struct Kit {
    pub(crate) store: Arc<dyn Store>,
    path: String,
    _folder: TempDir,
}

/// No handler has more effects than this; one that seems to makes up a new key each time.
const EFFECTS_MAX: usize = 1000;

/// How a run in the kit ended.
struct Run {
    handled: Handled,
    effects: usize,
}

impl Kit {
    /// An empty store with the handler's tables.
    pub async fn new<H: Handler>(_: &H) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("kit.db").display().to_string();
        let config = Config::new(format!("sqlite:{path}").parse().expect("a store's URL"));
        let store = open(&config, Migrate::Run).await.expect("the store opens");
        if !H::TABLES.is_empty() {
            store.prepare(H::TABLES).await.unwrap_or_else(|error| panic!("the TABLES of `{}`: {error}", H::NAME));
        }
        Self { store, path, _folder: folder }
    }

    /// Runs the handler for a new event, as a worker would.
    pub async fn run<H: Handler>(&self, handler: &H, event: &TestEvent) -> Handled {
        let job = self.record::<H>(event).await;
        self.attempt(handler, &job, None).await.handled
    }

    /// The rows of a query, as texts.
    pub async fn rows(&self, query: &'static str) -> Vec<Vec<String>> {
        let mut connection =
            sqlx::SqliteConnection::connect(&format!("sqlite:{}", self.path)).await.expect("the store opens");
        let rows =
            sqlx::query(query).fetch_all(&mut connection).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        rows.iter().map(|row| row.columns().iter().map(|column| text(row, column.ordinal())).collect()).collect()
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
        let job = disturbed.record::<H>(event).await;
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

    pub(crate) async fn record<H: Handler>(&self, event: &TestEvent) -> JobId {
        let handler = HandlerName::new(H::NAME).unwrap_or_else(|error| panic!("a handler's NAME: {error}"));
        let genuine = genuine(event);
        let id = genuine.id();
        let job = NewJob { handler: handler.clone(), priority: Priority::Normal, ordering_key: None };
        self.store.record(&[Routed { event: genuine, jobs: vec![job] }]).await.expect("the event is recorded");
        JobId { event: id, handler }
    }

    /// One run, broken off after so many effects. A job that is done is replayed.
    async fn attempt<H: Handler>(&self, handler: &H, job: &JobId, break_after: Option<usize>) -> Run {
        let claimed = match self.claim(job).await {
            Some(claimed) => claimed,
            None => {
                self.replay(job).await;
                self.claim(job).await.expect("a replayed job can be claimed")
            }
        };
        let (token, attempt) = (claimed.token, claimed.attempt);
        let effects = Effects::new(Arc::clone(&self.store), job.clone(), token).breaking_after(break_after);
        let handled = handle(handler, claimed, &effects).await;
        let outcome = match &handled {
            Ok(()) => Outcome::Succeeded,
            Err(Failure { kind, message, .. }) => Outcome::Dead { kind: *kind, message: message.clone() },
        };
        let settlement = Settlement {
            job: job.clone(),
            token,
            attempt,
            started_at: OffsetDateTime::now_utc(),
            duration: std::time::Duration::ZERO,
            worker: "test".into(),
            outcome,
        };
        self.store.settle(&[settlement]).await.expect("the run is settled");
        Run { handled, effects: effects.done() }
    }

    pub(crate) async fn claim(&self, job: &JobId) -> Option<Claimed> {
        let claim = Claim {
            handler: &job.handler,
            events: &[job.event],
            worker: "test",
            token: Token::new(),
            lease: std::time::Duration::from_secs(60),
            ordering: None,
            crashes_below: None,
        };
        self.store.claim(&claim).await.expect("the store answers").pop()
    }

    async fn replay(&self, job: &JobId) {
        let audit = Audit {
            id: Uuid::now_v7(),
            at: OffsetDateTime::now_utc(),
            who: "test".into(),
            action: Action::Replay,
            why: None,
            filter: "{}".into(),
            jobs: 0,
            next_after: None,
            is_done: false,
        };
        self.store.begin_act(&audit).await.expect("the store answers");
        let again = NewJob { handler: job.handler.clone(), priority: Priority::Normal, ordering_key: None };
        let act = Act::Replay { jobs: &[(job.event, again)], force_effects: false };
        let step = Step { audit: audit.id, act, next_after: None, is_last: true, as_of: None };
        self.store.act(&step).await.expect("the job is replayed");
    }
}

/// A provider whose events are whatever the test says.
struct TestProvider(Reading);

impl Provider for TestProvider {
    fn name(&self) -> &'static str {
        "test"
    }

    fn proof_headers(&self) -> &[http::HeaderName] {
        &[]
    }

    fn prove(&self, _: &Request, secrets: &Secrets, _: OffsetDateTime) -> Result<Proved, Refusal> {
        prove_token(secrets, b"test").map(Proved::from)
    }

    fn read(&self, _: &Request) -> Result<Vec<Reading>, Unreadable> {
        Ok(vec![self.0.clone()])
    }

    fn sample_kinds(&self) -> Vec<&str> {
        Vec::new()
    }

    fn sample(&self, _: &SampleOrder<'_>) -> Result<Request, NoSample> {
        unreachable!("nobody asks the test kit for samples")
    }
}

fn genuine(event: &TestEvent) -> hookfast_webhook::Event {
    let TestEvent { source, event_type, body, account, object_id, occurred_at } = event.clone();
    let reading = Reading {
        account,
        object_id,
        occurred_at,
        ..Reading::new(EventId::new().to_string(), event_type, body.clone().into())
    };
    let now = OffsetDateTime::now_utc();
    let request = Request {
        method: http::Method::POST,
        url: format!("http://localhost/webhooks/{source}"),
        headers: http::HeaderMap::new(),
        body: body.into(),
    };
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new(source).unwrap_or_else(|error| panic!("the source of a test event: {error}")),
        remote_address: std::net::Ipv4Addr::LOCALHOST.into(),
        received_at: now,
    };
    let provider = TestProvider(reading);
    let secrets = Secrets::new(vec![Secret::new("test").expect("not blank")]);
    let verified = verify(&provider, request, &secrets, now).expect("the token is right");
    verified.genuine().expect("no handshake").read(&provider, arrival).0.remove(0)
}

fn text(row: &sqlx::sqlite::SqliteRow, index: usize) -> String {
    row.try_get::<Option<String>, _>(index)
        .map(|text| text.unwrap_or_else(|| "NULL".into()))
        .or_else(|_| row.try_get::<i64, _>(index).map(|number| number.to_string()))
        .or_else(|_| row.try_get::<f64, _>(index).map(|number| number.to_string()))
        .unwrap_or_else(|_| "BYTES".into())
}

/// A handler for tests that need none to run.
#[cfg(test)]
pub(crate) struct Idle;

#[cfg(test)]
impl Handler for Idle {
    const NAME: &'static str = "idle";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/*"];
    type Payload = serde_json::Value;

    async fn handle(&self, _: &crate::Event<serde_json::Value>, _: &Effects) -> Handled {
        Ok(())
    }
}

#[cfg(test)]
impl Kit {
    /// The workers for [`Idle`] in this store, who take no jobs yet.
    pub(crate) fn workers(
        &self,
        queue: Arc<dyn hookfast_queue::Queue>,
        config: crate::Config,
    ) -> (crate::Running, Arc<crate::worker::Shared>) {
        let handlers = crate::Handlers::default().with(Idle);
        let staff = crate::Staff {
            name: HandlerName::new(Idle::NAME).expect("a name"),
            handler: Arc::clone(handlers.get(Idle::NAME).expect("it was added")),
            config: crate::HandlerConfig::default(),
            is_paused: false,
        };
        let store = Arc::clone(&self.store);
        let handlers = tokio::runtime::Handle::current();
        crate::start_workers(&crate::Surroundings { store, queue, handlers, apart: None }, vec![staff], config)
    }
}
