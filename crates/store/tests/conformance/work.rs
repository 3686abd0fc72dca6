//! Claim, settle, renew, hand back.

use std::collections::HashSet;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    Attempt, Claim, Claimed, DueJobs, Interruption, JobId, LostRun, Outcome, Renewed, Store, Swept, Token,
};
use hookfast_webhook::{EventId, FailureKind, JobState, ProofKind};
use uuid::Uuid;

use crate::database::{
    Database, HOUR, LEASE, attempts_of, broom, claim, claim_one, dead, effect, event, event_with_body, events_of,
    failed, handler, ids, is_in, job, job_of, lose_leases, ready, record_jobs, routed, settle, settled_job, settlement,
    state, wish,
};

async fn a_claim_brings_the_events_along_in_their_order(database: Database) {
    let store = database.open().await;
    let events = [routed(event("stripe", "evt_1"), &["ledger"]), routed(event("stripe", "evt_2"), &["ledger", "mail"])];
    store.record(&events).await.unwrap();
    let [first, second] = events.each_ref().map(|routed| routed.event.id());
    let unknown = EventId(Uuid::now_v7());
    let claimed = store.claim(&wish(&handler("ledger"), &[second, unknown, first])).await.unwrap();

    assert_eq!(ids(&claimed), [job_of(first, "ledger"), job_of(second, "ledger")]);
    assert_eq!((claimed[0].attempt, claimed[0].crashes, claimed[0].interruptions), (1, 0, 0));
    assert_eq!(claimed[0].token, claimed[1].token);
    let (told, sent) = (&claimed[0].event, &events[0].event);
    assert_eq!((told.source.as_str(), told.dedupe_key.as_str()), ("stripe", "evt_1"));
    assert_eq!((told.event_type.as_str(), told.account.as_deref()), ("invoice.paid", Some("acct_1")));
    assert_eq!((told.object_id.as_deref(), told.occurred_at), (Some("in_1"), sent.occurred_at()));
    assert_eq!((told.received_at, told.proof), (sent.delivery().arrival.received_at, ProofKind::Signature));
    assert_eq!((told.url.as_str(), told.body.as_ref()), ("https://h.example/webhooks/x?a=%20b", Some(sent.body())));
    assert_eq!(told.size_bytes, sent.body().len());
    assert!(told.headers.iter().any(|(name, value)| name == "x-odd" && value == b"\xff'\"\\"));

    let held = job(&store, &claimed[0].job).await;
    assert_eq!((held.state, held.attempts), (JobState::Processing, 1));
    assert!(is_in(held.due_at, LEASE), "{}", held.due_at);
    assert_eq!(state(&store, &job_of(second, "mail")).await, JobState::Pending, "another handler's job is another job");
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
    // A claim that meets a job of another claim skips it, and then the other claim has it.
    assert_eq!(taken.len(), 100);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), jobs.into_iter().collect());
}

/// What the history says of a job, without the times.
async fn history(store: &Arc<dyn Store>, id: &JobId) -> Vec<(u32, Option<FailureKind>, Option<String>)> {
    let attempts = attempts_of(store, id).await;
    attempts.into_iter().map(|attempt| (attempt.number, attempt.failure, attempt.message)).collect()
}

async fn a_success_is_the_end(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, Outcome::Succeeded).await;
    let done = job(&store, &id).await;
    assert_eq!((done.state, done.attempts, done.reason), (JobState::Succeeded, 1, None));
    let attempts = attempts_of(&store, &id).await;
    assert_eq!(attempts.len(), 1);
    let Attempt { number, started_at, duration, failure, message, worker } = &attempts[0];
    assert_eq!((*number, *duration, worker.as_str()), (1, Duration::from_millis(1500), "w1"));
    assert!(failure.is_none() && message.is_none() && is_in(*started_at, Duration::ZERO));
    assert_eq!(lose_leases(&database, &store).await.changed, 0);
}

