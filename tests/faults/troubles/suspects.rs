//! Jobs that are dead if they crash once more run where they can take nothing with them.

use hookfast_harness::{Database, Gateway, eventually_within};

use super::{INNOCENT, SOON, failures, send, send_many, setup, wait_for_jobs};

/// A gateway whose handler `actor` finds jobs that crashed all but once too often.
fn with_suspects(database: Database, suspects: usize, act: &str) -> Gateway {
    let actor = "[handlers.actor]\ndeadline = \"1h\"\ntypes = [\"actor.*\"]\n";
    let mut gateway = setup(database)
        .handlers(&format!("{actor}paused = true\n{INNOCENT}"))
        .sections("[work]\nlease = \"5s\"\n")
        .start();
    send_many(&gateway, "actor.came", "suspect", suspects, act);
    gateway.sql("UPDATE jobs SET crashes = 2 WHERE handler = 'actor'");
    gateway.change_handlers(&format!("{actor}{INNOCENT}"));
    gateway.restart_in_order()
}

#[test]
fn suspects_hold_up_no_other_handler_on_sqlite() {
    suspects_hold_up_no_other_handler(Database::Sqlite);
}

#[test]
fn suspects_hold_up_no_other_handler_on_postgres() {
    suspects_hold_up_no_other_handler(Database::Postgres);
}

/// They run until they are told to end, which comes after the others are done.
fn suspects_hold_up_no_other_handler(database: Database) {
    let mut gateway = with_suspects(database, 15, r#"{"until_told":true}"#);
    let pid = gateway.pid();
    eventually_within(SOON, "a suspect runs", || gateway.count_jobs("actor", "processing") > 0);
    for number in 0..5 {
        send_many(&gateway, "bb.came", &format!("evt_{number}"), 20, "{}");
        wait_for_jobs(&gateway, "bb", "succeeded", 20 * (number + 1));
    }
    assert_eq!(gateway.count_jobs("actor", "succeeded"), 0, "suspects were still at it");
    super::tell(&gateway);
    wait_for_jobs(&gateway, "actor", "succeeded", 15);
    assert_eq!((gateway.count("done"), gateway.count("jobs WHERE crashes > 0")), (15, 0));
    assert!(gateway.is_running() && gateway.pid() == pid);
}

#[test]
fn a_suspect_that_aborts_ends_alone_on_sqlite() {
    a_suspect_that_aborts_ends_alone(Database::Sqlite);
}

#[test]
fn a_suspect_that_aborts_ends_alone_on_postgres() {
    a_suspect_that_aborts_ends_alone(Database::Postgres);
}

fn a_suspect_that_aborts_ends_alone(database: Database) {
    let mut gateway = with_suspects(database, 3, r#"{"abort":true}"#);
    let pid = gateway.pid();
    eventually_within(SOON, "all suspects are dead", || {
        assert!(gateway.is_running(), "a suspect took the gateway with it");
        gateway.count_jobs("actor", "dead_letter") == 3
    });
    assert_eq!(gateway.count("jobs WHERE reason = 'crash' AND crashes = 3"), 3);
    assert!(gateway.pid() == pid);
    send(&gateway, "bb.came", "evt_1", "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", 1);
}

#[test]
fn a_deploy_is_no_crash_of_a_suspect_on_sqlite() {
    a_deploy_is_no_crash_of_a_suspect(Database::Sqlite);
}

#[test]
fn a_deploy_is_no_crash_of_a_suspect_on_postgres() {
    a_deploy_is_no_crash_of_a_suspect(Database::Postgres);
}

/// One more crash and the job would be a dead letter.
fn a_deploy_is_no_crash_of_a_suspect(database: Database) {
    let mut gateway = with_suspects(database, 1, r#"{"until_told":true}"#);
    for deploys in 0..2 {
        eventually_within(SOON, "the suspect runs again", || {
            gateway.count_jobs("actor", "processing") == 1 && failures(&gateway, "interrupted") == deploys
        });
        gateway = gateway.restart_in_order();
    }
    // A gateway that dies takes the leash with it.
    eventually_within(SOON, "the suspect runs again", || {
        gateway.count_jobs("actor", "processing") == 1 && failures(&gateway, "interrupted") == 2
    });
    let gateway = gateway.restart();
    super::tell(&gateway);
    wait_for_jobs(&gateway, "actor", "succeeded", 1);
    assert_eq!((failures(&gateway, "interrupted"), failures(&gateway, "crash")), (3, 0));
    assert_eq!(gateway.count("done"), 1);
}
