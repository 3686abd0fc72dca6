//! A ledger that overlooks something would make every experiment worthless.

use super::held::{HeldEvent, hex};
use super::*;

/// Events with one key, sent and promised one after the other.
fn ledger(ids: &[&str]) -> Ledger {
    let mut ledger = Ledger::default();
    for id in ids {
        let event = TestEvent { ordering: Some("key".into()), ..TestEvent::new(id, "{}") };
        ledger.note(&event, Instant::now(), Ok(Answer { status: 200, headers: vec![], body: vec![] }));
    }
    ledger
}

/// A store that holds these events as they should be, done in this order.
fn held(ids: &[&str]) -> Held {
    let mut held = Held::default();
    for (place, id) in ids.iter().enumerate() {
        let event = HeldEvent { body: hex(&TestEvent::new(id, "{}").body), resends: 0 };
        held.events.entry((*id).into()).or_default().push(event);
        held.jobs.insert(((*id).into(), "actor".into()), "succeeded".into());
        held.done.entry((*id).into()).or_default().insert("effect-0".into(), vec![place]);
    }
    held
}

/// What is wrong with two events after this was done to the store.
fn broken_by(break_it: impl FnOnce(&mut Held)) -> Vec<String> {
    let mut held = held(&["evt_1", "evt_2"]);
    break_it(&mut held);
    ledger(&["evt_1", "evt_2"]).broken(&held)
}

#[test]
fn a_store_that_holds_what_was_promised_breaks_nothing() {
    assert_eq!(broken_by(|_| ()), [""; 0]);
}

#[test]
fn a_lost_event_is_noticed_if_it_was_promised() {
    let lose = |held: &mut Held| {
        held.events.remove("evt_1");
    };
    assert_eq!(broken_by(lose), ["evt_1 was promised and is lost"]);
    let mut ledger = Ledger::default();
    ledger.note(&TestEvent::new("evt_1", "{}"), Instant::now(), Err(io::ErrorKind::TimedOut.into()));
    assert_eq!((ledger.broken(&Held::default()), ledger.in_vain()), (vec![], 1));
}

#[test]
fn an_event_that_is_there_twice_or_changed_or_was_never_sent_is_noticed() {
    let double = |held: &mut Held| {
        let copy = self::held(&["evt_1"]).events.remove("evt_1").unwrap();
        held.events.get_mut("evt_1").unwrap().extend(copy);
    };
    assert_eq!(broken_by(double), ["evt_1 was recorded 2 times"]);
    let change = |held: &mut Held| held.events.get_mut("evt_1").unwrap()[0].body = "00".into();
    assert_eq!(broken_by(change), ["evt_1 was changed: 00"]);
    let add = |held: &mut Held| held.events.extend(self::held(&["evt_3"]).events);
    assert_eq!(broken_by(add), ["evt_3 was recorded and never sent"]);
    let count = |held: &mut Held| held.events.get_mut("evt_1").unwrap()[0].resends = 1;
    assert_eq!(broken_by(count), ["evt_1 has 1 resends after 1 promises, 1 requests"]);
}

#[test]
fn a_job_or_effect_that_is_not_as_it_should_be_is_noticed() {
    let fail = |held: &mut Held| drop(held.jobs.insert(("evt_1".into(), "actor".into()), "failed".into()));
    assert_eq!(broken_by(fail), ["the job of evt_1 is failed and not succeeded"]);
    let undo = |held: &mut Held| drop(held.done.remove("evt_1"));
    assert_eq!(broken_by(undo), ["evt_1 has 0 effects and not 1"]);
    let double = |held: &mut Held| held.done.get_mut("evt_1").unwrap().get_mut("effect-0").unwrap().push(0);
    assert_eq!(broken_by(double), ["effect-0 of evt_1 is there 2 times"]);
}

#[test]
fn events_that_are_done_in_another_order_or_at_the_same_time_are_noticed() {
    let place = |id: &'static str, place| {
        move |held: &mut Held| held.done.get_mut(id).unwrap().get_mut("effect-0").unwrap()[0] = place
    };
    assert_eq!(broken_by(place("evt_1", 2)), ["not in order: evt_1 was done after evt_2"]);
    assert_eq!(broken_by(place("evt_1", 1)), ["not in order: evt_2 was done beside evt_1"]);
}

#[test]
fn a_refusal_that_does_not_say_when_to_come_again_is_noticed() {
    let mut ledger = Ledger::default();
    for (status, headers) in [(503, vec![("retry-after".into(), "1".into())]), (500, vec![])] {
        let answer = Answer { status, headers, body: b"why".to_vec() };
        assert!(!ledger.note(&TestEvent::new("evt_1", "{}"), Instant::now(), Ok(answer)));
    }
    assert_eq!(ledger.wrong_answers(), ["a sender was answered 500: why"]);
}
