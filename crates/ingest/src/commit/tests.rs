use std::sync::Mutex as SyncMutex;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_store::{Check, LARGE_BYTES};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{Arrival, EventId, RequestId, Secret, Secrets, SourceName, verify};
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::*;

/// A store in memory whose commits wait for permission, and which refuses the event `evt_bad`.
struct FakeStore {
    committers: usize,
    begun: AtomicUsize,
    permission: Semaphore,
    batches: SyncMutex<Vec<Vec<String>>>,
    failure: Option<fn() -> StoreError>,
}

impl FakeStore {
    fn new(permits: usize) -> Self {
        Self {
            committers: 1,
            begun: AtomicUsize::new(0),
            permission: Semaphore::new(permits),
            batches: SyncMutex::default(),
            failure: None,
        }
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.batches.lock().expect("no test panics while it holds the lock").clone()
    }
}

#[async_trait]
impl Record for FakeStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.permission.acquire().await.expect("never closed").forget();
        if let Some(failure) = self.failure {
            return Err(failure());
        }
        let keys: Vec<_> = events.iter().map(|routed| routed.event.dedupe_key().as_str().to_owned()).collect();
        if keys.iter().any(|key| key == "evt_bad") {
            return Err(StoreError::Rejected("bad".into()));
        }
        self.batches.lock().expect("no test panics while it holds the lock").push(keys);
        Ok(vec![Recorded::New; events.len()])
    }

    async fn first_of(&self, _: &str, _: &str) -> Result<Option<EventId>, StoreError> {
        Ok(None)
    }

    fn parallel_records(&self) -> usize {
        self.committers
    }
}

#[async_trait]
impl Check for FakeStore {
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

pub(crate) fn event(id: &str) -> Vec<Routed> {
    let secret = Secret::new("whsec_record").expect("not blank");
    let now = OffsetDateTime::now_utc();
    let body = format!(r#"{{"id":"{id}","type":"t"}}"#);
    let request = sign("http://h/webhooks/s", &secret, now.unix_timestamp(), body);
    let stripe = Stripe::new(&Default::default());
    let genuine = verify(&stripe, request, &Secrets::new(vec![secret]), now).expect("genuine");
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new("s").expect("a name"),
        remote_address: [127, 0, 0, 1].into(),
        received_at: now,
        trace_id: None,
    };
    let events = genuine.genuine().expect("no handshake").read(&stripe, arrival).0;
    events.into_iter().map(|event| Routed { event, jobs: vec![] }).collect()
}

struct Rig {
    store: Arc<FakeStore>,
    recorder: Recorder,
    must_end: MustEnd,
    tasks: Tasks,
}

fn rig(store: FakeStore, queue_requests: usize, limits: BatchLimits) -> Rig {
    let (store, must_end) = (Arc::new(store), MustEnd::default());
    let tasks = Tasks::new(&Handle::current(), &must_end);
    let shared: Arc<dyn Record> = Arc::clone(&store) as _;
    let committing = Committing { store: &shared, spooling: None, limits, must_end: &must_end, dispatcher: None };
    let recorder = Recorder::start(&committing, queue_requests, &tasks, &tasks);
    Rig { store, recorder, must_end, tasks }
}

const LIMITS: BatchLimits = BatchLimits { events: 100, bytes: 1_000_000 };

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

type Waiting = tokio::task::JoinHandle<Result<Vec<Recorded>, Rejection>>;

/// Submits events without waiting for their commit, in this order.
async fn submit(rig: &Rig, ids: &[&str]) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for id in ids {
        let (recorder, events) = (rig.recorder.clone(), event(id));
        waiting.push(tokio::spawn(async move { recorder.record(events, None, later()).await }));
        let_others_run().await;
    }
    waiting
}

