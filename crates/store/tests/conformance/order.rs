//! Jobs of one handler with the same key: one at a time, in the order of their events.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::DeadLetters::{Block, StepOver};
use hookfast_store::{Act, Action, Audit, DeadLetters, NewJob, Outcome, Ready, Resolution, Routed, Step, Store, Sweep};
use hookfast_webhook::{EventId, Priority};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::database::{
    Database, broom, claim_in_order, claim_one, crashed, dead, due_jobs, event, events_of, failed, handler, ids,
    job_of, lose_leases, new_job, record_keyed, settle, settlement, wish,
};

async fn only_the_first_of_each_key_is_claimed(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("b"), Some("a"), None, Some("b"), None]).await;
    let claimed = claim_in_order(&store, &jobs, Block).await;
    assert_eq!(ids(&claimed), [&jobs[0], &jobs[1], &jobs[3], &jobs[5]].map(Clone::clone));
    assert_eq!(ids(&claim_in_order(&store, &jobs, Block).await), [], "the first ones are not done");

    settle(&store, &claimed[0], Outcome::Succeeded).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs, Block).await), slice::from_ref(&jobs[2]));
}

async fn a_job_whose_turn_it_is_not_waits_even_if_asked_for_alone(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a")]).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs[1..], StepOver).await), []);
    let first = claim_in_order(&store, &jobs[..1], StepOver).await.remove(0);
    settle(&store, &first, failed()).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs, StepOver).await), [], "the first is tried again before");
}

async fn a_dead_letter_blocks_or_is_stepped_over_as_the_handler_likes(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a"), Some("b")]).await;
    settle(&store, &claim_one(&store, &jobs[0]).await, dead()).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs[..2], Block).await), []);
    assert_eq!(ids(&claim_in_order(&store, &jobs[..2], StepOver).await), slice::from_ref(&jobs[1]));
    assert_eq!(ids(&claim_in_order(&store, &jobs[2..], Block).await), jobs[2..], "another key is another order");
}

async fn a_resolved_dead_letter_is_out_of_the_way(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a")]).await;
    settle(&store, &claim_one(&store, &jobs[0]).await, dead()).await;
    let audit = Audit {
        id: Uuid::now_v7(),
        at: OffsetDateTime::now_utc(),
        who: "operator".into(),
        action: Action::Resolve,
        why: None,
        filter: "{}".into(),
        jobs: 0,
        next_after: None,
        is_done: false,
    };
    store.begin_act(&audit).await.unwrap();
    assert_eq!(due_jobs(&store, Some(Block)).await, [], "the other is not due yet");
    let act = Act::Resolve { jobs: &jobs[..1], resolution: Resolution::Ignored };
    assert_eq!(
        store.act(&Step { audit: audit.id, act, next_after: None, is_last: true, as_of: None }).await.unwrap(),
        1
    );
    let due = due_jobs(&store, Some(Block)).await;
    assert_eq!(due.len(), 1, "the one behind it is due at once");
    assert_eq!((due[0].place.event, due[0].is_ready), (jobs[1].event, true));
    assert_eq!(ids(&claim_in_order(&store, &jobs, Block).await), jobs[1..]);
}

/// An event may become visible after one with a larger id that has begun already.
async fn a_running_job_holds_back_an_earlier_one_that_came_late(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a")]).await;
    let running = claim_one(&store, &jobs[1]).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs, Block).await), []);
    settle(&store, &running, Outcome::Succeeded).await;
    assert_eq!(ids(&claim_in_order(&store, &jobs, Block).await), jobs[..1]);
}

async fn the_same_key_of_another_handler_is_another_order(database: Database) {
    let store = database.open().await;
    let keyed = |name: &str| NewJob { ordering_key: Some("a".into()), ..new_job(name) };
    let events: Vec<_> = ["evt_1", "evt_2"]
        .map(|id| Routed { event: event("stripe", id), jobs: vec![keyed("ledger"), keyed("mail")] })
        .into();
    store.record(&events).await.unwrap();
    let [first, second] = [events[0].event.id(), events[1].event.id()];
    let ledger = claim_in_order(&store, &[job_of(first, "ledger")], Block).await.remove(0);
    settle(&store, &ledger, Outcome::Succeeded).await;
    let mail = handler("mail");
    let mut claim = wish(&mail, slice::from_ref(&second));
    claim.ordering = Some(Block);
    assert_eq!(ids(&store.claim(&claim).await.unwrap()), [], "mail's first is not done");
    assert_eq!(ids(&claim_in_order(&store, &[job_of(second, "ledger")], Block).await), [job_of(second, "ledger")]);
}

