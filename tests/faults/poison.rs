//! Experiment 13: handlers that take their process with them, or never come back. They become dead letters, and the others
//! are handled.

use hookfast_harness::{Database, Gateway, Setup, TO_THE_END, TestEvent, eventually_within};

use crate::rig::{BINARY, unhurried};

/// How many of each, if they do not take long.
const POISON: usize = 5;

const SETTINGS: &str = r#"
[work]
lease = "1s"
sweep_every = "200ms"
crash_limit = 2
threads = 4
shutdown_timeout = "3s"
"#;

/// Enough to work, not enough for everything.
const MEMORY: &[&str] = &["prlimit", "--as=4000000000", "--core=0"];

struct Village {
    gateway: Option<Gateway>,
    deaths: usize,
}

impl Village {
    fn new(without: &str) -> Self {
        let gateway = unhurried(Setup::new(BINARY, Database::Sqlite))
            .handlers("[handlers.actor]\nretry = [\"1s\"]\ndeadline = \"1s\"")
            .sections(SETTINGS)
            .variable("FAULT_WITHOUT", without)
            .under(MEMORY)
            .start();
        Self { gateway: Some(gateway), deaths: 0 }
    }

    /// The gateway, started anew if it has died: that is what a supervisor is for.
    fn gateway(&mut self) -> &Gateway {
        let mut gateway = self.gateway.take().expect("it is always put back");
        if !gateway.is_running() {
            self.deaths += 1;
            gateway = gateway.restart_wrapped();
        }
        self.gateway.insert(gateway)
    }

    fn send(&mut self, id: &str, act: &str) {
        let event = TestEvent::new(id, act);
        eventually_within(TO_THE_END, "it is taken", || {
            event.send_to(self.gateway().ingest).is_ok_and(|answer| answer.status == 200)
        });
    }

    fn count(&mut self, rows: &str) -> usize {
        self.gateway().count(rows)
    }
}

/// Sends good events and bad ones, and waits until all are handled or dead.
fn poisoned(act: &str, poison: usize) -> Village {
    let mut village = Village::new("");
    for number in 0..poison {
        village.send(&format!("good_a{number}"), "{}");
        village.send(&format!("bad_{number}"), act);
        village.send(&format!("good_b{number}"), "{}");
    }
    eventually_within(TO_THE_END * 2, "every job is finished", || village.count("jobs WHERE finished_at IS NULL") == 0);
    let dead = village.gateway().query(
        "SELECT events.dedupe_key FROM jobs JOIN events ON events.id = jobs.event_id WHERE jobs.state = 'dead_letter' ORDER BY 1",
    );
    let expected: Vec<_> = (0..poison).map(|number| vec![format!("bad_{number}")]).collect();
    assert_eq!(dead, expected, "the guilty are dead, and nobody else: {}", village.gateway().log());
    let done = village.gateway().query("SELECT event, count(*) FROM done GROUP BY event ORDER BY event");
    let good = |letter| (0..poison).map(move |number| vec![format!("good_{letter}{number}"), "1".into()]);
    assert_eq!(done, good("a").chain(good("b")).collect::<Vec<_>>(), "the innocent are done, once");
    village
}

/// Each takes the process with it, or a thread that does not come back, until it is dead.
fn assert_kills(act: &str, poison: usize) {
    let mut village = poisoned(act, poison);
    assert_eq!(village.count("jobs WHERE reason = 'crash'"), poison);
    assert!(village.deaths > 0, "the process never died of it");
}

#[test]
fn a_panic_is_a_failure_and_nobody_dies() {
    let mut village = poisoned(r#"{"panic":true}"#, POISON);
    assert_eq!(village.count("jobs WHERE reason = 'panic'"), POISON);
    assert_eq!(village.deaths, 0);
}

#[test]
fn a_handler_that_aborts_is_dead_in_the_end() {
    assert_kills(r#"{"abort":true}"#, POISON);
}

#[test]
fn a_handler_that_never_yields_is_dead_in_the_end() {
    assert_kills(r#"{"endless":true}"#, POISON);
}

/// On SQLite it keeps all others from writing.
#[test]
fn a_handler_that_never_yields_in_the_middle_of_an_effect_is_dead_in_the_end() {
    assert_kills(r#"{"endless_in_effect":true}"#, 1);
}

#[test]
fn a_handler_that_takes_all_memory_is_dead_in_the_end() {
    assert_kills(r#"{"memory":true}"#, POISON);
}

#[test]
fn a_handler_that_overflows_its_stack_is_dead_in_the_end() {
    assert_kills(r#"{"stack":true}"#, POISON);
}

/// Without the limit it goes on for ever, and is never seen dead.
#[test]
fn without_the_limit_a_handler_that_aborts_is_run_for_ever() {
    let mut village = Village::new("CrashLimit");
    village.send("bad", r#"{"abort":true}"#);
    eventually_within(TO_THE_END, "it was run more often than the limit allows", || {
        village.count("attempts WHERE failure = 'crash'") > 4
    });
    assert_eq!(village.count("jobs WHERE state = 'dead_letter'"), 0);
}
