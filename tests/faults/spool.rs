//! Experiment 14: Postgres is stopped, slow, cut off or killed, before and while the spool is drained, and so is the gateway.
//! Clients keep sending, some of it twice, and remember every promise.

use std::fs;
use std::io::Write;
use std::time::Duration;

use hookfast_harness::{
    Answer, Client, Database, Disk, Gateway, Link, PrivatePostgres, Proxy, Setup, Signal, eventually,
    eventually_within, sample, sample_key,
};

use crate::rig::{BINARY, HASTY, TO_THE_END};
use crate::spool_clients::{Clients, Ledger};
use crate::witness::chance;

/// How often each disaster happens: more than twenty in all.
const ROUNDS: usize = 3;

/// Answers may take a while on a busy machine; a third of it is for Postgres. Small batches make draining take longer.
const PATIENT: &str = "answer_deadline = \"3s\"\nbatch_events = 8";

/// A gateway with a spool, and a link to its Postgres that can be broken.
struct Rig {
    postgres: PrivatePostgres,
    link: Proxy,
    gateway: Option<Gateway>,
}

impl Rig {
    fn new(spool: &str, without: &str) -> Self {
        let postgres = PrivatePostgres::start(&[]);
        let link = Proxy::to_server_of(&postgres.url());
        let gateway = Setup::new(BINARY, Database::Sqlite)
            .store(&link.through(&postgres.database()))
            .spool(spool)
            .ingest(PATIENT)
            .handlers("[handlers.actor]\nordering = \"computed\"")
            .sections(HASTY)
            .variable("FAULT_WITHOUT", without)
            .start();
        Self { postgres, link, gateway: Some(gateway) }
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("it was started")
    }

    fn stopping_postgres(&mut self, clients: &Clients) {
        let frozen = self.postgres.freeze();
        self.wait_for_spooled(clients);
        drop(frozen);
    }

    fn killing_postgres(&mut self, clients: &Clients) {
        self.postgres.kill();
        self.wait_for_spooled(clients);
        self.postgres.restart();
    }

    fn a_slow_link(&mut self, clients: &Clients) {
        self.link.set(Link::Delayed(Duration::from_secs(2)));
        self.wait_for_spooled(clients);
        self.link.heal();
    }

    fn a_cut_link(&mut self, clients: &Clients) {
        self.link.set(Link::Cut);
        self.wait_for_spooled(clients);
        self.link.heal();
    }

    fn killing_the_gateway_while_it_drains(&mut self, clients: &Clients) {
        self.begin_to_drain(clients);
        self.kill_the_gateway();
        self.link.heal();
        self.restart_the_gateway(clients);
    }

    fn killing_postgres_while_the_gateway_drains(&mut self, clients: &Clients) {
        self.begin_to_drain(clients);
        self.postgres.kill();
        self.link.heal();
        self.wait_for_spooled(clients);
        self.postgres.restart();
    }

    fn restarting_the_gateway_without_postgres(&mut self, clients: &Clients) {
        self.postgres.kill();
        self.wait_for_spooled(clients);
        self.kill_the_gateway();
        self.restart_the_gateway(clients);
        self.wait_for_spooled(clients);
        self.postgres.restart();
    }

    /// Clients are promised things while Postgres is not what it should be.
    fn wait_for_spooled(&self, clients: &Clients) {
        eventually("events go into the spool", || self.gateway().metric("hookfast_spooling") == 1.0);
        clients.wait_for_more_promises(40);
    }

    /// Leads to a moment when a part of the spool is in Postgres and a part is not.
    fn begin_to_drain(&self, clients: &Clients) {
        self.link.set(Link::Cut);
        eventually("events go into the spool", || self.gateway().metric("hookfast_spooling") == 1.0);
        clients.wait_for_more_promises(200);
        let drained = self.metric_or_zero("hookfast_drained_events_total");
        // Slow enough to be caught at it.
        self.link.set(Link::Delayed(Duration::from_millis(10)));
        eventually("it drains", || self.metric_or_zero("hookfast_drained_events_total") > drained);
        assert_eq!(self.gateway().metric("hookfast_spooling"), 1.0, "it is still draining");
    }

    /// A series is there from its first count on.
    fn metric_or_zero(&self, name: &str) -> f64 {
        let metrics = self.gateway().metrics();
        metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
    }

    fn kill_the_gateway(&mut self) {
        let gateway = self.gateway.as_mut().expect("it was started");
        gateway.signal(Signal::Kill);
        gateway.wait();
    }

    fn restart_the_gateway(&mut self, clients: &Clients) {
        self.gateway = self.gateway.take().map(Gateway::restart);
        clients.go_to(self.gateway().ingest);
    }

    fn wait_until_drained(&self) {
        eventually_within(TO_THE_END, "the spool is empty", || self.gateway().metric("hookfast_spooling") == 0.0);
        assert_eq!(self.gateway().command(&["spool", "--json"]).json()["events"], 0);
    }

    fn wait_for_jobs(&self) {
        eventually_within(TO_THE_END, "every job is finished", || {
            self.gateway().query("SELECT count(*) FROM jobs WHERE state IN ('pending', 'processing', 'failed')")
                == [["0"]]
        });
    }

