//! Sweep, look again, backlog.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Claim, NewJob, Outcome, Ready, Routed, Sweep, Swept};
use hookfast_webhook::Priority;

use crate::database::{
    Database, HOUR, LEASE, broom, claim, claim_one, dead, event, events_of, failed, handler, ids, is_in, job, job_of,
    lose_leases, new_job, record_jobs, routed, settle, settled_job, state, sweep, wish,
};

async fn what_is_not_due_is_left_alone(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    claim_one(&store, &jobs[0]).await;
    settled_job(&store, failed()).await;
    assert_eq!(sweep(&store).await, Swept::default());
}

async fn a_job_whose_dispatch_was_lost_is_found(database: Database) {
    let store = database.open().await;
    let urgent = NewJob { priority: Priority::High, ..new_job("ledger") };
    let routed = Routed { event: event("stripe", "evt_1"), jobs: vec![urgent] };
    store.record(slice::from_ref(&routed)).await.unwrap();
    let id = job_of(routed.event.id(), "ledger");
    let swept = lose_leases(&database, &store).await;
    let ready = vec![Ready { job: id.clone(), priority: Priority::High }];
    assert_eq!(swept, Swept { due: 1, ready, ..Swept::default() });
    let found = job(&store, &id).await;
    assert_eq!((found.state.as_str(), found.attempts), ("pending", 0));
    assert!(is_in(found.due_at, LEASE), "it is looked at again later: {}", found.due_at);
    assert_eq!(sweep(&store).await.due, 0);
    assert_eq!(store.attempts(&id).await.unwrap(), []);
}

async fn a_due_retry_becomes_pending(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, failed()).await;
    assert_eq!(ids(&claim(&store, slice::from_ref(&id)).await), [], "not before its time");
    let swept = lose_leases(&database, &store).await;
    assert_eq!((swept.due, swept.ready.len(), swept.crashed.len()), (1, 1, 0));
    assert_eq!(state(&store, &id).await, "pending");
    assert!(is_in(job(&store, &id).await.due_at, LEASE));
}

async fn a_lease_that_ended_is_an_attempt_of_its_own_kind(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &id).await;
    let swept = lose_leases(&database, &store).await;
    assert_eq!((swept.due, swept.buried.len()), (1, 0));
    assert_eq!(swept.crashed, slice::from_ref(&id));
    assert_eq!(swept.ready[0].job, id);
    let crashed = job(&store, &id).await;
    assert_eq!((crashed.state.as_str(), crashed.attempts), ("pending", 1));
    assert!(is_in(crashed.due_at, HOUR), "a suspect is looked at when suspects are: {}", crashed.due_at);

    let attempts = store.attempts(&id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].worker.as_str()), (1, "w1"));
    assert_eq!(attempts[0].failure.as_deref(), Some("crash"));
    assert_eq!(attempts[0].message.as_deref(), Some("the process died or lost its lease"));
    assert!(attempts[0].duration >= Duration::from_secs(36_000), "{:?}", attempts[0].duration);
    assert!(is_in(attempts[0].started_at + attempts[0].duration, Duration::ZERO));

    let again = claim_one(&store, &id).await;
    assert_eq!((again.attempt, again.crashes), (2, 1));
}

async fn too_many_crashes_make_a_dead_letter(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    for _ in 0..2 {
        claim_one(&store, &id).await;
        assert_eq!(lose_leases(&database, &store).await.buried, []);
    }
    claim_one(&store, &id).await;
    let swept = lose_leases(&database, &store).await;
    let only = vec![id.clone()];
    assert_eq!(swept, Swept { due: 1, crashed: only.clone(), buried: only, ..Swept::default() });
    let buried = job(&store, &id).await;
    assert_eq!((buried.state.as_str(), buried.attempts, buried.reason.as_deref()), ("dead_letter", 3, Some("crash")));
    assert_eq!(store.attempts(&id).await.unwrap().len(), 3);
    assert_eq!(lose_leases(&database, &store).await.due, 0);
}

async fn a_run_that_ends_with_a_word_clears_the_suspicion(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    for _ in 0..2 {
        claim_one(&store, &id).await;
        lose_leases(&database, &store).await;
    }
    settle(&store, &claim_one(&store, &id).await, failed()).await;
    lose_leases(&database, &store).await;
    let again = claim_one(&store, &id).await;
    assert_eq!((again.attempt, again.crashes), (4, 0));
    assert_eq!(lose_leases(&database, &store).await.buried, []);
}

async fn a_claim_leaves_out_those_that_crashed_too_often(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 3).await;
    claim(&store, &jobs[1..2]).await;
    lose_leases(&database, &store).await;
    let (ledger, events) = (handler("ledger"), events_of(&jobs));
    let innocent = Claim { crashes_below: Some(1), ..wish(&ledger, &events) };
    assert_eq!(ids(&store.claim(&innocent).await.unwrap()), [&jobs[0], &jobs[2]].map(Clone::clone));
    let claimed = claim(&store, &jobs).await;
    assert_eq!((ids(&claimed), claimed[0].crashes), (jobs[1..2].to_vec(), 1));
}

async fn a_job_that_is_dead_if_it_crashes_once_more_is_a_suspect(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &id).await;
    let swept = lose_leases(&database, &store).await;
    assert_eq!((swept.ready.len(), swept.suspects.len()), (1, 0), "the limit is three");
    claim_one(&store, &id).await;
    for _ in 0..2 {
        let swept = lose_leases(&database, &store).await;
        assert_eq!((swept.ready, swept.suspects), (vec![], vec![id.clone()]));
    }
}

