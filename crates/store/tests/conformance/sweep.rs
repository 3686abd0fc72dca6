//! Sweep, due jobs, backlog.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Claim, DueJob, DueJobs, DuePlace, JobId, NewJob, Outcome, Routed, Store, Sweep, Swept};
use hookfast_webhook::{FailureKind, JobState, Priority};

use crate::database::{
    Database, attempts_of, broom, claim, claim_one, crashed, dead, due_jobs, event, events_of, failed, handler, ids,
    is_in, job, job_of, lose_leases, new_job, ready, record_jobs, routed, settle, settled_job, state, sweep, wish,
};

async fn what_is_not_due_is_left_alone(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    claim_one(&store, &jobs[0]).await;
    settled_job(&store, failed()).await;
    assert_eq!(sweep(&store).await, Swept::default());
    assert_eq!(
        due_jobs(&store, None).await,
        [],
        "what was just recorded is dispatched by the process that recorded it"
    );
}

async fn a_job_whose_dispatch_was_lost_is_found(database: Database) {
    let store = database.open().await;
    let urgent = NewJob { priority: Priority::High, ..new_job("ledger") };
    let routed = Routed { event: event("stripe", "evt_1"), jobs: vec![urgent] };
    store.record(slice::from_ref(&routed)).await.unwrap();
    let id = job_of(routed.event.id(), "ledger");
    assert_eq!(lose_leases(&database, &store).await, Swept::default(), "nothing is written about a pending job");
    let found = job(&store, &id).await;
    assert_eq!((found.state, found.attempts), (JobState::Pending, 0));
    let place = DuePlace { due_at: found.due_at, event: id.event };
    let due = DueJob { place, priority: Priority::High, crashes: 0, is_ready: true };
    assert_eq!(due_jobs(&store, None).await, slice::from_ref(&due));
    assert_eq!(due_jobs(&store, None).await, [due], "and again, for as long as it is pending");
    assert_eq!(attempts_of(&store, &id).await, []);
}

async fn a_due_retry_becomes_pending(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, failed()).await;
    assert_eq!(ids(&claim(&store, slice::from_ref(&id)).await), [], "not before its time");
    database.let_time_pass().await;
    assert_eq!(due_jobs(&store, None).await, [], "only what is pending can be claimed");
    assert_eq!(sweep(&store).await, Swept { changed: 1, ..Swept::default() });
    let pending = job(&store, &id).await;
    assert_eq!((pending.state, pending.attempts), (JobState::Pending, 1));
    assert!(is_in(pending.due_at, Duration::ZERO), "{}", pending.due_at);
    assert_eq!(ready(&store).await, [id]);
    assert_eq!(sweep(&store).await, Swept::default());
}

async fn a_lease_that_ended_is_an_attempt_of_its_own_kind(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &id).await;
    let swept = lose_leases(&database, &store).await;
    assert_eq!((swept.changed, crashed(&swept)), (1, (vec![id.clone()], Vec::new())));
    let due = due_jobs(&store, None).await;
    assert_eq!(due.iter().map(|due| (due.place.event, due.crashes)).collect::<Vec<_>>(), [(id.event, 1)]);
    let crashed = job(&store, &id).await;
    assert_eq!((crashed.state, crashed.attempts), (JobState::Pending, 1));
    assert!(is_in(crashed.due_at, Duration::ZERO), "it is due at once: {}", crashed.due_at);

    let attempts = attempts_of(&store, &id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].worker.as_str()), (1, "w1"));
    assert_eq!(attempts[0].failure, Some(FailureKind::Crash));
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
        assert_eq!(crashed(&lose_leases(&database, &store).await).1, []);
    }
    claim_one(&store, &id).await;
    let swept = lose_leases(&database, &store).await;
    let only = vec![id.clone()];
    assert_eq!((swept.changed, crashed(&swept)), (1, (only.clone(), only)));
    let buried = job(&store, &id).await;
    assert_eq!((buried.state, buried.attempts, buried.reason.as_deref()), (JobState::DeadLetter, 3, Some("crash")));
    assert_eq!(attempts_of(&store, &id).await.len(), 3);
    assert_eq!(lose_leases(&database, &store).await, Swept::default());
    assert_eq!(due_jobs(&store, None).await, []);
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
    assert_eq!(crashed(&lose_leases(&database, &store).await).1, []);
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

