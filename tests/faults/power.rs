//! Experiments 3 and 4: the power of a machine is cut under load. A kill alone proves nothing about the disk, because the
//! system still writes what the dead have left behind.

use std::time::Duration;

use hookfast_harness::{Database, Disk, PrivatePostgres, Setup};

use crate::rig::BINARY;
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
