//! Find, count, replay, resolve, audit.

use std::slice;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hookfast_store::{
    Act, Action, Audit, Cursor, Filter, Found, JobId, NewJob, Outcome, Resolution, Routed, Step, Store, StoreError,
    Which,
};
use hookfast_webhook::{EventId, FailureKind, JobState, Priority};
use sqlx::Connection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::database::{
    Database, HOUR, LEASE, attempts_of, claim_one, dead, effect, effects_of, event, event_at, failed, handler, is_in,
    job, job_of, lose_leases, new_job, record_jobs, resolution, routed, settle, settled_job, settlement, state, wish,
};

fn at(second: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_760_000_000 + second).unwrap()
}

/// A second from now, as SQLite has it. Ids are made now, so the times of arrival must be near.
fn near(second: i64) -> OffsetDateTime {
    static NOW: LazyLock<OffsetDateTime> = LazyLock::new(|| OffsetDateTime::now_utc().replace_nanosecond(0).unwrap());
    *NOW + time::Duration::seconds(second)
}

/// An event of a type and an account, received at a second, whose job for a handler has died of something.
async fn dead_letter(
    store: &Arc<dyn Store>,
    (source, name, kind): (&str, &str, FailureKind),
    (event_type, account): (&str, &str),
    second: i64,
) -> JobId {
    let id = Uuid::now_v7().simple();
    let body = format!(r#"{{"id":"{id}","type":"{event_type}","created":1759999996,"account":"{account}"}}"#);
    let routed = routed(event_at(source, &body, near(second)), &[name]);
    store.record(slice::from_ref(&routed)).await.unwrap();
    let job = job_of(routed.event.id(), name);
    let claimed = store.claim(&wish(&job.handler, &[job.event])).await.unwrap().remove(0);
    settle(store, &claimed, Outcome::Dead { kind, message: "dead".into() }).await;
    job
}

pub(crate) fn jobs(found: &[Found]) -> Vec<JobId> {
    let job =
        |found: &Found| JobId { event: found.event, handler: found.handler.clone().expect("a job has a handler") };
    found.iter().map(job).collect()
}

/// What is found, having looked whether counting comes to the same.
pub(crate) async fn find(store: &Arc<dyn Store>, which: Which, filter: &Filter) -> Vec<Found> {
    let found = store.find(which, filter, None, 100).await.unwrap();
    assert_eq!(store.count(which, filter).await.unwrap(), found.len() as u64, "{which:?} {filter:?}");
    found
}

async fn every_condition_of_a_filter_counts(database: Database) {
    let store = database.open().await;
    let timeout = FailureKind::Timeout;
    let letters = [
        dead_letter(&store, ("stripe", "ledger", timeout), ("invoice.paid", "a"), 0).await,
        dead_letter(&store, ("stripe", "mail", timeout), ("invoice.paid_late", "a"), 10).await,
        dead_letter(&store, ("other", "ledger", FailureKind::Panic), ("invoice%paid", "b"), 20).await,
        dead_letter(&store, ("other", "mail", FailureKind::Panic), ("customer", "b"), 30).await,
    ];
    let all = Filter::default();
    let cases: [(Filter, &[usize]); 14] = [
        (all.clone(), &[0, 1, 2, 3]),
        (Filter { events: vec![letters[3].event, letters[1].event], ..all.clone() }, &[1, 3]),
        (Filter { events: vec![EventId(Uuid::now_v7())], ..all.clone() }, &[]),
        (Filter { source: Some("other".into()), ..all.clone() }, &[2, 3]),
        (Filter { handler: Some("mail".into()), ..all.clone() }, &[1, 3]),
        (Filter { event_type: Some("invoice.paid".into()), ..all.clone() }, &[0]),
        (Filter { event_type: Some("invoice.*".into()), ..all.clone() }, &[0, 1]),
        (Filter { event_type: Some("invoice%*".into()), ..all.clone() }, &[2]),
        (Filter { event_type: Some("*".into()), ..all.clone() }, &[0, 1, 2, 3]),
        (Filter { account: Some("b".into()), ..all.clone() }, &[2, 3]),
        (Filter { failure: Some(FailureKind::Panic), ..all.clone() }, &[2, 3]),
        (Filter { since: Some(near(20)), ..all.clone() }, &[2, 3]),
        (Filter { until: Some(near(20)), ..all.clone() }, &[0, 1]),
        (Filter { since: Some(near(10)), handler: Some("ledger".into()), failure: Some(timeout), ..all.clone() }, &[]),
    ];
    for (filter, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|index| letters[*index].clone()).collect();
        assert_eq!(jobs(&find(&store, Which::DeadLetters, &filter).await), expected, "{filter:?}");
        assert_eq!(jobs(&find(&store, Which::Finished, &filter).await), expected, "{filter:?}");
        assert_eq!(jobs(&find(&store, Which::Succeeded, &filter).await), [], "{filter:?}");
    }
}