async fn settling_names_the_one_behind(database: Database) {
    let store = database.open().await;
    let keyed = |priority| NewJob { priority, ordering_key: Some("a".into()), ..new_job("ledger") };
    let events = [("evt_1", Priority::Normal), ("evt_2", Priority::High), ("evt_3", Priority::Normal)]
        .map(|(id, priority)| Routed { event: event("stripe", id), jobs: vec![keyed(priority)] });
    store.record(&events).await.unwrap();
    let jobs = events.each_ref().map(|routed| job_of(routed.event.id(), "ledger"));

    let first = claim_in_order(&store, &jobs, Block).await.remove(0);
    let settled = store.settle(&[settlement(&first, Outcome::Succeeded)]).await.unwrap();
    assert_eq!(settled.next, [Ready { job: jobs[1].clone(), priority: Priority::High }]);
    let second = claim_in_order(&store, &jobs, Block).await.remove(0);
    let settled = store.settle(&[settlement(&second, dead())]).await.unwrap();
    assert_eq!(settled.next, [Ready { job: jobs[2].clone(), priority: Priority::Normal }]);
    let third = claim_in_order(&store, &jobs, StepOver).await.remove(0);
    assert_eq!(store.settle(&[settlement(&third, Outcome::Succeeded)]).await.unwrap().next, []);
}

/// A large event may be committed after one that came later.
async fn an_earlier_job_that_was_recorded_later_is_next(database: Database) {
    let store = database.open().await;
    let keyed = NewJob { ordering_key: Some("a".into()), ..new_job("ledger") };
    let [earlier, later] =
        ["evt_1", "evt_2"].map(|id| Routed { event: event("stripe", id), jobs: vec![keyed.clone()] });
    let jobs = [&earlier, &later].map(|routed| job_of(routed.event.id(), "ledger"));
    assert!(jobs[0].event < jobs[1].event, "ids grow with time");
    store.record(&[later]).await.unwrap();
    let running = claim_in_order(&store, &jobs, Block).await.remove(0);
    store.record(&[earlier]).await.unwrap();
    let settled = store.settle(&[settlement(&running, Outcome::Succeeded)]).await.unwrap();
    assert_eq!(settled.next, [Ready { job: jobs[0].clone(), priority: Priority::Normal }]);
}

async fn nobody_is_next_behind_a_job_that_is_tried_again(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a"), None, None]).await;
    let ordered = claim_in_order(&store, &jobs[..1], Block).await.remove(0);
    let other = claim_one(&store, &jobs[2]).await;
    let settlements = [settlement(&ordered, failed()), settlement(&other, Outcome::Succeeded)];
    assert_eq!(store.settle(&settlements).await.unwrap().next, []);
}

/// What the sweeper reads, in the order of the events: whose turn it is.
async fn turns(store: &Arc<dyn Store>, dead_letters: DeadLetters) -> Vec<(EventId, bool)> {
    let due = due_jobs(store, Some(dead_letters)).await;
    let mut turns: Vec<_> = due.into_iter().map(|due| (due.place.event, due.is_ready)).collect();
    turns.sort();
    turns
}

async fn the_sweeper_learns_whose_turn_it_is(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a"), Some("b"), None]).await;
    database.let_time_pass().await;
    let expected: Vec<_> = events_of(&jobs).into_iter().zip([true, false, true, true]).collect();
    assert_eq!(turns(&store, Block).await, expected);
    assert_eq!(turns(&store, StepOver).await, expected);

    let running = claim_one(&store, &jobs[0]).await;
    let behind: Vec<_> = events_of(&jobs[1..]).into_iter().zip([false, true, true]).collect();
    assert_eq!(turns(&store, StepOver).await, behind, "the first one runs");
    settle(&store, &running, failed()).await;
    assert_eq!(turns(&store, StepOver).await, behind, "the first one is tried again before");
    lose_leases(&database, &store).await;
    settle(&store, &claim_one(&store, &jobs[0]).await, dead()).await;
    assert_eq!(turns(&store, Block).await, behind, "a dead letter blocks");
    let over: Vec<_> = events_of(&jobs[1..]).into_iter().zip([true, true, true]).collect();
    assert_eq!(turns(&store, StepOver).await, over, "or is stepped over, as the handler likes");
}

