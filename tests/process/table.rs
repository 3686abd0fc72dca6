//! The handlers that run can change without a restart.

use std::fs;

use hookfast_harness::{Gateway, eventually};

use crate::{On, rig, setup};

on_all! {
    a_handler_that_a_reload_adds_works_at_once
    a_handler_that_a_reload_removes_takes_no_more_and_its_jobs_are_listed
    a_reload_changes_concurrency_deadline_and_retries
}

/// Changes the configuration and has it read again.
fn reload(gateway: &Gateway, from: &str, to: &str) {
    let file = gateway.folder().join("hookfast.toml");
    let config = fs::read_to_string(&file).unwrap();
    assert!(config.contains(from), "{config}");
    fs::write(&file, config.replace(from, to)).unwrap();
    gateway.reload();
}

const ADDED: &str = "[handlers.added]\nrun = \"log\"\n";

fn a_handler_that_a_reload_adds_works_at_once(on: On) {
    let rig = rig(on, "");
    reload(rig.gateway(), "[handlers.actor]", &format!("{ADDED}[handlers.actor]"));
    rig.send("evt_1", "{}");
    eventually("the new handler has done its job", || rig.gateway().count_jobs("added", "succeeded") == 1);
    eventually("so has the old one", || rig.gateway().count_jobs("actor", "succeeded") == 1);
}

fn a_handler_that_a_reload_removes_takes_no_more_and_its_jobs_are_listed(on: On) {
    let rig = rig(on, "");
    let paused = format!("{ADDED}paused = true\n");
    reload(rig.gateway(), "[handlers.actor]", &format!("{paused}[handlers.actor]"));
    rig.send("evt_1", "{}");
    eventually("the job is there", || rig.gateway().count_jobs("added", "pending") == 1);
    reload(rig.gateway(), &paused, "");
    rig.send("evt_2", "{}");
    eventually("the other handler goes on", || rig.gateway().count_jobs("actor", "succeeded") == 2);
    let warning = "there are jobs of `added`, which is not in the configuration, so nothing runs them: 1 pending";
    eventually("the log names its jobs", || rig.gateway().log().contains(warning));
    let listed = rig.gateway().command(&["jobs", "list", "--handler", "added", "--json"]).json();
    assert_eq!(listed["handler"], "added", "{listed}");
    assert_eq!(rig.gateway().count_jobs("added", "pending"), 1, "none was added and none was run");
    reload(rig.gateway(), "[handlers.actor]", &format!("{ADDED}[handlers.actor]"));
    eventually("it comes back and does its job", || rig.gateway().count_jobs("added", "succeeded") == 1);
}

fn a_reload_changes_concurrency_deadline_and_retries(on: On) {
    const ALONE: &str = "concurrency = 1\nretry = [\"1h\"]\ndeadline = \"1h\"";
    const FOUR: &str = "concurrency = 4\nretry = [\"1s\"]\ndeadline = \"5s\"";
    let rig = rig(on, ALONE);
    let run_one_at_a_time = |round: &str| {
        for number in 0..3 {
            rig.send(&format!("{round}_{number}"), r#"{"sleep_ms":200,"fragile":1}"#);
        }
        for number in 0..3 {
            rig.wait_for(&format!("{round}_{number}"), "succeeded");
        }
    };
    run_one_at_a_time("before");
    reload(rig.gateway(), ALONE, FOUR);
    rig.send("evt_long", r#"{"sleep_ms":600000}"#);
    rig.wait_for("evt_long", "dead_letter");
    assert_eq!(rig.job("evt_long").1, 2, "the new deadline and the new retries count");
    for number in 0..4 {
        rig.send(&format!("evt_{number}"), r#"{"sleep_ms":3000,"fragile":3}"#);
    }
    let too_many = "SELECT count(*) FROM attempts WHERE message LIKE '%4 at once are too many%'";
    eventually("four run at once", || rig.gateway().query(too_many) != [["0"]]);
    for number in 0..4 {
        // The one that was too many may be so again when it is retried.
        let is_ended = || ["succeeded", "dead_letter"].contains(&rig.job(&format!("evt_{number}")).0.as_str());
        eventually("all have ended", is_ended);
    }
    reload(rig.gateway(), FOUR, ALONE);
    run_one_at_a_time("after");
}

/// A pause that comes with a reload is a closed gate: what waits stays where it is.
#[test]
fn a_paused_handler_begins_nothing_until_it_goes_on() {
    let gateway = setup(On::Sqlite, None).handlers("[handlers.actor]\npaused = true\n").start();
    crate::send(&mut gateway.client(), "evt_1", "{}");
    reload(&gateway, "paused = true", "concurrency = 3\npaused = true");
    assert_eq!(gateway.count_jobs("actor", "pending"), 1);
    reload(&gateway, "paused = true", "paused = false");
    eventually("it goes on", || gateway.count_jobs("actor", "succeeded") == 1);
}
