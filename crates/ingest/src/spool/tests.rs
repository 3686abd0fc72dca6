//! Spooling and draining, with a real spool and a fake store whose behaviour the test sets.

use std::sync::Mutex;

use hookfast_store::SpoolConfig;
use hookfast_webhook::EventId;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::commit::BatchLimits;
use crate::commit::tests::event;
use crate::spool::drain::{Drainer, Patience};
use moody::{Mood, MoodyStore};

mod moody;

const AFTER: Duration = Duration::from_millis(50);

/// An event that is set aside is tried again soon.
const PATIENCE: Patience = Patience {
    batch: Duration::from_secs(5),
    alone: Duration::from_secs(15),
    bytes_a_second: 1024,
    again: [Duration::from_millis(5), Duration::from_millis(10)],
};

struct Rig {
    store: Arc<MoodyStore>,
    spooling: Arc<Spooling>,
    last_call: CancellationToken,
    folder: tempfile::TempDir,
}

impl Rig {
    async fn new(mood: Mood) -> Self {
        Self::with_folder(mood, 8 << 20, tempfile::tempdir().expect("a temporary folder")).await
    }

    async fn with_folder(mood: Mood, max_bytes: u64, folder: tempfile::TempDir) -> Self {
        let store = MoodyStore { mood: Mutex::new(mood), recorded: Mutex::default(), asked: Mutex::default() };
        let store = Arc::new(store);
        let config = SpoolConfig { path: folder.path().join("spool.db"), max_bytes };
        let spool = Arc::new(Spool::open(&config).await.expect("opens"));
        let way = SpoolWay { spool, store: Arc::clone(&store) as _, after: AFTER };
        Self { store, spooling: Arc::new(Spooling::start(way).await), last_call: CancellationToken::new(), folder }
    }

    async fn record(&self, id: &str) -> (EventId, Result<Vec<Recorded>, StoreError>) {
        let events = event(id);
        (events[0].event.id(), self.spooling.record(&events, Instant::now()).await)
    }

    /// Records an event that must end in the spool.
    async fn spool(&self, id: &str) -> EventId {
        let (event, recorded) = self.record(id).await;
        assert_eq!(recorded.expect("recorded"), [Recorded::Spooled], "{id}");
        event
    }

    fn drain(&self) -> JoinHandle<()> {
        let limits = BatchLimits { events: 4, bytes: 1_000_000 };
        let drainer = Drainer::new(Arc::clone(&self.spooling), None, limits, self.last_call.clone());
        tokio::spawn(drainer.with_patience(PATIENCE).run())
    }

    async fn wait_until_direct(&self) {
        while self.spooling.is_spooling().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn left(&self) -> u64 {
        self.spooling.spool.status().await.expect("it can be read").events
    }
}

#[tokio::test]
async fn as_long_as_the_store_takes_events_the_spool_stays_empty() {
    let rig = Rig::new(Mood::Well).await;
    let (id, recorded) = rig.record("evt_1").await;
    assert_eq!(recorded.expect("recorded"), [Recorded::New]);
    assert_eq!((rig.store.recorded(), rig.left().await), (vec![(id, "directly")], 0));
}

#[tokio::test]
async fn the_store_has_longer_for_a_large_body() {
    let rig = Rig::new(Mood::Slow(Duration::from_millis(1200))).await;
    let deadline = || Instant::now() + Duration::from_millis(2700);
    let large = event(&"x".repeat(10 << 20));
    assert_eq!(rig.spooling.record(&large, deadline()).await.expect("recorded"), [Recorded::New]);
    assert!(!rig.spooling.is_spooling().await);
    assert_eq!(rig.spooling.record(&event("evt_1"), deadline()).await.expect("recorded"), [Recorded::Spooled]);
}

#[tokio::test]
async fn once_the_store_is_silent_everything_goes_into_the_spool_without_asking_it_again() {
    let rig = Rig::new(Mood::Well).await;
    rig.store.set(Mood::Silent);
    let first = rig.spool("evt_1").await;
    let asked = rig.store.asked();
    rig.spool("evt_2").await;
    rig.store.set(Mood::Well);
    rig.spool("evt_3").await;
    assert_eq!((rig.store.asked(), rig.left().await), (asked, 3), "the order of arrival holds");
    assert_eq!(rig.store.recorded(), [(first, "silently")], "with the id that it has in the spool");
}

#[tokio::test]
async fn data_that_the_store_refuses_is_no_outage() {
    let rig = Rig::new(Mood::Refusing(EventId::new())).await;
    let (_, recorded) = rig.record("evt_1").await;
    assert!(matches!(recorded, Err(StoreError::Rejected(_))));
    assert!(!rig.spooling.is_spooling().await && rig.left().await == 0);
}

#[tokio::test]
async fn what_waits_is_handed_on_in_order_and_then_the_store_is_used_again() {
    let rig = Rig::new(Mood::Away).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        expected.push((rig.spool(&format!("evt_{number}")).await, "from the spool"));
    }
    let drainer = rig.drain();
    while !rig.spooling.is_away() {
        tokio::task::yield_now().await;
    }
    expected.push((rig.spool("evt_late").await, "from the spool"));
    assert_eq!((rig.left().await, rig.store.recorded()), (21, vec![]), "nothing leaves before it is recorded");
    rig.store.set(Mood::Well);
    rig.wait_until_direct().await;
    assert_eq!((rig.store.recorded(), rig.left().await), (expected, 0));
    assert_eq!(rig.record("evt_direct").await.1.expect("recorded"), [Recorded::New]);
    rig.last_call.cancel();
    drainer.await.expect("it ends");
}