async fn a_failure_is_tried_again_when_it_is_time(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, failed()).await;
    let waiting = job(&store, &id).await;
    assert_eq!((waiting.state, waiting.attempts, waiting.reason.as_deref()), (JobState::Failed, 1, Some("network")));
    assert!(is_in(waiting.due_at, HOUR), "{}", waiting.due_at);
    assert_eq!(history(&store, &id).await, [(1, Some(FailureKind::Network), Some("no route".into()))]);

    assert_eq!(lose_leases(&database, &store).await, Swept { changed: 1, ..Swept::default() });
    assert_eq!(ready(&store).await, slice::from_ref(&id));
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
    assert_eq!((letter.state, letter.attempts, letter.reason.as_deref()), (JobState::DeadLetter, 1, Some("refused")));
    assert_eq!(history(&store, &id).await, [(1, Some(FailureKind::Refused), Some("no such customer".into()))]);
    assert_eq!(lose_leases(&database, &store).await.changed, 0);
}

fn interrupted(by: Interruption) -> Outcome {
    Outcome::Interrupted { by, message: "it was cut short".into(), retry_in: HOUR }
}

async fn an_interrupted_run_does_not_count(database: Database) {
    let store = database.open().await;
    for (by, kind) in [(Interruption::Store, FailureKind::Pipeline), (Interruption::Process, FailureKind::Interrupted)]
    {
        let id = settled_job(&store, interrupted(by)).await;
        let waiting = job(&store, &id).await;
        assert_eq!(
            (waiting.state, waiting.attempts, waiting.reason.as_deref()),
            (JobState::Failed, 0, Some(kind.as_str()))
        );
        assert!(is_in(waiting.due_at, HOUR), "{}", waiting.due_at);
        assert_eq!(history(&store, &id).await, [(1, Some(kind), Some("it was cut short".into()))]);
        lose_leases(&database, &store).await;
        assert_eq!(claim_one(&store, &id).await.attempt, 1);
    }
}

async fn runs_that_the_store_spoilt_are_counted_until_one_ends_otherwise(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let outcomes = [
        (0, interrupted(Interruption::Store)),
        (1, interrupted(Interruption::Store)),
        (2, interrupted(Interruption::Process)),
        (2, failed()),
        (0, interrupted(Interruption::Store)),
        (1, Outcome::Succeeded),
    ];
    for (number, (interruptions, outcome)) in outcomes.into_iter().enumerate() {
        let claimed = claim_one(&store, &id).await;
        assert_eq!(claimed.interruptions, interruptions, "run {number}");
        settle(&store, &claimed, outcome).await;
        lose_leases(&database, &store).await;
    }
    assert_eq!(job(&store, &id).await.attempts, 2, "one failed, one succeeded");
}

async fn an_interrupted_run_neither_is_nor_clears_a_crash(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    for by in [Interruption::Store, Interruption::Process] {
        let claimed = claim_one(&store, &id).await;
        assert_eq!((claimed.attempt, claimed.crashes), (2, 1));
        settle(&store, &claimed, interrupted(by)).await;
        lose_leases(&database, &store).await;
    }
    assert_eq!(claim_one(&store, &id).await.crashes, 1);
}

async fn a_late_settlement_writes_nothing(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let late = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    for outcome in [Outcome::Succeeded, failed(), dead()] {
        let settled = store.settle(&[settlement(&late, outcome)]).await.unwrap();
        assert_eq!(settled.stale, slice::from_ref(&id), "after the sweep no worker has it");
    }
    assert_eq!(state(&store, &id).await, JobState::Pending);

    let holder = claim_one(&store, &id).await;
    assert_ne!(holder.token, late.token);
    let settled = store.settle(&[settlement(&late, Outcome::Succeeded)]).await.unwrap();
    assert_eq!(settled.stale, slice::from_ref(&id), "and now another's");
    assert_eq!(state(&store, &id).await, JobState::Processing);
    let crash = (1, Some(FailureKind::Crash), Some("the process died or lost its lease".into()));
    assert_eq!(history(&store, &id).await, slice::from_ref(&crash));

    settle(&store, &holder, Outcome::Succeeded).await;
    let twice = store.settle(&[settlement(&holder, failed())]).await.unwrap();
    assert_eq!(twice.stale, slice::from_ref(&id), "what is settled is settled");
    assert_eq!(state(&store, &id).await, JobState::Succeeded);
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
    assert_eq!(states, [JobState::Succeeded, JobState::Processing, JobState::Succeeded]);
    assert_eq!(attempts_of(&store, &jobs[1]).await, []);
    assert_eq!(store.settle(&[]).await.unwrap().stale, []);
}

