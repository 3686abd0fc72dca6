//! What handlers can do, and what becomes of them.

use std::fs;
use std::io::{Write, pipe};

use hookfast_harness::{Rig, Signal, eventually};

use crate::{On, rig, setup};

on_all! {
    several_effects_are_done_one_after_the_other_and_an_attempt_resumes_after_the_last
    a_panic_is_a_failed_attempt
    a_handler_that_takes_too_long_is_stopped
    giving_up_is_a_dead_letter_at_once
    the_other_sides_wish_to_wait_is_heeded
    a_job_that_is_put_off_runs_again_and_no_attempt_is_counted
    what_a_handler_does_not_understand_is_a_dead_letter_at_once
    a_shutdown_finishes_what_runs_and_hands_back_the_rest
}

fn several_effects_are_done_one_after_the_other_and_an_attempt_resumes_after_the_last(on: On) {
    let rig = rig(on, "retry = [\"1s\"]\ndeadline = \"1s\"");
    // The first attempt runs out of time after its effects, the second finds them done and does not wait again.
    rig.send("evt_1", r#"{"effects":3,"sleep_after_ms":3000}"#);
    rig.wait_for("evt_1", "dead_letter");
    assert_eq!(rig.job("evt_1").1, 2);
    assert_eq!(rig.effects("evt_1"), ["effect-0", "effect-1", "effect-2"]);
    let done = rig.gateway().query("SELECT DISTINCT attempt FROM done");
    assert_eq!(done, [["1"]], "the second attempt did none of them again");
}

fn a_panic_is_a_failed_attempt(on: On) {
    let rig = rig(on, "retry = [\"1s\"]");
    rig.send("evt_1", r#"{"panic":true}"#);
    rig.send("evt_2", "{}");
    rig.wait_for("evt_2", "succeeded");
    rig.wait_for("evt_1", "dead_letter");
    let attempts =
        rig.gateway().query("SELECT number, failure, message FROM attempts WHERE failure IS NOT NULL ORDER BY number");
    assert_eq!(attempts, [["1", "panic", "told to panic"], ["2", "panic", "told to panic"]]);
}

/// The pipe is nearly full at the start; what the gateway logs about the first events fills it.
#[test]
fn a_panic_does_not_wait_for_a_log_that_is_not_read() {
    let (_unread, mut writer) = pipe().unwrap();
    writer.write_all(&[b'\n'; 50_000]).unwrap();
    let setup = setup(On::Sqlite, None).handlers("[handlers.actor]\nmax_attempts = 1").log_into(writer);
    let rig = Rig::together(setup);
    for number in 0..100 {
        rig.send(&format!("evt_{number}"), "{}");
    }
    assert!(rig.gateway().metric("hookfast_log_lines_waiting") > 1.0, "the pipe is full");
    rig.send("evt_bad", r#"{"panic":true}"#);
    rig.wait_for("evt_bad", "dead_letter");
    assert_eq!(rig.gateway().query("SELECT failure FROM attempts WHERE failure IS NOT NULL"), [["panic"]]);
    rig.send("evt_good", "{}");
    rig.wait_for("evt_good", "succeeded");
}

fn a_handler_that_takes_too_long_is_stopped(on: On) {
    let rig = rig(on, "max_attempts = 1\ndeadline = \"1s\"");
    rig.send("evt_1", r#"{"sleep_ms":600000}"#);
    rig.wait_for("evt_1", "dead_letter");
    let attempts = rig.gateway().query("SELECT failure, message FROM attempts");
    assert_eq!(attempts, [["timeout", "it took longer than its deadline of 1s"]]);
}

fn giving_up_is_a_dead_letter_at_once(on: On) {
    let rig = rig(on, "");
    rig.send("evt_1", r#"{"give_up":true}"#);
    rig.wait_for("evt_1", "dead_letter");
    assert_eq!(rig.gateway().query("SELECT number, failure FROM attempts"), [["1", "refused"]]);
}

fn the_other_sides_wish_to_wait_is_heeded(on: On) {
    let rig = rig(on, "retry = \"quick\"");
    rig.send("evt_1", r#"{"fail_times":1,"retry_after_ms":3600000}"#);
    rig.wait_for("evt_1", "failed");
    let wait = match on {
        On::Sqlite => "SELECT due_at / 1000000 - unixepoch() FROM jobs",
        On::Postgres | On::JetStream => "SELECT extract(epoch FROM due_at - now())::bigint FROM jobs",
    };
    let seconds: i64 = rig.gateway().query(wait)[0][0].parse().unwrap();
    assert!((3000..=3600).contains(&seconds), "an hour and not the two seconds of the policy: {seconds}");
}

fn a_job_that_is_put_off_runs_again_and_no_attempt_is_counted(on: On) {
    let rig = rig(on, "max_attempts = 1");
    rig.send("evt_1", r#"{"snooze_ms":200}"#);
    let history = "SELECT failure, message FROM attempts";
    eventually("it was put off three times", || rig.gateway().query(history).len() >= 3);
    for row in rig.gateway().query(history) {
        assert_eq!(row[0], "snoozed");
        assert!(row[1].starts_with("put off until 20") && row[1].ends_with(": it is not fixed yet"), "{}", row[1]);
    }
    fs::write(rig.gateway().folder().join("fixed"), "").unwrap();
    rig.wait_for("evt_1", "succeeded");
    assert_eq!(rig.job("evt_1").1, 1);
}

fn what_a_handler_does_not_understand_is_a_dead_letter_at_once(on: On) {
    let rig = rig(on, "");
    rig.send("evt_1", r#"{"no_such_thing":true}"#);
    rig.wait_for("evt_1", "dead_letter");
    let rows = rig.gateway().query("SELECT reason FROM jobs");
    assert_eq!(rows, [["bad_payload"]]);
}

fn a_shutdown_finishes_what_runs_and_hands_back_the_rest(on: On) {
    let mut rig = rig(on, "concurrency = 2");
    for number in 0..6 {
        rig.send(&format!("evt_{number}"), r#"{"sleep_ms":1500}"#);
    }
    let in_state = |rig: &Rig, state: &str| {
        let rows = rig.gateway().query(&format!("SELECT attempts FROM jobs WHERE state = '{state}'"));
        rows.into_iter().map(|row| row[0].parse().unwrap()).collect::<Vec<u32>>()
    };
    eventually("jobs are on board", || in_state(&rig, "processing").len() == 4);
    rig.gateway().signal(Signal::Term);
    assert!(rig.gateway_mut().wait().success());
    assert_eq!(in_state(&rig, "processing"), [0; 0], "nothing is left behind");
    let done = in_state(&rig, "succeeded");
    assert!(!done.is_empty(), "what ran was finished");
    assert_eq!(in_state(&rig, "pending"), vec![0; 6 - done.len()], "what was handed back was not tried");
}
