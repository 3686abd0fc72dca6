//! A process whose background work has ended must not go on as if nothing were wrong.

use hookfast_harness::{Database, TestEvent, eventually_within};

use super::{SOON, setup};

#[test]
fn a_panic_in_the_sweeper_ends_the_process() {
    ends_the_process("Sweeper");
}

#[test]
fn a_panic_in_the_settler_ends_the_process() {
    ends_the_process("Settler");
}

#[test]
fn a_panic_in_the_renewal_of_leases_ends_the_process() {
    ends_the_process("Leases");
}

fn ends_the_process(task: &str) {
    let mut gateway = setup(Database::Sqlite)
        .handlers("[handlers.actor]")
        .sections("[work]\nlease = \"3s\"\n")
        .variable("FAULT_PANIC_IN", task)
        .start();
    // Something to sweep, to settle and to renew. Where the process ends at once there may be no answer.
    let _ = TestEvent::new("evt_1", r#"{"sleep_ms":4000}"#).send_to(gateway.ingest);
    eventually_within(SOON, "the process ends", || !gateway.is_running());
    assert_eq!(gateway.wait().code(), Some(1));
    assert!(gateway.log().contains("panic"), "the log says why: {}", gateway.log());
}