/// How often a job crashed tells who is a suspect, also while it waits for its turn.
async fn a_due_job_says_how_often_it_crashed(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    for crashes in 0..3 {
        database.let_time_pass().await;
        for _ in 0..2 {
            sweep(&store).await;
            let due: HashMap<_, _> =
                due_jobs(&store, None).await.into_iter().map(|due| (due.place.event, due.crashes)).collect();
            assert_eq!(due, HashMap::from([(jobs[0].event, crashes), (jobs[1].event, 0)]));
        }
        if crashes < 2 {
            claim_one(&store, &jobs[0]).await;
        }
    }
}

/// The workers could not renew their leases: that they ended proves nothing.
async fn leases_are_left_alone_when_they_are_not_to_be_judged(database: Database) {
    let store = database.open().await;
    let held = record_jobs(&store, 1).await.remove(0);
    let claimed = claim_one(&store, &held).await;
    let retry = settled_job(&store, failed()).await;
    database.let_time_pass().await;
    let ledger = [handler("ledger")];
    let lenient = Sweep { judge_leases_within: None, ..broom(&ledger) };
    let before = job(&store, &held).await;
    assert_eq!(store.sweep(&lenient).await.unwrap(), Swept { changed: 1, ..Swept::default() }, "the retry is due");
    assert_eq!(store.sweep(&lenient).await.unwrap(), Swept::default());
    assert_eq!(job(&store, &held).await, before);
    assert_eq!((state(&store, &held).await, state(&store, &retry).await), (JobState::Processing, JobState::Pending));
    assert_eq!(attempts_of(&store, &held).await, []);
    settle(&store, &claimed, Outcome::Succeeded).await;
    assert_eq!(sweep(&store).await, Swept::default(), "the worker held it all the time");
}

async fn a_lease_is_judged_once_leases_are_judged_again(database: Database) {
    let store = database.open().await;
    let held = record_jobs(&store, 1).await;
    claim_one(&store, &held[0]).await;
    database.let_time_pass().await;
    let ledger = [handler("ledger")];
    store.sweep(&Sweep { judge_leases_within: None, ..broom(&ledger) }).await.unwrap();
    assert_eq!(crashed(&sweep(&store).await).0, held);
}

async fn a_sweep_goes_up_to_the_limit_and_for_these_handlers_only(database: Database) {
    let store = database.open().await;
    let both: Vec<_> = (0..3).map(|id| routed(event("stripe", &format!("evt_{id}")), &["ledger", "mail"])).collect();
    store.record(&both).await.unwrap();
    for name in ["ledger", "mail"] {
        let (name, events) = (handler(name), both.iter().map(|routed| routed.event.id()).collect::<Vec<_>>());
        for claimed in store.claim(&wish(&name, &events)).await.unwrap() {
            settle(&store, &claimed, failed()).await;
        }
    }
    database.let_time_pass().await;
    let ledger = [handler("ledger")];
    let limited = Sweep { limit: 2, ..broom(&ledger) };
    let swept = store.sweep(&limited).await.unwrap();
    assert_eq!((swept.changed, swept.has_more), (2, true));
    let swept = store.sweep(&limited).await.unwrap();
    assert_eq!((swept.changed, swept.has_more), (1, false));
    assert_eq!(store.sweep(&limited).await.unwrap(), Swept::default());
    assert_eq!(store.sweep(&broom(&[])).await.unwrap(), Swept::default());
    for routed in &both {
        assert_eq!(state(&store, &job_of(routed.event.id(), "mail")).await, JobState::Failed, "it was not asked for");
    }
    let swept = store.sweep(&broom(&[handler("mail"), handler("ledger")])).await.unwrap();
    assert_eq!((swept.changed, swept.has_more), (3, false));
}

async fn the_longest_due_become_pending_first(database: Database) {
    let store = database.open().await;
    let first = settled_job(&store, failed()).await;
    database.let_time_pass().await;
    let second = settled_job(&store, failed()).await;
    database.let_time_pass().await;
    let ledger = [handler("ledger")];
    assert_eq!(store.sweep(&Sweep { limit: 1, ..broom(&ledger) }).await.unwrap().changed, 1);
    assert_eq!((state(&store, &first).await, state(&store, &second).await), (JobState::Pending, JobState::Failed));
}

