//! The halves of the gateway as processes of their own, any number of each.

use hookfast_harness::{Hold, NatsVersion, PrivateNats, Setup, Signal, eventually};

use crate::{BINARY, On, send, setup};

#[test]
fn receivers_and_workers_share_postgres_alone() {
    halves_share_the_work(None);
}

#[test]
fn receivers_and_workers_share_postgres_and_nats() {
    halves_share_the_work(Some(&PrivateNats::start(NatsVersion::Current)));
}

#[test]
fn receivers_and_workers_share_postgres_and_an_old_nats() {
    halves_share_the_work(Some(&PrivateNats::start(NatsVersion::Old)));
}

fn halves_share_the_work(nats: Option<&PrivateNats>) {
    let first = setup(On::Postgres, nats).handlers("").role("receive", &[]).start();
    let beside = |role: &str, arguments: &[&str]| {
        let setup = Setup::new(BINARY, hookfast_harness::Database::Postgres).store(first.store_url()).handlers("");
        let setup = match nats {
            Some(nats) => setup.queue(&nats.url()),
            None => setup,
        };
        setup.ingest("answer_deadline = \"20s\"").role(role, arguments).start()
    };
    let second = beside("receive", &[]);
    let workers = [beside("work", &[]), beside("work", &["--handlers", "actor"])];
    let (mut to_first, mut to_second) = (first.client(), second.client());
    let mut events = 0;
    eventually("both work", || {
        for _ in 0..50 {
            send(&mut to_first, &format!("evt_a{events}"), r#"{"sleep_ms":20}"#);
            send(&mut to_second, &format!("evt_b{events}"), r#"{"sleep_ms":20}"#);
            events += 2;
        }
        first.query("SELECT DISTINCT worker FROM attempts").len() == workers.len()
    });
    eventually("all are done", || first.count("jobs WHERE state = 'succeeded'") == events);
    assert_eq!((first.count("done"), first.count("attempts")), (events, events));
}

/// One handler's tables must not keep events out, nor the process from ending.
#[test]
fn it_receives_and_ends_while_the_tables_of_a_handler_wait_for_a_lock() {
    let first = setup(On::Postgres, None).handlers("").role("receive", &[]).start();
    let lock = "DO $$ BEGIN PERFORM pg_advisory_lock(hashtextextended('hookfast prepare', 0)); END $$;";
    let hold = Hold::with(first.store_url(), lock);
    let mut waiting = setup(On::Postgres, None).store(first.store_url()).handlers("[handlers.actor]\n").start();
    send(&mut waiting.client(), "evt_1", "{}");
    eventually("the log says so", || waiting.log().contains("still waiting for the tables of the handlers"));
    waiting.signal(Signal::Term);
    assert_eq!(waiting.wait().code(), Some(0));
    drop(hold);
    let gateway = waiting.restart();
    eventually("it is done", || gateway.count("jobs WHERE state = 'succeeded'") == 1);
}

#[test]
fn a_queue_that_is_away_at_the_start_is_named_in_the_log() {
    let nats = PrivateNats::absent(NatsVersion::Current);
    let gateway = setup(On::Postgres, Some(&nats)).handlers("").start();
    eventually("it says so", || gateway.printed().contains("The queue is not reached yet"));
    send(&mut gateway.client(), "evt_1", "{}");
}

#[test]
fn a_worker_for_some_handlers_leaves_the_others_alone() {
    let receiver = setup(On::Postgres, None).handlers("[handlers.other]\nrun = \"log\"").role("receive", &[]).start();
    let _worker = setup(On::Postgres, None)
        .store(receiver.store_url())
        .handlers("[handlers.other]\nrun = \"log\"")
        .role("work", &["--handlers", "other"])
        .start();
    send(&mut receiver.client(), "evt_1", "{}");
    let state = |handler: &str| receiver.query(&format!("SELECT state FROM jobs WHERE handler = '{handler}'"));
    eventually("its own job is done", || state("other") == [["succeeded"]]);
    assert_eq!(state("actor"), [["pending"]]);
}

#[test]
fn the_halves_do_not_share_sqlite() {
    for role in ["receive", "work"] {
        let ended = setup(On::Sqlite, None).handlers("").role(role, &[]).start_in_vain();
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.errors.contains("SQLite is for one process"), "{}", ended.errors);
    }
}

#[test]
fn a_worker_for_a_handler_that_does_not_exist_does_not_start() {
    let ended = setup(On::Postgres, None).handlers("").role("work", &["--handlers", "actr"]).start_in_vain();
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.errors.contains("there is no handler `actr`; there is: actor"), "{}", ended.errors);
}
