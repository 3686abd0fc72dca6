//! A database for each test, events to put into it, and the verbs in their usual form.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    Attempt, Claim, Claimed, Config, DeadLetters, DueJob, DueJobs, Effect, EffectKey, EffectKind, JobId, JobSummary,
    Migrate, NewJob, OpenError, Outcome, Resolution, Routed, Settlement, Store, Sweep, Swept, Token, open,
};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{
    Arrival, Event, EventId, FailureKind, HandlerName, JobState, NoSample, Priority, Proved, Provider, Reading,
    Refusal, Request, RequestId, SampleOrder, Secret, Secrets, SourceName, Unreadable, json, verify,
};
use http::{HeaderName, HeaderValue};
use sqlx::Connection;
use time::OffsetDateTime;

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Only the owner may use the file, as the store demands of a file that is there already.
pub(crate) fn make_private(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

/// A database for one test.
pub(crate) struct Database {
    pub(crate) url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { url: format!("sqlite:{}", folder.path().join("test.db").display()), _folder: Some(folder) }
    }

    pub(crate) fn postgres() -> Self {
        Self { url: hookfast_harness::fresh_database(), _folder: None }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite")
    }

    /// Makes its file as private as the store makes it.
    pub(crate) fn make_private(&self) {
        if let Some(file) = self.url.strip_prefix("sqlite:") {
            make_private(Path::new(file));
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        self.try_open(Migrate::Run).await.expect("the store opens")
    }

    pub(crate) async fn try_open(&self, migrate: Migrate) -> Result<Arc<dyn Store>, OpenError> {
        let config = Config { parallel_batches: 4, worker_connections: 8, ..Config::new(self.url.parse().unwrap()) };
        open(&config, migrate).await
    }

    pub(crate) async fn execute(&self, sqlite: &'static str, postgres: &'static str) {
        if self.is_sqlite() {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
            sqlx::raw_sql(sqlite).execute(&mut connection).await.unwrap();
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            sqlx::raw_sql(postgres).execute(&mut connection).await.unwrap();
        }
    }

    /// As if much time had passed: leases have ended, retries are due, lost dispatches are noticed. Those first that were
    /// due first.
    pub(crate) async fn let_time_pass(&self) {
        self.execute(
            "UPDATE jobs SET due_at = due_at - 36000000000, claimed_at = claimed_at - 36000000000",
            "UPDATE jobs SET due_at = due_at - interval '10 hours', claimed_at = claimed_at - interval '10 hours'",
        )
        .await;
    }

    /// A number that a query gives.
    pub(crate) async fn number(&self, query: &'static str) -> i64 {
        if self.is_sqlite() {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
        }
    }

    /// How often events came again.
    pub(crate) async fn resends(&self) -> i64 {
        self.number("SELECT cast(coalesce(sum(resends), 0) AS bigint) FROM dedupe_keys").await
    }
}

/// Runs tests on both databases.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(crate::database::Database::sqlite()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(crate::database::Database::postgres()).await;
            })*
        }
    };
}

/// Stands between the events of one request.
const BETWEEN: char = '\u{1e}';

/// Stripe with a thing that each event is about, and with several events in a request.
struct StripeWithObjects(Stripe);

impl Provider for StripeWithObjects {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn proof_headers(&self) -> &[HeaderName] {
        self.0.proof_headers()
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal> {
        self.0.prove(request, secrets, now)
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let mut readings = Vec::new();
        for body in request.body.split(|byte| *byte == BETWEEN as u8) {
            let body = request.body.slice_ref(body);
            let [object, window, tag] = json::members(&body, ["object", "window", "tag"])?;
            let (object_id, tags) = (json::text(object), Vec::from_iter(json::text(tag)));
            let key_window = json::text(window).and_then(|window| window.parse().ok()).map(Duration::from_secs);
            let one = self.0.read(&Request { body, ..request.clone() })?;
            let with_all = |reading: Reading| {
                let event_id = Some(reading.dedupe_key.clone());
                let (object_id, tags, priority) = (object_id.clone(), tags.clone(), Priority::High);
                let priority = if tags.is_empty() { reading.priority } else { priority };
                Reading {
                    object_id,
                    key_window,
                    tags,
                    event_id,
                    priority,
                    delivery_id: Some("dlv_1".into()),
                    ..reading
                }
            };
            readings.extend(one.into_iter().map(with_all));
        }
        Ok(readings)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        self.0.sample_kinds()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        self.0.sample(order)
    }
}

pub(crate) fn event(source: &str, id: &str) -> Event {
    event_with_body(source, &body(id))
}

fn body(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"invoice.paid","created":1759999996,"account":"acct_1","object":"in_1"}}"#)
}

/// The events of one request, for the ledger.
pub(crate) fn batch(ids: &[&str]) -> Vec<Routed> {
    batch_with_padding(ids, 0)
}

