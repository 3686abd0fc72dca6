//! The spool knows its own keys: what comes again while it waits there is counted.

use std::fs;

use hookfast_store::{Behind, Recorded, Routed, Spool, SpoolConfig, Spooled};
use sqlx::Executor;

use crate::database::{event_with_body, paid, routed};
use crate::spool::{Rig, WITHIN};

async fn oldest(spool: &Spool) -> Vec<Spooled> {
    spool.oldest(100, u64::MAX).await.unwrap()
}

/// Hands on all that waits, and takes it out.
async fn drain(rig: &Rig, spool: &Spool) -> Vec<Recorded> {
    let events = oldest(spool).await;
    let recorded = rig.late.record_spooled(&events, WITHIN).await.unwrap();
    spool.remove(&events).await.unwrap();
    recorded
}

#[tokio::test]
async fn what_comes_again_takes_no_further_room_and_is_handed_on_as_a_count() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let large = || {
        let body = format!(r#"{{"id":"evt_1","type":"t","data":"{}"}}"#, "x".repeat(1 << 20));
        routed(event_with_body("stripe", &body), &["ledger"])
    };
    let first = large();
    spool.add(std::slice::from_ref(&first)).await.unwrap();
    let before = spool.status().await.unwrap();
    for _ in 0..200 {
        spool.add(&[large(), large()]).await.unwrap();
    }
    let after = spool.status().await.unwrap();
    assert_eq!(after.events, 1);
    assert!(after.bytes <= before.bytes + 64 * 1024, "{before:?} became {after:?}");

    assert_eq!(drain(&rig, &spool).await, [Recorded::New]);
    let stored = store.event(first.event.id()).await.unwrap().unwrap();
    assert_eq!((stored.summary.resends, stored.summary.jobs, stored.came_again.len()), (400, 1, 10));
    assert_eq!(spool.status().await.unwrap().events, 0);
    spool.add(&[paid("evt_1")]).await.unwrap();
    assert_eq!(drain(&rig, &spool).await, [Recorded::Duplicate], "what has left the spool is known to Postgres");
    assert_eq!(rig.postgres.resends().await, 401);
}

#[tokio::test]
async fn a_key_that_postgres_knows_has_its_spooled_deliveries_counted() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    store.record(&[paid("evt_1")]).await.unwrap();
    spool.add(&[paid("evt_1"), paid("evt_2"), paid("evt_1"), paid("evt_1")]).await.unwrap();
    assert_eq!(drain(&rig, &spool).await, [Recorded::Duplicate, Recorded::New]);
    let events = store.latest_events(2).await.unwrap();
    assert_eq!(events.iter().map(|event| event.resends).collect::<Vec<_>>(), [0, 3]);
}

/// The drainer has read the event, and it comes again before it leaves the spool.
#[tokio::test]
async fn a_resend_that_is_added_while_its_event_is_drained_is_not_lost() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    spool.add(&[paid("evt_1"), paid("evt_1"), paid("evt_2")]).await.unwrap();
    let read = oldest(&spool).await;
    spool.add(&[paid("evt_1")]).await.unwrap();
    rig.late.record_spooled(&read, WITHIN).await.unwrap();
    spool.add(&[paid("evt_1"), paid("evt_1")]).await.unwrap();
    spool.remove(&read).await.unwrap();

    assert_eq!(spool.status().await.unwrap().events, 1, "those that came meanwhile wait together");
    assert_eq!(drain(&rig, &spool).await, [Recorded::Duplicate]);
    assert_eq!(rig.postgres.resends().await, 4);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM jobs").await, 2);
    assert_eq!(spool.status().await.unwrap().events, 0);
}

/// Killed between the commit and the removal.
#[tokio::test]
async fn what_is_handed_on_twice_is_counted_once() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let copies = |count: usize| (0..count).map(|_| paid("evt_1")).collect::<Vec<_>>();
    store.record(&copies(1)).await.unwrap();
    spool.add(&copies(5)).await.unwrap();
    rig.late.record_spooled(&oldest(&spool).await, WITHIN).await.unwrap();
    assert_eq!(rig.postgres.resends().await, 5);
    spool.close().await;
    drop(spool);

    let spool = rig.spool().await;
    assert_eq!(drain(&rig, &spool).await, [Recorded::Duplicate]);
    assert_eq!(rig.postgres.resends().await, 5);
}

