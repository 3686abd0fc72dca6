//! Experiments 16 and 17: a flush fails, or the disk is full.

use hookfast_harness::{
    Database, Disk, Disturbed, NatsVersion, PrivateNats, PrivatePostgres, Setup, TO_THE_END, eventually,
    eventually_within,
};

use crate::rig::{BINARY, HASTY, apart, together};

/// Which flushes of a thread or process fail, counted from some moment under load: one, or all from there on.
const FAILING: [&str; 9] = ["1", "2", "3", "5", "8", "20", "60", "1+", "9+"];

fn eio(failing: &str) -> String {
    format!("error=EIO:when={failing}")
}

/// What a failed flush should have written is lost. The gateway ends, because it could not know what else is.
#[test]
#[ignore = "nightly: strace makes everything slow"]
fn every_promise_survives_failing_flushes_of_sqlite() {
    let mut rig = together(Setup::new(BINARY, Database::Sqlite));
    for failing in FAILING {
        let load = rig.load();
        load.wait_for_promises(10);
        let _disturbed = Disturbed::flushes_of(&[rig.gateway().pid()], &eio(failing));
        assert_eq!(rig.gateway_mut().wait().code(), Some(1), "when {failing} fails");
        rig.note(load);
        rig.restart();
        rig.assert_nothing_is_lost();
    }
    assert_eq!(rig.ledger().promised_after_refusal, Vec::<String>::new());
    rig.assert_kept();
}

#[test]
#[ignore = "nightly: strace makes everything slow"]
fn without_distrust_the_gateway_goes_on_promising_after_a_failed_flush() {
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).variable("FAULT_WITHOUT", "Distrust"));
    let load = rig.load();
    load.wait_for_promises(10);
    let _disturbed = Disturbed::flushes_of(&[rig.gateway().pid()], &eio("5"));
    load.wait_for_refusal();
    load.wait_for_more_promises(100);
    rig.note(load);
    assert!(!rig.ledger().promised_after_refusal.is_empty());
}

/// Postgres itself panics, recovers what is on the disk, and goes on; the gateway lives through it. There is no negative
/// control: no setting makes Postgres trust its log after a failed flush.
#[test]
#[ignore = "nightly: strace makes everything slow"]
fn every_promise_survives_failing_flushes_of_postgres() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).store(&postgres.database()));
    for failing in FAILING {
        let panics = |postgres: &PrivatePostgres| postgres.log().matches("PANIC:").count();
        let before = panics(&postgres);
        let load = rig.load();
        load.wait_for_promises(10);
        let disturbed = Disturbed::flushes_of(&postgres.processes(), &eio(failing));
        eventually_within(TO_THE_END, "Postgres panics", || panics(&postgres) > before);
        drop(disturbed);
        // If a flush of its recovery has failed, too, it has ended.
        postgres.restart();
        load.wait_for_more_promises(10);
        rig.note(load);
        rig.assert_nothing_is_lost();
    }
    assert!(rig.gateway_mut().is_running());
    rig.assert_kept();
}

/// With Postgres gone, no client is promised anything after a flush of the spool has failed. What was promised before that is
/// drained by the next start.
#[test]
#[ignore = "nightly: strace makes everything slow"]
fn every_promise_survives_failing_flushes_of_the_spool() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).store(&postgres.database()).spool(""));
    for failing in FAILING {
        postgres.kill();
        let load = rig.load();
        load.wait_for_promises(10);
        let disturbed = Disturbed::flushes_of(&[rig.gateway().pid()], &eio(failing));
        load.wait_for_refusal();
        rig.note(load);
        drop(disturbed);
        assert_eq!(rig.ledger().promised_after_refusal, Vec::<String>::new(), "when {failing} fails");
        rig.kill();
        postgres.restart();
        rig.restart();
        rig.wait_until_drained();
        rig.assert_nothing_is_lost();
    }
    rig.assert_kept();
}

/// Refuses as long as the disk is full, and then goes on by itself. The refusals show that it was full.
#[test]
#[ignore = "nightly: needs its own disk"]
fn a_full_disk_of_sqlite_loses_nothing() {
    let disk = Disk::new(64);
    let store = format!("sqlite:{}", disk.path().join("hookfast.db").display());
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).store(&store));
    for _ in 0..3 {
        let load = rig.load();
        load.wait_for_promises(50);
        disk.fill();
        load.wait_for_refusal();
        disk.make_room();
        load.wait_for_more_promises(50);
        rig.note(load);
        assert!(rig.gateway_mut().is_running());
        rig.assert_nothing_is_lost();
    }
    rig.assert_kept();
}

/// Postgres may end when it cannot write its log; then it is started anew, as its supervisor would.
#[test]
#[ignore = "nightly: needs its own disk"]
fn a_full_disk_of_postgres_loses_nothing() {
    let disk = Disk::new(256);
    let mut postgres = PrivatePostgres::start_on(&disk, &["max_wal_size=64MB"]);
    let mut rig = together(Setup::new(BINARY, Database::Sqlite).store(&postgres.database()));
    for _ in 0..3 {
        let load = rig.load();
        load.wait_for_promises(50);
        disk.fill();
        load.wait_for_refusal();
        disk.make_room();
        postgres.restart();
        load.wait_for_more_promises(50);
        rig.note(load);
        assert!(rig.gateway_mut().is_running());
        rig.assert_nothing_is_lost();
    }
    rig.assert_kept();
}

/// NATS stores no more hints, also not when there is room again, until it is restarted. No client is refused.
#[test]
#[ignore = "nightly: needs its own disk"]
fn a_full_disk_of_nats_loses_nothing() {
    const EVENTS: usize = 200;
    let disk = Disk::new(64);
    let nats = PrivateNats::start_on(&disk, NatsVersion::Current);
    let mut rig = apart(nats, HASTY, "", "");
    rig.send("evt_before", "{}");
    eventually("the stream works", || rig.nats_messages() == 1);
    disk.fill();
    for number in 0..EVENTS {
        assert!(rig.try_send(&format!("evt_{number}"), "{}"), "recording needs no NATS");
    }
    assert!(rig.nats_messages() < EVENTS as u64, "its disk is not full");
    disk.make_room();
    rig.nats().restart();
    rig.work("");
    rig.assert_kept();
}
