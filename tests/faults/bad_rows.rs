//! Experiment 29: in every batch is one event that the database refuses. Only the request it came with is refused.

use std::thread;

use hookfast_harness::{Client, Database, Gateway, Setup, TestEvent, post};

use crate::rig::{BINARY, unhurried};

const BATCHES: usize = 10;
const GOOD: usize = 30;

const ON_SQLITE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.dedupe_key LIKE 'evt_bad%' \
                         BEGIN SELECT RAISE(ABORT, 'refused'); END;";
const ON_POSTGRES: &str = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                           $$BEGIN RAISE EXCEPTION 'refused'; END$$; \
                           CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW \
                           WHEN (NEW.dedupe_key LIKE 'evt_bad%') EXECUTE FUNCTION refuse();";

fn gateway(database: Database) -> Gateway {
    unhurried(Setup::new(BINARY, database)).handlers("[handlers.actor]\npaused = true").start()
}

/// Sends good events and a bad one, so that they wait for the same commit. Gives the statuses, that of the bad one first.
fn send_batch(gateway: &Gateway, batch: usize) -> Vec<u16> {
    let hold = gateway.hold_writes();
    let ids = std::iter::once(format!("evt_bad_{batch}")).chain((0..GOOD).map(|good| format!("evt_{batch}_{good}")));
    let senders: Vec<_> = ids.map(|id| send(gateway, &id)).collect();
    drop(hold);
    senders.into_iter().map(|sender| sender.join().unwrap()).collect()
}

fn send(gateway: &Gateway, id: &str) -> thread::JoinHandle<u16> {
    let mut client = Client::connect(gateway.ingest);
    client.write(&post(&TestEvent::new(id, "{}").request())).unwrap();
    client.wait_until_read();
    thread::spawn(move || client.read_answer().unwrap().status)
}

fn only_the_bad_one_is_refused(database: Database, trigger: &str) {
    let gateway = gateway(database);
    gateway.sql(trigger);
    for batch in 0..BATCHES {
        let answers = send_batch(&gateway, batch);
        assert_eq!(answers[0], 503, "the bad one");
        assert!(answers[1..].iter().all(|status| *status == 200), "the good ones: {answers:?}");
    }
    assert_eq!(gateway.query("SELECT count(*) FROM events"), [[(BATCHES * GOOD).to_string()]]);
    assert_eq!(gateway.query("SELECT count(*) FROM jobs"), [[(BATCHES * GOOD).to_string()]]);
}

#[test]
fn one_bad_row_in_a_batch_refuses_one_request_on_sqlite() {
    only_the_bad_one_is_refused(Database::Sqlite, ON_SQLITE);
}

#[test]
fn one_bad_row_in_a_batch_refuses_one_request_on_postgres() {
    only_the_bad_one_is_refused(Database::Postgres, ON_POSTGRES);
}

/// It is the trigger that makes them bad.
#[test]
fn without_a_database_that_refuses_nobody_is_refused() {
    let answers = send_batch(&gateway(Database::Postgres), 0);
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
}
