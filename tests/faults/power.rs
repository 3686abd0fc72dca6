//! Experiments 3, 4, 15 and 18: the power of a machine is cut under load, also while its disk is slow, and that of the
//! spool. A kill alone proves nothing about the disk, because the system still writes what the dead have left behind.

use std::time::Duration;

use hookfast_harness::{
    Database, Disk, Disturbed, NatsVersion, PrivateNats, PrivatePostgres, Rig, Senders, Setup, Signal, eventually,
};

use crate::rig::{BINARY, HASTY, apart, chance, together};

/// A gateway with its store on one disk. What uses the disk ends before it does.
struct Machine {
    rig: Rig,
    postgres: Option<PrivatePostgres>,
    disk: Disk,
    chance: fastrand::Rng,
}

impl Machine {
    fn with_sqlite(setup: Setup) -> Self {
        let disk = Disk::new(256);
        let store = format!("sqlite:{}", disk.path().join("hookfast.db").display());
        Self { rig: together(setup.store(&store)), postgres: None, disk, chance: chance() }
    }

    fn with_postgres(setup: Setup, settings: &[&str]) -> Self {
        let disk = Disk::new(512);
        let postgres = PrivatePostgres::start_on(&disk, settings);
        let rig = together(setup.store(&postgres.database()));
        Self { rig, postgres: Some(postgres), disk, chance: chance() }
    }

    /// Only the spool is on the disk; Postgres is elsewhere.
    fn with_spool(setup: Setup, postgres: &PrivatePostgres) -> Self {
        let disk = Disk::new(256);
        let spool = format!("spool = \"{}\"", disk.path().join("spool.db").display());
        let rig = together(with_usual_deadline(setup).store(&postgres.database()).spool(&spool));
        Self { rig, postgres: None, disk, chance: chance() }
    }

    /// Cuts the power at any moment, and switches it on again.
    fn cut_power(&mut self) {
        let load = self.rig.load();
        load.wait_for_promises(self.chance.usize(1..100));
        std::thread::sleep(Duration::from_micros(self.chance.u64(0..100_000)));
        self.cut_power_under(load);
    }

    /// The same while every flush takes this much longer, once what is expected of the answers has come true.
    fn cut_power_of_slow_disk(&mut self, delay_ms: u64, expected: impl FnOnce(&Senders)) {
        let flushing = match &self.postgres {
            Some(postgres) => postgres.processes(),
            None => vec![self.rig.gateway().pid()],
        };
        let _slow = Disturbed::flushes_of(&flushing, &format!("delay_enter={}", delay_ms * 1000));
        let load = self.rig.load();
        expected(&load);
        self.cut_power_under(load);
    }

    /// The gateway stands still first, as it does when the power goes. Otherwise it could promise something on a disk that is
    /// already gone: a flush that is under way while ext4 is told to stop may still report success.
    fn cut_power_under(&mut self, load: Senders) {
        self.rig.gateway().signal(Signal::Stop);
        self.disk.cut_power();
        self.rig.kill();
        self.postgres.iter_mut().for_each(PrivatePostgres::kill);
        self.rig.note(load);
        self.disk.power_on();
        self.postgres.iter_mut().for_each(PrivatePostgres::restart);
        self.rig.restart();
    }

    fn assert_that_promises_survive(&mut self, cuts: usize) {
        for _ in 0..cuts {
            self.cut_power();
            self.rig.assert_nothing_is_lost();
        }
        self.rig.assert_kept();
    }

    /// A single cut may come at a moment when everything happens to be on the disk.
    fn assert_that_promises_are_broken(&mut self) {
        let is_lost = |_| {
            self.cut_power();
            !self.rig.lost().is_empty()
        };
        assert!((0..5).any(is_lost), "nothing was lost");
    }
}

/// The store is named later.
fn setup() -> Setup {
    Setup::new(BINARY, Database::Sqlite)
}

fn with_usual_deadline(setup: Setup) -> Setup {
    setup.variable("HOOKFAST_INGEST__ANSWER_DEADLINE", "450ms")
}

fn without_sync() -> Setup {
    setup().variable("FAULT_WITHOUT", "Sync")
}

#[test]
fn every_promise_survives_power_cuts_of_sqlite() {
    Machine::with_sqlite(setup()).assert_that_promises_survive(12);
}

#[test]
fn without_sync_power_cuts_of_sqlite_lose_events() {
    Machine::with_sqlite(without_sync()).assert_that_promises_are_broken();
}