/// By the store's clock, which need not be ours: what was there at a moment, and nothing else.
async fn what_comes_or_ends_after_a_moment_is_not_found(database: Database) {
    let store = database.open().await;
    assert_eq!(store.moment().await.unwrap().last_event, EventId(Uuid::nil()));
    let fresh = record_jobs(&store, 1).await.remove(0);
    let letter = settled_job(&store, dead()).await;
    let succeeded = settled_job(&store, Outcome::Succeeded).await;
    store.record(&[routed(event("stripe", "evt_before"), &[])]).await.unwrap();
    let moment = store.moment().await.unwrap();
    assert!(is_in(moment.at, Duration::ZERO));
    settle(&store, &claim_one(&store, &fresh).await, dead()).await;
    settled_job(&store, Outcome::Succeeded).await;
    settled_job(&store, dead()).await;
    store.record(&[routed(event("stripe", "evt_after"), &[])]).await.unwrap();

    let then = Filter { as_of: Some(moment), ..Filter::default() };
    assert_eq!(jobs(&find(&store, Which::DeadLetters, &then).await), slice::from_ref(&letter));
    assert_eq!(jobs(&find(&store, Which::Succeeded, &then).await), slice::from_ref(&succeeded));
    assert_eq!(jobs(&find(&store, Which::Finished, &then).await), [letter, succeeded]);
    assert_eq!(find(&store, Which::Unhandled, &then).await.len(), 1);
    assert_eq!(find(&store, Which::Unhandled, &Filter::default()).await.len(), 2);
}

/// A job may end anew between being found and being acted on.
async fn what_ended_after_a_moment_is_not_acted_on(database: Database) {
    let store = database.open().await;
    let letters = [settled_job(&store, dead()).await, settled_job(&store, dead()).await];
    let as_of = Some(store.moment().await.unwrap().at);
    act(&store, replay(&[again(&letters[1])])).await;
    settle(&store, &claim_one(&store, &letters[1]).await, dead()).await;

    let act_as_of = async |act| {
        let audit = audit(Action::Replay);
        store.begin_act(&audit).await.unwrap();
        store.act(&Step { audit: audit.id, act, next_after: None, is_last: true, as_of }).await.unwrap()
    };
    let wanted = letters.each_ref().map(again);
    assert_eq!(act_as_of(replay(&wanted)).await, 1);
    assert_eq!(
        (state(&store, &letters[0]).await, state(&store, &letters[1]).await),
        (JobState::Pending, JobState::DeadLetter)
    );
    let resolve = Act::Resolve { jobs: &letters, resolution: Resolution::Ignored };
    assert_eq!(act_as_of(resolve).await, 0);
    let unhandled = routed(event("stripe", "evt_unhandled"), &[]);
    store.record(slice::from_ref(&unhandled)).await.unwrap();
    assert_eq!(act_as_of(replay(&[(unhandled.event.id(), new_job("ledger"))])).await, 1, "a job that was not there");
}