async fn more_jobs_than_fit_a_statement_are_claimed_and_settled_at_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 700).await;
    let claimed = claim(&store, &jobs).await;
    assert_eq!(ids(&claimed), jobs);
    let held: Vec<_> = claimed.iter().map(|claimed| (claimed.job.clone(), claimed.token)).collect();
    assert_eq!(store.renew(&held, LEASE).await.unwrap(), Renewed::default());
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
    let Renewed { lost, passed_over } = store.renew(&held, HOUR).await.unwrap();
    assert_eq!(passed_over, []);
    assert_eq!(lost.into_iter().collect::<HashSet<_>>(), jobs[1..].iter().cloned().collect());
    assert!(is_in(job(&store, &jobs[0]).await.due_at, HOUR));
    assert!(is_in(job(&store, &jobs[1]).await.due_at, LEASE), "another's lease is not ours to renew");
    assert_eq!(store.renew(&[], HOUR).await.unwrap(), Renewed::default());
}

async fn what_is_handed_back_is_as_before_and_due_at_once(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    let claimed = claim(&store, &jobs).await;
    store.hand_back(&[(jobs[0].clone(), claimed[0].token), (jobs[1].clone(), Token(Uuid::new_v4()))]).await.unwrap();
    let back = job(&store, &jobs[0]).await;
    assert_eq!((back.state, back.attempts), (JobState::Pending, 0));
    assert!(is_in(back.due_at, Duration::ZERO));
    assert_eq!(state(&store, &jobs[1]).await, JobState::Processing, "with another token nothing happens");
    assert_eq!(attempts_of(&store, &jobs[0]).await, []);
    assert_eq!(store.settle(&[settlement(&claimed[0], Outcome::Succeeded)]).await.unwrap().stale, jobs[..1]);
    assert_eq!(ready(&store).await, jobs[..1]);
    assert_eq!(claim_one(&store, &jobs[0]).await.attempt, 1);
}

async fn a_large_body_is_fetched_apart_from_the_claim(database: Database) {
    let store = database.open().await;
    let of_size = |id: &str, size: usize| {
        let start = format!(r#"{{"id":"{id}","type":"t","x":""#);
        let body = format!("{start}{}\"}}", "x".repeat(size - start.len() - 2));
        routed(event_with_body("stripe", &body), &["ledger"])
    };
    let limit = Claimed::BODY_BYTES;
    let sizes = [limit, limit + 1, 3 * 1024 * 1024];
    let events: Vec<_> = sizes.iter().map(|size| of_size(&format!("evt_{size}"), *size)).collect();
    store.record(&events).await.unwrap();
    let wanted: Vec<_> = events.iter().map(|routed| routed.event.id()).collect();
    let claimed = store.claim(&wish(&handler("ledger"), &wanted)).await.unwrap();
    for ((claimed, sent), size) in claimed.iter().zip(&events).zip(sizes) {
        assert_eq!((claimed.job.event, claimed.event.size_bytes), (sent.event.id(), size));
        let comes_along = (size <= limit).then(|| sent.event.body().clone());
        assert_eq!(claimed.event.body, comes_along, "{size}");
        let body = store.body(claimed.job.event, size).await.unwrap();
        assert!(body.as_ref() == Some(sent.event.body()), "{size}");
    }
    assert_eq!(claimed.len(), 3);
    assert_eq!(store.body(EventId(Uuid::now_v7()), 1).await.unwrap(), None, "there is no such event");
}

fn run_of(claimed: &Claimed) -> LostRun {
    LostRun { job: claimed.job.clone(), attempt: claimed.attempt, worker: "w1".into() }
}

/// What the history says of a run that was pardoned.
fn pardoned(number: u32) -> (u32, Option<FailureKind>, Option<String>) {
    (number, Some(FailureKind::Interrupted), Some("the run lost its lease, although its process lived".into()))
}

async fn a_pardon_undoes_a_crash(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 2).await;
    let lost = claim(&store, &jobs).await;
    lose_leases(&database, &store).await;
    store.pardon(&[run_of(&lost[0])]).await.unwrap();
    let innocent = job(&store, &jobs[0]).await;
    assert_eq!((innocent.state, innocent.attempts), (JobState::Pending, 0));
    assert_eq!(history(&store, &jobs[0]).await, [pardoned(1)]);
    store.pardon(&[run_of(&lost[0])]).await.unwrap();
    store.pardon(&[]).await.unwrap();
    let again = claim(&store, &jobs).await;
    assert_eq!((again[0].attempt, again[0].crashes), (1, 0), "once is enough");
    assert_eq!((again[1].attempt, again[1].crashes), (2, 1), "another job has its crash");
}

