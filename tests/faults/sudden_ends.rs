//! Experiments 1 and 2: the gateway or its Postgres is killed at any time under load. What was promised is there when it
//! is back, and everything is done once.
//!
//! That the check for lost events can fail is shown by the power cuts, which use the same one.

use std::time::Duration;

use hookfast_harness::{Database, PrivatePostgres, Rig, Setup};

use crate::rig::{BINARY, chance, together};

/// Kills the gateway so often, each time after some promises and at any moment.
fn kill_gateway(rig: &mut Rig, kills: usize) {
    let mut chance = chance();
    for _ in 0..kills {
        let load = rig.load();
        load.wait_for_promises(chance.usize(1..40));
        // At any time is what this is about.
        std::thread::sleep(Duration::from_micros(chance.u64(0..20_000)));
        rig.kill();
        rig.note(load);
        rig.restart();
        rig.assert_nothing_is_lost();
    }
    let load = rig.load_again();
    load.wait_for_promises(40);
    rig.note(load);
}

#[test]
fn every_promise_survives_kills_of_the_gateway_on_sqlite() {
    let mut rig = together(Setup::new(BINARY, Database::Sqlite));
    kill_gateway(&mut rig, 60);
    rig.assert_kept();
}

#[test]
fn every_promise_survives_kills_of_the_gateway_on_postgres() {
    let mut rig = together(Setup::new(BINARY, Database::Postgres));
    kill_gateway(&mut rig, 40);
    rig.assert_kept();
}

/// The gateway lives through it: it refuses while Postgres is gone, and then goes on.
#[test]
fn every_promise_survives_kills_of_postgres() {
    let mut chance = chance();
    let mut postgres = PrivatePostgres::start(&[]);
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).store(&postgres.database()));
    for _ in 0..20 {
        let load = rig.load();
        load.wait_for_promises(chance.usize(1..40));
        std::thread::sleep(Duration::from_micros(chance.u64(0..20_000)));
        postgres.restart();
        rig.note(load);
        rig.assert_nothing_is_lost();
    }
    assert!(rig.gateway_mut().is_running());
    rig.assert_kept();
}

/// Without the marker a kill between effect and settle is seen.
#[test]
fn without_the_marker_kills_of_the_gateway_double_effects() {
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).variable("FAULT_WITHOUT", "Marker"));
    kill_gateway(&mut rig, 15);
    let done = rig.done();
    assert!(done.values().any(|times| *times > 1), "nothing was doubled");
}
