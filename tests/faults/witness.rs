//! A gateway under load, and a client that remembers every promise.

use std::collections::BTreeMap;

use hookfast_harness::{Gateway, Ledger, Load, Setup, Signal, eventually_within, sample_key, signed};
use hookfast_webhook::Request;

use crate::rig::{HASTY, TO_THE_END, replay_crashed};

const CLIENTS: u64 = 4;

/// Beyond what one client sends in a round.
const EVENTS_IN_A_ROUND: u64 = 1_000_000;

pub(crate) struct Witness {
    gateway: Option<Gateway>,
    ledger: Ledger,
    rounds: u64,
}

impl Witness {
    /// Starts a gateway that receives and works.
    pub(crate) fn of(setup: Setup) -> Self {
        let gateway = unhurried(setup).start();
        gateway.wait_for_table("done");
        Self { gateway: Some(gateway), ledger: Ledger::default(), rounds: 0 }
    }

    pub(crate) fn gateway(&mut self) -> &mut Gateway {
        self.gateway.as_mut().expect("it was started")
    }

    /// Begins to send events that were never sent before.
    pub(crate) fn load(&mut self) -> Load {
        self.rounds += 1;
        self.load_of_round(self.rounds)
    }

    /// Begins to send the events of the first round again, as a provider does that got no answer.
    pub(crate) fn load_again(&mut self) -> Load {
        self.load_of_round(1)
    }

    fn load_of_round(&mut self, round: u64) -> Load {
        Load::start_at(self.gateway().ingest, CLIENTS, round * EVENTS_IN_A_ROUND, event)
    }

    /// Ends the sending and remembers the promises.
    pub(crate) fn note(&mut self, load: Load) {
        self.ledger.add(load.end());
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn kill(&mut self) {
        self.gateway().signal(Signal::Kill);
        self.gateway().wait();
    }

    /// Starts the gateway again, which has ended.
    pub(crate) fn restart(&mut self) {
        self.gateway = self.gateway.take().map(Gateway::restart);
    }

    /// What was promised and is not in the store.
    pub(crate) fn lost(&mut self) -> Vec<String> {
        let gateway = self.gateway.as_ref().expect("it was started");
        self.ledger.lost(gateway)
    }

    pub(crate) fn assert_nothing_is_lost(&mut self) {
        let gateway = self.gateway.as_ref().expect("it was started");
        self.ledger.assert_kept(gateway);
    }

    /// Waits until everything in the spool has found its way into the store.
    pub(crate) fn wait_until_drained(&mut self) {
        eventually_within(TO_THE_END, "nothing waits in the spool", || {
            self.gateway().command(&["spool", "--json"]).json()["events"] == 0
        });
    }

    /// How often each event was done, once nothing is left to do.
    pub(crate) fn done(&mut self) -> BTreeMap<String, usize> {
        eventually_within(TO_THE_END, "every job is finished", || {
            self.count("jobs WHERE state IN ('pending', 'processing', 'failed')") == 0
        });
        let done = self.gateway().query("SELECT event, count(*) FROM done GROUP BY event");
        done.into_iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect()
    }

    /// The end of every experiment: what was promised is there, and whatever is there was done once.
    pub(crate) fn assert_kept(&mut self) {
        self.assert_nothing_is_lost();
        let mut done = self.done();
        if replay_crashed(self.gateway()) {
            done = self.done();
        }
        let doubled: Vec<_> = done.iter().filter(|(_, times)| **times > 1).collect();
        assert!(doubled.is_empty(), "done more than once: {doubled:?}");
        assert_eq!(done.len(), self.count("events"), "every event is done");
        assert_eq!(self.count("jobs WHERE state <> 'succeeded'"), 0);
    }

    pub(crate) fn count(&mut self, what: &str) -> usize {
        self.gateway().query(&format!("SELECT count(*) FROM {what}"))[0][0].parse().unwrap()
    }
}

/// Every other event has an effect that shares its commit with others.
fn event(serial: u64) -> Request {
    let (id, write) = (sample_key(serial), serial.is_multiple_of(2));
    signed(&format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"act":{{"write":{write}}}}}"#))
}

/// Answers may take as long as a busy machine needs.
fn unhurried(setup: Setup) -> Setup {
    setup.ingest("answer_deadline = \"20s\"").handlers("[handlers.actor]").sections(HASTY)
}

/// Numbers by chance, from `FAULT_SEED` if it is set: then the same ones again.
pub(crate) fn chance() -> fastrand::Rng {
    let seed = std::env::var("FAULT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("To do it again: FAULT_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