async fn only_the_run_that_is_named_is_pardoned(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let lost = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    let others = [
        LostRun { worker: "w2".into(), ..run_of(&lost) },
        LostRun { attempt: 2, ..run_of(&lost) },
        LostRun { job: job_of(id.event, "mail"), ..run_of(&lost) },
    ];
    store.pardon(&others).await.unwrap();
    assert_eq!(history(&store, &id).await[0].1, Some(FailureKind::Crash));
    let again = claim_one(&store, &id).await;
    assert_eq!((again.attempt, again.crashes), (2, 1));
}

async fn a_pardoned_dead_letter_is_pending_again(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 3).await;
    settle(&store, &claim_one(&store, &jobs[1]).await, dead()).await;
    let mut last = Vec::new();
    for _ in 0..3 {
        last = claim(&store, &[jobs[0].clone(), jobs[2].clone()]).await;
        lose_leases(&database, &store).await;
    }
    assert_eq!(state(&store, &jobs[0]).await, JobState::DeadLetter);
    store.pardon(&[run_of(&last[0]), LostRun { job: jobs[1].clone(), ..run_of(&last[0]) }]).await.unwrap();
    let back = job(&store, &jobs[0]).await;
    assert_eq!((back.state, back.attempts, back.reason), (JobState::Pending, 2, None));
    assert!(is_in(back.due_at, Duration::ZERO), "{}", back.due_at);
    assert_eq!(ready(&store).await, jobs[..1]);
    assert_eq!(history(&store, &jobs[0]).await[2], pardoned(3));
    let again = claim_one(&store, &jobs[0]).await;
    assert_eq!((again.attempt, again.crashes), (3, 2));
    for other in [&jobs[1], &jobs[2]] {
        assert_eq!(state(&store, other).await, JobState::DeadLetter);
    }
}

async fn a_pardon_does_not_disturb_the_run_that_came_after(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let lost = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    let (ledger, events) = (handler("ledger"), events_of(slice::from_ref(&id)));
    let holder = store.claim(&Claim { worker: "w2", ..wish(&ledger, &events) }).await.unwrap().remove(0);
    store.pardon(&[run_of(&lost)]).await.unwrap();
    let held = job(&store, &id).await;
    assert_eq!(held.state, JobState::Processing);
    assert!(is_in(held.due_at, LEASE), "{}", held.due_at);
    assert_eq!(store.renew(&[(id.clone(), holder.token)], LEASE).await.unwrap(), Renewed::default());
    settle(&store, &holder, failed()).await;
    let failed = job(&store, &id).await;
    assert_eq!((failed.state, failed.attempts), (JobState::Failed, 1), "the lost run is none of the attempts");
    let network = (2, Some(FailureKind::Network), Some("no route".into()));
    assert_eq!(history(&store, &id).await, [pardoned(1), network]);
}

async fn a_pardon_leaves_a_job_alone_that_is_done(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let lost = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    settle(&store, &claim_one(&store, &id).await, Outcome::Succeeded).await;
    let before = job(&store, &id).await;
    store.pardon(&[run_of(&lost)]).await.unwrap();
    assert_eq!(job(&store, &id).await, before);
    assert_eq!(before.state, JobState::Succeeded);
    assert_eq!(history(&store, &id).await, [pardoned(1), (2, None, None)]);
}

