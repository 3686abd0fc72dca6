//! What operators decide about jobs, and what jobs and events are found by.

use std::slice;
use std::time::Duration;

use hookfast_store::{Act, Action, Filter, Outcome, Resolution, Step, Which};
use hookfast_webhook::{JobState, Priority};

use crate::database::{
    Database, claim_one, dead, event, is_in, job, job_of, new_job, record_jobs, resolution, routed, settle,
    settled_job, tagged,
};
use crate::operate::{act, again, audit, find, jobs, replay};

async fn a_resolved_job_keeps_why_and_when_it_died(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, dead()).await;
    let letter = job(&store, &id).await;
    let noted = audit(Action::Resolve);
    store.begin_act(&noted).await.unwrap();
    let act = Act::Resolve { jobs: slice::from_ref(&id), resolution: Resolution::ManualFix };
    let step = Step { audit: noted.id, act, next_after: None, is_last: true, as_of: None };
    assert_eq!(store.act(&step).await.unwrap(), 1);

    let resolved = job(&store, &id).await;
    assert_eq!(resolved.state, JobState::Resolved);
    assert_eq!((resolved.reason.as_deref(), resolved.finished_at), (Some("refused"), letter.finished_at));
    let review = resolved.review.expect("an operator decided");
    assert_eq!((review.resolution, review.audit), (Resolution::ManualFix, Some(noted.id)));
    assert_eq!((review.by, review.note), (Some(noted.who), noted.why));
    assert!(is_in(review.at, Duration::ZERO));
    let found = find(&store, Which::Finished, &Filter::default()).await.remove(0);
    assert_eq!(found.review.map(|review| review.audit), Some(Some(noted.id)));
}

async fn a_resolved_job_can_be_reopened_and_is_the_dead_letter_it_was(database: Database) {
    let store = database.open().await;
    let (id, waiting) = (settled_job(&store, dead()).await, record_jobs(&store, 1).await.remove(0));
    let letter = job(&store, &id).await;
    act(&store, Act::Resolve { jobs: slice::from_ref(&id), resolution: Resolution::Ignored }).await;
    let moved = [(waiting.clone(), new_job("mail"))];
    assert_eq!(act(&store, Act::Move { jobs: &moved }).await, 1);
    assert_eq!(act(&store, Act::Reopen { jobs: &[id.clone(), waiting.clone()] }).await, 1, "what was moved stays");
    assert_eq!(job(&store, &id).await, letter);
    assert_eq!(act(&store, Act::Reopen { jobs: slice::from_ref(&id) }).await, 0, "it is done once");
}

async fn a_replayed_dead_letter_says_that_it_was_retried(database: Database) {
    let store = database.open().await;
    let (id, done) = (settled_job(&store, dead()).await, settled_job(&store, Outcome::Succeeded).await);
    assert_eq!(act(&store, replay(&[again(&id), again(&done)])).await, 2);
    let retried = job(&store, &id).await;
    assert_eq!((retried.state, resolution(&retried)), (JobState::Pending, Some(Resolution::Retried)));
    assert_eq!(retried.review.and_then(|review| review.by).as_deref(), Some("ann@example.com"));
    assert_eq!(job(&store, &done).await.review, None, "it had not died");
}

/// The time of death is older than the moment of a preview, but the review is not.
async fn what_was_resolved_after_a_moment_is_not_replayed_as_of_then(database: Database) {
    let store = database.open().await;
    let id = settled_job(&store, dead()).await;
    let moment = store.moment().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    act(&store, Act::Resolve { jobs: slice::from_ref(&id), resolution: Resolution::Ignored }).await;
    let noted = audit(Action::Replay);
    store.begin_act(&noted).await.unwrap();
    let wanted = [again(&id)];
    let step = Step { audit: noted.id, act: replay(&wanted), next_after: None, is_last: true, as_of: Some(moment.at) };
    assert_eq!(store.act(&step).await.unwrap(), 0);
    let then = Filter { as_of: Some(moment), ..Filter::default() };
    assert_eq!(find(&store, Which::Finished, &then).await, []);
}

async fn an_event_without_a_handler_keeps_its_priority(database: Database) {
    let store = database.open().await;
    store.record(&[routed(tagged("evt_1"), &[]), routed(event("stripe", "evt_2"), &[])]).await.unwrap();
    let found = find(&store, Which::Unhandled, &Filter::default()).await;
    assert_eq!(found.iter().map(|found| found.priority).collect::<Vec<_>>(), [Priority::High, Priority::Normal]);
}

async fn jobs_are_found_by_what_their_events_say_and_when_they_died(database: Database) {
    let store = database.open().await;
    let vip = routed(tagged("evt_vip"), &["ledger"]);
    store.record(slice::from_ref(&vip)).await.unwrap();
    let vip = job_of(vip.event.id(), "ledger");
    let other = record_jobs(&store, 1).await.remove(0);
    // The later event dies first.
    for id in [&other, &vip] {
        settle(&store, &claim_one(&store, id).await, dead()).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let died = job(&store, &vip).await.finished_at;
    let some = |text: &str| Some(text.to_owned());
    let (all, high) = (Filter::default(), Some(Priority::High));
    for (filter, finds) in [
        (Filter { key: some("evt_vip"), ..all.clone() }, slice::from_ref(&vip)),
        (Filter { key: some("evt_none"), ..all.clone() }, &[]),
        (Filter { object_id: some("in_1"), tag: some("vip"), ..all.clone() }, slice::from_ref(&vip)),
        (Filter { tag: some("vi"), ..all.clone() }, &[]),
        (Filter { priority: high, ..all.clone() }, &[]),
        (Filter { died_since: died, ..all.clone() }, slice::from_ref(&vip)),
        (Filter { died_until: died, ..all.clone() }, slice::from_ref(&other)),
    ] {
        assert_eq!(jobs(&find(&store, Which::DeadLetters, &filter).await), finds, "{filter:?}");
        assert_eq!(store.count(Which::DeadLetters, &filter).await.unwrap(), finds.len() as u64, "{filter:?}");
    }
    let newest = store.find_newest(Which::DeadLetters, &all, 9).await.unwrap();
    assert_eq!(jobs(&newest), [vip.clone(), other], "the last one to die comes first");

    act(&store, Act::Resolve { jobs: slice::from_ref(&vip), resolution: Resolution::Ignored }).await;
    for (resolution, finds) in [(Resolution::Ignored, slice::from_ref(&vip)), (Resolution::ManualFix, &[])] {
        let filter = Filter { resolution: Some(resolution), ..all.clone() };
        assert_eq!(jobs(&find(&store, Which::Finished, &filter).await), finds);
    }
    let filter = Filter { priority: high, ..all };
    store.record(&[routed(tagged("evt_2"), &[])]).await.unwrap();
    assert_eq!(find(&store, Which::Unhandled, &filter).await.len(), 1);
}

on_both! {
    a_resolved_job_keeps_why_and_when_it_died
    a_resolved_job_can_be_reopened_and_is_the_dead_letter_it_was
    a_replayed_dead_letter_says_that_it_was_retried
    what_was_resolved_after_a_moment_is_not_replayed_as_of_then
    an_event_without_a_handler_keeps_its_priority
    jobs_are_found_by_what_their_events_say_and_when_they_died
}