    /// What is wrong with what is in the store, given what was promised.
    fn broken_promises(&self, ledger: &Ledger) -> Vec<String> {
        let events = "SELECT dedupe_key, (SELECT resends FROM dedupe_keys WHERE dedupe_keys.dedupe_key = events.dedupe_key), \
                      (SELECT count(*) FROM done WHERE done.event = events.dedupe_key), \
                      (SELECT min(place) FROM done WHERE done.event = events.dedupe_key) FROM events";
        ledger.broken_promises(&self.gateway().query(events))
    }
}

/// What the clients were told and what was kept of it, after a disaster that happened so often.
fn broken_by(disaster: fn(&mut Rig, &Clients), rounds: usize, without: &str) -> Vec<String> {
    let mut rig = Rig::new("", without);
    let clients = Clients::start(rig.gateway().ingest, chance().u64(..));
    clients.wait_for_more_promises(20);
    for _ in 0..rounds {
        disaster(&mut rig, &clients);
        rig.wait_until_drained();
        clients.wait_for_more_promises(5);
    }
    let ledger = clients.end();
    rig.wait_until_drained();
    rig.wait_for_jobs();
    eprintln!("{} events were promised, {} requests got no promise", ledger.promised(), ledger.not_promised());
    assert!(ledger.promised() > rounds * 20, "there was hardly any load");
    rig.broken_promises(&ledger)
}

macro_rules! nothing_is_broken_by {
    ($($disaster:ident)*) => {
        mod nothing_is_broken_by {
            $(#[test]
            fn $disaster() {
                assert_eq!(super::broken_by(super::Rig::$disaster, super::ROUNDS, ""), Vec::<String>::new());
            })*
        }
    };
}

nothing_is_broken_by! {
    stopping_postgres
    killing_postgres
    a_slow_link
    a_cut_link
    killing_the_gateway_while_it_drains
    killing_postgres_while_the_gateway_drains
    restarting_the_gateway_without_postgres
}

/// The answers to a few requests while Postgres stands still.
fn answers_while_postgres_stands_still(spool: &str) -> Vec<u16> {
    let rig = Rig::new(spool, "");
    assert_eq!(send(rig.gateway(), 0).status, 200);
    let _frozen = rig.postgres.freeze();
    (1..6).map(|serial| send(rig.gateway(), serial).status).collect()
}

#[test]
fn without_a_spool_senders_are_refused_while_postgres_stands_still() {
    assert_eq!(answers_while_postgres_stands_still(""), [200; 5]);
    assert_eq!(answers_while_postgres_stands_still("spool = false"), [503; 5]);
}

#[test]
fn a_drainer_that_deletes_before_it_records_is_noticed() {
    let broken = broken_by(Rig::killing_postgres_while_the_gateway_drains, 1, "SpoolOrder");
    assert!(broken.iter().any(|problem| problem.ends_with("is not there")), "{broken:?}");
}

fn send(gateway: &Gateway, serial: u64) -> Answer {
    Client::connect(gateway.ingest).send(&sample(serial)).expect("an answer")
}

#[test]
fn on_a_full_disk_senders_are_told_to_come_again_until_there_is_room() {
    let disk = Disk::new(32);
    let ballast = disk.path().join("ballast");
    let mut rig = Rig::new(&format!("spool = \"{}\"", disk.path().join("spool.db").display()), "");
    rig.postgres.kill();
    let mut promised = vec![0];
    assert_eq!(send(rig.gateway(), 0).status, 200);

    let mut file = fs::File::create(&ballast).unwrap();
    for size in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    let mut serial = 0;
    // What SQLite has set aside for its log may hold a few more.
    let refused = loop {
        serial += 1;
        assert!(serial < 100_000, "a full disk takes everything");
        let answer = send(rig.gateway(), serial);
        match answer.status {
            200 => promised.push(serial),
            _ => break answer,
        }
    };
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));

    fs::remove_file(&ballast).unwrap();
    eventually("it takes events again", || send(rig.gateway(), serial).status == 200);
    promised.push(serial);
    rig.postgres.restart();
    rig.wait_until_drained();
    let keys: Vec<_> = rig.gateway().query("SELECT dedupe_key FROM events").concat();
    let lost: Vec<_> = promised.iter().map(|serial| sample_key(*serial)).filter(|key| !keys.contains(key)).collect();
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn when_the_disk_of_the_spool_fails_events_go_to_postgres_and_what_was_promised_before_is_drained_later() {
    let mut disk = Disk::new(32);
    let mut rig = Rig::new(&format!("spool = \"{}\"", disk.path().join("spool.db").display()), "");
    rig.postgres.kill();
    assert_eq!(send(rig.gateway(), 0).status, 200, "it is in the spool");
    disk.cut_power();
    assert_eq!(send(rig.gateway(), 1).status, 503, "there is neither");

    rig.postgres.restart();
    eventually("it is recorded in Postgres", || send(rig.gateway(), 2).status == 200);
    let readiness = || {
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        Client::connect(rig.gateway().ingest).raw(request).unwrap().text()
    };
    eventually("it says so", || readiness().starts_with("degraded: the spool cannot be used"));
    let keys = |rig: &Rig| rig.gateway().query("SELECT dedupe_key FROM events ORDER BY dedupe_key").concat();
    assert_eq!(keys(&rig), [sample_key(2)]);

    rig.kill_the_gateway();
    disk.power_on();
    rig.gateway = rig.gateway.take().map(Gateway::restart);
    rig.wait_until_drained();
    assert_eq!(keys(&rig), [sample_key(0), sample_key(2)]);
}
