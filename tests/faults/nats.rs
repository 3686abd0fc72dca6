//! Experiments 8 and 9: the NATS server loses everything, is gone, or was never there. Receiving goes on, and everything is
//! handled in the end.

use hookfast_harness::{NatsVersion, PrivateNats, Rig, eventually};

use crate::rig::{HASTY, apart};

/// Sends a few events, none of which may be refused.
fn send_some(rig: &Rig, round: usize) {
    for number in 0..30 {
        rig.send(&format!("evt_{round}_{number}"), "{}");
    }
}

fn with_server(nats: PrivateNats, without: &'static str) -> Rig {
    apart(nats, HASTY, "", without)
}

#[test]
fn a_server_that_comes_back_empty_again_and_again_loses_nothing() {
    let mut rig = with_server(PrivateNats::start(NatsVersion::Current), "");
    rig.work("");
    for round in 0..10 {
        send_some(&rig, round);
        rig.nats().restart_empty();
        send_some(&rig, 100 + round);
    }
    rig.assert_kept();
}

#[test]
fn an_old_server_that_comes_back_empty_loses_nothing() {
    let mut rig = with_server(PrivateNats::start(NatsVersion::Old), "");
    rig.work("");
    for round in 0..3 {
        send_some(&rig, round);
        rig.nats().restart_empty();
    }
    rig.assert_kept();
}

#[test]
fn a_server_that_is_killed_and_restarted_loses_nothing() {
    let mut rig = with_server(PrivateNats::start(NatsVersion::Current), "");
    rig.work("");
    for round in 0..6 {
        send_some(&rig, round);
        rig.nats().kill();
        send_some(&rig, 100 + round);
        rig.nats().restart();
    }
    rig.assert_kept();
}

/// The gateway is started without it, works once it comes, and does not mind when it is gone for longer.
#[test]
fn a_server_that_is_absent_holds_nobody_up() {
    let mut rig = with_server(PrivateNats::absent(NatsVersion::Current), "");
    rig.work("");
    send_some(&rig, 0);
    assert_eq!(rig.count("jobs WHERE state = 'succeeded'"), 0, "nobody could tell the worker");
    rig.nats().restart();
    rig.assert_kept();
    rig.nats().kill();
    send_some(&rig, 1);
    std::thread::sleep(std::time::Duration::from_secs(60));
    send_some(&rig, 2);
    rig.nats().restart();
    rig.assert_kept();
}

/// Hints are told once an hour, so that a worker must notice by itself that they are lost.
const ONCE_AN_HOUR: &str = "[work]\nlease = \"2s\"\nsweep_every = \"200ms\"\ndispatch_again_after = \"1h\"\n";

/// Jobs wait in line behind a long one, all of them told of, when the server loses what it was told. There is no control
/// without the repair: that the queue is empty is reason enough for the sweeper to start over, and
/// `without_the_sweeper_a_server_that_comes_back_empty_loses_jobs` takes away both.
#[test]
fn when_a_server_comes_back_empty_it_is_told_of_all_jobs_at_once() {
    let nats = PrivateNats::start(NatsVersion::Current);
    let mut rig = apart(nats, ONCE_AN_HOUR, "concurrency = 1", "");
    rig.work("");
    rig.send("evt_long", r#"{"sleep_ms":15000}"#);
    send_some(&rig, 0);
    eventually("the sweeper has told of all that wait", || {
        rig.worker().metric("hookfast_sweeper_dispatched_total") >= 28.0
    });
    rig.nats().restart_empty();
    rig.assert_kept();
}

/// Hints are lost with the server's disk, and without the sweeper they are never sent again.
#[test]
fn without_the_sweeper_a_server_that_comes_back_empty_loses_jobs() {
    let mut rig = with_server(PrivateNats::start(NatsVersion::Current), "Sweeper");
    send_some(&rig, 0);
    eventually("the hints are in the stream", || rig.nats_messages() == 30);
    rig.nats().restart_empty();
    rig.work("");
    // The first of these may be lost, too, until the receiver has found the server again.
    let mut number = 0;
    eventually("the worker works", || {
        number += 1;
        rig.send(&format!("evt_late_{number}"), "{}");
        rig.count("done WHERE event LIKE 'evt_late%'") > 0
    });
    assert_eq!(rig.count("done WHERE event LIKE 'evt_0_%'"), 0, "somebody has looked at them");
    assert!(rig.count("jobs WHERE state = 'pending'") >= 30);
}
