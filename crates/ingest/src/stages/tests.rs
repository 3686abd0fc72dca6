//! The whole path of a webhook without HTTP: request and store are in memory.

use std::future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hookfast_parts::{MustEnd, Tasks};
use hookfast_store::{Check, Record, Recorded, Routed, StoreError};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{
    EventId, FixedClock, HandlerName, Ordering, Priority, PriorityRules, Refusal, Request, Secret, Secrets, SourceName,
    Subscription,
};
use http_body_util::Full;
use time::OffsetDateTime;

use super::*;
use crate::admit::Limits;
use crate::commit::{BatchLimits, Committing, Recorder};
use crate::http::connection::Activity;
use crate::memory::BodyMemory;
use crate::{Config, CurrentTable, SourceLimits};

const SECRET: &str = "whsec_path";

/// Keeps what is recorded in memory, or refuses everything.
#[derive(Default)]
struct FakeStore {
    recorded: Mutex<Vec<(String, Vec<String>)>>,
    priorities: Mutex<Vec<[Priority; 2]>>,
    is_away: bool,
    /// Says that it has every event already, and never answers which event came first.
    has_all: bool,
}

impl FakeStore {
    fn recorded(&self) -> Vec<(String, Vec<String>)> {
        self.recorded.lock().expect("no test panics while it holds the lock").clone()
    }
}

#[async_trait]
impl Record for FakeStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        if self.is_away {
            return Err(StoreError::Unavailable("it is away".into()));
        }
        let priorities =
            events.iter().flat_map(|routed| routed.jobs.iter().map(|job| [routed.event.priority(), job.priority]));
        self.priorities.lock().expect("no test panics while it holds the lock").extend(priorities);
        let handlers = |routed: &Routed| routed.jobs.iter().map(|job| job.handler.to_string()).collect();
        let rows = events.iter().map(|routed| (routed.event.dedupe_key().as_str().to_owned(), handlers(routed)));
        self.recorded.lock().expect("no test panics while it holds the lock").extend(rows);
        Ok(vec![if self.has_all { Recorded::Duplicate } else { Recorded::New }; events.len()])
    }

    async fn first_of(&self, _: &str, _: &str) -> Result<Option<EventId>, StoreError> {
        if self.has_all { future::pending().await } else { Ok(None) }
    }
}

