//! Experiment 14: Postgres is stopped, slow, cut off or killed, before and while the spool is drained, and so is the gateway.
//! Senders go on all the time, and send some events twice.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use hookfast_harness::{
    Answer, Client, Database, Disk, Gateway, Link, PrivatePostgres, Proxy, Rig, Sender, Senders, Setup, TO_THE_END,
    TestEvent, eventually, eventually_within, sample, sample_key,
};

use crate::rig::{BINARY, HASTY, chance};

/// How often each disaster happens: more than twenty in all.
const ROUNDS: usize = 3;

/// Answers may take a while on a busy machine; a third of it is for Postgres. Small batches make draining take longer.
const PATIENT: &str = "answer_deadline = \"3s\"\nbatch_events = 8";

const SENDERS: u64 = 3;

/// One request in this many was sent before.
const RESENT: u64 = 4;

/// How many orders each sender has.
const KEYS: u64 = 5;

/// Sending without pause would leave a backlog that takes longer than the experiment.
const PAUSE: Duration = Duration::from_millis(20);

/// A gateway with a spool, and a link to its Postgres that can be broken.
struct Spooled {
    postgres: PrivatePostgres,
    link: Proxy,
    rig: Rig,
}

impl Spooled {
    fn new(spool: &str, without: &str) -> Self {
        let postgres = PrivatePostgres::start(&[]);
        let link = Proxy::to_server_of(&postgres.url());
        let rig = Rig::together(
            Setup::new(BINARY, Database::Sqlite)
                .store(&link.through(&postgres.database()))
                .spool(spool)
                .ingest(PATIENT)
                .handlers("[handlers.actor]\nordering = \"computed\"")
                .sections(HASTY)
                .variable("FAULT_WITHOUT", without),
        );
        Self { postgres, link, rig }
    }

    fn gateway(&self) -> &Gateway {
        self.rig.gateway()
    }

    fn stopping_postgres(&mut self, senders: &Senders) {
        let frozen = self.postgres.freeze();
        self.wait_for_spooled(senders);
        drop(frozen);
    }

    fn killing_postgres(&mut self, senders: &Senders) {
        self.postgres.kill();
        self.wait_for_spooled(senders);
        self.postgres.restart();
    }

    fn a_slow_link(&mut self, senders: &Senders) {
        self.link.set(Link::Delayed(Duration::from_secs(2)));
        self.wait_for_spooled(senders);
        self.link.heal();
    }

    fn a_cut_link(&mut self, senders: &Senders) {
        self.link.set(Link::Cut);
        self.wait_for_spooled(senders);
        self.link.heal();
    }

    fn killing_the_gateway_while_it_drains(&mut self, senders: &Senders) {
        self.begin_to_drain(senders);
        self.rig.kill();
        self.link.heal();
        self.rig.restart();
    }

    fn killing_postgres_while_the_gateway_drains(&mut self, senders: &Senders) {
        self.begin_to_drain(senders);
        self.postgres.kill();
        self.link.heal();
        self.wait_for_spooled(senders);
        self.postgres.restart();
    }

    fn restarting_the_gateway_without_postgres(&mut self, senders: &Senders) {
        self.postgres.kill();
        self.wait_for_spooled(senders);
        self.rig.kill();
        self.rig.restart();
        self.wait_for_spooled(senders);
        self.postgres.restart();
    }

    /// Senders are promised things while Postgres is not what it should be.
    fn wait_for_spooled(&self, senders: &Senders) {
        eventually("events go into the spool", || self.gateway().metric("hookfast_spooling") == 1.0);
        senders.wait_for_more_promises(40);
    }

    /// Leads to a moment when a part of the spool is in Postgres and a part is not.
    fn begin_to_drain(&self, senders: &Senders) {
        self.link.set(Link::Cut);
        eventually("events go into the spool", || self.gateway().metric("hookfast_spooling") == 1.0);
        senders.wait_for_more_promises(200);
        // The series is there from its first count on.
        let drained = || self.gateway().metric_if_any("hookfast_drained_events_total").unwrap_or_default();
        let before = drained();
        // Slow enough to be caught at it.
        self.link.set(Link::Delayed(Duration::from_millis(10)));
        eventually("it drains", || drained() > before);
        assert_eq!(self.gateway().metric("hookfast_spooling"), 1.0, "it is still draining");
    }

    fn wait_until_drained(&self) {
        eventually_within(TO_THE_END, "the spool is empty", || self.gateway().metric("hookfast_spooling") == 0.0);
        assert_eq!(self.gateway().command(&["spool", "--json"]).json()["events"], 0);
    }
}

