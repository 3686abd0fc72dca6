//! While Postgres is away, events wait in a file beside the gateway.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hookfast_harness::{
    Answer, Database, Gateway, Hold, Link, PrivatePostgres, Proxy, Setup, Signal, eventually, eventually_within,
    sample, signed,
};

use crate::{patient, setup};

fn get(gateway: &Gateway, path: &str) -> Answer {
    gateway.client().raw(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap()
}

fn spooled(postgres: &PrivatePostgres) -> Setup {
    patient(Database::Sqlite).store(&postgres.database()).spool("")
}

fn send(gateway: &Gateway, serial: u64) -> u16 {
    gateway.client().send(&sample(serial)).unwrap().status
}

fn keys(gateway: &Gateway) -> Vec<String> {
    let mut keys: Vec<_> = gateway.events().into_iter().map(|event| event.dedupe_key).collect();
    keys.sort();
    keys
}

fn sample_keys(serials: impl Iterator<Item = u64>) -> Vec<String> {
    let mut keys: Vec<_> = serials.map(hookfast_harness::sample_key).collect();
    keys.sort();
    keys
}

#[test]
fn while_postgres_is_gone_events_are_accepted_and_later_they_are_all_there() {
    let mut postgres = PrivatePostgres::start(&[]);
    let gateway = spooled(&postgres).start();
    assert_eq!(send(&gateway, 0), 200);
    eventually("it is ready", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(gateway.metric("hookfast_spooling"), 0.0);

    postgres.kill();
    for serial in 0..20 {
        assert_eq!(send(&gateway, serial), 200, "{serial}");
    }
    eventually("it says so", || get(&gateway, "/readyz").text().starts_with("degraded: the store cannot be used"));
    assert_eq!(get(&gateway, "/readyz").status, 200);
    assert_eq!(gateway.metric("hookfast_spooling"), 1.0);
    eventually("the metrics say so", || gateway.metric("hookfast_spool_events") == 20.0);
    assert!(gateway.metric("hookfast_spool_bytes") > 0.0);
    assert!(gateway.log().contains("events are recorded into the spool"));
    let status = gateway.command(&["spool", "--json"]).json();
    assert_eq!((status["events"].as_u64(), status["refused"].as_u64()), (Some(20), Some(0)));
    assert!(
        gateway.command(&["spool"]).output.starts_with("20 events wait in the spool hookfast-spool.db, the oldest")
    );

    postgres.restart();
    eventually("it is ready again", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(keys(&gateway), sample_keys(0..20));
    let resends: i64 = gateway.events().iter().map(|event| event.resends).sum();
    assert_eq!(resends, 1, "the first one came again");
    assert_eq!(gateway.metric("hookfast_drained_events_total"), 20.0);
    assert_eq!(gateway.metric("hookfast_events_total{source=\"stripe\"}"), 20.0);
    assert_eq!(gateway.metric("hookfast_duplicates_total{source=\"stripe\"}"), 1.0);
    assert!(gateway.command(&["spool"]).output.starts_with("No event waits"));
}

#[test]
fn while_postgres_stands_still_senders_get_their_answers_within_the_deadline() {
    let postgres = PrivatePostgres::start(&[]);
    let gateway = setup(Database::Sqlite).store(&postgres.database()).spool("").start();
    eventually("it records", || send(&gateway, 0) == 200);
    let frozen = postgres.freeze();
    for serial in 1..10 {
        eventually("it is promised", || send(&gateway, serial) == 200);
    }
    drop(frozen);
    eventually("it is ready again", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(keys(&gateway), sample_keys(0..10));
}

#[test]
fn the_gateway_starts_without_postgres_and_works_when_that_is_there() {
    let mut postgres = PrivatePostgres::start(&[]);
    let setup = spooled(&postgres).handlers("[handlers.audit]\nrun = \"log\"");
    postgres.kill();
    let mut gateway = setup.start();
    eventually("it says so", || gateway.printed().contains("The store is not reached yet"));
    for serial in 0..5 {
        assert_eq!(send(&gateway, serial), 200);
    }
    assert!(get(&gateway, "/readyz").text().starts_with("degraded"));
    gateway.signal(Signal::Kill);
    gateway.wait();
    let gateway = gateway.restart();
    assert_eq!(send(&gateway, 5), 200);

    postgres.restart();
    eventually("it is ready", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(keys(&gateway), sample_keys(0..6));
    eventually("the jobs are done", || gateway.query("SELECT count(*) FROM jobs WHERE state = 'succeeded'") == [["6"]]);
}

#[test]
fn what_a_shutdown_leaves_in_the_spool_is_drained_at_the_next_start() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut gateway = spooled(&postgres).start();
    postgres.kill();
    assert_eq!(send(&gateway, 1), 200);
    gateway.signal(Signal::Term);
    assert!(gateway.wait().success());
    assert!(gateway.log().contains("events are left in the spool"));
    let status = gateway.command(&["spool", "--json"]).json();
    assert_eq!(status["events"].as_u64(), Some(1));

    postgres.restart();
    let gateway = gateway.restart();
    eventually("it is drained", || keys(&gateway) == sample_keys(1..2));
}

#[test]
fn one_event_that_postgres_refuses_does_not_hold_up_the_others() {
    let mut postgres = PrivatePostgres::start(&[]);
    let mut gateway = spooled(&postgres).start();
    gateway.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF new.dedupe_key = 'evt_sample_7' THEN RAISE 'refused by a trigger'; END IF; RETURN new; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    postgres.kill();
    for serial in 0..20 {
        assert_eq!(send(&gateway, serial), 200);
    }
    postgres.restart();
    eventually("it is ready again", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(keys(&gateway), sample_keys((0..20).filter(|serial| *serial != 7)));
    eventually("the metrics show it", || gateway.metric("hookfast_spool_refused_events") == 1.0);
    assert!(gateway.log().contains("the store does not take an event from the spool"));
    let status = gateway.command(&["spool", "--json"]).json();
    assert_eq!((status["events"].as_u64(), status["refused"].as_u64()), (Some(1), Some(1)));

    gateway.sql("DROP TRIGGER refuse ON events");
    gateway.signal(Signal::Term);
    gateway.wait();
    let gateway = gateway.restart();
    eventually("the next start tries it again", || keys(&gateway) == sample_keys(0..20));
}

/// It takes longer than any statement may, and less than one event alone may.
#[test]
fn a_large_event_on_a_narrow_link_holds_up_no_other() {
    let postgres = PrivatePostgres::start(&[]);
    let url = postgres.database();
    let link = Proxy::to_server_of(&url);
    let gateway = patient(Database::Sqlite).store(&link.through(&url)).spool("").start();
    assert_eq!(send(&gateway, 0), 200);
    link.set(Link::Narrow(400_000));
    let large = format!(r#"{{"id":"evt_large","type":"t","padding":"{}"}}"#, "x".repeat(4_000_000));
    assert_eq!(gateway.client().send(&signed(&large)).unwrap().status, 200);
    for serial in 1..30 {
        assert_eq!(send(&gateway, serial), 200);
    }
    let everything = || gateway.query("SELECT count(*) FROM events") == [["31"]];
    eventually_within(Duration::from_secs(120), "all are in Postgres", everything);
    let ids = gateway.query("SELECT dedupe_key FROM events ORDER BY id LIMIT 2");
    assert_eq!(ids, [["evt_sample_0"], ["evt_large"]]);
}

/// A migration that waits for a lock, or takes long, keeps no event out.
#[test]
fn the_gateway_receives_while_the_store_is_still_being_opened() {
    let postgres = PrivatePostgres::start(&[]);
    let url = postgres.database();
    let setup = patient(Database::Sqlite).store(&url).spool("");
    assert_eq!(setup.command(&["migrate"]).code, 0);
    let hold = Hold::with(&url, "BEGIN; LOCK TABLE _sqlx_migrations;");
    let gateway = setup.start();
    assert_eq!(send(&gateway, 0), 200);
    assert!(gateway.log().contains("the store is not open yet"));
    drop(hold);
    eventually("it is ready", || get(&gateway, "/readyz").text() == "ready\n");
    assert_eq!(keys(&gateway), sample_keys(0..1));
}

#[test]
fn a_store_that_comes_late_and_does_not_fit_is_said_to() {
    let mut postgres = PrivatePostgres::start(&[]);
    let setup = spooled(&postgres).without_migrate();
    postgres.kill();
    let gateway = setup.start();
    assert_eq!(send(&gateway, 0), 200);
    eventually("the log says that it is away", || gateway.log().contains("the spool cannot be drained"));
    postgres.restart();
    eventually("the log says what is wrong", || gateway.log().contains("migrations. Run `hookfast migrate`"));
    assert_eq!(gateway.command(&["migrate"]).code, 0);
    eventually("it is ready", || get(&gateway, "/readyz").text() == "ready\n");
}

#[test]
fn a_spool_is_private_and_belongs_to_one_process() {
    let postgres = PrivatePostgres::start(&[]);
    let gateway = spooled(&postgres).start();
    let spool = gateway.folder().join("hookfast-spool.db");
    assert_eq!(spool.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let second = spooled(&postgres).spool(&format!("spool = \"{}\"", spool.display())).start_in_vain();
    assert_eq!(second.code, 1);
    assert!(second.errors.contains("another process is using it"), "{}", second.errors);
}

#[test]
fn a_missing_database_is_not_taken_for_an_outage() {
    let postgres = PrivatePostgres::start(&[]);
    let ended = patient(Database::Sqlite).store(&format!("{}/nowhere", postgres.url())).spool("").start_in_vain();
    assert_eq!(ended.code, 5, "{}", ended.errors);
    assert!(ended.errors.contains("error: cannot use the Postgres database `nowhere`"), "{}", ended.errors);
}

#[test]
fn without_a_folder_that_can_be_written_to_it_refuses_to_start() {
    let postgres = PrivatePostgres::start(&[]);
    let ended = spooled(&postgres).spool("spool = \"no/such/folder/spool.db\"").start_in_vain();
    assert_eq!(ended.code, 1);
    assert!(ended.errors.contains("or have none with `spool = false`"), "{}", ended.errors);
    let ended = setup(Database::Sqlite).command(&["spool"]);
    assert_eq!((ended.code, ended.errors.contains("the store is SQLite")), (3, true), "{}", ended.errors);
    let ended = spooled(&postgres).spool("spool = false").command(&["spool"]);
    assert_eq!((ended.code, ended.errors.contains("`spool = false`")), (3, true), "{}", ended.errors);
}

#[test]
fn a_damaged_spool_is_named_with_what_to_do() {
    let postgres = PrivatePostgres::start(&[]);
    let setup = spooled(&postgres);
    setup.write_private("hookfast-spool.db", &"garbage ".repeat(2000));
    for ended in [setup.start_in_vain(), setup.command(&["spool"])] {
        assert_eq!(ended.code, 1, "{}", ended.errors);
        assert!(ended.errors.contains("the spool hookfast-spool.db is damaged"), "{}", ended.errors);
        assert!(ended.errors.contains("`spool = false`"), "{}", ended.errors);
    }
}
