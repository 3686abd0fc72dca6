//! The contract of the trade: handled once, tried again, dead at last, replayed, and all of it counted.

use hookfast_harness::{Gateway, eventually};

use crate::{On, rig};

on_all! {
    an_event_is_handled_once_or_is_dead_and_can_be_replayed
    counters_of_configured_sources_begin_at_zero
}

fn counters_of_configured_sources_begin_at_zero(on: On) {
    let rig = rig(on, "");
    for (series, label, value) in [
        ("hookfast_jobs_processed_total", "result", "dead_letter"),
        ("hookfast_retries_total", "reason", "network"),
        ("hookfast_dead_letters_total", "reason", "crash"),
    ] {
        let series = format!("{series}{{handler=\"actor\",source=\"stripe\",{label}=\"{value}\"}}");
        eventually(&series, || rig.gateway().metric_if_any(&series) == Some(0.0));
    }
}

fn an_event_is_handled_once_or_is_dead_and_can_be_replayed(on: On) {
    let rig = rig(on, "retry = [\"1s\", \"2s\"]\njitter = 0.0");
    let gateway = rig.gateway();

    // It is handled, and the same event again is not.
    rig.send("evt_good", "{}");
    rig.wait_for("evt_good", "succeeded");
    rig.send("evt_good", "{}");
    assert_eq!(gateway.metric("hookfast_duplicates_total{source=\"stripe\"}"), 1.0);
    assert_eq!(rig.job("evt_good"), ("succeeded".into(), 1));
    assert_eq!(rig.effects("evt_good"), ["effect-0"]);

    // One that fails is tried again, as the policy says, and then it is dead.
    rig.send("evt_bad", "{\"fail_until_fixed\":true}");
    rig.wait_for("evt_bad", "dead_letter");
    assert_eq!(rig.job("evt_bad").1, 3);
    let attempts = gateway.query(&waits_between_attempts(on));
    let waits: Vec<f64> = attempts.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(waits.len() == 2 && waits[0] >= 1.0 && waits[1] >= 2.0, "{waits:?}");
    let listed = gateway.command(&["dead-letters", "list", "--json"]).json();
    assert_eq!((&listed["handler"], &listed["reason"]), (&"actor".into(), &"internal".into()), "{listed}");
    assert_eq!(listed["message"], "told to fail, attempt 3");
    assert_eq!(rig.effects("evt_bad"), [""; 0]);

    // Once it is repaired, a replay handles it.
    std::fs::write(gateway.folder().join("fixed"), "").unwrap();
    let id = listed["event_id"].as_str().unwrap();
    let ended = gateway.command(&["replay", id, "--why", "it was repaired", "--who", "ann", "--json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    rig.wait_for("evt_bad", "succeeded");
    assert_eq!(rig.effects("evt_bad"), ["effect-0"]);
    assert_eq!(rig.job("evt_bad").1, 1, "attempts start again");
    let audit = gateway.query("SELECT who, action, why, jobs FROM audit");
    assert_eq!(audit, [["ann", "replay", "it was repaired", "1"]]);

    // A replay of what is done does nothing twice, unless that is what is asked for.
    let replay = |arguments: &[&str]| {
        let ended = gateway.command(&[&["replay", id, "--succeeded", "--yes"], arguments].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        eventually("it was run again", || rig.job("evt_bad") == ("succeeded".into(), 1));
    };
    replay(&[]);
    assert_eq!(rig.effects("evt_bad"), ["effect-0"]);
    eventually("both replays left an attempt", || gateway.count("attempts") == 6);
    replay(&["--force-effects", "--why", "the table was lost"]);
    eventually("the effect is there twice", || rig.effects("evt_bad").len() == 2);

    // The counters agree.
    let of_actor = |series, label, value| of_actor(gateway, series, label, value);
    let processed = |result| of_actor("hookfast_jobs_processed_total", "result", result);
    eventually("all runs are counted", || processed("succeeded") == 4.0);
    assert_eq!((processed("failed"), processed("dead_letter"), processed("interrupted")), (2.0, 1.0, 0.0));
    let by_reason = |series| of_actor(series, "reason", "internal");
    assert_eq!((by_reason("hookfast_retries_total"), by_reason("hookfast_dead_letters_total")), (2.0, 1.0));
    let timed = |result| of_actor("hookfast_attempt_duration_seconds_count", "result", result);
    assert_eq!((timed("succeeded"), timed("failed"), timed("dead_letter")), (4.0, 2.0, 1.0));
    eventually("replays are counted", || gateway.metric("hookfast_replayed_jobs_total") == 3.0);
}

/// A metric of the handler of these tests, with one more label. What is counted is counted for each source.
fn of_actor(gateway: &Gateway, series: &str, label: &str, value: &str) -> f64 {
    let source = if series.ends_with("_total") { "source=\"stripe\"," } else { "" };
    gateway.metric(&format!("{series}{{handler=\"actor\",{source}{label}=\"{value}\"}}"))
}

/// The time from the end of one attempt of `evt_bad` to the beginning of the next, in seconds.
fn waits_between_attempts(on: On) -> String {
    let seconds = match on {
        On::Sqlite => "started_at / 1e6",
        On::Postgres | On::JetStream => "extract(epoch FROM started_at)",
    };
    format!(
        "SELECT later.at - earlier.at - earlier.took
         FROM (SELECT number, {seconds} AS at FROM attempts WHERE failure IS NOT NULL) AS later
         JOIN (SELECT number, {seconds} AS at, duration_us / 1e6 AS took FROM attempts WHERE failure IS NOT NULL) AS earlier
         ON later.number = earlier.number + 1 ORDER BY later.number"
    )
}