/// The tests' runtime has one thread. After a few yields every task waits for the store or for the test.
async fn let_others_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_waits_during_a_commit_shares_the_next_one() {
    let rig = rig(FakeStore::new(0), 10, LIMITS);
    let first = submit(&rig, &["evt_1"]).await.remove(0);
    let others = submit(&rig, &["evt_2", "evt_3", "evt_4"]).await;
    rig.store.permission.add_permits(2);
    assert!(first.await.expect("no panic").is_ok());
    for other in others {
        assert!(other.await.expect("no panic").is_ok());
    }
    assert_eq!(rig.store.batches(), [vec!["evt_1"], vec!["evt_2", "evt_3", "evt_4"]]);
}

#[tokio::test]
async fn a_batch_ends_at_its_limits() {
    let rig = rig(FakeStore::new(0), 10, BatchLimits { events: 2, bytes: 1_000_000 });
    let waiting = submit(&rig, &["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"]).await;
    rig.store.permission.add_permits(10);
    for request in waiting {
        assert!(request.await.expect("no panic").is_ok());
    }
    let sizes: Vec<_> = rig.store.batches().iter().map(Vec::len).collect();
    assert!(sizes.iter().all(|size| *size <= 2) && sizes.iter().sum::<usize>() == 5, "{sizes:?}");
}

#[tokio::test]
async fn a_request_that_is_larger_than_a_batch_holds_up_no_other() {
    let rig = rig(FakeStore::new(0), 10, BatchLimits { events: 100, bytes: 900 });
    let large = format!("evt_{}", "x".repeat(200));
    let mut waiting = submit(&rig, &["evt_1"]).await;
    waiting.extend(submit(&rig, &[&large, "evt_2"]).await);
    assert_eq!(rig.store.begun.load(Ordering::Relaxed), 2, "the large one is under way beside the first");
    rig.store.permission.add_permits(10);
    for request in waiting {
        assert!(request.await.expect("no panic").is_ok());
    }
    let mut batches = rig.store.batches();
    batches.sort();
    assert_eq!(batches, [vec!["evt_1"], vec!["evt_2"], vec![&large]]);
}

