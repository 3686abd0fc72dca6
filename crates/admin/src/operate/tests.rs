//! Acts on a real store.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod gone;
mod ordering;

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    Action, Claim, Config, EffectKey, EffectKind, Filter, Found, Migrate, NewJob, Resolution, Routed, Settlement,
    Store, Token, Which, open,
};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{
    Arrival, Event, EventId, FailureKind, Ordering, Priority, RequestId, Secret, Secrets, SourceName, Subscription,
    verify,
};
use tokio_util::sync::CancellationToken;

use super::*;

struct World {
    store: Arc<dyn Store>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            parallel_batches: 1,
            worker_connections: 1,
            dispatch_grace: Duration::from_secs(60),
            ..Config::new(format!("sqlite:{}", folder.path().join("test.db").display()).parse().unwrap())
        };
        Self { store: open(&config, Migrate::Run).await.unwrap(), _folder: folder }
    }

    /// Events of one type, each with a job for each of the handlers.
    async fn record(&self, event_type: &str, count: usize, handlers: &[&str]) -> Vec<EventId> {
        let job = |handler: &&str| NewJob { handler: name(handler), priority: Priority::High, ordering_key: None };
        let routed: Vec<_> = (0..count)
            .map(|number| Routed {
                event: event(&format!("{event_type}-{number}"), event_type),
                jobs: handlers.iter().map(job).collect(),
            })
            .collect();
        self.store.record(&routed).await.unwrap();
        routed.iter().map(|routed| routed.event.id()).collect()
    }

    /// Like `record`, and then all the jobs die.
    async fn dead(&self, event_type: &str, count: usize, handlers: &[&str]) -> Vec<EventId> {
        let events = self.record(event_type, count, handlers).await;
        for handler in handlers {
            self.settle(
                handler,
                &events,
                hookfast_store::Outcome::Dead { kind: FailureKind::Timeout, message: "too slow".into() },
            )
            .await;
        }
        events
    }

    async fn settle(&self, handler: &str, events: &[EventId], outcome: hookfast_store::Outcome) {
        let settlement = |claimed: hookfast_store::Claimed| Settlement {
            job: claimed.job,
            token: claimed.token,
            attempt: claimed.attempt,
            started_at: OffsetDateTime::now_utc(),
            duration: Duration::from_millis(1),
            worker: "test".into(),
            outcome: outcome.clone(),
        };
        let claimed = self.claim(handler, events).await;
        assert_eq!(claimed.len(), events.len());
        self.store.settle(&claimed.into_iter().map(settlement).collect::<Vec<_>>()).await.unwrap();
    }

    async fn claim(&self, handler: &str, events: &[EventId]) -> Vec<hookfast_store::Claimed> {
        let claim = Claim {
            handler: &name(handler),
            events,
            worker: "test",
            token: Token::new(),
            lease: Duration::from_secs(60),
            ordering: None,
            crashes_below: None,
        };
        self.store.claim(&claim).await.unwrap()
    }

    /// The states of an event's jobs, by handler.
    async fn states(&self, event: EventId) -> Vec<String> {
        let jobs = self.store.jobs_of(event).await.unwrap();
        jobs.into_iter().map(|job| format!("{} {}", job.handler, job.state)).collect()
    }

    async fn replay(&self, replay: &Replay) -> Result<Outcome, ActError> {
        super::replay(&*self.store, replay, &handlers(), |_| {}, &CancellationToken::new()).await
    }

    /// Replays until this many steps are done, and returns the id of the audit row.
    async fn interrupted(&self, replay: &Replay, steps: usize) -> Uuid {
        let (stop, mut done) = (CancellationToken::new(), 0);
        let count = |_| {
            done += 1;
            if done == steps {
                stop.cancel();
            }
        };
        let outcome = super::replay(&*self.store, replay, &handlers(), count, &stop).await.unwrap();
        assert!(!outcome.is_done);
        outcome.audit
    }

    async fn resume(&self, audit: Uuid) -> Result<Outcome, ActError> {
        resume(&*self.store, audit, None, &handlers(), |_| {}, &CancellationToken::new()).await
    }

    async fn count(&self, which: Which) -> u64 {
        self.store.count(which, &Filter::default()).await.unwrap()
    }
}