/// Sends events in several orders, and now and then one of them once more.
fn send_some_twice(sender: &mut Sender, mut chance: Rng) {
    let mut sent = 0;
    while !sender.is_told_to_end() {
        let is_resend = sent > 0 && chance.u64(..RESENT) == 0;
        let number = if is_resend { chance.u64(..sent) } else { sent };
        sent += u64::from(!is_resend);
        let key = format!("{}_{}", sender.number, number % KEYS);
        let event = TestEvent::new(&format!("evt_{}_{number}", sender.number), &format!(r#"{{"key":"{key}"}}"#));
        sender.send(&TestEvent { ordering: Some(key), ..event });
        thread::sleep(PAUSE);
    }
}

/// What was broken by a disaster that happened so often.
fn broken_by(disaster: fn(&mut Spooled, &Senders), rounds: usize, without: &str) -> Vec<String> {
    let mut spooled = Spooled::new("", without);
    let seed = chance().u64(..);
    let senders = Senders::start(&spooled.gateway().address(), SENDERS, move |sender| {
        send_some_twice(sender, Rng::with_seed(seed.wrapping_add(sender.number)));
    });
    senders.wait_for_more_promises(20);
    for _ in 0..rounds {
        disaster(&mut spooled, &senders);
        spooled.wait_until_drained();
        senders.wait_for_more_promises(5);
    }
    spooled.rig.note(senders);
    spooled.wait_until_drained();
    let (promised, in_vain) = (spooled.rig.ledger().promised(), spooled.rig.ledger().in_vain());
    eprintln!("{promised} events were promised, {in_vain} requests got no promise");
    assert!(promised > rounds * 20, "there was hardly any load");
    spooled.rig.broken_promises()
}

macro_rules! nothing_is_broken_by {
    ($($disaster:ident)*) => {
        mod nothing_is_broken_by {
            $(#[test]
            fn $disaster() {
                assert_eq!(super::broken_by(super::Spooled::$disaster, super::ROUNDS, ""), Vec::<String>::new());
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
    let spooled = Spooled::new(spool, "");
    assert_eq!(send(spooled.gateway(), 0).status, 200);
    let _frozen = spooled.postgres.freeze();
    (1..6).map(|serial| send(spooled.gateway(), serial).status).collect()
}

#[test]
fn without_a_spool_senders_are_refused_while_postgres_stands_still() {
    assert_eq!(answers_while_postgres_stands_still(""), [200; 5]);
    assert_eq!(answers_while_postgres_stands_still("spool = false"), [503; 5]);
}

#[test]
fn a_drainer_that_deletes_before_it_records_is_noticed() {
    let broken = broken_by(Spooled::killing_postgres_while_the_gateway_drains, 1, "SpoolOrder");
    assert!(broken.iter().any(|problem| problem.ends_with("was promised and is lost")), "{broken:?}");
}

fn send(gateway: &Gateway, serial: u64) -> Answer {
    Client::connect(gateway.ingest).send(&sample(serial)).expect("an answer")
}

#[test]
fn on_a_full_disk_senders_are_told_to_come_again_until_there_is_room() {
    let disk = Disk::new(32);
    let mut spooled = Spooled::new(&format!("spool = \"{}\"", disk.path().join("spool.db").display()), "");
    spooled.postgres.kill();
    let mut promised = vec![0];
    assert_eq!(send(spooled.gateway(), 0).status, 200);

    disk.fill();
    let mut serial = 0;
    // What SQLite has set aside for its log may hold a few more.
    let refused = loop {
        serial += 1;
        assert!(serial < 100_000, "a full disk takes everything");
        let answer = send(spooled.gateway(), serial);
        match answer.status {
            200 => promised.push(serial),
            _ => break answer,
        }
    };
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));

    disk.make_room();
    eventually("it takes events again", || send(spooled.gateway(), serial).status == 200);
    promised.push(serial);
    spooled.postgres.restart();
    spooled.wait_until_drained();
    let keys: Vec<_> = spooled.gateway().query("SELECT dedupe_key FROM events").concat();
    let lost: Vec<_> = promised.iter().map(|serial| sample_key(*serial)).filter(|key| !keys.contains(key)).collect();
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn when_the_disk_of_the_spool_fails_events_go_to_postgres_and_what_was_promised_before_is_drained_later() {
    let mut disk = Disk::new(32);
    let mut spooled = Spooled::new(&format!("spool = \"{}\"", disk.path().join("spool.db").display()), "");
    spooled.postgres.kill();
    assert_eq!(send(spooled.gateway(), 0).status, 200, "it is in the spool");
    disk.cut_power();
    assert_eq!(send(spooled.gateway(), 1).status, 503, "there is neither");

    spooled.postgres.restart();
    eventually("it is recorded in Postgres", || send(spooled.gateway(), 2).status == 200);
    let readiness = || {
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        Client::connect(spooled.gateway().ingest).raw(request).unwrap().text()
    };
    eventually("it says so", || readiness().starts_with("degraded: the spool cannot be used"));
    let keys =
        |spooled: &Spooled| spooled.gateway().query("SELECT dedupe_key FROM events ORDER BY dedupe_key").concat();
    assert_eq!(keys(&spooled), [sample_key(2)]);

    spooled.rig.kill();
    disk.power_on();
    spooled.rig.restart();
    spooled.wait_until_drained();
    assert_eq!(keys(&spooled), [sample_key(0), sample_key(2)]);
}