#[tokio::test]
async fn under_steady_traffic_spooling_ends_all_the_same() {
    let rig = Arc::new(Rig::new(Mood::Away).await);
    rig.spool("evt_first").await;
    let traffic: Vec<_> = (0..4)
        .map(|client| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move {
                for number in 0.. {
                    let (id, recorded) = rig.record(&format!("evt_{client}_{number}")).await;
                    if recorded.expect("recorded") == [Recorded::New] {
                        return (id, number);
                    }
                }
                unreachable!("the loop has no end")
            })
        })
        .collect();
    rig.store.set(Mood::Well);
    let _drainer = rig.drain();
    let mut spooled = 1;
    for client in traffic {
        let (id, number) = client.await.expect("no panic");
        assert!(rig.store.recorded().contains(&(id, "directly")));
        spooled += number;
    }
    let from_the_spool = rig.store.recorded().iter().filter(|(_, how)| *how == "from the spool").count();
    assert_eq!((from_the_spool, rig.left().await), (spooled, 0));
    let last_spooled = rig.store.recorded().iter().rposition(|(_, how)| *how == "from the spool");
    let first_direct = rig.store.recorded().iter().position(|(_, how)| *how == "directly");
    assert!(last_spooled < first_direct, "no event is recorded before those that wait in the spool");
}

#[tokio::test]
async fn while_the_drainer_makes_progress_a_new_batch_waits_until_one_is_drained() {
    let rig = Rig::new(Mood::Away).await;
    rig.spool("evt_1").await;
    rig.spooling.set_progressing(true);
    let mut second = Box::pin(rig.record("evt_2"));
    assert!(timeout(Duration::ZERO, &mut second).await.is_err(), "it waits");
    rig.spooling.set_progressing(true);
    assert_eq!(second.await.1.expect("recorded"), [Recorded::Spooled]);
    assert_eq!(rig.left().await, 2);
}

#[tokio::test]
async fn an_event_that_the_store_refuses_stays_and_the_others_pass_it_by() {
    let rig = Rig::new(Mood::Away).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(rig.spool(&format!("evt_{number}")).await);
    }
    rig.store.set(Mood::Refusing(ids[2]));
    let _drainer = rig.drain();
    rig.wait_until_direct().await;
    let recorded: Vec<_> = rig.store.recorded().into_iter().map(|(id, _)| id).collect();
    assert_eq!(recorded, [ids[0], ids[1], ids[3], ids[4]]);
    let status = rig.spooling.spool.status().await.expect("it can be read");
    assert_eq!((status.events, status.refused), (1, 1));
}

#[tokio::test]
async fn an_event_that_is_too_much_for_a_batch_gets_more_time_alone_and_keeps_its_place() {
    let rig = Rig::new(Mood::Away).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(rig.spool(&format!("evt_{number}")).await);
    }
    rig.store.set(Mood::Overwhelmed(ids[2], PATIENCE.alone));
    let _drainer = rig.drain();
    rig.wait_until_direct().await;
    let recorded: Vec<_> = rig.store.recorded().into_iter().map(|(id, _)| id).collect();
    assert_eq!((recorded, rig.left().await), (ids, 0));
}