async fn which_says_in_what_state(database: Database) {
    let store = database.open().await;
    record_jobs(&store, 1).await;
    settled_job(&store, failed()).await;
    let succeeded = settled_job(&store, Outcome::Succeeded).await;
    let letter = settled_job(&store, dead()).await;
    let resolved = settled_job(&store, dead()).await;
    act(&store, Act::Resolve { jobs: slice::from_ref(&resolved), resolution: Resolution::ManualFix }).await;
    let unhandled = routed(event("stripe", "evt_unhandled"), &[]);
    store.record(slice::from_ref(&unhandled)).await.unwrap();

    let all = Filter::default();
    assert_eq!(jobs(&find(&store, Which::Succeeded, &all).await), slice::from_ref(&succeeded));
    assert_eq!(jobs(&find(&store, Which::DeadLetters, &all).await), slice::from_ref(&letter));
    assert_eq!(jobs(&find(&store, Which::Finished, &all).await), [succeeded, letter, resolved]);
    let found = find(&store, Which::Unhandled, &all).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].event, &found[0].handler, &found[0].state), (unhandled.event.id(), &None, &None));
    assert_eq!((found[0].event_type.as_str(), found[0].source.as_str()), ("invoice.paid", "stripe"));
    let other = Filter { source: Some("other".into()), ..all };
    assert_eq!(find(&store, Which::Unhandled, &other).await, []);
}

async fn what_is_found_says_what_an_operator_needs(database: Database) {
    let store = database.open().await;
    let keyed = NewJob { priority: Priority::Low, ordering_key: Some("acct_1".into()), ..new_job("ledger") };
    let routed = Routed { event: event("stripe", "evt_1"), jobs: vec![keyed] };
    store.record(slice::from_ref(&routed)).await.unwrap();
    let id = job_of(routed.event.id(), "ledger");
    settle(&store, &claim_one(&store, &id).await, failed()).await;
    lose_leases(&database, &store).await;
    settle(&store, &claim_one(&store, &id).await, dead()).await;

    let found = find(&store, Which::DeadLetters, &Filter::default()).await.remove(0);
    assert_eq!((found.event, found.handler), (id.event, Some(handler("ledger"))));
    assert_eq!((found.state, found.reason.as_deref()), (Some(JobState::DeadLetter), Some("refused")));
    assert_eq!((found.message.as_deref(), found.attempts), (Some("no such customer"), 2));
    assert!(is_in(found.finished_at.expect("it has ended"), Duration::ZERO));
    assert_eq!((found.source.as_str(), found.event_type.as_str()), ("stripe", "invoice.paid"));
    assert_eq!((found.account.as_deref(), found.received_at), (Some("acct_1"), at(0)));
    assert_eq!((found.priority, found.ordering_key.as_deref()), (Priority::Low, Some("acct_1")));
}

async fn pages_follow_each_other_without_gaps(database: Database) {
    let store = database.open().await;
    let mut events: Vec<_> = (0..5).map(|n| routed(event("stripe", &format!("evt_{n}")), &["b", "a"])).collect();
    events.extend((5..8).map(|n| routed(event("stripe", &format!("evt_{n}")), &[])));
    store.record(&events).await.unwrap();
    database.execute("UPDATE jobs SET state = 'dead_letter'", "UPDATE jobs SET state = 'dead_letter'").await;
    for (which, expected) in [(Which::DeadLetters, 10), (Which::Finished, 10), (Which::Unhandled, 3)] {
        let all = find(&store, which, &Filter::default()).await;
        assert_eq!(all.len(), expected);
        let mut pages = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = store.find(which, &Filter::default(), after.as_ref(), 3).await.unwrap();
            let Some(last) = page.last() else { break };
            let name = last.handler.as_ref().map_or("", |handler| handler.as_str());
            after = Some(Cursor { event: last.event, handler: name.into() });
            pages.extend(page);
        }
        assert_eq!(pages, all);
        let newest = store.find_newest(which, &Filter::default(), 2).await.unwrap();
        assert!(newest.iter().eq(all.iter().rev().take(2)), "{newest:?}");
        assert!(all.is_sorted_by_key(|found| (found.event, found.handler.clone())));
    }
}

