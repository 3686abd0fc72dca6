//! The working half over the real binary: on SQLite and in-process, on Postgres and in-process, on Postgres and JetStream.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

/// Runs each test on every set-up.
macro_rules! on_all {
    ($($test:ident)*) => {
        on_all!(@ sqlite Sqlite $($test)*);
        on_all!(@ postgres Postgres $($test)*);
        on_all!(@ jetstream JetStream $($test)*);
    };
    (@ $module:ident $on:ident $($test:ident)*) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test(crate::On::$on);
            })*
        }
    };
}

mod backlog;
mod contract;
mod handlers;
mod operate;
mod ordering;
mod roles;
mod table;

use hookfast_harness::{Client, Database, NatsVersion, PrivateNats, Rig, Setup, TestEvent};

const BINARY: &str = env!("CARGO_BIN_EXE_hookfast-test-worker");

/// What a test runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    Sqlite,
    Postgres,
    JetStream,
}

/// A gateway at work, with these lines in `[handlers.actor]`.
pub(crate) fn rig(on: On, actor: &str) -> Rig {
    let handlers = format!("[handlers.actor]\n{actor}");
    if !matches!(on, On::JetStream) {
        return Rig::together(setup(on, None).handlers(&handlers));
    }
    let nats = PrivateNats::start(NatsVersion::Current);
    Rig::together(setup(on, Some(&nats)).handlers(&handlers)).keeping(nats)
}

/// A gateway that is yet to start.
pub(crate) fn setup(on: On, nats: Option<&PrivateNats>) -> Setup {
    let database = if matches!(on, On::Sqlite) { Database::Sqlite } else { Database::Postgres };
    let setup = Setup::new(BINARY, database).ingest("answer_deadline = \"20s\"");
    match nats {
        Some(nats) => setup.queue(&nats.url()),
        None => setup,
    }
}

/// Sends an event over a connection that is there, and gets a 2xx.
pub(crate) fn send(client: &mut Client, id: &str, act: &str) {
    assert_eq!(client.send(&TestEvent::new(id, act).request()).unwrap().status, 200, "{id}");
}
