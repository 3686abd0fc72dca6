//! Experiments 3, 4, 15 and 18: the power of a machine is cut under load, also while its disk is slow. A kill alone proves
//! nothing about the disk, because the system still writes what the dead have left behind.

use std::time::Duration;

use hookfast_harness::{Database, Disk, Disturbed, Load, NatsVersion, PrivateNats, PrivatePostgres, Setup, eventually};

use crate::rig::{BINARY, HASTY, Halves, Rig};
use crate::witness::{Witness, chance};

/// A gateway with its store on one disk. Whoever uses the disk ends before it does.
struct Machine {
    witness: Witness,
    postgres: Option<PrivatePostgres>,
    disk: Disk,
    chance: fastrand::Rng,
}

impl Machine {
    fn with_sqlite(without: &str) -> Self {
        let disk = Disk::new(256);
        let store = format!("sqlite:{}", disk.path().join("hookfast.db").display());
        Self { witness: witness(&store, without), postgres: None, disk, chance: chance() }
    }

    fn with_postgres(without: &str, settings: &[&str]) -> Self {
        let disk = Disk::new(512);
        let postgres = PrivatePostgres::start_on(&disk, settings);
        let witness = witness(&postgres.database(), without);
        Self { witness, postgres: Some(postgres), disk, chance: chance() }
    }

    /// Cuts the power at any moment, and switches it on again.
    fn cut_power(&mut self) {
        let load = self.witness.load();
        load.wait_for_promises(self.chance.usize(1..100));
        std::thread::sleep(Duration::from_micros(self.chance.u64(0..100_000)));
        self.cut_power_under(load);
    }

    /// The same while every flush takes so much longer. What cannot be flushed in time is refused, not promised.
    fn cut_power_of_slow_disk(&mut self, delay: Duration) {
        let flushing = match &self.postgres {
            Some(postgres) => postgres.processes(),
            None => vec![self.witness.gateway().pid()],
        };
        let _slow = Disturbed::flushes_of(&flushing, &format!("delay_enter={}", delay.as_micros()));
        let load = self.witness.load();
        load.wait_for_refusal();
        self.cut_power_under(load);
    }

    fn cut_power_under(&mut self, load: Load) {
        self.disk.cut_power();
        self.witness.kill();
        self.postgres.iter_mut().for_each(PrivatePostgres::kill);
        self.witness.note(load);
        self.disk.power_on();
        self.postgres.iter_mut().for_each(PrivatePostgres::restart);
        self.witness.restart();
    }

    fn assert_that_promises_survive(&mut self, cuts: usize) {
        for _ in 0..cuts {
            self.cut_power();
            self.witness.assert_nothing_is_lost();
        }
        self.witness.assert_kept();
    }

    /// A single cut may come at a moment when everything happens to be on the disk.
    fn assert_that_promises_are_broken(&mut self) {
        let is_lost = |_| {
            self.cut_power();
            !self.witness.lost().is_empty()
        };
        assert!((0..5).any(is_lost), "nothing was lost");
    }
}

fn witness(store: &str, without: &str) -> Witness {
    Witness::of(Setup::new(BINARY, Database::Sqlite).store(store).variable("FAULT_WITHOUT", without))
}

#[test]
fn every_promise_survives_power_cuts_of_sqlite() {
    Machine::with_sqlite("").assert_that_promises_survive(12);
}

#[test]
fn without_sync_power_cuts_of_sqlite_lose_events() {
    Machine::with_sqlite("Sync").assert_that_promises_are_broken();
}

#[test]
fn every_promise_survives_power_cuts_of_postgres() {
    Machine::with_postgres("", &[]).assert_that_promises_survive(6);
}

#[test]
fn without_sync_power_cuts_of_postgres_lose_events() {
    // So that it does not happen to write just before the cut.
    Machine::with_postgres("Sync", &["wal_writer_delay=10s"]).assert_that_promises_are_broken();
}

/// The promise of a disk is worth the same however long it takes. The negative controls are those above.
fn promises_survive_power_cuts_of_slow_disks(machine: &mut Machine) {
    for delay in [300, 2000, 300, 2000] {
        machine.cut_power_of_slow_disk(Duration::from_millis(delay));
        machine.witness.assert_nothing_is_lost();
    }
    machine.witness.assert_kept();
}

#[test]
#[ignore = "nightly: a slow disk takes its time"]
fn every_promise_survives_power_cuts_of_sqlite_on_a_slow_disk() {
    promises_survive_power_cuts_of_slow_disks(&mut Machine::with_sqlite(""));
}

#[test]
#[ignore = "nightly: a slow disk takes its time"]
fn every_promise_survives_power_cuts_of_postgres_on_a_slow_disk() {
    promises_survive_power_cuts_of_slow_disks(&mut Machine::with_postgres("", &[]));
}

/// Hints that wait in the stream while nobody works, until the power of the NATS server is cut. It flushes every two minutes
/// only, so that they are lost.
fn lose_hints(disk: &Disk, without: &'static str) -> Rig {
    const HINTS: usize = 30;
    let mut rig = Rig::on(Halves::Apart, HASTY, "", without, Some(PrivateNats::start_on(disk, NatsVersion::Current)));
    for number in 0..HINTS {
        assert!(rig.send(&format!("evt_{number}"), "{}"));
    }
    eventually("the hints are in the stream", || rig.nats_messages() == HINTS as u64);
    disk.cut_power();
    rig.nats().kill();
    assert!(rig.send("evt_in_the_dark", "{}"), "recording needs no NATS");
    disk.power_on();
    rig.nats().restart();
    rig
}

#[test]
#[ignore = "nightly: the kills of NATS show nearly the same"]
fn a_power_cut_of_nats_loses_nothing() {
    for _ in 0..3 {
        let disk = Disk::new(64);
        let mut rig = lose_hints(&disk, "");
        rig.work("");
        rig.assert_kept();
    }
}

/// Nobody makes up for the lost hints.
#[test]
#[ignore = "nightly: the kills of NATS show nearly the same"]
fn without_the_sweeper_a_power_cut_of_nats_loses_jobs() {
    let disk = Disk::new(64);
    let mut rig = lose_hints(&disk, "Sweeper");
    rig.work("");
    let mut number = 0;
    eventually("the worker works", || {
        number += 1;
        assert!(rig.send(&format!("late_{number}"), "{}"));
        rig.count("done WHERE event LIKE 'late%'") > 0
    });
    assert_eq!(rig.count("done WHERE event LIKE 'evt%'"), 0, "somebody has looked at them");
}
