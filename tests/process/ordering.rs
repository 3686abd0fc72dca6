//! Events with one key are handled one at a time and in the order they came, and do not delay other events.

use std::fs;
use std::time::Duration;

use hookfast_harness::{Rig, TestEvent, eventually, eventually_within};

use crate::{On, rig, send};

on_all! {
    a_thousand_events_with_one_key_come_out_in_order_whatever_fails
    a_dead_letter_blocks_its_key_if_it_shall
    behind_a_dead_letter_that_is_replayed_its_key_goes_on_in_order
    behind_a_dead_letter_a_strict_order_waits_for_a_replay_or_a_decision
    without_an_order_nothing_waits
    events_of_one_account_wait_for_each_other
    events_of_one_type_wait_for_each_other
    events_with_one_computed_key_wait_for_each_other
}

/// Events with the key, of which some fail once.
const EVENTS: usize = 1000;

/// Events with a key of their own, which come in between.
const OTHERS: usize = 100;

fn a_thousand_events_with_one_key_come_out_in_order_whatever_fails(on: On) {
    let rig = rig(on, "retry = [\"1s\", \"1s\", \"1s\"]\nordering = \"computed\"\njitter = 0.0");
    let mut client = rig.gateway().client();
    // A head that is held up, so that the others have something to be held up by.
    send(&mut client, "evt_head", r#"{"key":"one","sleep_ms":3000}"#);
    let mut chance = fastrand::Rng::with_seed(7);
    for number in 0..EVENTS {
        let fail_times = u32::from(chance.u32(0..100) == 0);
        send(&mut client, &format!("evt_{number:04}"), &format!(r#"{{"key":"one","fail_times":{fail_times}}}"#));
        if number % (EVENTS / OTHERS) == 0 {
            send(&mut client, &format!("free_{number:04}"), &format!(r#"{{"key":"free-{number}"}}"#));
        }
    }
    let done = |what: &str| rig.count(&format!("done WHERE event LIKE '{what}%'"));
    eventually("the others are not held up", || done("free_") == OTHERS);
    assert!(done("evt_") < EVENTS, "the key is still at it, or it proves nothing");
    eventually_within(Duration::from_secs(150), "all are done", || done("evt_") == EVENTS + 1);
    let order = rig.gateway().query("SELECT event FROM done WHERE ordering = 'one' ORDER BY place, event").concat();
    let mut expected: Vec<_> = (0..EVENTS).map(|number| format!("evt_{number:04}")).collect();
    expected.insert(0, "evt_head".into());
    assert_eq!(order, expected);
    let places = rig.gateway().query("SELECT count(DISTINCT place) FROM done WHERE ordering = 'one'");
    assert_eq!(places, [[(EVENTS + 1).to_string()]], "never two at a time");
}

fn a_dead_letter_blocks_its_key_if_it_shall(on: On) {
    let rig = rig(on, "ordering = \"computed\"\ndead_letters = \"block\"");
    rig.send("evt_1", r#"{"key":"one","give_up":true}"#);
    rig.send("evt_2", r#"{"key":"one"}"#);
    rig.send("evt_3", r#"{"key":"two"}"#);
    rig.wait_for("evt_1", "dead_letter");
    rig.wait_for("evt_3", "succeeded");
    assert_eq!(rig.job("evt_2"), ("pending".into(), 0));
    let listed = rig.gateway().command(&["dead-letters", "list", "--json"]).json();
    let id = listed["event_id"].as_str().unwrap();
    let ended = rig.gateway().command(&["dead-letters", "resolve", id, "--as", "ignored", "--why", "a test"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    rig.wait_for("evt_2", "succeeded");
    assert_eq!(rig.job("evt_1").0, "resolved");
}

/// The states of the jobs of `actor`, in the order of the events.
fn states(rig: &Rig) -> Vec<String> {
    let rows = rig.gateway().query("SELECT state FROM jobs WHERE handler = 'actor' ORDER BY event_id");
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

/// The events with this key that were handled, in the order in which they were.
fn handled(rig: &Rig, key: &str) -> Vec<String> {
    let rows = rig.gateway().query(&format!("SELECT event FROM done WHERE ordering = '{key}' ORDER BY place, event"));
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

/// Has an operator decide about the only dead letter.
fn decide(rig: &Rig, decision: &[&str]) {
    let listed = rig.gateway().command(&["dead-letters", "list", "--json"]).json();
    let id = listed["event_id"].as_str().unwrap();
    let ended = rig.gateway().command(&[decision, &[id, "--why", "a test"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
}

fn behind_a_dead_letter_that_is_replayed_its_key_goes_on_in_order(on: On) {
    let rig = rig(on, "ordering = \"computed\"\ndead_letters = \"block\"\nmax_attempts = 1");
    rig.send("evt_1", r#"{"key":"one","fail_until_fixed":true}"#);
    for (id, key) in [("evt_2", "one"), ("evt_3", "one"), ("evt_4", "two")] {
        rig.send(id, &format!(r#"{{"key":"{key}"}}"#));
    }
    eventually("the other key goes on", || states(&rig) == ["dead_letter", "pending", "pending", "succeeded"]);
    fs::write(rig.gateway().folder().join("fixed"), "").unwrap();
    decide(&rig, &["replay"]);
    eventually("the rest follows", || handled(&rig, "one") == ["evt_1", "evt_2", "evt_3"]);
    assert_eq!(handled(&rig, "two"), ["evt_4"]);
}

/// A strict order has one key for all events of the handler, whatever they are about.
fn behind_a_dead_letter_a_strict_order_waits_for_a_replay_or_a_decision(on: On) {
    let other = "[handlers.other]\nrun = \"log\"";
    let rig = rig(on, &format!("ordering = \"strict\"\ndead_letters = \"block\"\nmax_attempts = 1\n{other}"));
    let others = "SELECT count(*) FROM jobs WHERE handler = 'other' AND state = 'succeeded'";
    let send = |id, what, act| rig.send_event(&TestEvent::about(id, what, act));
    send("evt_1", FIRST, r#"{"fail_until_fixed":true}"#);
    send("evt_2", ("customer.created", "acct_2"), "{}");
    send("evt_3", FIRST, r#"{"give_up":true}"#);
    send("evt_4", ("customer.created", "acct_3"), "{}");
    send("evt_5", FIRST, "{}");
    eventually("another handler goes on", || rig.gateway().query(others) == [["5"]]);
    eventually("the first is dead", || states(&rig)[0] == "dead_letter");
    assert_eq!(states(&rig)[1..], ["pending"; 4]);

    fs::write(rig.gateway().folder().join("fixed"), "").unwrap();
    decide(&rig, &["replay"]);
    let behind_the_third = ["succeeded", "succeeded", "dead_letter", "pending", "pending"];
    eventually("it goes on up to the next dead letter", || states(&rig) == behind_the_third);
    decide(&rig, &["dead-letters", "resolve", "--as", "ignored"]);
    eventually("the rest follows", || states(&rig)[3..] == ["succeeded", "succeeded"]);
    assert_eq!(handled(&rig, ""), ["evt_1", "evt_2", "evt_4", "evt_5"]);
}

/// What the first event of each of these tests is about: its type and its account.
const FIRST: (&str, &str) = ("invoice.paid", "acct_1");

/// Starts a run that goes on until it is told to end.
fn begin_first(rig: &Rig) {
    rig.send_event(&TestEvent::about("first", FIRST, r#"{"until_told":true,"key":"a"}"#));
    rig.wait_for("first", "processing");
}

fn end_first(rig: &Rig) {
    fs::write(rig.gateway().folder().join("told"), "").unwrap();
    rig.wait_for("first", "succeeded");
}

/// While the first event is handled, `same` waits for it and `other` does not.
fn waits_for_first(rig: &Rig, same: (&str, &str), other: (&str, &str)) {
    begin_first(rig);
    rig.send_event(&TestEvent::about("same", same, r#"{"key":"a"}"#));
    rig.send_event(&TestEvent::about("other", other, r#"{"key":"b"}"#));
    rig.wait_for("other", "succeeded");
    assert_eq!(rig.job("same"), ("pending".into(), 0));
    end_first(rig);
    rig.wait_for("same", "succeeded");
}

fn without_an_order_nothing_waits(on: On) {
    let rig = rig(on, "ordering = \"none\"\ndeadline = \"1h\"");
    begin_first(&rig);
    rig.send_event(&TestEvent::about("same", FIRST, r#"{"key":"a"}"#));
    rig.wait_for("same", "succeeded");
    assert_eq!(rig.job("first").0, "processing");
    end_first(&rig);
}

fn events_of_one_account_wait_for_each_other(on: On) {
    let rig = rig(on, "ordering = \"per_account\"\ndeadline = \"1h\"");
    waits_for_first(&rig, ("customer.created", FIRST.1), (FIRST.0, "acct_2"));
}

fn events_of_one_type_wait_for_each_other(on: On) {
    let rig = rig(on, "ordering = \"per_event_type\"\ndeadline = \"1h\"");
    waits_for_first(&rig, (FIRST.0, "acct_2"), ("customer.created", FIRST.1));
}

fn events_with_one_computed_key_wait_for_each_other(on: On) {
    let rig = rig(on, "ordering = \"computed\"\ndeadline = \"1h\"");
    waits_for_first(&rig, ("customer.created", "acct_2"), FIRST);
}
