//! One handler, body, statement, link or operator in trouble: all others go on, and the jobs in trouble end, or can be seen.
//! The settings are the product's own, except where a limit has to be small to be reached. There are no negative controls:
//! that handlers are apart is how the parts are cut, and nothing that could be taken away.

mod backlog;
mod bodies;
mod interruptions;
mod panics;
mod room;
mod seen;
mod statements;
mod suspects;

use std::fs;
use std::time::Duration;

use hookfast_harness::{Database, Gateway, NatsVersion, PrivateNats, Setup, TestEvent, eventually_within};

use crate::rig::{BINARY, unhurried};

/// A generous bound for what takes a moment on an idle machine.
const SOON: Duration = Duration::from_secs(60);

/// A handler that writes a line for each of its events, and is never in trouble itself.
const INNOCENT: &str = "[handlers.bb]\nrun = \"log\"\ntypes = [\"bb.*\", \"both.*\"]\n";

fn setup(database: Database) -> Setup {
    unhurried(Setup::new(BINARY, database))
}

fn nats() -> PrivateNats {
    PrivateNats::start(NatsVersion::Current)
}

/// Sends an event of this type and gets a 2xx.
fn send(gateway: &Gateway, kind: &str, id: &str, act: &str) {
    let answer = TestEvent::about(id, (kind, "acct_1"), act).send_to(gateway.ingest).unwrap();
    assert_eq!(answer.status, 200, "{id}: {}", answer.text());
}

fn send_many(gateway: &Gateway, kind: &str, prefix: &str, count: usize, act: &str) {
    for number in 0..count {
        send(gateway, kind, &format!("{prefix}_{number}"), act);
    }
}

/// How many runs were noted with this kind of failure.
fn failures(gateway: &Gateway, kind: &str) -> usize {
    gateway.count(&format!("attempts WHERE failure = '{kind}'"))
}

fn wait_for_jobs(gateway: &Gateway, handler: &str, state: &str, expected: usize) {
    let what = format!("{expected} jobs of {handler} are {state}");
    eventually_within(SOON, &what, || gateway.count_jobs(handler, state) == expected);
}

/// Lets those go on that wait to be told.
fn tell(gateway: &Gateway) {
    fs::write(gateway.folder().join("told"), "").unwrap();
}

/// Jobs that are written by SQL: copies of the newest event, each with its own id, key and job.
struct Copies<'a> {
    handler: &'a str,
    state: &'a str,
    count: usize,
    /// An SQL expression for the ordering key.
    ordering_key: &'a str,
    /// Seconds from now until they are due.
    due_in: i64,
}

impl Default for Copies<'_> {
    fn default() -> Self {
        Self { handler: "actor", state: "pending", count: 0, ordering_key: "NULL", due_in: 0 }
    }
}

impl Copies<'_> {
    fn write(&self, gateway: &Gateway) {
        let Self { handler, state, count, ordering_key, due_in } = self;
        let is_sqlite = gateway.store_url().starts_with("sqlite:");
        let (numbers, id, now) = if is_sqlite {
            (
                format!(
                    "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers \
                     WHERE number < {count})"
                ),
                "CAST(x'0174876e8000700080' || randomblob(7) AS BLOB)",
                "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
            )
        } else {
            (
                format!("WITH numbers AS (SELECT number FROM generate_series(1, {count}) AS number)"),
                "(lpad(to_hex(1600000000000 + number), 12, '0') || '70008' || substr(md5(random()::text), 1, 15))::uuid",
                "now()",
            )
        };
        let after = |seconds: i64| match is_sqlite {
            true => format!("{now} + {}", seconds * 1_000_000),
            false => format!("{now} + make_interval(secs => {seconds})"),
        };
        let finished = if matches!(*state, "pending" | "failed") { "NULL" } else { now };
        let reason = if matches!(*state, "pending") { "NULL" } else { "'internal'" };
        gateway.sql(&format!(
            "INSERT INTO events (id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, \
                 request_id, remote_address, method, url, headers, body, object_id) \
             {numbers} SELECT {id}, source, 'copy_{handler}_{state}_' || number, event_type, account, occurred_at, \
                 received_at, proof, request_id, remote_address, method, url, headers, body, object_id \
             FROM numbers, (SELECT * FROM events ORDER BY id DESC LIMIT 1) AS template; \
             INSERT INTO jobs (event_id, handler, state, attempts, due_at, finished_at, reason, ordering_key) \
             SELECT id, '{handler}', '{state}', 0, {}, {finished}, {reason}, {ordering_key} FROM events \
             WHERE dedupe_key LIKE 'copy_{handler}_{state}_%'",
            after(*due_in)
        ));
    }
}
