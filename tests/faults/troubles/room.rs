//! The room in the queue is each handler's own.

use hookfast_harness::{Database, Setup, eventually_within};

use super::{INNOCENT, SOON, nats, send, send_many, setup, wait_for_jobs};

/// More events than one handler has room for.
const ROOM: &str = "200";
const EVENTS: usize = 300;

fn with_little_room(setup: Setup) -> Setup {
    setup.variable("HOOKFAST_QUEUE__CAPACITY", ROOM)
}

const PAUSED: &str = "[handlers.aa]\nrun = \"log\"\ntypes = [\"both.*\"]\npaused = true\n\
                      [handlers.actor]\npaused = true\ntypes = [\"actor.*\"]\n";
const WITHOUT: &str = "[handlers.actor]\npaused = true\ntypes = [\"actor.*\"]\n";

#[test]
fn a_paused_handler_takes_no_room_from_another() {
    let nats = nats();
    let mut gateway =
        with_little_room(setup(Database::Postgres)).queue(&nats.url()).handlers(&format!("{PAUSED}{INNOCENT}")).start();
    send_many(&gateway, "both.came", "first", EVENTS, "{}");
    send_many(&gateway, "both.came", "later", 20, "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", EVENTS + 20);
    assert_eq!(gateway.count_jobs("aa", "pending"), EVENTS + 20);
    eventually_within(SOON, "the stream holds no hints of a paused handler", || nats.messages() == 0);

    gateway.change_handlers(&format!("{WITHOUT}{INNOCENT}"));
    let gateway = gateway.restart_in_order();
    send_many(&gateway, "both.came", "after", 20, "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", EVENTS + 40);
    eventually_within(SOON, "the stream holds no hints of a removed handler", || nats.messages() == 0);
}

/// Its hints were published while it was there.
#[test]
fn a_removed_handler_with_a_backlog_takes_no_room_from_another() {
    let nats = nats();
    let handlers = format!("[handlers.actor]\npaused = true\ntypes = [\"actor.*\"]\n{INNOCENT}");
    let slow = "[handlers.slow]\ntypes = [\"both.*\"]\nconcurrency = 1\n";
    let mut gateway = with_little_room(setup(Database::Postgres))
        .queue(&nats.url())
        .handlers(&format!("{handlers}{slow}"))
        .variable("TEST_HANDLERS", "slow")
        .start();
    send_many(&gateway, "both.came", "first", EVENTS, r#"{"sleep_ms":3000}"#);
    eventually_within(SOON, "the slow handler has used up its room", || gateway.count_jobs("slow", "processing") > 0);

    gateway.change_handlers(&handlers);
    let gateway = gateway.with_variable("TEST_HANDLERS", "").restart_in_order();
    send_many(&gateway, "both.came", "after", 20, "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", EVENTS + 20);
    eventually_within(SOON, "the stream holds no hints of a removed handler", || nats.messages() == 0);
}

/// No process runs `aa`, which is neither paused nor removed.
#[test]
fn a_handler_without_a_worker_takes_no_room_from_another() {
    let nats = nats();
    let handlers = format!("[handlers.aa]\nrun = \"log\"\ntypes = [\"both.*\"]\n{WITHOUT}{INNOCENT}");
    let with_role = |setup: Setup, role, arguments: &[&str]| {
        with_little_room(setup).queue(&nats.url()).handlers(&handlers).role(role, arguments).start()
    };
    let receiver = with_role(setup(Database::Postgres), "receive", &[]);
    let beside = setup(Database::Sqlite).store(receiver.store_url());
    let _worker = with_role(beside, "work", &["--handlers", "bb"]);
    send_many(&receiver, "both.came", "evt", EVENTS, "{}");
    wait_for_jobs(&receiver, "bb", "succeeded", EVENTS);
    assert_eq!(receiver.count_jobs("aa", "pending"), EVENTS);
}

#[test]
fn a_slow_handler_with_a_backlog_takes_no_room_from_another_in_memory() {
    let slow = format!("[handlers.actor]\ntypes = [\"both.*\"]\nconcurrency = 1\n{INNOCENT}");
    let gateway = setup(Database::Sqlite).variable("HOOKFAST_QUEUE__CAPACITY", "100").handlers(&slow).start();
    send_many(&gateway, "both.came", "evt", 400, r#"{"sleep_ms":3000}"#);
    wait_for_jobs(&gateway, "bb", "succeeded", 400);
    send(&gateway, "bb.alone", "alone", "{}");
    wait_for_jobs(&gateway, "bb", "succeeded", 401);
    assert!(gateway.count_jobs("actor", "pending") > 100, "the slow handler still has a backlog beyond its room");
}