pub(crate) fn audit(action: Action) -> Audit {
    Audit {
        id: Uuid::now_v7(),
        at: at(0),
        who: "ann@example.com".into(),
        action,
        why: Some("the ledger was down".into()),
        filter: r#"{"handler":"ledger"}"#.into(),
        jobs: 0,
        next_after: None,
        is_done: false,
    }
}

/// An act of one step. Says how many jobs it changed.
pub(crate) async fn act(store: &Arc<dyn Store>, act: Act<'_>) -> u64 {
    let audit = audit(if matches!(act, Act::Replay { .. }) { Action::Replay } else { Action::Resolve });
    store.begin_act(&audit).await.unwrap();
    store.act(&Step { audit: audit.id, act, next_after: None, is_last: true, as_of: None }).await.unwrap()
}

pub(crate) fn replay(jobs: &[(EventId, NewJob)]) -> Act<'_> {
    Act::Replay { jobs, force_effects: false }
}

pub(crate) fn again(job: &JobId) -> (EventId, NewJob) {
    (job.event, new_job(job.handler.as_str()))
}

async fn a_replay_makes_finished_jobs_pending_and_leaves_the_others_alone(database: Database) {
    let store = database.open().await;
    let finished = [settled_job(&store, dead()).await, settled_job(&store, Outcome::Succeeded).await, {
        let resolved = settled_job(&store, dead()).await;
        act(&store, Act::Resolve { jobs: slice::from_ref(&resolved), resolution: Resolution::Ignored }).await;
        resolved
    }];
    let waiting = settled_job(&store, failed()).await;
    let fresh = record_jobs(&store, 2).await;
    let running = claim_one(&store, &fresh[0]).await;
    let mut all: Vec<_> = finished.iter().map(again).collect();
    all.extend([again(&waiting), again(&fresh[0]), again(&fresh[1])]);
    assert_eq!(act(&store, replay(&all)).await, 3);

    for id in &finished {
        let replayed = job(&store, id).await;
        assert_eq!((replayed.state, replayed.attempts, replayed.reason), (JobState::Pending, 0, None));
        assert!(is_in(replayed.due_at, Duration::ZERO));
        assert_eq!(attempts_of(&store, id).await.len(), 1, "history stays");
        assert_eq!(claim_one(&store, id).await.attempt, 1, "attempts start again");
    }
    assert_eq!(state(&store, &waiting).await, JobState::Failed);
    assert_eq!(state(&store, &fresh[1]).await, JobState::Pending);
    settle(&store, &running, Outcome::Succeeded).await;
    assert_eq!(act(&store, replay(&[])).await, 0);
}

async fn a_replay_makes_jobs_that_are_not_there(database: Database) {
    let store = database.open().await;
    let unhandled = routed(event("stripe", "evt_1"), &[]);
    store.record(slice::from_ref(&unhandled)).await.unwrap();
    let keyed = NewJob { priority: Priority::High, ordering_key: Some("a".into()), ..new_job("ledger") };
    let wanted = [(unhandled.event.id(), keyed), (EventId(Uuid::now_v7()), new_job("ledger"))];
    assert_eq!(act(&store, replay(&wanted)).await, 1, "an event that is not there gets no job");
    assert_eq!(database.number("SELECT count(*) FROM jobs").await, 1);
    let made = job_of(unhandled.event.id(), "ledger");
    assert_eq!((job(&store, &made).await.priority, claim_one(&store, &made).await.attempt), (Priority::High, 1));
    assert_eq!(find(&store, Which::Unhandled, &Filter::default()).await, []);
}