/// Also if a batch could hold it: the store writes it in parts, one after the other.
#[tokio::test]
async fn a_large_body_shares_no_batch_with_small_ones() {
    let rig = rig(FakeStore::new(0), 10, BatchLimits { bytes: 100_000_000, ..LIMITS });
    let large = format!("evt_{}", "x".repeat(LARGE_BYTES));
    let waiting = submit(&rig, &["evt_1", "evt_2", &large, "evt_3"]).await;
    rig.store.permission.add_permits(10);
    for request in waiting {
        assert!(request.await.expect("no panic").is_ok());
    }
    let batches = rig.store.batches();
    let with_large = batches.iter().filter(|batch| batch.iter().any(|key| key.len() > 5));
    assert_eq!(with_large.map(Vec::len).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn one_bad_row_refuses_one_request() {
    let rig = rig(FakeStore::new(0), 10, LIMITS);
    let ids = ["evt_0", "evt_1", "evt_2", "evt_bad", "evt_4", "evt_5", "evt_6"];
    let waiting = submit(&rig, &ids).await;
    rig.store.permission.add_permits(100);
    for (id, request) in ids.iter().zip(waiting) {
        assert_eq!(request.await.expect("no panic").is_ok(), *id != "evt_bad", "{id}");
    }
    let mut recorded: Vec<_> = rig.store.batches().concat();
    recorded.sort();
    assert_eq!(recorded, ["evt_0", "evt_1", "evt_2", "evt_4", "evt_5", "evt_6"]);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let rig = rig(FakeStore::new(0), 2, LIMITS);
    // The committer holds the first, the queue the others.
    let waiting = submit(&rig, &["evt_1", "evt_2", "evt_3"]).await;
    let verdict = rig.recorder.record(event("evt_4"), None, later()).await;
    assert!(matches!(verdict, Err(Rejection::Overloaded)), "{verdict:?}");
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn past_its_deadline_a_request_is_late_and_no_longer_worked_for() {
    let rig = rig(FakeStore::new(0), 10, LIMITS);
    let soon = Instant::now() + Duration::from_millis(450);
    let stuck = submit(&rig, &["evt_1"]).await.remove(0);
    let verdict = rig.recorder.record(event("evt_2"), None, soon).await;
    assert!(matches!(verdict, Err(Rejection::Late)), "{verdict:?}");
    rig.store.permission.add_permits(10);
    assert!(stuck.await.expect("no panic").is_ok());
    rig.recorder.record(event("evt_3"), None, later()).await.expect("recorded");
    assert!(!rig.store.batches().concat().contains(&"evt_2".to_owned()));
}

#[tokio::test]
async fn a_caller_who_hangs_up_does_not_stop_the_commit() {
    let rig = rig(FakeStore::new(0), 10, LIMITS);
    for request in submit(&rig, &["evt_1", "evt_2"]).await {
        request.abort();
        assert!(request.await.is_err_and(|error| error.is_cancelled()));
    }
    rig.store.permission.add_permits(10);
    drop(rig.recorder);
    rig.tasks.ended().await;
    assert_eq!(rig.store.batches().concat(), ["evt_1", "evt_2"]);
}

#[tokio::test]
async fn an_unreachable_store_refuses_all_and_is_not_asked_row_by_row() {
    let unavailable = || StoreError::Unavailable("gone".into());
    let rig = rig(FakeStore { failure: Some(unavailable), ..FakeStore::new(0) }, 10, LIMITS);
    let waiting = submit(&rig, &["evt_1", "evt_2", "evt_3"]).await;
    // Enough for the two batches that there can be, not for row by row.
    rig.store.permission.add_permits(2);
    for request in waiting {
        assert!(matches!(request.await.expect("no panic"), Err(Rejection::NotRecorded)));
    }
    assert!(rig.must_end.reason().is_none());
}

#[tokio::test]
async fn a_broken_store_is_reported() {
    let broken = || StoreError::Broken("disk I/O error".into());
    let rig = rig(FakeStore { failure: Some(broken), ..FakeStore::new(1) }, 10, LIMITS);
    let verdict = rig.recorder.record(event("evt_1"), None, later()).await;
    assert!(matches!(verdict, Err(Rejection::NotRecorded)));
    assert!(rig.must_end.reason().is_some_and(|reason| reason.starts_with("the store had an I/O error")));
}

#[tokio::test(start_paused = true)]
async fn beside_a_commit_another_one_begins_when_it_is_worth_it() {
    let limits = BatchLimits { events: 3 * WORTH_A_COMMIT, bytes: 1_000_000 };
    let rig = rig(FakeStore { committers: 2, ..FakeStore::new(0) }, 10, limits);
    let begun = || rig.store.begun.load(Ordering::Relaxed);
    let mut waiting = submit(&rig, &["evt_1"]).await;
    waiting.extend(submit(&rig, &["evt_2", "evt_3"]).await);
    assert_eq!(begun(), 1, "two events are not worth a commit of their own");
    waiting.extend(submit(&rig, &["evt_4"]).await);
    assert_eq!(begun(), 2, "three are");
    rig.store.permission.add_permits(2);
    for request in waiting {
        assert!(request.await.expect("no panic").is_ok());
    }
    assert_eq!(rig.store.batches().iter().map(Vec::len).collect::<Vec<_>>(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_hangs_does_not_hold_up_the_others() {
    let rig = rig(FakeStore { committers: 2, ..FakeStore::new(0) }, 10, LIMITS);
    let _waiting = submit(&rig, &["evt_1", "evt_2"]).await;
    tokio::time::sleep(2 * PATIENCE).await;
    assert_eq!(rig.store.begun.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn when_a_commit_ends_whoever_waits_goes_on_at_once() {
    let rig = rig(FakeStore { committers: 2, ..FakeStore::new(0) }, 10, LIMITS);
    let waiting = submit(&rig, &["evt_1", "evt_2"]).await;
    rig.store.permission.add_permits(2);
    let start = Instant::now();
    for request in waiting {
        assert!(request.await.expect("no panic").is_ok());
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "time stands still while there is something to do");
}