/// All due jobs of the ledger, in pages of this size.
async fn in_pages(store: &Arc<dyn Store>, limit: u32) -> Vec<DueJob> {
    let ledger = handler("ledger");
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.due_jobs(&DueJobs { handler: &ledger, after, limit, ordering: None }).await.unwrap();
        assert!(page.len() <= limit as usize);
        let Some(last) = page.last() else { return all };
        after = Some(last.place);
        all.extend(page);
    }
}

async fn due_jobs_come_in_pages_the_longest_due_first(database: Database) {
    let store = database.open().await;
    let recorded = record_jobs(&store, 20).await;
    // Many at the same moment: a page may end among them.
    database.execute("UPDATE jobs SET due_at = 5000000", "UPDATE jobs SET due_at = to_timestamp(5)").await;
    store.record(&[routed(event("stripe", "evt_1"), &["ledger", "mail"])]).await.unwrap();
    let moved = claim(&store, &recorded[3..5]).await;
    store.hand_back(&[(moved[1].job.clone(), moved[1].token)]).await.unwrap();
    settle(&store, &moved[0], failed()).await;
    let all = in_pages(&store, 1000).await;
    let mut expected: Vec<JobId> = recorded.clone();
    let handed_back = expected.remove(4);
    expected.remove(3);
    expected.push(handed_back);
    let found: Vec<_> = all.iter().map(|due| job_of(due.place.event, "ledger")).collect();
    assert_eq!(found, expected, "neither what is not due, nor what is not pending, nor another handler's");
    assert!(all.is_sorted_by_key(|due| due.place));
    for limit in [1, 3, 19] {
        assert_eq!(in_pages(&store, limit).await, all, "{limit}");
    }
    let ledger = handler("ledger");
    let none = DueJobs { handler: &ledger, after: None, limit: 0, ordering: None };
    assert_eq!(store.due_jobs(&none).await.unwrap(), []);
}

/// The sum of everything about jobs and attempts.
async fn fingerprint(database: &Database) -> String {
    let query =
        "SELECT coalesce(CAST(sum(attempts * 7 + crashes * 11 + interruptions * 13 + length(state)) AS bigint), 0)
                 FROM jobs";
    let attempts = database.number("SELECT count(*) FROM attempts").await;
    let due = if database.is_sqlite() {
        database.number("SELECT sum(due_at) FROM jobs")
    } else {
        database.number("SELECT sum(extract(epoch FROM due_at) * 1000000)::bigint FROM jobs")
    };
    format!("{} {attempts} {}", database.number(query).await, due.await)
}

async fn reading_due_jobs_changes_nothing(database: Database) {
    let store = database.open().await;
    record_jobs(&store, 5).await;
    let held = record_jobs(&store, 1).await;
    claim(&store, &held).await;
    settled_job(&store, failed()).await;
    settled_job(&store, dead()).await;
    database.let_time_pass().await;
    let before = fingerprint(&database).await;
    for _ in 0..3 {
        assert_eq!(due_jobs(&store, None).await.len(), 5);
        assert_eq!(in_pages(&store, 2).await.len(), 5);
        store.backlog().await.unwrap();
    }
    assert_eq!(fingerprint(&database).await, before);
    sweep(&store).await;
    assert_ne!(fingerprint(&database).await, before, "the sweep is what writes");
}