fn name(text: &str) -> HandlerName {
    HandlerName::new(text).unwrap()
}

fn event(id: &str, event_type: &str) -> Event {
    let body = format!(r#"{{"id":"{id}","type":"{event_type}","created":1759999996,"account":"acct_1"}}"#);
    let secret = Secret::new("whsec_admin").unwrap();
    let now = OffsetDateTime::from_unix_timestamp(1_760_000_000).unwrap();
    let request = sign("https://h.example/webhooks/stripe", &secret, now.unix_timestamp(), body);
    let stripe = Stripe::new(&Default::default());
    let genuine = verify(&stripe, request, &Secrets::new(vec![secret]), now).unwrap();
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new("stripe").unwrap(),
        remote_address: "2001:db8::7".parse().unwrap(),
        received_at: now,
        trace_id: None,
    };
    genuine.genuine().expect("no handshake").read(&stripe, arrival).0.remove(0)
}

/// `ledger` wants invoices, `mail` wants everything, `stock` wants charges and orders them by the length of the body.
fn handlers() -> Targets {
    let handler = |handler: &str, interest: &str, ordering| {
        let interests = vec![interest.parse().unwrap()];
        Subscription { handler: name(handler), interests, ordering, priority: None }
    };
    Targets::new([
        handler("ledger", "stripe/invoice.*", Ordering::None),
        handler("mail", "*/*", Ordering::PerAccount),
        handler("stock", "stripe/charge.*", Ordering::Computed(Arc::new(|body| Some(body.len().to_string())))),
    ])
}

fn all(which: Which) -> Replay {
    Replay {
        selection: Selection { which, filter: Filter::default(), onto: None, limit: None },
        who: "ann@desk".into(),
        why: None,
        force_effects: false,
        rate: None,
        batch: BATCH_MAX,
    }
}

fn onto(which: Which, handler: &str) -> Replay {
    let mut replay = all(which);
    replay.selection.onto = Some(name(handler));
    replay
}