async fn effects_are_remembered_over_a_replay_unless_they_are_to_be_forgotten(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let first = claim_one(&store, &id).await;
    let begun = store.begin_effect(&effect(&first, "post")).await.unwrap();
    begun.transaction.commit(&effect(&first, "post"), None).await.unwrap();
    settle(&store, &first, dead()).await;

    let wanted = [again(&id)];
    act(&store, replay(&wanted)).await;
    let second = claim_one(&store, &id).await;
    let remembered = store.begin_effect(&effect(&second, "post")).await.unwrap();
    assert_eq!((remembered.id, remembered.is_done), (begun.id, true));
    drop(remembered);
    assert_eq!(act(&store, Act::Replay { jobs: &wanted, force_effects: true }).await, 0);
    assert_eq!(effects_of(&store, &id).await.len(), 1, "it is running: nothing was replayed, nothing forgotten");
    settle(&store, &second, dead()).await;

    assert_eq!(act(&store, Act::Replay { jobs: &wanted, force_effects: true }).await, 1);
    assert_eq!(effects_of(&store, &id).await, []);
    let third = claim_one(&store, &id).await;
    let anew = store.begin_effect(&effect(&third, "post")).await.unwrap();
    assert!(!anew.is_done && anew.id != begun.id);
}

async fn only_dead_letters_are_resolved(database: Database) {
    let store = database.open().await;
    let letter = settled_job(&store, dead()).await;
    let succeeded = settled_job(&store, Outcome::Succeeded).await;
    let waiting = settled_job(&store, failed()).await;
    let jobs = [letter.clone(), succeeded.clone(), waiting.clone(), job_of(EventId(Uuid::now_v7()), "ledger")];
    assert_eq!(act(&store, Act::Resolve { jobs: &jobs, resolution: Resolution::ManualFix }).await, 1);
    let resolved = job(&store, &letter).await;
    assert_eq!((resolved.state, resolved.reason.as_deref()), (JobState::Resolved, Some("refused")));
    assert_eq!(
        (state(&store, &succeeded).await, state(&store, &waiting).await),
        (JobState::Succeeded, JobState::Failed)
    );
    assert_eq!(store.backlog().await.unwrap().jobs, [("ledger".into(), JobState::Failed, 1)]);
}

async fn an_act_is_noted_step_by_step(database: Database) {
    let store = database.open().await;
    let letters = [settled_job(&store, dead()).await, settled_job(&store, dead()).await];
    let noted = audit(Action::Replay);
    store.begin_act(&noted).await.unwrap();
    assert_eq!(store.audit(noted.id).await.unwrap(), Some(noted.clone()));
    assert_eq!(store.audit(Uuid::now_v7()).await.unwrap(), None);

    let wanted = letters.each_ref().map(|letter| [again(letter)]);
    let step = |index: usize, is_last| Step {
        audit: noted.id,
        act: replay(&wanted[index]),
        next_after: Some(letters[index].event),
        is_last,
        as_of: None,
    };
    store.act(&step(0, false)).await.unwrap();
    let half = store.audit(noted.id).await.unwrap().expect("it is noted");
    assert_eq!((half.jobs, half.next_after, half.is_done), (1, Some(letters[0].event), false));
    store.act(&step(1, true)).await.unwrap();
    let whole = store.audit(noted.id).await.unwrap().expect("it is noted");
    assert_eq!(whole, Audit { jobs: 2, is_done: true, ..noted.clone() });
    assert_eq!(store.backlog().await.unwrap().replayed, 2);

    let later = Audit { at: at(1), ..audit(Action::Resolve) };
    store.begin_act(&later).await.unwrap();
    assert_eq!(store.latest_audits(10).await.unwrap(), [later.clone(), whole]);
    assert_eq!(store.latest_audits(1).await.unwrap(), slice::from_ref(&later));
    let twice = store.begin_act(&later).await;
    assert!(matches!(twice, Err(StoreError::Rejected(_))), "{twice:?}");
}

