//! Jobs that wait do not multiply, and events without a handler do not get lost.

use hookfast_harness::{Database, NatsVersion, PrivateNats, Setup, eventually};

use crate::{BINARY, On, rig, send, setup};

/// One worker that is busy for long, many jobs behind it, and a sweeper that dispatches them again and again.
#[test]
fn a_standing_backlog_does_not_multiply_in_the_stream() {
    const JOBS: usize = 100;
    let nats = PrivateNats::start(NatsVersion::Current);
    let gateway = setup(On::JetStream, Some(&nats))
        .handlers("[handlers.actor]\nconcurrency = 1\ndeadline = \"10m\"")
        .sections("[work]\nsweep_every = \"100ms\"\ndispatch_again_after = \"200ms\"\n")
        .start();
    let mut client = gateway.client();
    for number in 0..JOBS {
        send(&mut client, &format!("evt_{number}"), r#"{"sleep_ms":600000}"#);
    }
    let swept = || gateway.metric("hookfast_sweeper_dispatched_total");
    // A walk through jobs that all wait already is repeated ever later.
    eventually("each was dispatched several times", || swept() > (JOBS * 4) as f64);
    assert!(nats.messages() <= JOBS as u64, "{} messages for {JOBS} jobs", nats.messages());
    assert_eq!(gateway.count("jobs WHERE state IN ('pending', 'processing')"), JOBS);
}

/// Without a handler there is no job. One that is added later can have the events all the same.
#[test]
fn events_without_a_handler_can_be_given_to_one_that_is_added_later() {
    let setup = Setup::new(BINARY, Database::Postgres).ingest("answer_deadline = \"20s\"");
    let before = setup.handlers("[handlers.actor]\ntypes = [\"nothing\"]").start();
    let mut client = before.client();
    for number in 0..5 {
        send(&mut client, &format!("evt_{number}"), "{}");
    }
    let listed = before.command(&["events", "list", "--unhandled", "--json"]);
    assert_eq!(listed.output.lines().count(), 5, "{listed:?}");

    let after = Setup::new(BINARY, Database::Postgres)
        .store(before.store_url())
        .handlers("[handlers.actor]\n[handlers.lines]\nrun = \"log\"\ntypes = [\"other\"]")
        .start();
    let replay = |handler: &str| after.command(&["replay", "--unhandled", "--handler", handler, "--json"]);
    let skipped = replay("lines").json();
    assert_eq!((&skipped["changed"], &skipped["skipped"]), (&0.into(), &5.into()), "it does not want them: {skipped}");
    let given = replay("actor").json();
    assert_eq!((&given["changed"], &given["done"]), (&5.into(), &true.into()), "{given}");
    after.wait_for_table("done");
    eventually("they are handled", || after.count("done") == 5);
    assert_eq!(replay("actor").json()["found"], 0, "they have a handler now");
}

#[test]
fn the_built_in_handler_writes_a_line_for_each_event() {
    let gateway = Setup::new(BINARY, Database::Sqlite)
        .ingest("answer_deadline = \"20s\"")
        .handlers("[handlers.actor]\npaused = true\n[handlers.lines]\nrun = \"log\"")
        .start();
    send(&mut gateway.client(), "evt_1", "{}");
    eventually("it is done", || gateway.query("SELECT state FROM jobs WHERE handler = 'lines'") == [["succeeded"]]);
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("an event came")).expect("a line for the event");
    assert!(line.contains("\"event_type\":\"invoice.paid\"") && !line.contains("acct_1\\\""), "{line}");
    assert_eq!(gateway.query("SELECT state FROM jobs WHERE handler = 'actor'"), [["pending"]], "its jobs wait");
}

on_all! { a_handler_can_have_a_priority_of_its_own }

fn a_handler_can_have_a_priority_of_its_own(on: On) {
    let rig = rig(on, "concurrency = 1\npriority = \"low\"");
    rig.send("evt_1", "{}");
    rig.wait_for("evt_1", "succeeded");
    assert_eq!(rig.gateway().query("SELECT priority FROM jobs"), [["low"]]);
}