#[tokio::test]
async fn an_event_that_is_too_much_even_alone_is_set_aside_and_tried_again() {
    let rig = Rig::new(Mood::Away).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(rig.spool(&format!("evt_{number}")).await);
    }
    rig.store.set(Mood::Overwhelmed(ids[2], Duration::MAX));
    let _drainer = rig.drain();
    rig.wait_until_direct().await;
    let mut recorded: Vec<_> = rig.store.recorded().into_iter().map(|(id, _)| id).collect();
    assert_eq!(recorded, [&ids[..2], &ids[3..]].concat(), "the order of the others holds");
    let status = rig.spooling.spool.status().await.expect("it can be read");
    assert_eq!((status.events, status.refused), (1, 1));
    let (_, aside) =
        Spool::look(&rig.folder.path().join("spool.db"), 10).await.expect("it is there").expect("it is there");
    assert_eq!((aside[0].id, aside[0].reason.as_str()), (ids[2], "too slow"));

    rig.store.set(Mood::Well);
    while rig.left().await > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    recorded = rig.store.recorded().into_iter().map(|(id, _)| id).collect();
    assert_eq!((recorded.last(), recorded.len()), (Some(&ids[2]), 20));
    assert_eq!(rig.spooling.spool.status().await.expect("it can be read").refused, 0);
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_away_and_nothing_is_set_aside() {
    let rig = Rig::new(Mood::Away).await;
    for number in 0..5 {
        rig.spool(&format!("evt_{number}")).await;
    }
    rig.store.set(Mood::Stuck);
    let _drainer = rig.drain();
    while !rig.spooling.is_away() || rig.store.asked() < 50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let status = rig.spooling.spool.status().await.expect("it can be read");
    assert_eq!((status.events, status.refused), (5, 0));
}

#[tokio::test]
async fn a_full_spool_is_drained_past_an_event_that_the_store_refuses() {
    let rig = Rig::with_folder(Mood::Away, 1 << 20, tempfile::tempdir().expect("a temporary folder")).await;
    let mut ids = Vec::new();
    loop {
        let (id, recorded) = rig.record(&format!("evt_{}", ids.len())).await;
        match recorded {
            Ok(_) => ids.push(id),
            Err(_) => break,
        }
    }
    rig.store.set(Mood::Refusing(ids[0]));
    let _drainer = rig.drain();
    rig.wait_until_direct().await;
    let recorded: Vec<_> = rig.store.recorded().into_iter().map(|(id, _)| id).collect();
    assert_eq!(recorded, ids[1..]);
}

#[tokio::test]
async fn what_is_left_at_the_end_is_drained_at_the_next_start() {
    let rig = Rig::new(Mood::Away).await;
    let id = rig.spool("evt_1").await;
    let drainer = rig.drain();
    rig.last_call.cancel();
    drainer.await.expect("it ends though the store is away");
    assert_eq!(rig.left().await, 1);
    rig.spooling.spool.close().await;
    let Rig { folder, spooling, .. } = rig;
    drop(spooling);

    let rig = Rig::with_folder(Mood::Well, 8 << 20, folder).await;
    assert!(rig.spooling.is_spooling().await, "something waits from before");
    let _drainer = rig.drain();
    rig.wait_until_direct().await;
    assert_eq!(rig.store.recorded(), [(id, "from the spool")]);
}

#[tokio::test]
async fn with_a_full_spool_events_go_to_the_store_if_that_is_there_and_nowhere_if_not() {
    let rig = Rig::with_folder(Mood::Away, 1 << 20, tempfile::tempdir().expect("a temporary folder")).await;
    let batch = |round: usize| (0..100).flat_map(move |number| event(&format!("evt_{round}_{number}"))).collect();
    let (mut round, mut many): (_, Vec<_>) = (0, batch(0));
    while rig.spooling.spool.add(&many).await.is_ok() {
        round += 1;
        many = batch(round);
    }
    rig.spooling.set_away(true);
    let full = rig.spooling.record(&many, Instant::now()).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");

    rig.spooling.set_away(false);
    rig.store.set(Mood::Well);
    let recorded = rig.spooling.record(&many, Instant::now()).await.expect("the store takes it");
    assert_eq!(recorded, vec![Recorded::New; many.len()]);
    assert!(rig.spooling.is_spooling().await, "what waits is still to be drained");
}
