//! Experiment 27: Postgres dies with its disk, and a standby takes its place. What was promised is there, because a
//! commit waits for the standby.

use hookfast_harness::{Database, Link, PrivatePostgres, Proxy, Rig, Senders, Setup, eventually};

use crate::rig::{BINARY, together};

/// Whether a commit waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standby {
    Synchronous,
    Asynchronous,
}

struct Pair {
    rig: Rig,
    primary: PrivatePostgres,
    standby: PrivatePostgres,
    /// How the standby hears of what is new.
    between: Proxy,
}

impl Pair {
    fn new(kind: Standby) -> Self {
        let primary = PrivatePostgres::start(&[]);
        let rig = together(Setup::new(BINARY, Database::Sqlite).store(&primary.database()));
        let between = Proxy::to_server_of(&primary.url());
        let standby = primary.standby(&between);
        if kind == Standby::Synchronous {
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
            primary.sql("SELECT pg_reload_conf()");
        }
        let pair = Self { rig, primary, standby, between };
        let wanted = if kind == Standby::Synchronous { "sync" } else { "async" };
        eventually("the standby follows", || {
            pair.rig.count(&format!("pg_stat_replication WHERE sync_state = '{wanted}'")) == 1
        });
        pair
    }

    /// The gateway goes on with the standby. What had not come to it is lost.
    fn fail_over(&mut self, load: Senders) {
        self.primary.kill();
        self.between.set(Link::Cut);
        self.standby.take_over_from(&self.primary);
        load.wait_for_more_promises(20);
        self.rig.note(load);
        assert!(self.rig.gateway_mut().is_running());
    }
}

#[test]
#[ignore = "nightly: needs two Postgres servers"]
fn every_promise_survives_a_failover_to_a_synchronous_standby() {
    for _ in 0..3 {
        let mut pair = Pair::new(Standby::Synchronous);
        let load = pair.rig.load();
        load.wait_for_promises(100);
        pair.fail_over(load);
        pair.rig.assert_kept();
    }
}

#[test]
#[ignore = "nightly: needs two Postgres servers"]
fn what_a_synchronous_standby_does_not_hear_of_is_not_promised() {
    let mut pair = Pair::new(Standby::Synchronous);
    let load = pair.rig.load();
    load.wait_for_promises(100);
    pair.between.set(Link::Blackhole);
    load.wait_for_refusal();
    pair.fail_over(load);
    pair.rig.assert_kept();
}

/// The negative control.
#[test]
#[ignore = "nightly: needs two Postgres servers"]
fn what_an_asynchronous_standby_does_not_hear_of_is_lost() {
    let mut pair = Pair::new(Standby::Asynchronous);
    let load = pair.rig.load();
    load.wait_for_promises(10);
    pair.between.set(Link::Blackhole);
    load.wait_for_more_promises(100);
    pair.fail_over(load);
    assert!(!pair.rig.lost().is_empty(), "nothing was lost");
}
