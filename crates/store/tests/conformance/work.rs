//! Claim, settle, renew, hand back.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Attempt, JobId, Outcome, Store, Token};
use hookfast_webhook::{EventId, FailureKind, Priority};
use uuid::Uuid;

use crate::database::{
    Database, HOUR, LEASE, claim, claim_one, dead, event, events_of, failed, handler, ids, is_in, job, job_of,
    lose_leases, record_jobs, routed, settle, settled_job, settlement, state, sweep, wish,
};

async fn a_claim_brings_the_events_along_in_their_order(database: Database) {
    let store = database.open().await;
    let events = [routed(event("stripe", "evt_1"), &["ledger"]), routed(event("stripe", "evt_2"), &["ledger", "mail"])];
    store.record(&events).await.unwrap();
    let [first, second] = events.each_ref().map(|routed| routed.event.id());
    let unknown = EventId(Uuid::now_v7());
    let claimed = store.claim(&wish(&handler("ledger"), &[second, unknown, first])).await.unwrap();

    assert_eq!(ids(&claimed), [job_of(first, "ledger"), job_of(second, "ledger")]);
    assert_eq!((claimed[0].attempt, claimed[0].crashes, claimed[0].priority), (1, 0, Priority::Normal));
    assert_eq!(claimed[0].token, claimed[1].token);
    let (told, sent) = (&claimed[0].event, &events[0].event);
    assert_eq!((told.source.as_str(), told.dedupe_key.as_str()), ("stripe", "evt_1"));
    assert_eq!((told.event_type.as_str(), told.account.as_deref()), ("invoice.paid", Some("acct_1")));
    assert_eq!((told.object_id.as_deref(), told.occurred_at), (Some("in_1"), sent.occurred_at()));
    assert_eq!(told.received_at, sent.delivery().arrival.received_at);
    assert_eq!((told.url.as_str(), &told.body), ("https://h.example/webhooks/x?a=%20b", sent.body()));
    assert!(told.headers.iter().any(|(name, value)| name == "x-odd" && value == b"\xff'\"\\"));

    let held = job(&store, &claimed[0].job).await;
    assert_eq!((held.state.as_str(), held.attempts), ("processing", 1));
    assert!(is_in(held.due_at, LEASE), "{}", held.due_at);
    assert_eq!(state(&store, &job_of(second, "mail")).await, "pending", "another handler's job is another job");
}

async fn only_pending_jobs_are_claimed(database: Database) {
    let store = database.open().await;
    let pending = record_jobs(&store, 1).await.remove(0);
    let held = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &held).await;
    let mut jobs = vec![pending.clone(), held];
    for outcome in [Outcome::Succeeded, failed(), dead()] {
        jobs.push(settled_job(&store, outcome).await);
    }
    assert_eq!(ids(&claim(&store, &jobs).await), [pending]);
    assert_eq!(ids(&claim(&store, &jobs).await), [], "nor twice");
    assert_eq!(ids(&claim(&store, &[]).await), []);
}

async fn claims_at_the_same_time_take_each_job_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 100).await;
    let mut workers = Vec::new();
    for worker in 0..4 {
        let (store, mut jobs) = (Arc::clone(&store), jobs.clone());
        workers.push(tokio::spawn(async move {
            jobs.rotate_left(worker * 7);
            let mut taken = Vec::new();
            for some in jobs.chunks(10) {
                taken.extend(ids(&claim(&store, some).await));
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.unwrap());
    }
    // Whoever meets another's claim passes it over, and then it is the other's.
    assert_eq!(taken.len(), 100);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), jobs.into_iter().collect());
}

/// What the history says of a job, without the times.
async fn history(store: &Arc<dyn Store>, id: &JobId) -> Vec<(u32, Option<String>, Option<String>)> {
    let attempts = store.attempts(id).await.unwrap();
    attempts.into_iter().map(|attempt| (attempt.number, attempt.failure, attempt.message)).collect()
}

async fn a_success_is_the_end(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, Outcome::Succeeded).await;
    let done = job(&store, &id).await;
    assert_eq!((done.state.as_str(), done.attempts, done.reason), ("succeeded", 1, None));
    let attempts = store.attempts(&id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    let Attempt { number, started_at, duration, failure, message, worker } = &attempts[0];
    assert_eq!((*number, *duration, worker.as_str()), (1, Duration::from_millis(1500), "w1"));
    assert_eq!((failure, message), (&None, &None));
    assert!(is_in(*started_at, Duration::ZERO));
    assert_eq!(lose_leases(&database, &store).await.due, 0);
}