#[async_trait]
impl Check for FakeStore {
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn source() -> Source {
    let secrets = Secrets::new(vec![Secret::new(SECRET).expect("not blank")]);
    let name = SourceName::new("stripe").expect("a name");
    let rule = ("invoice.*".parse().expect("a pattern"), Priority::High);
    let limits = SourceLimits { priority: PriorityRules::new([rule]), ..SourceLimits::default() };
    Source::new(name, Arc::new(Stripe::new(&Default::default())), secrets, limits)
}

fn table() -> Table {
    let handler = HandlerName::new("ledger").expect("a name");
    let interests = vec!["stripe/invoice.*".parse().expect("an interest")];
    let ledger = Subscription { handler, interests, ordering: Ordering::None, priority: None };
    Table::new(vec![source()], vec![ledger])
}

fn ingest(store: &Arc<FakeStore>) -> Ingest {
    let config = Config::default();
    let store: Arc<dyn Record> = Arc::clone(store) as _;
    let must_end = MustEnd::default();
    let tasks = Tasks::new(&Handle::current(), &must_end);
    let limits = BatchLimits { events: config.batch_events, bytes: config.batch_bytes };
    let committing = Committing { store: &store, spooling: None, limits, must_end: &must_end, dispatcher: None };
    Ingest {
        public_url: "http://localhost".into(),
        table: CurrentTable::new(table()),
        decoy: None,
        known_providers: Vec::new(),
        clock: Arc::new(FixedClock(OffsetDateTime::UNIX_EPOCH)),
        limits: Limits::new(&config),
        body_memory: BodyMemory::new(config.body_memory),
        recorder: Recorder::start(&committing, 16, &tasks, &tasks),
        store,
        config,
    }
}

/// A request that was signed at the time of the clock.
fn signed(body: &str) -> Request {
    let secret = Secret::new(SECRET).expect("not blank");
    sign("http://localhost/webhooks/stripe", &secret, 0, body.to_owned())
}

async fn receive(ingest: &Ingest, request: Request) -> Result<Answered, Rejection> {
    visit(ingest, request, async |visit, head, body| visit.receive(head, body).await).await
}

/// Does something with a request at the source `stripe`.
async fn visit<T>(ingest: &Ingest, request: Request, act: impl AsyncFnOnce(Visit<'_>, Parts, Full<Bytes>) -> T) -> T {
    let Request { method, url, headers, body } = request;
    let mut head = http::Request::builder().method(method).uri(url).body(()).expect("a request").into_parts().0;
    head.headers = headers;
    let (table, activity) = (ingest.table.get(), Activity::new(false));
    let caller = ingest.caller(&head.headers, [192, 0, 2, 1].into(), &activity);
    let visit = Visit { ingest, table: &table, source: &table.sources["stripe"], caller: &caller };
    act(visit, head, Full::new(body)).await
}

#[tokio::test]
async fn a_genuine_request_is_recorded_with_its_jobs_before_it_is_answered() {
    let store = Arc::new(FakeStore::default());
    let ingest = ingest(&store);
    for (id, kind) in [("evt_1", "invoice.paid"), ("evt_2", "charge.refunded")] {
        let answered = receive(&ingest, signed(&format!(r#"{{"id":"{id}","type":"{kind}"}}"#))).await;
        assert_eq!(answered.expect("it is genuine").answer, Answer::EMPTY_OK);
    }
    assert_eq!(store.recorded(), [("evt_1".into(), vec!["ledger".into()]), ("evt_2".into(), vec![])]);
}

#[tokio::test]
async fn a_refused_request_is_not_recorded_and_keeps_its_bytes() {
    let store = Arc::new(FakeStore::default());
    let mut request = signed(r#"{"id":"evt_1","type":"invoice.paid"}"#);
    request.body = Bytes::from_static(br#"{"id":"evt_1","type":"invoice.Paid"}"#);
    match receive(&ingest(&store), request.clone()).await {
        Err(Rejection::Refused(refused)) => {
            assert_eq!(refused.refusal, Refusal::WrongSignature);
            assert_eq!((&refused.request.body, &refused.request.headers), (&request.body, &request.headers));
            assert_eq!(refused.request.url, "http://localhost/webhooks/stripe");
        }
        other => panic!("{:?}", other.map(|answered| answered.answer)),
    }
    assert_eq!(store.recorded(), []);
}

#[tokio::test]
async fn a_request_that_the_store_does_not_take_is_not_answered_2xx() {
    let store = Arc::new(FakeStore { is_away: true, ..FakeStore::default() });
    let outcome = receive(&ingest(&store), signed(r#"{"id":"evt_1","type":"invoice.paid"}"#)).await;
    assert!(matches!(outcome, Err(Rejection::NotRecorded)));
}

#[tokio::test]
async fn the_rules_of_a_source_set_the_priority_of_an_event_and_of_its_jobs() {
    let store = Arc::new(FakeStore::default());
    let answered = receive(&ingest(&store), signed(r#"{"id":"evt_1","type":"invoice.paid"}"#)).await;
    assert!(answered.is_ok());
    let priorities = store.priorities.lock().expect("no test panics while it holds the lock");
    assert_eq!(*priorities, [[Priority::High; 2]]);
}

/// The store never says which event came first, and the log asks it for every resend.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_resend_does_not_wait_for_its_log_line() {
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().finish();
    let _log = tracing::subscriber::set_default(log);
    let ingest = ingest(&Arc::new(FakeStore { has_all: true, ..FakeStore::default() }));
    let start = Instant::now();
    for _ in 0..100 {
        let resend = signed(r#"{"id":"evt_1","type":"invoice.paid"}"#);
        let answer = visit(&ingest, resend, async |visit, head, body| visit.run(head, body).await).await;
        assert_eq!(answer.expect("it is genuine"), Answer::EMPTY_OK);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}