/// The same with larger bodies.
pub(crate) fn batch_with_padding(ids: &[&str], padding: usize) -> Vec<Routed> {
    let bodies: Vec<_> = ids.iter().map(|id| body(id) + &" ".repeat(padding)).collect();
    let received_at = OffsetDateTime::from_unix_timestamp(1_760_000_000).unwrap();
    let events = events_at("stripe", &bodies.join(&BETWEEN.to_string()), received_at);
    assert_eq!(events.len(), ids.len());
    events.into_iter().map(|event| routed(event, &["ledger"])).collect()
}

pub(crate) fn event_with_body(source: &str, body: &str) -> Event {
    event_at(source, body, OffsetDateTime::from_unix_timestamp(1_760_000_000).unwrap())
}

pub(crate) fn event_at(source: &str, body: &str, received_at: OffsetDateTime) -> Event {
    events_at(source, body, received_at).remove(0)
}

fn events_at(source: &str, body: &str, received_at: OffsetDateTime) -> Vec<Event> {
    let secret = Secret::new("whsec_store").unwrap();
    let mut request = sign("https://h.example/webhooks/x?a=%20b", &secret, received_at.unix_timestamp(), body.into());
    request.headers.append("x-odd", HeaderValue::from_bytes(b"\xff'\"\\").unwrap());
    request.headers.append("x-odd", HeaderValue::from_static("second"));
    let stripe = StripeWithObjects(Stripe::new(&Default::default()));
    let genuine = verify(&stripe, request, &Secrets::new(vec![secret]), received_at).unwrap();
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new(source).unwrap(),
        remote_address: "2001:db8::7".parse().unwrap(),
        received_at,
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
    };
    genuine.genuine().expect("no handshake").read(&stripe, arrival).0
}

/// An event whose key stands for it for this number of seconds.
pub(crate) fn with_window(id: &str, seconds: u64) -> Routed {
    let body = format!(r#"{{"id":"{id}","type":"deregistration","created":1759999996,"window":"{seconds}"}}"#);
    routed(event_with_body("stripe", &body), &["ledger"])
}

/// An event with a tag, which is urgent.
pub(crate) fn tagged(id: &str) -> Event {
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1759999996,"object":"in_1","tag":"vip"}}"#);
    event_with_body("stripe", &body)
}

pub(crate) fn resolution(job: &JobSummary) -> Option<Resolution> {
    job.review.as_ref().map(|review| review.resolution)
}

pub(crate) fn handler(name: &str) -> HandlerName {
    HandlerName::new(name).unwrap()
}

pub(crate) fn new_job(handler_name: &str) -> NewJob {
    NewJob { handler: handler(handler_name), priority: Priority::Normal, ordering_key: None }
}

pub(crate) fn routed(event: Event, handlers: &[&str]) -> Routed {
    Routed { event, jobs: handlers.iter().map(|name| new_job(name)).collect() }
}

pub(crate) fn paid(id: &str) -> Routed {
    routed(event("stripe", id), &["ledger"])
}

/// The job that `handler` has for an event.
pub(crate) fn job_of(event: EventId, name: &str) -> JobId {
    JobId { event, handler: handler(name) }
}

/// Records this number of events for the handler `ledger`.
pub(crate) async fn record_jobs(store: &Arc<dyn Store>, count: usize) -> Vec<JobId> {
    record_keyed(store, &vec![None; count]).await
}

/// Records events for the ledger, whose jobs have these ordering keys.
pub(crate) async fn record_keyed(store: &Arc<dyn Store>, keys: &[Option<&str>]) -> Vec<JobId> {
    let keyed = |key: &Option<&str>| {
        let event = event("stripe", &format!("evt_{}", RequestId::new().0.simple()));
        Routed { event, jobs: vec![NewJob { ordering_key: key.map(str::to_owned), ..new_job("ledger") }] }
    };
    let events: Vec<_> = keys.iter().map(keyed).collect();
    store.record(&events).await.unwrap();
    events.iter().map(|routed| job_of(routed.event.id(), "ledger")).collect()
}

/// What the tests' claims have in common: the ledger's, for a minute, without an order.
pub(crate) fn wish<'a>(handler: &'a HandlerName, events: &'a [EventId]) -> Claim<'a> {
    Claim { handler, events, worker: "w1", token: Token::new(), lease: LEASE, ordering: None, crashes_below: None }
}

pub(crate) fn events_of(jobs: &[JobId]) -> Vec<EventId> {
    jobs.iter().map(|job| job.event).collect()
}

pub(crate) async fn claim(store: &Arc<dyn Store>, jobs: &[JobId]) -> Vec<Claimed> {
    store.claim(&wish(&handler("ledger"), &events_of(jobs))).await.unwrap()
}

pub(crate) async fn claim_one(store: &Arc<dyn Store>, job: &JobId) -> Claimed {
    let mut claimed = claim(store, std::slice::from_ref(job)).await;
    assert_eq!(claimed.len(), 1, "the job can be claimed");
    claimed.remove(0)
}

