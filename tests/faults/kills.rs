//! Experiment 7: workers are killed at any time while there are many jobs.

use std::time::Duration;

use hookfast_harness::{Gateway, Rig, Signal};

use crate::rig::{Halves, rig};

const JOBS: usize = 2000;
const KILLS: usize = 30;

/// Two workers, one of which is killed and started anew again and again. Between effect and settle there is some time, so
/// that many are killed there.
fn kill_workers(rig: &Rig, jobs: usize, kills: usize, sleep_after_ms: u32) {
    let order = format!(r#"{{"sleep_after_ms":{sleep_after_ms}}}"#);
    for number in 0..jobs {
        rig.send(&format!("evt_{number}"), &order);
    }
    let mut workers = [rig.another_worker(""), rig.another_worker("")];
    let mut chance = fastrand::Rng::with_seed(11);
    for kill in 0..kills {
        // At any time is what this is about.
        std::thread::sleep(Duration::from_millis(chance.u64(50..400)));
        let worker: &mut Gateway = &mut workers[kill % 2];
        worker.signal(Signal::Kill);
        worker.wait();
        *worker = rig.another_worker("");
    }
    rig.wait_for_the_end();
}

#[test]
fn nothing_is_lost_or_doubled_when_workers_are_killed() {
    let rig = rig(Halves::Apart, "", "");
    kill_workers(&rig, JOBS, KILLS, 30);
    rig.assert_kept();
    assert!(rig.count("attempts WHERE failure = 'crash'") > 0, "nobody was killed at work");
}

#[test]
fn without_the_marker_kills_double_effects() {
    let rig = rig(Halves::Apart, "", "Marker");
    // Long enough for a worker to be killed there, however fast the rest goes.
    kill_workers(&rig, 300, 5, 300);
    assert!(rig.broken_promises().iter().any(|broken| broken.contains("effect-0 of ")), "nothing was doubled");
}