/// The batch was given up, went into the spool, and came through before it was drained; another was in the spool before it.
#[tokio::test]
async fn an_event_that_was_counted_as_a_resend_and_came_through_itself_is_no_resend() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let given_up = [paid("evt_1"), paid("evt_1")];
    spool.add(&[paid("evt_1")]).await.unwrap();
    spool.add(&given_up).await.unwrap();
    store.record(&given_up).await.unwrap();
    assert_eq!(drain(&rig, &spool).await, [Recorded::Duplicate]);
    assert_eq!(rig.postgres.resends().await, 2, "three deliveries are an event and two resends");
}

#[tokio::test]
async fn a_resend_of_an_event_that_is_set_aside_is_counted_with_it() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let refused = paid("evt_1");
    spool.add(std::slice::from_ref(&refused)).await.unwrap();
    spool.set_aside(refused.event.id(), "refused by a trigger").await.unwrap();
    spool.add(&[paid("evt_1"), paid("evt_2")]).await.unwrap();
    assert_eq!(drain(&rig, &spool).await.len(), 1, "the other one passes it");
    let event = spool.event(refused.event.id()).await.unwrap().unwrap();
    rig.late.record_spooled(std::slice::from_ref(&event), WITHIN).await.unwrap();
    spool.remove(&[event]).await.unwrap();
    assert_eq!((rig.postgres.resends().await, spool.status().await.unwrap().events), (1, 0));
}

/// A spool of an earlier version has a row for each delivery.
#[tokio::test]
async fn a_spool_that_holds_a_key_several_times_is_opened_and_drained() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let events: Vec<Routed> = ["evt_1", "evt_2", "evt_3"].map(paid).into();
    spool.add(&events).await.unwrap();
    spool.close().await;
    drop(spool);
    let older = "UPDATE events SET dedupe_key = 'evt_1'; DROP TABLE resend_arrivals; DROP INDEX events_by_key;
                 DELETE FROM _sqlx_migrations WHERE version = 3";
    rig.file().await.execute(older).await.unwrap();

    let spool = rig.spool().await;
    spool.add(&[paid("evt_1")]).await.unwrap();
    assert_eq!(drain(&rig, &spool).await, [Recorded::New, Recorded::Duplicate, Recorded::Duplicate]);
    assert_eq!(rig.postgres.resends().await, 3);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM jobs").await, 1);
}

fn bytes_on_disk(spool: &SpoolConfig) -> u64 {
    let size = |suffix: &str| fs::metadata(format!("{}{suffix}", spool.path.display())).map_or(0, |found| found.len());
    size("") + size("-wal")
}

/// A batch of events of which each has this many bytes.
fn sized(round: usize, count: usize, bytes: usize) -> Vec<Routed> {
    let one = |number: usize| {
        let body = format!(r#"{{"id":"evt_{round}_{number}","type":"t","data":"{}"}}"#, "x".repeat(bytes));
        routed(event_with_body("stripe", &body), &["ledger"])
    };
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn file_and_log_together_stay_within_the_bound() {
    for (count, bytes) in [(1, 1 << 20), (3, 1 << 20), (300, 100), (50, 5_000), (20, 100_000)] {
        let rig = Rig::new().await;
        let config = SpoolConfig { max_bytes: 32 << 20, ..rig.config() };
        let spool = Spool::open(&config).await.unwrap();
        let (mut largest, mut refused) = (0, 0);
        for round in 0..40 {
            // A recorded request comes again and again.
            for _ in 0..2 {
                let is_added = spool.add(&sized(round, count, bytes)).await.is_ok();
                refused += usize::from(!is_added);
                largest = largest.max(bytes_on_disk(&config));
            }
            if refused > 0 {
                spool.remove(&spool.oldest(count * 3, u64::MAX).await.unwrap()).await.unwrap();
            }
        }
        let what = format!("{count} events of {bytes} bytes");
        assert!(largest <= config.max_bytes, "{what}: {largest} of {}", config.max_bytes);
        assert_eq!(refused > 0, count * bytes * 40 > 24 << 20, "{what}: {refused} refused");
    }
}

/// Or a spool that was full once would refuse large events for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_spool_that_was_full_takes_large_events_when_it_is_empty_again() {
    let rig = Rig::new().await;
    let config = SpoolConfig { max_bytes: 32 << 20, ..rig.config() };
    let spool = Spool::open(&config).await.unwrap();
    let mut round = 0;
    while spool.add(&sized(round, 10, 50_000)).await.is_ok() {
        round += 1;
    }
    assert!(round > 20, "{round} batches");
    assert!(spool.add(&sized(round, 1, 3 << 20)).await.is_err(), "there is no room");
    while spool.is_waiting().await.unwrap() {
        spool.remove(&oldest(&spool).await).await.unwrap();
    }
    spool.add(&sized(round, 1, 3 << 20)).await.unwrap();
    assert!(bytes_on_disk(&config) <= config.max_bytes);
}