async fn what_cannot_be_noted_is_not_done(database: Database) {
    let store = database.open().await;
    let letter = settled_job(&store, dead()).await;
    let wanted = [again(&letter)];
    let step = Step { audit: Uuid::now_v7(), act: replay(&wanted), next_after: None, is_last: true, as_of: None };
    let refused = store.act(&step).await;
    assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
    assert_eq!(state(&store, &letter).await, JobState::DeadLetter);
}

/// As another transaction would that changes the table, until it is dropped.
async fn lock_jobs(database: &Database) -> sqlx::PgConnection {
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE").execute(&mut connection).await.unwrap();
    connection
}

async fn a_number_that_takes_too_long_is_no_failure(database: Database) {
    let store = database.open().await;
    let letter = settled_job(&store, dead()).await;
    let (all, brief) = (Filter::default(), Duration::from_millis(50));
    assert_eq!(store.count_within(Which::DeadLetters, &all, Duration::from_secs(10)).await.unwrap(), Some(1));
    if database.is_sqlite() {
        // Enough for SQLite to look at the clock while it counts.
        database
            .execute(
                "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 20000)
                 INSERT INTO jobs (event_id, handler, state, due_at)
                 SELECT event_id, handler || number, 'succeeded', 0 FROM jobs CROSS JOIN numbers",
                "",
            )
            .await;
        assert_eq!(store.count_within(Which::Succeeded, &all, Duration::ZERO).await.unwrap(), None);
    } else {
        let lock = lock_jobs(&database).await;
        assert_eq!(store.count_within(Which::Succeeded, &all, brief).await.unwrap(), None);
        lock.close().await.unwrap();
    }
    assert_eq!(jobs(&find(&store, Which::DeadLetters, &all).await), [letter], "other questions are answered as before");
}

/// A batch has 4 seconds. An operator's question has longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_postgres_may_take_longer_than_a_batch() {
    let database = Database::postgres();
    let store = database.open().await;
    let letter = settled_job(&store, dead()).await;
    let lock = lock_jobs(&database).await;
    let asked = tokio::spawn(async move { store.find(Which::DeadLetters, &Filter::default(), None, 10).await });
    tokio::time::sleep(Duration::from_secs(6)).await;
    lock.close().await.unwrap();
    assert_eq!(jobs(&asked.await.unwrap().unwrap()), [letter]);
}

async fn unfinished_jobs_are_found_with_when_they_are_due(database: Database) {
    let store = database.open().await;
    assert_eq!(find(&store, Which::Unfinished, &Filter::default()).await, []);
    settled_job(&store, Outcome::Succeeded).await;
    settled_job(&store, dead()).await;
    let waiting = record_jobs(&store, 1).await.remove(0);
    let failed_one = settled_job(&store, failed()).await;
    let running = claim_one(&store, &record_jobs(&store, 1).await[0]).await.job;
    let found = find(&store, Which::Unfinished, &Filter::default()).await;
    assert_eq!(jobs(&found), [waiting.clone(), failed_one.clone(), running.clone()]);
    let states: Vec<_> = found.iter().map(|found| found.state.expect("a job has a state")).collect();
    assert_eq!(states, [JobState::Pending, JobState::Failed, JobState::Processing]);
    assert!(is_in(found[1].due_at.expect("it is tried again"), HOUR));
    assert_eq!(found[1].message.as_deref(), Some("no route"));
    assert!(is_in(found[2].claimed_at.expect("a worker has it"), Duration::ZERO));
    assert!(is_in(found[2].due_at.expect("it has a lease"), LEASE));
    let only = |state| Filter { state: Some(state), ..Filter::default() };
    assert_eq!(jobs(&find(&store, Which::Unfinished, &only(JobState::Failed)).await), [failed_one]);
    assert_eq!(jobs(&find(&store, Which::Unfinished, &only(JobState::Processing)).await), [running]);
    assert_eq!(find(&store, Which::Finished, &only(JobState::Resolved)).await, []);
    let other = Filter { handler: Some("mail".into()), ..Filter::default() };
    assert_eq!(find(&store, Which::Unfinished, &other).await, []);
}