#[test]
fn every_promise_survives_power_cuts_of_postgres() {
    Machine::with_postgres(setup(), &[]).assert_that_promises_survive(6);
}

#[test]
fn without_sync_power_cuts_of_postgres_lose_events() {
    // So that it does not happen to write just before the cut.
    Machine::with_postgres(without_sync(), &["wal_writer_delay=10s"]).assert_that_promises_are_broken();
}

/// Postgres is gone at every other cut; at the others the spool is being drained.
#[test]
fn every_promise_survives_power_cuts_of_the_spool() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut machine = Machine::with_spool(setup(), &postgres);
    for _ in 0..4 {
        postgres.kill();
        machine.cut_power();
        postgres.restart();
        machine.cut_power();
    }
    machine.rig.wait_until_drained();
    machine.rig.assert_kept();
}

#[test]
fn without_sync_power_cuts_of_the_spool_lose_events() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut machine = Machine::with_spool(without_sync(), &postgres);
    postgres.kill();
    for _ in 0..5 {
        machine.cut_power();
    }
    postgres.restart();
    machine.rig.wait_until_drained();
    assert!(!machine.rig.lost().is_empty(), "nothing was lost");
}

/// A promise is worth the same however long its flush took. The negative controls are those without sync: who does not flush
/// is not held up.
fn promises_survive_power_cuts_of_slow_disks(machine: impl Fn(Setup) -> Machine) {
    let mut patient = machine(setup());
    for _ in 0..3 {
        patient.cut_power_of_slow_disk(300, |load| load.wait_for_promises(3));
        patient.rig.assert_nothing_is_lost();
    }
    patient.rig.assert_kept();

    // What is not flushed in time is refused.
    let mut hasty = machine(with_usual_deadline(setup()));
    for delay_ms in [300, 2000, 300, 2000] {
        hasty.cut_power_of_slow_disk(delay_ms, Senders::wait_for_refusal);
        hasty.rig.assert_nothing_is_lost();
    }
    for refusal in &hasty.rig.ledger().refusals {
        assert_eq!((refusal.status, refusal.header("retry-after")), (503, Some("1")), "{}", refusal.text());
    }
    hasty.rig.assert_kept();
}

#[test]
#[ignore = "nightly: a slow disk takes its time"]
fn every_promise_survives_power_cuts_of_sqlite_on_a_slow_disk() {
    promises_survive_power_cuts_of_slow_disks(Machine::with_sqlite);
}

#[test]
#[ignore = "nightly: a slow disk takes its time"]
fn every_promise_survives_power_cuts_of_postgres_on_a_slow_disk() {
    promises_survive_power_cuts_of_slow_disks(|setup| Machine::with_postgres(setup, &[]));
}

/// Hints that wait in the stream while no worker runs, until the power of the NATS server is cut. It flushes every two minutes
/// only, so that they are lost.
fn lose_hints(disk: &mut Disk, without: &'static str) -> Rig {
    const HINTS: usize = 30;
    let mut rig = apart(PrivateNats::start_on(disk, NatsVersion::Current), HASTY, "", without);
    for number in 0..HINTS {
        rig.send(&format!("evt_{number}"), "{}");
    }
    eventually("the hints are in the stream", || rig.nats_messages() == HINTS as u64);
    disk.cut_power();
    rig.nats().kill();
    assert!(rig.try_send("in_the_dark", "{}"), "recording needs no NATS");
    disk.power_on();
    rig.nats().restart();
    rig
}

#[test]
#[ignore = "nightly: the kills of NATS show nearly the same"]
fn a_power_cut_of_nats_loses_nothing() {
    for _ in 0..3 {
        let mut disk = Disk::new(64);
        let mut rig = lose_hints(&mut disk, "");
        rig.work("");
        rig.assert_kept();
    }
}

/// Without the sweeper the lost hints are never sent again.
#[test]
#[ignore = "nightly: the kills of NATS show nearly the same"]
fn without_the_sweeper_a_power_cut_of_nats_loses_jobs() {
    let mut disk = Disk::new(64);
    let mut rig = lose_hints(&mut disk, "Sweeper");
    rig.work("");
    let mut number = 0;
    eventually("the worker works", || {
        number += 1;
        rig.send(&format!("late_{number}"), "{}");
        rig.count("done WHERE event LIKE 'late%'") > 0
    });
    assert_eq!(rig.count("done WHERE event LIKE 'evt%'"), 0, "somebody has looked at them");
}