async fn a_failure_is_tried_again_when_it_is_time(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, failed()).await;
    let waiting = job(&store, &id).await;
    assert_eq!((waiting.state.as_str(), waiting.attempts, waiting.reason.as_deref()), ("failed", 1, Some("network")));
    assert!(is_in(waiting.due_at, HOUR), "{}", waiting.due_at);
    assert_eq!(history(&store, &id).await, [(1, Some("network".into()), Some("no route".into()))]);

    assert_eq!(lose_leases(&database, &store).await.ready[0].job, id);
    let again = claim_one(&store, &id).await;
    assert_eq!((again.attempt, again.crashes), (2, 0));
    settle(&store, &again, Outcome::Succeeded).await;
    assert_eq!(job(&store, &id).await.reason, None, "what failed before is history");
    assert_eq!(history(&store, &id).await.len(), 2);
}

async fn a_dead_letter_says_why(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, dead()).await;
    let letter = job(&store, &id).await;
    assert_eq!((letter.state.as_str(), letter.attempts, letter.reason.as_deref()), ("dead_letter", 1, Some("refused")));
    assert_eq!(history(&store, &id).await, [(1, Some("refused".into()), Some("no such customer".into()))]);
    assert_eq!(lose_leases(&database, &store).await.due, 0);
}

async fn an_interrupted_run_does_not_count(database: Database) {
    let store = database.open().await;
    let interrupted = Outcome::Interrupted { message: "the store went away".into(), retry_in: HOUR };
    let id = settled_job(&store, interrupted).await;
    let waiting = job(&store, &id).await;
    assert_eq!((waiting.state.as_str(), waiting.attempts, waiting.reason.as_deref()), ("failed", 0, Some("pipeline")));
    assert!(is_in(waiting.due_at, HOUR), "{}", waiting.due_at);
    assert_eq!(history(&store, &id).await, [(1, Some("pipeline".into()), Some("the store went away".into()))]);
    lose_leases(&database, &store).await;
    assert_eq!(claim_one(&store, &id).await.attempt, 1);
}

async fn a_late_settlement_writes_nothing(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let late = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    for outcome in [Outcome::Succeeded, failed(), dead()] {
        let settled = store.settle(&[settlement(&late, outcome)]).await.unwrap();
        assert_eq!(settled.stale, slice::from_ref(&id), "after the sweep it is nobody's");
    }
    assert_eq!(state(&store, &id).await, "pending");

    let holder = claim_one(&store, &id).await;
    assert_ne!(holder.token, late.token);
    let settled = store.settle(&[settlement(&late, Outcome::Succeeded)]).await.unwrap();
    assert_eq!(settled.stale, slice::from_ref(&id), "and now another's");
    assert_eq!(state(&store, &id).await, "processing");
    let crash = (1, Some("crash".into()), Some("the process died or lost its lease".into()));
    assert_eq!(history(&store, &id).await, slice::from_ref(&crash));

    settle(&store, &holder, Outcome::Succeeded).await;
    let twice = store.settle(&[settlement(&holder, failed())]).await.unwrap();
    assert_eq!(twice.stale, slice::from_ref(&id), "what is settled is settled");
    assert_eq!(state(&store, &id).await, "succeeded");
    assert_eq!(history(&store, &id).await, [crash, (2, None, None)]);
}

async fn the_stale_in_a_batch_do_not_hinder_the_others(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 3).await;
    let claimed = claim(&store, &jobs).await;
    let mut settlements: Vec<_> = claimed.iter().map(|claimed| settlement(claimed, Outcome::Succeeded)).collect();
    settlements[1].token = Token(Uuid::new_v4());
    assert_eq!(store.settle(&settlements).await.unwrap().stale, slice::from_ref(&jobs[1]));
    let mut states = Vec::new();
    for job in &jobs {
        states.push(state(&store, job).await);
    }
    assert_eq!(states, ["succeeded", "processing", "succeeded"]);
    assert_eq!(store.attempts(&jobs[1]).await.unwrap(), []);
    assert_eq!(store.settle(&[]).await.unwrap().stale, []);
}

