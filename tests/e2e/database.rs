//! The database refuses, loses its tables, or stands still.

use std::sync::Barrier;

use hookfast_harness::{Answer, Database, Gateway, PrivatePostgres, Signal, eventually, sample};

use crate::{patient, setup};

pub(crate) fn get(gateway: &Gateway, path: &str) -> Answer {
    gateway.client().raw(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap()
}

fn one_bad_row_does_not_spoil_the_others(database: Database) {
    const CLIENTS: u64 = 32;
    const BAD: u64 = 13;
    let gateway = patient(database).start();
    gateway.sql(match database {
        Database::Sqlite => {
            "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN new.dedupe_key = 'evt_sample_13'
             BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END"
        }
        Database::Postgres => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF new.dedupe_key = 'evt_sample_13' THEN RAISE 'refused by a trigger'; END IF; RETURN new; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()"
        }
    });
    let start = Barrier::new(CLIENTS as usize);
    std::thread::scope(|scope| {
        for serial in 0..CLIENTS {
            let (gateway, start) = (&gateway, &start);
            scope.spawn(move || {
                let mut client = gateway.client();
                start.wait();
                let answer = client.send(&sample(serial)).unwrap();
                assert_eq!(answer.status, if serial == BAD { 503 } else { 200 }, "{serial}: {}", answer.text());
            });
        }
    });
    assert_eq!(gateway.events().len() as u64, CLIENTS - 1);
    assert!(gateway.log().contains("refused by a trigger"));
}

fn it_is_live_and_ready_until_a_table_is_gone(database: Database) {
    let gateway = patient(database).start();
    assert_eq!((get(&gateway, "/livez").status, get(&gateway, "/readyz").status), (200, 200));
    gateway.sql("DROP TABLE jobs");
    eventually("it is not ready", || get(&gateway, "/readyz").status == 503);
    let answer = get(&gateway, "/readyz");
    assert_eq!(answer.json()["detail"], "the store cannot be used");
    assert_eq!(get(&gateway, "/livez").status, 200, "a restart would not help");
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 503);
}

on_both! {
    one_bad_row_does_not_spoil_the_others
    it_is_live_and_ready_until_a_table_is_gone
    jobs_of_handlers_that_are_not_configured_are_shown
}

#[test]
fn it_is_not_ready_while_another_process_holds_the_write_lock() {
    let gateway = setup(Database::Sqlite).start();
    eventually("it is ready", || get(&gateway, "/readyz").status == 200);
    let hold = gateway.hold_writes();
    eventually("it is not ready", || get(&gateway, "/readyz").status == 503);
    assert!(gateway.log().contains("another process holds the write lock"));
    drop(hold);
    eventually("it is ready again", || get(&gateway, "/readyz").status == 200);
}

#[test]
fn a_command_that_cannot_write_says_who_holds_the_lock() {
    let gateway = patient(Database::Sqlite).start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    gateway.sql("UPDATE jobs SET state = 'succeeded'");
    let id = gateway.events()[0].id.to_string();
    let _hold = gateway.hold_writes();
    let ended = gateway.command(&["replay", &id, "--succeeded", "--yes", "--why", "a test"]);
    assert_eq!(ended.code, 5, "{}", ended.errors);
    assert!(ended.errors.contains("another process holds the write lock of the database"), "{}", ended.errors);
}

fn jobs_of_handlers_that_are_not_configured_are_shown(database: Database) {
    let mut gateway = patient(database).start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    gateway.sql("UPDATE jobs SET handler = 'gone'");
    gateway.signal(Signal::Term);
    gateway.wait();
    let gateway = gateway.restart();
    let line = "jobs of `gone`, which is not in the configuration: 1 pending\n";
    let answer = get(&gateway, "/readyz?verbose");
    assert!(answer.status == 200 && answer.text().starts_with("ready\nstore: usable\n"), "{}", answer.text());
    assert!(answer.text().contains(line), "{}", answer.text());
    eventually("the log warns of them", || {
        let log = gateway.log();
        log.contains("hookfast jobs list --handler gone") && log.contains("hookfast jobs move")
    });
}

#[test]
fn while_postgres_stands_still_senders_are_told_to_come_again() {
    let postgres = PrivatePostgres::start(&[]);
    let gateway = setup(Database::Sqlite).store(&postgres.database()).start();
    eventually("it records", || gateway.client().send(&sample(1)).unwrap().status == 200);

    let frozen = postgres.freeze();
    let answer = gateway.client().send(&sample(2)).unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    eventually("it is not ready", || get(&gateway, "/readyz").status == 503);
    assert_eq!(get(&gateway, "/livez").status, 200);

    drop(frozen);
    eventually("it is ready again", || get(&gateway, "/readyz").status == 200);
    eventually("it records again", || gateway.client().send(&sample(2)).unwrap().status == 200);
    let keys: Vec<_> = gateway.events().into_iter().map(|event| event.dedupe_key).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[test]
fn when_postgres_is_gone_it_is_not_ready_and_answers_all_the_same() {
    let postgres = PrivatePostgres::start(&[]);
    let gateway = setup(Database::Sqlite).store(&postgres.database()).start();
    eventually("it records", || gateway.client().send(&sample(1)).unwrap().status == 200);
    drop(postgres);
    let answer = gateway.client().send(&sample(2)).unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    eventually("it is not ready", || get(&gateway, "/readyz").status == 503);
    assert_eq!(get(&gateway, "/livez").status, 200);
}