async fn behind_a_job_that_the_sweeper_buries_the_next_one_is_ready(database: Database) {
    let store = database.open().await;
    let jobs = record_keyed(&store, &[Some("a"), Some("a")]).await;
    claim_one(&store, &jobs[0]).await;
    database.let_time_pass().await;
    assert_eq!(turns(&store, StepOver).await, [(jobs[1].event, false)]);
    let ledger = [handler("ledger")];
    let swept = store.sweep(&Sweep { crash_limit: 1, ..broom(&ledger) }).await.unwrap();
    assert_eq!((swept.changed, crashed(&swept).1.as_slice()), (1, &jobs[..1]));
    assert_eq!(turns(&store, StepOver).await, [(jobs[1].event, true)]);
    assert_eq!(turns(&store, Block).await, [(jobs[1].event, false)]);
}

async fn ordered_claims_at_the_same_time_never_run_two_of_a_key(database: Database) {
    let store = database.open().await;
    let keys: Vec<_> = (0..40).map(|number| Some(if number % 2 == 0 { "a" } else { "b" })).collect();
    let jobs = record_keyed(&store, &keys).await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (store, jobs) = (Arc::clone(&store), jobs.clone());
        workers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            while done.len() < jobs.len() {
                let claimed = claim_in_order(&store, &jobs, Block).await;
                let all_done = store.backlog().await.unwrap().jobs.is_empty();
                if claimed.is_empty() && all_done {
                    break;
                }
                for claimed in &claimed {
                    done.push((claimed.job.clone(), OffsetDateTime::now_utc()));
                    settle(&store, claimed, Outcome::Succeeded).await;
                }
            }
            done
        }));
    }
    let mut done = Vec::new();
    for worker in workers {
        done.extend(worker.await.unwrap());
    }
    done.sort_by_key(|(_, at)| *at);
    for parity in 0..2 {
        let of_key: Vec<_> = jobs.iter().skip(parity).step_by(2).collect();
        let in_time: Vec<_> = done.iter().map(|(job, _)| job).filter(|job| of_key.contains(job)).collect();
        assert_eq!(in_time, of_key, "each once, and in order");
    }
}

/// How many rows of jobs Postgres has read. It says so for certain when all connections have ended.
async fn rows_read(database: &Database) -> i64 {
    let connections = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while database.number(connections).await > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let read = "SELECT (coalesce(sum(idx_tup_read), 0) + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'jobs'))::bigint
                FROM pg_stat_user_indexes WHERE relname = 'jobs'";
    database.number(read).await
}

/// SQLite's side of this is among the store's unit tests, which can count its steps.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_many_dead_letters_of_a_key_cost_nothing() {
    let database = Database::postgres();
    let store = database.open().await;
    let jobs = record_keyed(&store, &vec![Some("a"); 2001]).await;
    let bury = "UPDATE jobs SET state = 'dead_letter', reason = 'refused', finished_at = now()
                WHERE event_id <> (SELECT event_id FROM jobs ORDER BY event_id DESC LIMIT 1)";
    database.execute("", bury).await;
    database.let_time_pass().await;
    // What the update left behind would be read, too.
    database.execute("", "VACUUM ANALYZE jobs").await;
    store.close().await;

    let before = rows_read(&database).await;
    let store = database.open().await;
    assert_eq!(turns(&store, Block).await, [(jobs[2000].event, false)]);
    assert_eq!(ids(&claim_in_order(&store, &jobs[2000..], Block).await), []);
    assert_eq!(turns(&store, StepOver).await, [(jobs[2000].event, true)]);
    assert_eq!(ids(&claim_in_order(&store, &jobs[2000..], StepOver).await), jobs[2000..]);
    store.close().await;
    let read = rows_read(&database).await - before;
    assert!((1..100).contains(&read), "{read} rows were read");
}

on_both! {
    only_the_first_of_each_key_is_claimed
    a_job_whose_turn_it_is_not_waits_even_if_asked_for_alone
    a_dead_letter_blocks_or_is_stepped_over_as_the_handler_likes
    a_resolved_dead_letter_is_out_of_the_way
    a_running_job_holds_back_an_earlier_one_that_came_late
    the_same_key_of_another_handler_is_another_order
    settling_names_the_one_behind
    an_earlier_job_that_was_recorded_later_is_next
    nobody_is_next_behind_a_job_that_is_tried_again
    the_sweeper_learns_whose_turn_it_is
    behind_a_job_that_the_sweeper_buries_the_next_one_is_ready
    ordered_claims_at_the_same_time_never_run_two_of_a_key
}