async fn sweeps_at_the_same_time_find_each_job_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 60).await;
    for claimed in claim(&store, &jobs[30..]).await {
        settle(&store, &claimed, failed()).await;
    }
    claim(&store, &jobs[..30]).await;
    database.let_time_pass().await;
    let mut sweepers = Vec::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        sweepers.push(tokio::spawn(async move {
            let ledger = [handler("ledger")];
            let limited = Sweep { limit: 7, ..broom(&ledger) };
            let (mut changed, mut crashed) = (0, Vec::new());
            loop {
                let swept = store.sweep(&limited).await.unwrap();
                // Those that another sweeper holds at this moment are not seen, and are the other's.
                if swept.changed == 0 {
                    break (changed, crashed);
                }
                changed += swept.changed;
                crashed.extend(swept.crashed.into_iter().map(|crash| crash.job));
            }
        }));
    }
    let (mut changed, mut crashed) = (0, Vec::new());
    for sweeper in sweepers {
        let swept = sweeper.await.unwrap();
        changed += swept.0;
        crashed.extend(swept.1);
    }
    crashed.sort();
    assert_eq!(crashed, jobs[..30]);
    assert_eq!(changed, 60);
    assert_eq!(ready(&store).await, jobs);
    assert_eq!(database.number("SELECT count(*) FROM attempts WHERE failure = 'crash'").await, 30);
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
    let counts: Vec<_> = backlog.jobs.iter().map(|(handler, state, jobs)| (handler.as_str(), *state, *jobs)).collect();
    let expected = [
        ("ledger", JobState::DeadLetter, 1),
        ("ledger", JobState::Failed, 1),
        ("ledger", JobState::Pending, 2),
        ("ledger", JobState::Processing, 1),
        ("mail", JobState::Pending, 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!((backlog.oldest_due, backlog.replayed), (vec![], 0));
}

async fn the_backlog_tells_of_each_handler_how_long_its_first_due_job_waits(database: Database) {
    let store = database.open().await;
    let oldest = async || {
        let mut oldest = store.backlog().await.unwrap().oldest_due;
        oldest.sort();
        oldest.into_iter().map(|(handler, age)| (handler, age.as_secs() / 3600)).collect::<Vec<_>>()
    };
    store.record(&[routed(event("stripe", "evt_1"), &["audit", "ledger", "mail"])]).await.unwrap();
    assert_eq!(oldest().await, [], "nothing is due yet");
    database.let_time_pass().await;
    store.record(&[routed(event("stripe", "evt_2"), &["fresh", "ledger"])]).await.unwrap();
    let of = |name: &str| (name.to_owned(), 9);
    assert_eq!(oldest().await, [of("audit"), of("ledger"), of("mail")]);
    let due = DueJobs { handler: &handler("mail"), after: None, limit: 10, ordering: None };
    assert_eq!(store.due_jobs(&due).await.unwrap().len(), 1, "the sweeper has seen it and dispatches it");
    assert_eq!(oldest().await, [of("audit"), of("ledger"), of("mail")], "until a worker takes it, it is late");
    let event = due_jobs(&store, None).await[0].place.event;
    claim_one(&store, &job_of(event, "ledger")).await;
    assert_eq!(oldest().await, [of("audit"), of("mail")], "what runs is not late");
}

async fn the_backlog_has_no_cap(database: Database) {
    let store = database.open().await;
    let events = record_jobs(&store, 2100).await;
    for claimed in claim(&store, &events[..2050]).await.chunks(500) {
        let settlements: Vec<_> = claimed.iter().map(|claimed| crate::database::settlement(claimed, dead())).collect();
        assert_eq!(store.settle(&settlements).await.unwrap().stale, []);
    }
    // As many again for a handler that no configuration names.
    database
        .execute(
            "INSERT INTO jobs (event_id, handler, state, due_at, priority)
             SELECT event_id, 'gone', 'pending', 5000000, 'normal' FROM jobs",
            "INSERT INTO jobs (event_id, handler, state, due_at, priority)
             SELECT event_id, 'gone', 'pending', to_timestamp(5), 'normal' FROM jobs",
        )
        .await;
    let backlog = store.backlog().await.unwrap();
    let counts: Vec<_> = backlog.jobs.iter().map(|(handler, state, jobs)| (handler.as_str(), *state, *jobs)).collect();
    assert_eq!(
        counts,
        [("gone", JobState::Pending, 2100), ("ledger", JobState::DeadLetter, 2050), ("ledger", JobState::Pending, 50)]
    );
    assert_eq!(backlog.oldest_due.iter().map(|(handler, _)| handler.as_str()).collect::<Vec<_>>(), ["gone"]);
}

on_both! {
    what_is_not_due_is_left_alone
    a_job_whose_dispatch_was_lost_is_found
    a_due_retry_becomes_pending
    a_lease_that_ended_is_an_attempt_of_its_own_kind
    too_many_crashes_make_a_dead_letter
    a_run_that_ends_with_a_word_clears_the_suspicion
    a_claim_leaves_out_those_that_crashed_too_often
    a_due_job_says_how_often_it_crashed
    leases_are_left_alone_when_they_are_not_to_be_judged
    a_lease_is_judged_once_leases_are_judged_again
    a_sweep_goes_up_to_the_limit_and_for_these_handlers_only
    the_longest_due_become_pending_first
    due_jobs_come_in_pages_the_longest_due_first
    reading_due_jobs_changes_nothing
    sweeps_at_the_same_time_find_each_job_once
    the_backlog_counts_what_is_unfinished_or_dead
    the_backlog_tells_of_each_handler_how_long_its_first_due_job_waits
    the_backlog_has_no_cap
}