async fn only_what_no_worker_has_is_moved_or_abandoned(database: Database) {
    let store = database.open().await;
    let waiting = record_jobs(&store, 2).await;
    let failed_one = settled_job(&store, failed()).await;
    let succeeded = settled_job(&store, Outcome::Succeeded).await;
    let running = record_jobs(&store, 1).await.remove(0);
    let held = claim_one(&store, &running).await;
    let all = [waiting[0].clone(), failed_one.clone(), succeeded.clone(), running.clone()];
    let keyed = NewJob { priority: Priority::High, ordering_key: Some("a".into()), ..new_job("mail") };
    let moved: Vec<_> = all.iter().map(|job| (job.clone(), keyed.clone())).collect();
    assert_eq!(act(&store, Act::Move { jobs: &moved }).await, 2);
    for id in [&waiting[0], &failed_one] {
        let old = job(&store, id).await;
        assert_eq!((old.state, resolution(&old)), (JobState::Resolved, Some(Resolution::Moved)));
        let new = job(&store, &job_of(id.event, "mail")).await;
        assert_eq!((new.state, new.attempts, new.priority), (JobState::Pending, 0, Priority::High));
        assert!(is_in(new.due_at, Duration::ZERO));
    }
    assert_eq!(store.jobs_of(succeeded.event).await.unwrap().len(), 1);
    assert_eq!(act(&store, Act::Move { jobs: &moved }).await, 0, "it is done once");

    let abandon = Act::Abandon { jobs: &[waiting[1].clone(), running.clone()], resolution: Resolution::Ignored };
    assert_eq!(act(&store, abandon).await, 1);
    assert_eq!(resolution(&job(&store, &waiting[1]).await), Some(Resolution::Ignored));
    settle(&store, &held, Outcome::Succeeded).await;

    // A lease that has ended holds nothing, and the late worker changes nothing any more.
    let late = record_jobs(&store, 1).await.remove(0);
    let lost = claim_one(&store, &late).await;
    database.let_time_pass().await;
    let abandon = Act::Abandon { jobs: slice::from_ref(&late), resolution: Resolution::Ignored };
    assert_eq!(act(&store, abandon).await, 1);
    let settled = store.settle(&[settlement(&lost, Outcome::Succeeded)]).await.unwrap();
    assert_eq!((settled.stale, state(&store, &late).await), (vec![late.clone()], JobState::Resolved));
}

async fn every_source_that_had_an_event_is_named_once(database: Database) {
    let store = database.open().await;
    assert_eq!(store.sources().await.unwrap(), [""; 0]);
    let events: Vec<_> = ["b", "a", "b", "c"].into_iter().zip(1..).collect();
    let events: Vec<_> = events.iter().map(|(source, n)| routed(event(source, &format!("evt_{n}")), &[])).collect();
    store.record(&events).await.unwrap();
    assert_eq!(store.sources().await.unwrap(), ["a", "b", "c"]);
}

on_both! {
    every_source_that_had_an_event_is_named_once
    unfinished_jobs_are_found_with_when_they_are_due
    only_what_no_worker_has_is_moved_or_abandoned
    a_number_that_takes_too_long_is_no_failure
    every_condition_of_a_filter_counts
    what_comes_or_ends_after_a_moment_is_not_found
    what_ended_after_a_moment_is_not_acted_on
    which_says_in_what_state
    what_is_found_says_what_an_operator_needs
    pages_follow_each_other_without_gaps
    a_replay_makes_finished_jobs_pending_and_leaves_the_others_alone
    a_replay_makes_jobs_that_are_not_there
    effects_are_remembered_over_a_replay_unless_they_are_to_be_forgotten
    only_dead_letters_are_resolved
    an_act_is_noted_step_by_step
    what_cannot_be_noted_is_not_done
}
