//! What an operator sees and says about one handler.

use hookfast_harness::{Database, Gateway, Setup, eventually_within};

use super::{Copies, INNOCENT, SOON, nats, send, setup, wait_for_jobs};

const ACTOR: &str = "[handlers.actor]\ntypes = [\"actor.*\"]\n";

fn wait_for_gauge(gateway: &Gateway, handler: &str, state: &str, expected: usize) {
    let series = format!("hookfast_jobs{{handler=\"{handler}\",state=\"{state}\"}}");
    eventually_within(SOON, &format!("{series} is {expected}"), || {
        gateway.metric_if_any(&series) == Some(expected as f64)
    });
}

#[test]
fn the_jobs_of_a_removed_handler_are_counted() {
    let mut gateway = setup(Database::Sqlite)
        .handlers(&format!("{ACTOR}{INNOCENT}[handlers.aa]\nrun = \"log\"\npaused = true"))
        .start();
    for number in 0..5 {
        send(&gateway, "invoice.paid", &format!("evt_{number}"), "{}");
    }
    gateway.change_handlers(&format!("{ACTOR}{INNOCENT}"));
    let gateway = gateway.restart_in_order();
    wait_for_gauge(&gateway, "aa", "pending", 5);
}

#[test]
fn the_jobs_of_each_handler_are_counted_on_sqlite() {
    the_jobs_of_each_handler_are_counted(Database::Sqlite);
}

#[test]
fn the_jobs_of_each_handler_are_counted_on_postgres() {
    the_jobs_of_each_handler_are_counted(Database::Postgres);
}

fn the_jobs_of_each_handler_are_counted(database: Database) {
    let paused = |name| format!("[handlers.{name}]\nrun = \"log\"\npaused = true\n");
    let gateway = setup(database).handlers(&format!("{ACTOR}{}{}", paused("aa"), paused("zz"))).start();
    send(&gateway, "invoice.paid", "evt_1", "{}");
    Copies { handler: "aa", count: 120_000, ..Copies::default() }.write(&gateway);
    Copies { handler: "zz", state: "failed", count: 777, due_in: 3600, ..Copies::default() }.write(&gateway);
    wait_for_gauge(&gateway, "aa", "pending", 120_001);
    wait_for_gauge(&gateway, "zz", "failed", 777);
    wait_for_gauge(&gateway, "zz", "pending", 1);
}

#[test]
fn a_handler_is_paused_and_resumed_by_sighup_in_memory() {
    a_handler_is_paused_and_resumed(setup(Database::Sqlite));
}

#[test]
fn a_handler_is_paused_and_resumed_by_sighup_on_jetstream() {
    let nats = nats();
    a_handler_is_paused_and_resumed(setup(Database::Postgres).queue(&nats.url()));
}

fn a_handler_is_paused_and_resumed(setup: Setup) {
    let mut gateway = setup.handlers(&format!("{ACTOR}{INNOCENT}")).start();
    send(&gateway, "actor.came", "before", "{}");
    wait_for_jobs(&gateway, "actor", "succeeded", 1);

    gateway.change_handlers(&format!("{ACTOR}paused = true\n{INNOCENT}"));
    gateway.reload();
    for number in 0..5 {
        send(&gateway, "actor.came", &format!("paused_{number}"), "{}");
        send(&gateway, "bb.came", &format!("other_{number}"), "{}");
    }
    wait_for_jobs(&gateway, "bb", "succeeded", 5);
    // The sweeper had time to look at them, too: an event that comes later is done.
    send(&gateway, "bb.came", "other_last", "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", 6);
    assert_eq!(gateway.count_jobs("actor", "pending"), 5, "a paused handler runs nothing");

    gateway.change_handlers(&format!("{ACTOR}{INNOCENT}"));
    gateway.reload();
    wait_for_jobs(&gateway, "actor", "succeeded", 6);
}
