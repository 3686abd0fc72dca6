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

use hookfast_harness::{Client, Database, Gateway, NatsVersion, PrivateNats, Setup, eventually, signed};

const BINARY: &str = env!("CARGO_BIN_EXE_hookfast-test-worker");

/// What a test runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    Sqlite,
    Postgres,
    JetStream,
}

/// A gateway at work, with the server beside it that it may need.
pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
    _nats: Option<PrivateNats>,
}

impl Rig {
    /// Starts a gateway with these lines in `[handlers.actor]`.
    pub(crate) fn start(on: On, actor: &str) -> Self {
        let nats = matches!(on, On::JetStream).then(|| PrivateNats::start(NatsVersion::Current));
        let gateway = setup(on, nats.as_ref()).handlers(&format!("[handlers.actor]\n{actor}")).start();
        gateway.wait_for_table("done");
        Self { gateway, _nats: nats }
    }

    /// Sends an event that tells the handler what to do.
    pub(crate) fn send(&self, id: &str, act: &str) {
        send(&mut self.gateway.client(), id, act);
    }

    /// The state of the job of an event, and how often it was tried.
    pub(crate) fn job(&self, id: &str) -> (String, u32) {
        let rows = self.gateway.query(&format!(
            "SELECT state, attempts FROM jobs WHERE event_id = (SELECT id FROM events WHERE dedupe_key = '{id}')"
        ));
        let [row] = &rows[..] else { panic!("one job for {id}, not {rows:?}") };
        (row[0].clone(), row[1].parse().unwrap())
    }

    /// Waits until the job of an event is in this state.
    pub(crate) fn wait_for(&self, id: &str, state: &str) {
        eventually(&format!("{id} is {state}"), || self.job(id).0 == state);
    }

    /// The effects of an event, in their order.
    pub(crate) fn effects(&self, id: &str) -> Vec<String> {
        let rows = self.gateway.query(&format!("SELECT effect FROM done WHERE event = '{id}' ORDER BY place"));
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }
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

/// Sends an event and gets a 2xx.
pub(crate) fn send(client: &mut Client, id: &str, act: &str) {
    send_as(client, id, ("invoice.paid", "acct_1"), act);
}

/// The same with another type and account.
pub(crate) fn send_as(client: &mut Client, id: &str, (event_type, account): (&str, &str), act: &str) {
    let body = format!(r#"{{"id":"{id}","type":"{event_type}","created":1,"account":"{account}","act":{act}}}"#);
    assert_eq!(client.send(&signed(&body)).unwrap().status, 200, "{id}");
}