#[tokio::test]
async fn dead_letters_are_replayed_for_their_own_handlers_and_the_audit_says_by_whom() {
    let world = World::new().await;
    let events = world.dead("invoice.paid", 3, &["ledger", "mail"]).await;
    let outcome =
        world.replay(&Replay { why: Some("the bank is back".into()), ..all(Which::DeadLetters) }).await.unwrap();
    assert_eq!(outcome.progress, Progress { found: 6, changed: 6, skipped: 0 });
    assert!(outcome.is_done);
    for event in events {
        assert_eq!(world.states(event).await, ["ledger pending", "mail pending"]);
    }
    let audit = world.store.audit(outcome.audit).await.unwrap().unwrap();
    assert_eq!((audit.who.as_str(), audit.action, audit.jobs, audit.is_done), ("ann@desk", Action::Replay, 6, true));
    assert_eq!(audit.why.as_deref(), Some("the bank is back"));
    assert_eq!(without_moment(&audit.filter), r#"{"selection":{"which":"dead_letters"}}"#);
}

/// The filter of an audit row without its moment, which must be there.
fn without_moment(filter: &str) -> String {
    let (before, rest) = filter.split_once(r#","as_of":""#).expect("the moment is noted");
    let (_, rest) = rest.split_once(r#"","last_event":""#).expect("the last event is noted");
    let (_, after) = rest.split_once('"').unwrap();
    format!("{before}{after}")
}

#[tokio::test]
async fn what_ends_after_the_preview_is_neither_replayed_nor_resolved() {
    let world = World::new().await;
    let letters = world.dead("invoice.paid", 3, &["ledger"]).await;
    let waiting = world.record("invoice.sent", 2, &["ledger"]).await;
    let succeeded = hookfast_store::Outcome::Succeeded;
    let selection = all(Which::Finished).selection.as_of_now(&*world.store).await.unwrap();
    assert_eq!(preview(&*world.store, &selection, |_| true, 0).await.unwrap().count, Count::Exactly(3));
    world.settle("ledger", &waiting, succeeded.clone()).await;
    let late = world.dead("charge.refunded", 2, &["ledger"]).await;
    let outcome = world.replay(&Replay { selection: selection.clone(), ..all(Which::Finished) }).await.unwrap();
    assert_eq!((outcome.progress.found, outcome.progress.changed), (3, 3));
    assert_eq!(world.states(late[0]).await, ["ledger dead_letter"]);

    world
        .settle("ledger", &letters, hookfast_store::Outcome::Dead { kind: FailureKind::Timeout, message: "".into() })
        .await;
    let outcome = resolve(&*world.store, &ignore(selection.filter), |_| {}).await.unwrap();
    assert_eq!(outcome.progress.changed, 0, "all of them died after the preview");
    assert_eq!(world.count(Which::DeadLetters).await, 5);
}

#[tokio::test]
async fn a_replay_beside_traffic_comes_to_its_end_and_touches_none_of_it() {
    let world = Arc::new(World::new().await);
    let old = world.record("invoice.paid", 6, &["ledger"]).await;
    world.settle("ledger", &old, hookfast_store::Outcome::Succeeded).await;
    let enough = CancellationToken::new();
    let traffic = {
        let (world, enough) = (Arc::clone(&world), enough.clone());
        tokio::spawn(async move {
            // Runs at least once after the replay has ended.
            let mut rounds = 0;
            loop {
                let is_last = enough.is_cancelled();
                let events = world.record(&format!("charge.{rounds}"), 2, &["ledger"]).await;
                world.settle("ledger", &events, hookfast_store::Outcome::Succeeded).await;
                rounds += 1;
                if is_last {
                    return;
                }
            }
        })
    };
    let paced = Replay { rate: Some(20.0), batch: 1, ..all(Which::Succeeded) };
    let outcome = world.replay(&paced).await.unwrap();
    enough.cancel();
    traffic.await.unwrap();
    assert!(outcome.is_done && outcome.progress.changed >= 6, "{outcome:?}");
    let audit = world.store.audit(outcome.audit).await.unwrap().unwrap();
    let noted: serde_json::Value = serde_json::from_str(&audit.filter).unwrap();
    let last: Uuid = noted["selection"]["last_event"].as_str().unwrap().parse().unwrap();
    let events = world.store.latest_events(u32::MAX).await.unwrap();
    let (later, selected): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.id.0 > last);
    assert!(!later.is_empty() && outcome.progress.changed <= selected.len() as u64, "{outcome:?}");
    for event in later {
        assert_eq!(world.states(event.id).await, ["ledger succeeded"]);
    }
}

#[tokio::test]
async fn a_resumed_replay_keeps_to_the_moment_of_its_preview() {
    let world = World::new().await;
    world.dead("invoice.paid", 4, &["ledger"]).await;
    let audit = world.interrupted(&Replay { batch: 1, ..all(Which::DeadLetters) }, 1).await;
    world.dead("charge.refunded", 3, &["ledger"]).await;
    assert_eq!(world.resume(audit).await.unwrap().progress.changed, 3);
    assert_eq!(world.count(Which::DeadLetters).await, 3);
}

/// Earlier versions stored no moment.
#[tokio::test]
async fn a_replay_that_noted_no_moment_keeps_to_when_it_began() {
    let world = World::new().await;
    world.dead("invoice.paid", 2, &["ledger"]).await;
    let what = serde_json::json!({"selection": {"which": "finished"}});
    let audit = begin(&*world.store, Action::Replay, "ann", None, &what).await.unwrap();
    world.dead("charge.refunded", 3, &["ledger"]).await;
    assert_eq!(world.resume(audit).await.unwrap().progress.changed, 2);
}

#[tokio::test]
async fn an_interrupted_replay_goes_on_after_its_last_step_and_does_nothing_twice() {
    let world = World::new().await;
    let events = world.dead("invoice.paid", 7, &["ledger", "mail"]).await;
    // A step is two jobs, so one event.
    let audit = world.interrupted(&Replay { batch: 2, ..all(Which::Finished) }, 3).await;
    assert_eq!(world.count(Which::DeadLetters).await, 8);
    assert_eq!(world.store.audit(audit).await.unwrap().unwrap().next_after, Some(events[2]));

    // The replayed jobs have succeeded by now, so a new search would find them again.
    for handler in ["ledger", "mail"] {
        world.settle(handler, &events[..3], hookfast_store::Outcome::Succeeded).await;
    }
    let outcome = world.resume(audit).await.unwrap();
    assert_eq!((outcome.audit, outcome.progress.changed, outcome.is_done), (audit, 8, true));
    assert_eq!(world.count(Which::Succeeded).await, 6);
    assert_eq!(world.count(Which::DeadLetters).await, 0);
    let audit = world.store.audit(audit).await.unwrap().unwrap();
    assert_eq!((audit.jobs, audit.is_done), (14, true));
}

#[tokio::test]
async fn a_replay_that_is_told_to_stop_before_it_begins_has_changed_nothing_and_can_be_resumed() {
    let world = World::new().await;
    world.dead("invoice.paid", 3, &["ledger"]).await;
    let stop = CancellationToken::new();
    stop.cancel();
    let outcome = replay(&*world.store, &all(Which::DeadLetters), &handlers(), |_| {}, &stop).await.unwrap();
    assert_eq!((outcome.progress, outcome.is_done), (Progress::default(), false));
    assert_eq!(world.resume(outcome.audit).await.unwrap().progress.changed, 3);
}

#[tokio::test]
async fn only_an_unfinished_replay_can_be_resumed() {
    let world = World::new().await;
    world.dead("invoice.paid", 2, &["ledger"]).await;
    let unknown = Uuid::now_v7();
    assert!(matches!(world.resume(unknown).await, Err(ActError::NoAct(id)) if id == unknown));
    let replayed = world.replay(&all(Which::DeadLetters)).await.unwrap().audit;
    assert!(matches!(world.resume(replayed).await, Err(ActError::NotResumable(..))));
    let resolved = resolve(&*world.store, &ignore(Filter::default()), |_| {}).await.unwrap().audit;
    assert!(matches!(world.resume(resolved).await, Err(ActError::NotResumable(..))));
}

#[tokio::test]
async fn a_limit_holds_over_an_interruption_and_within_an_event() {
    let world = World::new().await;
    world.dead("invoice.paid", 4, &["ledger", "mail"]).await;
    let mut limited = Replay { batch: 1, ..all(Which::DeadLetters) };
    limited.selection.limit = Some(5);
    let audit = world.interrupted(&limited, 1).await;
    assert_eq!(world.count(Which::DeadLetters).await, 6);
    let outcome = world.resume(audit).await.unwrap();
    assert!(outcome.is_done);
    assert_eq!(world.count(Which::DeadLetters).await, 3);
    assert_eq!(world.store.audit(audit).await.unwrap().unwrap().jobs, 5);
}

#[tokio::test]
async fn unhandled_events_are_given_to_a_handler_as_far_as_it_wants_them() {
    let world = World::new().await;
    let invoices = world.record("invoice.paid", 3, &[]).await;
    let charges = world.record("charge.refunded", 2, &[]).await;
    assert!(matches!(world.replay(&all(Which::Unhandled)).await, Err(ActError::NoTarget)));
    let outcome = world.replay(&Replay { batch: 2, ..onto(Which::Unhandled, "ledger") }).await.unwrap();
    assert_eq!(outcome.progress, Progress { found: 5, changed: 3, skipped: 2 });
    assert_eq!(world.states(invoices[0]).await, ["ledger pending"]);
    assert_eq!(world.states(charges[0]).await, [""; 0]);
}

#[tokio::test]
async fn an_interrupted_replay_of_unhandled_events_goes_on_where_it_was() {
    let world = World::new().await;
    let charges = world.record("charge.refunded", 4, &[]).await;
    let events = world.record("invoice.paid", 4, &[]).await;
    // The handler does not want the first four, so a new search would find them again.
    let audit = world.interrupted(&Replay { batch: 3, ..onto(Which::Unhandled, "ledger") }, 2).await;
    let rest = world.resume(audit).await.unwrap();
    assert_eq!(rest.progress, Progress { found: 2, changed: 2, skipped: 0 });
    assert_eq!(world.states(events[3]).await, ["ledger pending"]);
    assert_eq!(world.states(charges[3]).await, [""; 0]);
}

#[tokio::test]
async fn the_jobs_of_one_handler_can_be_given_to_another_which_keeps_its_own_order() {
    let world = World::new().await;
    let charges = world.dead("charge.refunded", 2, &["ledger", "mail"]).await;
    let outcome = world.replay(&onto(Which::DeadLetters, "stock")).await.unwrap();
    // Two dead letters of an event are one job for the other handler.
    assert_eq!(outcome.progress, Progress { found: 4, changed: 2, skipped: 0 });
    assert_eq!(world.states(charges[0]).await, ["ledger dead_letter", "mail dead_letter", "stock pending"]);

    world.settle("stock", &charges, hookfast_store::Outcome::Succeeded).await;
    let stock = Filter { handler: Some("stock".into()), ..Filter::default() };
    let found = world.store.find(Which::Succeeded, &stock, None, 9).await.unwrap();
    let body = world.store.event(charges[0]).await.unwrap().unwrap().body;
    let seen: Vec<_> = found.iter().map(|found| (found.priority, found.ordering_key.clone())).collect();
    assert_eq!(seen, vec![(Priority::High, Some(body.len().to_string())); 2]);

    world.replay(&onto(Which::Succeeded, "mail")).await.unwrap();
    assert_eq!(world.states(charges[0]).await, ["ledger dead_letter", "mail pending", "stock succeeded"]);
}

#[tokio::test]
async fn a_handler_that_is_not_there_gets_nothing() {
    let world = World::new().await;
    world.dead("invoice.paid", 2, &["gone"]).await;
    let error = world.replay(&onto(Which::DeadLetters, "gone")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no handler `gone`; there is: ledger, mail, stock");
    assert_eq!(world.store.latest_audits(9).await.unwrap(), []);
    let outcome = world.replay(&all(Which::DeadLetters)).await.unwrap();
    assert_eq!(outcome.progress, Progress { found: 2, changed: 0, skipped: 2 });
    assert_eq!(world.count(Which::DeadLetters).await, 2);
}

#[tokio::test]
async fn effects_are_forgotten_only_by_force_and_force_needs_a_reason() {
    let world = World::new().await;
    let events = world.record("invoice.paid", 1, &["ledger"]).await;
    let claimed = world.claim("ledger", &events).await.remove(0);
    let key = EffectKey { job: &claimed.job, token: claimed.token, key: "post", kind: EffectKind::Own };
    world.store.begin_effect(&key).await.unwrap().transaction.commit(&key, None).await.unwrap();
    world.store.hand_back(&[(claimed.job.clone(), claimed.token)]).await.unwrap();
    world.settle("ledger", &events, hookfast_store::Outcome::Succeeded).await;

    let effects = async || world.store.effects(events[0]).await.unwrap().values().flatten().count();
    world.replay(&all(Which::Succeeded)).await.unwrap();
    assert_eq!(effects().await, 1);
    world.settle("ledger", &events, hookfast_store::Outcome::Succeeded).await;

    let forced = Replay { force_effects: true, why: Some(" ".into()), ..all(Which::Succeeded) };
    assert!(matches!(world.replay(&forced).await, Err(ActError::NoReason(_))));
    let outcome = world.replay(&Replay { why: Some("posted to the wrong year".into()), ..forced }).await.unwrap();
    assert_eq!(effects().await, 0);
    let audit = world.store.audit(outcome.audit).await.unwrap().unwrap();
    assert_eq!(without_moment(&audit.filter), r#"{"selection":{"which":"succeeded"},"force_effects":true}"#);
}

#[tokio::test]
async fn a_paced_replay_comes_to_its_end_and_its_pace_is_remembered() {
    let world = World::new().await;
    world.dead("invoice.paid", 9, &["ledger"]).await;
    let paced = Replay { rate: Some(1000.0), batch: 2, ..all(Which::DeadLetters) };
    let audit = world.interrupted(&paced, 2).await;
    let (_, unfinished) = unfinished(&*world.store, audit).await.unwrap();
    assert_eq!(unfinished.rate, Some(1000.0));
    assert_eq!(world.resume(audit).await.unwrap().progress.changed, 5);
}

#[tokio::test]
async fn more_jobs_than_a_step_can_take_are_all_replayed() {
    let world = World::new().await;
    world.dead("invoice.paid", 250, &["ledger", "mail"]).await;
    let outcome = world.replay(&all(Which::DeadLetters)).await.unwrap();
    assert_eq!(outcome.progress.changed, 500);
    assert_eq!(world.count(Which::DeadLetters).await, 0);
}

fn ignore(filter: Filter) -> Resolve {
    let (who, why) = ("ann@desk".into(), "test data".into());
    Resolve { filter, limit: None, resolution: Resolution::Ignored, who, why }
}

#[tokio::test]
async fn dead_letters_are_resolved_with_a_reason_and_others_are_left_alone() {
    let world = World::new().await;
    let events = world.dead("invoice.paid", 3, &["ledger"]).await;
    world.dead("charge.refunded", 2, &["ledger"]).await;
    let invoices = Filter { event_type: Some("invoice.*".into()), ..Filter::default() };
    let no_reason = Resolve { why: String::new(), ..ignore(invoices.clone()) };
    assert!(matches!(resolve(&*world.store, &no_reason, |_| {}).await, Err(ActError::NoReason(_))));

    let outcome = resolve(&*world.store, &ignore(invoices), |_| {}).await.unwrap();
    assert_eq!((outcome.progress.changed, outcome.is_done), (3, true));
    assert_eq!(world.states(events[0]).await, ["ledger resolved"]);
    assert_eq!(world.count(Which::DeadLetters).await, 2);
    let audit = world.store.audit(outcome.audit).await.unwrap().unwrap();
    let noted = r#"{"selection":{"which":"dead_letters","type":"invoice.*"},"resolution":"ignored"}"#;
    assert_eq!(without_moment(&audit.filter), noted);
    assert_eq!((audit.jobs, audit.is_done), (3, true));
}

#[tokio::test]
async fn resolving_stops_at_its_limit() {
    let world = World::new().await;
    world.dead("invoice.paid", 5, &["ledger"]).await;
    let limited = Resolve { limit: Some(2), ..ignore(Filter::default()) };
    let outcome = resolve(&*world.store, &limited, |_| {}).await.unwrap();
    assert_eq!((outcome.progress.changed, outcome.is_done), (2, true));
    assert_eq!(world.count(Which::DeadLetters).await, 3);
}

#[tokio::test]
async fn a_preview_counts_and_changes_nothing() {
    let world = World::new().await;
    world.dead("invoice.paid", 3, &["ledger", "gone"]).await;
    world.dead("charge.refunded", 1, &["mail"]).await;
    let mut selection = all(Which::DeadLetters).selection;
    let wants = |found: &Found| handlers().want(None, found);
    let seen = preview(&*world.store, &selection, wants, 2).await.unwrap();
    assert_eq!((seen.count, seen.looked_at, seen.skipped, seen.sample.len()), (Count::Exactly(7), 7, 3, 2));
    let numbers = |tally: std::collections::BTreeMap<String, u64>| tally.into_iter().collect::<Vec<_>>();
    assert_eq!(numbers(seen.by_handler), [("ledger".into(), 3), ("mail".into(), 1)]);
    assert_eq!(numbers(seen.by_reason), [("timeout".into(), 4)]);
    assert_eq!(numbers(seen.by_type), [("charge.refunded".into(), 1), ("invoice.paid".into(), 3)]);

    selection.limit = Some(2);
    assert_eq!(preview(&*world.store, &selection, wants, 9).await.unwrap().count, Count::Exactly(2));
    assert_eq!(world.count(Which::DeadLetters).await, 7);
    assert_eq!(world.store.latest_audits(9).await.unwrap(), []);
    assert_eq!(world.store.attempts(seen.sample[0].event).await.unwrap()["ledger"].len(), 1);
}