/// An operator's replay has begun to count anew: the pardon of a run before it must not take from the runs after it.
async fn a_late_pardon_takes_no_attempt_from_a_replayed_job(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    let lost = claim_one(&store, &id).await;
    lose_leases(&database, &store).await;
    database.execute("UPDATE jobs SET attempts = 0, crashes = 0", "UPDATE jobs SET attempts = 0, crashes = 0").await;
    let holder = claim_one(&store, &id).await;
    store.pardon(&[run_of(&lost)]).await.unwrap();
    store.hand_back(&[(id.clone(), holder.token)]).await.unwrap();
    assert_eq!(job(&store, &id).await.attempts, 0);
    assert_eq!(claim_one(&store, &id).await.attempt, 1);
}

/// The effect's transaction holds the job, and a renewal must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_renewing_passes_over_a_job_that_its_own_effect_holds() {
    let store = Database::postgres().open().await;
    let jobs = record_jobs(&store, 3).await;
    let claimed = claim(&store, &jobs).await;
    settle(&store, &claimed[2], Outcome::Succeeded).await;
    let begun = store.begin_effect(&effect(&claimed[0], "post")).await.unwrap();
    let held: Vec<_> = claimed.iter().map(|claimed| (claimed.job.clone(), claimed.token)).collect();
    let renewed = store.renew(&held, HOUR).await.unwrap();
    assert_eq!(renewed, Renewed { lost: jobs[2..].to_vec(), passed_over: jobs[..1].to_vec() });
    assert!(is_in(job(&store, &jobs[1]).await.due_at, HOUR));
    assert!(is_in(job(&store, &jobs[0]).await.due_at, LEASE));
    begun.transaction.commit(&effect(&claimed[0], "post"), None).await.unwrap();
    assert_eq!(store.renew(&held[..1], HOUR).await.unwrap(), Renewed::default());
    assert!(is_in(job(&store, &jobs[0]).await.due_at, HOUR));
}

/// Polls a verb a few times and then gives it up.
async fn give_up<T>(verb: impl Future<Output = T>, polls: usize) {
    tokio::select! {
        biased;
        _ = verb => {}
        () = async { for _ in 0..polls { tokio::task::yield_now().await } } => {}
    }
}

/// The caller of a verb may stop waiting at any moment.
async fn a_verb_that_is_given_up_leaves_the_store_usable(database: Database) {
    let store = database.open().await;
    let jobs = record_jobs(&store, 40).await;
    let (ledger, events) = (handler("ledger"), events_of(&jobs));
    for polls in 0..40 {
        give_up(store.claim(&wish(&ledger, &events[polls..=polls])), polls).await;
        give_up(store.sweep(&broom(slice::from_ref(&ledger))), polls).await;
        give_up(store.due_jobs(&DueJobs { handler: &ledger, after: None, limit: 10, ordering: None }), polls).await;
        give_up(store.body(events[polls], 1), polls).await;
        give_up(store.backlog(), polls).await;
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
    runs_that_the_store_spoilt_are_counted_until_one_ends_otherwise
    an_interrupted_run_neither_is_nor_clears_a_crash
    a_late_settlement_writes_nothing
    the_stale_in_a_batch_do_not_hinder_the_others
    more_jobs_than_fit_a_statement_are_claimed_and_settled_at_once
    a_message_is_cut_and_has_no_nul
    renewing_moves_the_end_of_the_lease_and_names_the_lost
    what_is_handed_back_is_as_before_and_due_at_once
    a_verb_that_is_given_up_leaves_the_store_usable
    a_large_body_is_fetched_apart_from_the_claim
    a_pardon_undoes_a_crash
    only_the_run_that_is_named_is_pardoned
    a_pardoned_dead_letter_is_pending_again
    a_pardon_does_not_disturb_the_run_that_came_after
    a_pardon_leaves_a_job_alone_that_is_done
    a_late_pardon_takes_no_attempt_from_a_replayed_job
}