pub(crate) async fn claim_in_order(store: &Arc<dyn Store>, jobs: &[JobId], dead_letters: DeadLetters) -> Vec<Claimed> {
    let (ledger, events) = (handler("ledger"), events_of(jobs));
    store.claim(&Claim { ordering: Some(dead_letters), ..wish(&ledger, &events) }).await.unwrap()
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.job.clone()).collect()
}

pub(crate) fn settlement(claimed: &Claimed, outcome: Outcome) -> Settlement {
    Settlement {
        job: claimed.job.clone(),
        token: claimed.token,
        attempt: claimed.attempt,
        started_at: OffsetDateTime::now_utc(),
        duration: Duration::from_millis(1500),
        worker: "w1".into(),
        outcome,
    }
}

/// Settles a job that must still be ours.
pub(crate) async fn settle(store: &Arc<dyn Store>, claimed: &Claimed, outcome: Outcome) {
    let settled = store.settle(&[settlement(claimed, outcome)]).await.unwrap();
    assert_eq!(settled.stale, []);
}

pub(crate) fn failed() -> Outcome {
    Outcome::Failed { kind: FailureKind::Network, message: "no route".into(), retry_in: HOUR }
}

pub(crate) fn dead() -> Outcome {
    Outcome::Dead { kind: FailureKind::Refused, message: "no such customer".into() }
}

/// Records an event whose job is claimed and settled like this.
pub(crate) async fn settled_job(store: &Arc<dyn Store>, outcome: Outcome) -> JobId {
    let job = record_jobs(store, 1).await.remove(0);
    settle(store, &claim_one(store, &job).await, outcome).await;
    job
}

pub(crate) async fn job(store: &Arc<dyn Store>, id: &JobId) -> JobSummary {
    let jobs = store.jobs_of(id.event).await.unwrap();
    jobs.into_iter().find(|job| job.handler == id.handler.as_str()).expect("the job is there")
}

pub(crate) async fn attempts_of(store: &Arc<dyn Store>, id: &JobId) -> Vec<Attempt> {
    store.attempts(id.event).await.unwrap().remove(id.handler.as_str()).unwrap_or_default()
}

pub(crate) async fn effects_of(store: &Arc<dyn Store>, id: &JobId) -> Vec<Effect> {
    store.effects(id.event).await.unwrap().remove(id.handler.as_str()).unwrap_or_default()
}

pub(crate) async fn state(store: &Arc<dyn Store>, id: &JobId) -> JobState {
    job(store, id).await.state
}

/// What the tests' sweeps have in common.
pub(crate) fn broom(handlers: &[HandlerName]) -> Sweep<'_> {
    Sweep { handlers, limit: 1000, crash_limit: 3, judge_leases_within: Some(Duration::MAX) }
}

pub(crate) async fn sweep(store: &Arc<dyn Store>) -> Swept {
    store.sweep(&broom(&[handler("ledger")])).await.unwrap()
}

/// The jobs that crashed, and those of them that are dead letters now.
pub(crate) fn crashed(swept: &Swept) -> (Vec<JobId>, Vec<JobId>) {
    assert!(swept.crashed.iter().all(|crash| crash.source == "stripe"), "{swept:?}");
    let buried = swept.crashed.iter().filter(|crash| crash.is_buried);
    (swept.crashed.iter().map(|crash| crash.job.clone()).collect(), buried.map(|crash| crash.job.clone()).collect())
}

/// The pending jobs of the ledger that are due, in their order.
pub(crate) async fn due_jobs(store: &Arc<dyn Store>, ordering: Option<DeadLetters>) -> Vec<DueJob> {
    store.due_jobs(&DueJobs { handler: &handler("ledger"), after: None, limit: 1000, ordering }).await.unwrap()
}

/// Those of them whose turn it is, in the order of their events. Dead letters are stepped over.
pub(crate) async fn ready(store: &Arc<dyn Store>) -> Vec<JobId> {
    let due = due_jobs(store, Some(DeadLetters::StepOver)).await;
    let mut ready: Vec<_> =
        due.iter().filter(|due| due.is_ready).map(|due| job_of(due.place.event, "ledger")).collect();
    ready.sort();
    ready
}

/// Lets the leases of all jobs end, and the sweeper notice.
pub(crate) async fn lose_leases(database: &Database, store: &Arc<dyn Store>) -> Swept {
    database.let_time_pass().await;
    sweep(store).await
}

pub(crate) fn effect<'a>(claimed: &'a Claimed, key: &'a str) -> EffectKey<'a> {
    EffectKey { job: &claimed.job, token: claimed.token, key, kind: EffectKind::Own }
}

/// Whether a time is about so far from now. The store's clock and ours may differ a little.
pub(crate) fn is_in(time: OffsetDateTime, wait: Duration) -> bool {
    let distance = time - (OffsetDateTime::now_utc() + wait);
    distance.abs() < time::Duration::seconds(20)
}
