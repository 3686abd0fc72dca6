//! Recording many events at once, which each database does in a way of its own.

use std::time::Duration;

use hookfast_store::{NewJob, Recorded, Routed, StoreError};
use hookfast_webhook::Priority;
use tokio::time::timeout;

use crate::database::{Database, event_with_body, new_job, paid, routed};

/// Events of every kind: with and without accounts, objects and times, readable and not, with several jobs and none.
fn all_kinds(count: usize) -> Vec<Routed> {
    let one = |number: usize| {
        let body = match number % 4 {
            0 => format!(
                r#"{{"id":"evt_{number}","type":"a.b","created":1759999996,"account":"acct_ü","object":"in_1"}}"#
            ),
            1 => format!("{{\"id\":\"evt_{number}\",\"type\":\"'\\u0000\\\\\",\"x\":\"\u{1f600}\u{0}\"}}\r\n"),
            2 => format!("not JSON at all {number}"),
            _ => format!(r#"{{"id":"evt_{number}","type":"large","data":"{}"}}"#, "x".repeat(20_000)),
        };
        let urgent = NewJob { priority: Priority::High, ordering_key: Some("k'1".into()), ..new_job("ledger") };
        let jobs = [vec![], vec![new_job("mail")], vec![urgent, new_job("mail")]][number % 3].clone();
        Routed { event: event_with_body("stripe", &body), jobs }
    };
    (0..count).map(one).collect()
}

fn another_like(database: &Database) -> Database {
    if database.is_sqlite() { Database::sqlite() } else { Database::postgres() }
}

async fn an_event_of_a_large_batch_is_stored_as_one_that_came_alone(database: Database) {
    let other = another_like(&database);
    let (together, alone) = (database.open().await, other.open().await);
    let events = all_kinds(60);
    assert_eq!(together.record(&events).await.unwrap(), vec![Recorded::New; 60]);
    for routed in &events {
        alone.record(std::slice::from_ref(routed)).await.unwrap();
        let id = routed.event.id();
        let stored = together.event(id).await.unwrap();
        assert!(stored.is_some());
        assert_eq!(stored, alone.event(id).await.unwrap());
        let [jobs, expected] = [&together, &alone].map(|store| store.jobs_of(id));
        let without_time = |jobs: Vec<hookfast_store::JobSummary>| {
            jobs.into_iter().map(|job| (job.handler, job.state, job.priority, job.attempts)).collect::<Vec<_>>()
        };
        assert_eq!(without_time(jobs.await.unwrap()), without_time(expected.await.unwrap()));
    }
    let keyed = "SELECT count(*) FROM jobs WHERE ordering_key = 'k''1'";
    assert_eq!(database.number(keyed).await, other.number(keyed).await);
}

async fn duplicates_in_a_large_batch_are_found(database: Database) {
    let store = database.open().await;
    store.record(&[paid("evt_7")]).await.unwrap();
    let mut batch: Vec<_> = (0..40).map(|number| paid(&format!("evt_{number}"))).collect();
    batch.push(paid("evt_30"));
    let recorded = store.record(&batch).await.unwrap();
    let duplicates: Vec<_> = (0..41).filter(|place| recorded[*place] == Recorded::Duplicate).collect();
    assert_eq!(duplicates, [7, 40]);
    assert_eq!(database.number("SELECT count(*) FROM events").await, 40);
    assert_eq!(database.number("SELECT count(*) FROM jobs").await, 40);
    assert_eq!(database.resends().await, 2);
    // What the next batch does may depend on this one.
    let next = || (100..140).map(|number| paid(&format!("evt_{number}"))).collect::<Vec<_>>();
    assert_eq!(store.record(&next()).await.unwrap(), [Recorded::New; 40]);
    assert_eq!(store.record(&next()).await.unwrap(), [Recorded::Duplicate; 40]);
}

/// A caller that gives up waiting leaves an answer under way. The next statement on the same connection must not take
/// that answer for its own: it could take something for committed that is not.
async fn what_was_given_up_does_not_answer_for_what_comes_next(database: Database) {
    let store = database.open().await;
    let numbered = |round: u64, what: &str| -> Vec<_> {
        (0..20)
            .map(|number| {
                routed(
                    event_with_body("stripe", &format!(r#"{{"id":"{what}_{round}_{number}","type":"t"}}"#)),
                    &["ledger"],
                )
            })
            .collect()
    };
    for round in 0..60 {
        let given_up = numbered(round, "given-up");
        let _ = timeout(Duration::from_micros(round * 100), store.record(&given_up)).await;
        let batch = numbered(round, "kept");
        // The connection may be gone, but nothing may be promised that is not there.
        match store.record(&batch).await {
            Ok(recorded) => {
                assert_eq!(recorded, [Recorded::New; 20]);
                for routed in &batch {
                    assert!(store.event(routed.event.id()).await.unwrap().is_some(), "round {round}");
                }
            }
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
        let half =
            database.number("SELECT count(*) FROM events").await - database.number("SELECT count(*) FROM jobs").await;
        assert_eq!(half, 0, "all of a batch or nothing");
    }
}

on_both! {
    an_event_of_a_large_batch_is_stored_as_one_that_came_alone
    duplicates_in_a_large_batch_are_found
    what_was_given_up_does_not_answer_for_what_comes_next
}