async fn a_pending_suspect_is_looked_at_when_suspects_are(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    let swept = lose_leases(&database, &store).await;
    assert_eq!((swept.ready.len(), swept.crashed.len()), (1, 0), "it was not run meanwhile");
    assert!(is_in(job(&store, &id).await.due_at, HOUR));
    assert_eq!(claim_one(&store, &id).await.crashes, 1);
}

async fn the_longest_due_come_first_up_to_the_limit_and_for_these_handlers_only(database: Database) {
    let store = database.open().await;
    let both = routed(event("stripe", "evt_1"), &["ledger", "mail"]);
    store.record(slice::from_ref(&both)).await.unwrap();
    let ledger = [handler("ledger")];
    // What failed is due an hour from now, what was recorded in a moment.
    let later = settled_job(&store, failed()).await;
    let sooner = record_jobs(&store, 1).await.remove(0);
    database.let_time_pass().await;
    let limited = Sweep { limit: 2, ..broom(&ledger) };
    let ready: Vec<_> = store.sweep(&limited).await.unwrap().ready.into_iter().map(|ready| ready.job).collect();
    let expected = HashSet::from([job_of(both.event.id(), "ledger"), sooner]);
    assert_eq!(ready.into_iter().collect::<HashSet<_>>(), expected);
    assert_eq!(store.sweep(&limited).await.unwrap().ready[0].job, later);
    assert_eq!(store.sweep(&limited).await.unwrap().due, 0);
    assert_eq!(store.sweep(&broom(&[])).await.unwrap().due, 0);
    assert_eq!(store.sweep(&broom(&[handler("mail")])).await.unwrap().due, 1);
}

async fn sweeps_at_the_same_time_find_each_job_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 60).await;
    claim(&store, &jobs[..30]).await;
    database.let_time_pass().await;
    let mut sweepers = Vec::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        sweepers.push(tokio::spawn(async move {
            let ledger = [handler("ledger")];
            let limited = Sweep { limit: 7, ..broom(&ledger) };
            let mut found = Vec::new();
            loop {
                let swept = store.sweep(&limited).await.unwrap();
                // Those that another sweeper holds at this moment are not seen, and are the other's.
                if swept.due == 0 {
                    break found;
                }
                found.extend(swept.ready.into_iter().map(|ready| ready.job));
            }
        }));
    }
    let mut found = Vec::new();
    for sweeper in sweepers {
        found.extend(sweeper.await.unwrap());
    }
    found.sort();
    assert_eq!(found, jobs);
    assert_eq!(database.number("SELECT count(*) FROM attempts").await, 30);
}

async fn jobs_are_looked_at_again_when_the_queue_has_lost_them(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 3).await;
    let held = claim_one(&store, &jobs[2]).await;
    settled_job(&store, failed()).await;
    let ledger = [handler("ledger")];
    assert_eq!(store.look_again(&[handler("mail")], 10).await.unwrap(), 0);
    assert_eq!(store.look_again(&ledger, 1).await.unwrap(), 1);
    assert_eq!(store.look_again(&ledger, 10).await.unwrap(), 1);
    assert_eq!(store.look_again(&ledger, 10).await.unwrap(), 0, "they are due already");
    let mut ready: Vec<_> = sweep(&store).await.ready.into_iter().map(|ready| ready.job).collect();
    ready.sort();
    assert_eq!(ready, jobs[..2], "neither the one that runs nor the one that waits for its retry");
    settle(&store, &held, Outcome::Succeeded).await;
}

async fn the_backlog_counts_what_is_unfinished_or_dead(database: Database) {
    let store = database.open().await;
    assert_eq!(store.backlog().await.unwrap(), Default::default());
    store.record(&[routed(event("stripe", "evt_1"), &["ledger", "mail"])]).await.unwrap();
    let jobs = record_jobs(&store, 2).await;
    claim_one(&store, &jobs[0]).await;
    settled_job(&store, Outcome::Succeeded).await;
    settled_job(&store, failed()).await;
    settled_job(&store, dead()).await;
    let backlog = store.backlog().await.unwrap();
    let counts: Vec<_> =
        backlog.jobs.iter().map(|(handler, state, jobs)| (handler.as_str(), state.as_str(), *jobs)).collect();
    let expected = [
        ("ledger", "dead_letter", 1),
        ("ledger", "failed", 1),
        ("ledger", "pending", 2),
        ("ledger", "processing", 1),
        ("mail", "pending", 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!((backlog.oldest_due, backlog.replayed), (None, 0));

    database.let_time_pass().await;
    let oldest = store.backlog().await.unwrap().oldest_due.expect("jobs are due");
    assert!(oldest > 9 * HOUR && oldest < 11 * HOUR, "{oldest:?}");
}

on_both! {
    what_is_not_due_is_left_alone
    a_job_whose_dispatch_was_lost_is_found
    a_due_retry_becomes_pending
    a_lease_that_ended_is_an_attempt_of_its_own_kind
    too_many_crashes_make_a_dead_letter
    a_run_that_ends_with_a_word_clears_the_suspicion
    a_claim_leaves_out_those_that_crashed_too_often
    a_job_that_is_dead_if_it_crashes_once_more_is_a_suspect
    a_pending_suspect_is_looked_at_when_suspects_are
    the_longest_due_come_first_up_to_the_limit_and_for_these_handlers_only
    sweeps_at_the_same_time_find_each_job_once
    jobs_are_looked_at_again_when_the_queue_has_lost_them
    the_backlog_counts_what_is_unfinished_or_dead
}
