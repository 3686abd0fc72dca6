//! Many jobs that wait, and many dead letters, cost next to nothing.

use std::thread;
use std::time::Duration;

use hookfast_harness::{Database, Setup};

use super::{Copies, send, send_many, setup, tell, wait_for_jobs};

/// How often the sweeper looks again at what waits.
const AGAIN: Duration = Duration::from_secs(1);

fn impatient(setup: Setup) -> Setup {
    setup.sections(&format!("[work]\nsweep_every = \"200ms\"\ndispatch_again_after = \"{}s\"\n", AGAIN.as_secs()))
}

#[test]
fn a_standing_backlog_is_not_written_again_on_sqlite() {
    a_standing_backlog_is_not_written_again(Database::Sqlite);
}

#[test]
fn a_standing_backlog_is_not_written_again_on_postgres() {
    a_standing_backlog_is_not_written_again(Database::Postgres);
}

fn a_standing_backlog_is_not_written_again(database: Database) {
    const WAITING: usize = 50_000;
    let gateway = impatient(setup(database)).handlers("[handlers.actor]\ndeadline = \"1h\"").start();
    send(&gateway, "invoice.paid", "evt_1", r#"{"until_told":true}"#);
    wait_for_jobs(&gateway, "actor", "processing", 1);
    Copies { count: WAITING, ..Copies::default() }.write(&gateway);
    gateway.sql("CREATE TABLE before AS SELECT event_id, due_at FROM jobs");
    let touched = "jobs JOIN before ON before.event_id = jobs.event_id WHERE jobs.due_at <> before.due_at";
    // The sweeper has looked again and again; that time passes is what this is about.
    thread::sleep(AGAIN * 6);
    let touched = gateway.count(touched);
    assert!(touched < 200, "{touched} of {WAITING} waiting jobs were written again");
}

/// The dead letters of a key are not read for each job of the key.
#[test]
fn dead_letters_of_a_key_cost_an_ordered_handler_nothing_on_postgres() {
    const DEAD: usize = 20_000;
    const EVENTS: usize = 100;
    let gateway = setup(Database::Postgres).handlers("[handlers.actor]\nordering = \"per_event_type\"").start();
    send(&gateway, "invoice.paid", "evt_first", "{}");
    wait_for_jobs(&gateway, "actor", "succeeded", 1);
    dead_letters_of_the_same_key(DEAD).write(&gateway);
    gateway.sql("ANALYZE jobs");
    let read = |gateway: &hookfast_harness::Gateway| -> usize {
        let rows = gateway.query("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'jobs'");
        rows[0][0].parse().unwrap()
    };
    let gateway = gateway.restart_in_order();
    let before = read(&gateway);
    send_many(&gateway, "invoice.paid", "evt", EVENTS, "{}");
    wait_for_jobs(&gateway, "actor", "succeeded", EVENTS + 1);
    // A server counts what a session has read when the session ends, at the latest.
    let gateway = gateway.restart_in_order();
    let rows = read(&gateway) - before;
    assert!(rows < EVENTS * DEAD / 4, "{rows} entries of indexes were read for {EVENTS} events");
}

#[test]
fn dead_letters_of_a_key_cost_an_ordered_handler_nothing_on_sqlite() {
    const DEAD: usize = 100_000;
    let gateway = setup(Database::Sqlite).handlers("[handlers.actor]\nordering = \"per_event_type\"").start();
    send(&gateway, "invoice.paid", "evt_first", "{}");
    wait_for_jobs(&gateway, "actor", "succeeded", 1);
    dead_letters_of_the_same_key(DEAD).write(&gateway);
    let gateway = gateway.restart_in_order();
    let before = gateway.cpu_time();
    send_many(&gateway, "invoice.paid", "evt", 100, "{}");
    wait_for_jobs(&gateway, "actor", "succeeded", 101);
    // To read all dead letters once for each event takes tens of seconds of processor time.
    let used = gateway.cpu_time() - before;
    assert!(used < Duration::from_secs(10), "it used {used:?} of the processor for 100 events");
}

fn dead_letters_of_the_same_key(count: usize) -> Copies<'static> {
    let ordering_key = "(SELECT ordering_key FROM jobs WHERE ordering_key IS NOT NULL LIMIT 1)";
    Copies { state: "dead_letter", count, ordering_key, ..Copies::default() }
}

/// The backlog is worked off once its handler can.
#[test]
fn a_backlog_beyond_the_room_is_worked_off() {
    let gateway = impatient(setup(Database::Sqlite))
        .variable("HOOKFAST_QUEUE__CAPACITY", "50")
        .handlers("[handlers.actor]\ndeadline = \"1h\"")
        .start();
    send(&gateway, "invoice.paid", "evt_1", r#"{"until_told":true,"write":true}"#);
    Copies { count: 1000, ..Copies::default() }.write(&gateway);
    tell(&gateway);
    wait_for_jobs(&gateway, "actor", "succeeded", 1001);
}
