//! Experiments 19 and 20: the links to Postgres and to NATS are slow, silent, cut, or closed from one side.

use std::time::Duration;

use hookfast_harness::{Answer, Database, Link, NatsVersion, PrivateNats, Proxy, Rig, Setup, fresh_database};

use crate::rig::{BINARY, chance, together};

/// So slow that every commit is under way for a while.
const SLOW: Link = Link::Delayed(Duration::from_millis(10));

/// So slow that no commit is in time.
const TOO_SLOW: Link = Link::Delayed(Duration::from_secs(1));

/// A gateway with a link to Postgres.
struct Linked {
    rig: Rig,
    proxy: Proxy,
    chance: fastrand::Rng,
}

impl Linked {
    fn new(without: &str) -> Self {
        let database = fresh_database();
        let proxy = Proxy::to_server_of(&database);
        let setup = Setup::new(BINARY, Database::Sqlite)
            .store(&proxy.through(&database))
            .variable("HOOKFAST_INGEST__ANSWER_DEADLINE", "450ms")
            .variable("FAULT_WITHOUT", without);
        Self { rig: together(setup), proxy, chance: chance() }
    }

    /// Breaks the link while commits are under way, until a client is refused, and mends it.
    fn break_link(&mut self, link: Link) {
        let load = self.rig.load();
        load.wait_for_promises(self.chance.usize(1..40));
        self.proxy.set(SLOW);
        load.wait_for_more_promises(5);
        // At any time is what this is about.
        std::thread::sleep(Duration::from_micros(self.chance.u64(0..30_000)));
        self.proxy.set(link);
        load.wait_for_refusal();
        self.proxy.heal();
        load.wait_for_more_promises(10);
        self.rig.note(load);
    }
}

fn every_promise_survives(link: Link, times: usize) {
    let mut linked = Linked::new("");
    for _ in 0..times {
        linked.break_link(link);
        linked.rig.assert_nothing_is_lost();
    }
    assert!(linked.rig.gateway_mut().is_running());
    linked.rig.assert_kept();
}

#[test]
#[ignore = "nightly: networks fail in many ways"]
fn every_promise_survives_a_link_to_postgres_that_is_too_slow() {
    every_promise_survives(TOO_SLOW, 5);
}

#[test]
#[ignore = "nightly: networks fail in many ways"]
fn every_promise_survives_a_link_to_postgres_that_is_silent() {
    every_promise_survives(Link::Blackhole, 5);
}

#[test]
#[ignore = "nightly: networks fail in many ways"]
fn every_promise_survives_a_link_to_postgres_that_is_reset_during_commits() {
    every_promise_survives(Link::Cut, 20);
}

#[test]
#[ignore = "nightly: networks fail in many ways"]
fn every_promise_survives_a_link_to_postgres_that_is_closed_from_one_side() {
    every_promise_survives(Link::ClosedByClient, 5);
    every_promise_survives(Link::ClosedByServer, 5);
}

/// A commit whose answer is lost is repeated. That effects are doubled shows that commits were under way.
#[test]
#[ignore = "nightly: networks fail in many ways"]
fn without_the_marker_resets_during_commits_double_effects() {
    let mut linked = Linked::new("Marker");
    let is_doubled = |_| {
        linked.break_link(Link::Cut);
        linked.rig.done().values().any(|times| *times > 1)
    };
    assert!((0..20).any(is_doubled), "nothing was doubled");
}

/// A gateway with a link to NATS. Whatever happens there, no client is refused.
fn nobody_notices(break_and_mend: impl Fn(&mut Rig, &PrivateNats, &Proxy)) {
    let nats = PrivateNats::start(NatsVersion::Current);
    let proxy = Proxy::to_server_of(&nats.url());
    let mut rig = together(Setup::new(BINARY, Database::Postgres).queue(&proxy.through(&nats.url())));
    send_some(&mut rig);
    break_and_mend(&mut rig, &nats, &proxy);
    send_some(&mut rig);
    let refusals: Vec<_> = rig.ledger().refusals.iter().map(Answer::text).collect();
    assert_eq!(refusals, [""; 0], "a sender was refused");
    rig.assert_kept();
}

fn send_some(rig: &mut Rig) {
    let load = rig.load();
    load.wait_for_promises(50);
    rig.note(load);
}

#[test]
#[ignore = "nightly: networks fail in many ways"]
fn a_bad_link_to_nats_is_no_reason_to_refuse_or_forget() {
    let drip = Link::Dripping(Duration::from_millis(5));
    for link in [SLOW, TOO_SLOW, drip, Link::Blackhole, Link::Cut, Link::ClosedByClient, Link::ClosedByServer] {
        eprintln!("{link:?}");
        nobody_notices(|rig, _, proxy| {
            for _ in 0..5 {
                proxy.set(link);
                send_some(rig);
                proxy.heal();
            }
        });
    }
}

/// The connections stay, so that only silence tells. Its negative control, like that of the links, is the one without the
/// sweeper among the kills of NATS.
#[test]
#[ignore = "nightly: networks fail in many ways"]
fn a_nats_server_that_stands_still_is_no_reason_to_refuse_or_forget() {
    nobody_notices(|rig, nats, _| {
        nats.stop();
        send_some(rig);
        std::thread::sleep(Duration::from_secs(30));
        send_some(rig);
        nats.go_on();
    });
}