async fn more_jobs_than_fit_a_statement_are_claimed_and_settled_at_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 700).await;
    let claimed = claim(&store, &jobs).await;
    assert_eq!(ids(&claimed), jobs);
    let held: Vec<_> = claimed.iter().map(|claimed| (claimed.job.clone(), claimed.token)).collect();
    assert_eq!(store.renew(&held, LEASE).await.unwrap(), []);
    let settlements: Vec<_> = claimed.iter().map(|claimed| settlement(claimed, Outcome::Succeeded)).collect();
    assert_eq!(store.settle(&settlements).await.unwrap().stale, []);
    assert_eq!(database.number("SELECT count(*) FROM jobs WHERE state = 'succeeded'").await, 700);
    assert_eq!(database.number("SELECT count(*) FROM attempts").await, 700);
}

async fn a_message_is_cut_and_has_no_nul(database: Database) {
    let store = database.open().await;
    let message = format!("\0{}", "ü\u{1f600}".repeat(3000));
    let kind = FailureKind::Internal;
    let id = settled_job(&store, Outcome::Dead { kind, message: message.clone() }).await;
    let stored = history(&store, &id).await.remove(0).2.expect("there is a message");
    assert_eq!(stored, message.chars().skip(1).take(2000).collect::<String>());
}

async fn renewing_moves_the_end_of_the_lease_and_names_the_lost(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 3).await;
    let claimed = claim(&store, &jobs).await;
    settle(&store, &claimed[2], Outcome::Succeeded).await;
    let held = [
        (jobs[0].clone(), claimed[0].token),
        (jobs[1].clone(), Token(Uuid::new_v4())),
        (jobs[2].clone(), claimed[2].token),
    ];
    let lost = store.renew(&held, HOUR).await.unwrap();
    assert_eq!(lost.into_iter().collect::<HashSet<_>>(), jobs[1..].iter().cloned().collect());
    assert!(is_in(job(&store, &jobs[0]).await.due_at, HOUR));
    assert!(is_in(job(&store, &jobs[1]).await.due_at, LEASE), "another's lease is not ours to renew");
    assert_eq!(store.renew(&[], HOUR).await.unwrap(), []);
}

async fn what_is_handed_back_is_as_before_and_due_at_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    let claimed = claim(&store, &jobs).await;
    store.hand_back(&[(jobs[0].clone(), claimed[0].token), (jobs[1].clone(), Token(Uuid::new_v4()))]).await.unwrap();
    let back = job(&store, &jobs[0]).await;
    assert_eq!((back.state.as_str(), back.attempts), ("pending", 0));
    assert!(is_in(back.due_at, Duration::ZERO));
    assert_eq!(state(&store, &jobs[1]).await, "processing", "with another token nothing happens");
    assert_eq!(store.attempts(&jobs[0]).await.unwrap(), []);
    assert_eq!(store.settle(&[settlement(&claimed[0], Outcome::Succeeded)]).await.unwrap().stale, jobs[..1]);
    assert_eq!(sweep(&store).await.ready[0].job, jobs[0]);
    assert_eq!(claim_one(&store, &jobs[0]).await.attempt, 1);
}

/// Polls a verb a few times and then gives it up.
async fn give_up<T>(verb: impl Future<Output = T>, polls: usize) {
    tokio::select! {
        biased;
        _ = verb => {}
        () = async { for _ in 0..polls { tokio::task::yield_now().await } } => {}
    }
}

/// Whoever waits for a verb may be gone before its end, at any moment.
async fn a_verb_that_is_given_up_leaves_the_store_usable(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 40).await;
    let (ledger, events) = (handler("ledger"), events_of(&jobs));
    for polls in 0..40 {
        give_up(store.claim(&wish(&ledger, &events[polls..=polls])), polls).await;
        give_up(store.look_again(slice::from_ref(&ledger), 10), polls).await;
    }
    lose_leases(&database, &store).await;
    let claimed = claim(&store, &jobs).await;
    assert_eq!(claimed.len(), 40);
    for claimed in &claimed {
        settle(&store, claimed, Outcome::Succeeded).await;
    }
}

on_both! {
    a_claim_brings_the_events_along_in_their_order
    only_pending_jobs_are_claimed
    claims_at_the_same_time_take_each_job_once
    a_success_is_the_end
    a_failure_is_tried_again_when_it_is_time
    a_dead_letter_says_why
    an_interrupted_run_does_not_count
    a_late_settlement_writes_nothing
    the_stale_in_a_batch_do_not_hinder_the_others
    more_jobs_than_fit_a_statement_are_claimed_and_settled_at_once
    a_message_is_cut_and_has_no_nul
    renewing_moves_the_end_of_the_lease_and_names_the_lost
    what_is_handed_back_is_as_before_and_due_at_once
    a_verb_that_is_given_up_leaves_the_store_usable
}
