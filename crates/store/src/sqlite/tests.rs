//! What is particular to SQLite: its plans, its steps, and the write lock that processes share.

use hookfast_webhook::HandlerName;
use rusqlite::{Connection, StatementStatus};
use sqlx::Row;

use super::open::BUSY_TIMEOUT;
use super::{SqliteStore, act, sweep, work};
use crate::{Migrate, StoreError, Sweep, Work};

/// SQLite's plans for the statements of a text.
async fn plans(store: &SqliteStore, text: &'static str) -> Vec<String> {
    let mut lines = Vec::new();
    for statement in text.split(';') {
        let explain = &*format!("EXPLAIN QUERY PLAN {statement}").leak();
        let rows = sqlx::query(explain).fetch_all(&store.readers).await.expect("the statement is right");
        lines.extend(rows.iter().map(|row| row.get::<String, _>("detail")));
    }
    lines
}

/// Another process holds the write lock for longer than one try lasts.
#[tokio::test(flavor = "multi_thread")]
async fn an_operators_act_waits_for_its_turn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.db");
    let store = SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.expect("opens");
    let other = Connection::open(&path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("nothing else writes");
    let (first_try, act) = tokio::join!(store.begin(), async {
        let mut act = std::pin::pin!(store.begin_patiently());
        assert!(tokio::time::timeout(BUSY_TIMEOUT * 2, &mut act).await.is_err(), "it waits");
        other.execute_batch("ROLLBACK").expect("it was begun");
        act.await
    });
    assert!(matches!(first_try, Err(StoreError::Unavailable(_))), "one try does not wait that long");
    act.expect("its turn has come");
}

/// The process of a suspect lives, and cannot renew its lease while another process holds the write lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_had_to_wait_judges_no_leases() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.db");
    let store = SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.expect("opens");
    let other = Connection::open(&path).expect("opens");
    let job = "INSERT INTO jobs (event_id, handler, state, due_at, attempts, claimed_at, worker)
               VALUES (zeroblob(16), 'ledger', 'processing', 1, 1, 1, 'child'),
                      (randomblob(16), 'ledger', 'failed', 1, 1, NULL, NULL)";
    other.execute_batch(job).expect("it is a job");
    let handlers = [HandlerName::new("ledger").expect("a name")];
    let within = std::time::Duration::from_millis(100);
    let sweep = Sweep { handlers: &handlers, limit: 10, crash_limit: 3, judge_leases_within: Some(within) };
    other.execute_batch("BEGIN IMMEDIATE").expect("nothing else writes");
    let (swept, ()) = tokio::join!(store.sweep(&sweep), async {
        tokio::time::sleep(within * 3).await;
        other.execute_batch("ROLLBACK").expect("it was begun");
    });
    let swept = swept.expect("the store answers");
    assert!(swept.came_late && swept.crashed.is_empty(), "{swept:?}");
    assert_eq!(swept.changed, 1, "a retry that is due needs no lease");
    let swept = store.sweep(&sweep).await.expect("the store answers");
    assert_eq!((swept.came_late, swept.crashed.len()), (false, 1), "it had time to renew it");
}

/// A statement that goes through a whole table is right, and ever slower.
#[tokio::test]
async fn no_verb_goes_through_a_whole_table() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.db");
    let store = SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.expect("opens");
    let many = [
        &work::INSERT_ATTEMPTS,
        &work::SETTLE_JOBS,
        &work::BEHIND,
        &work::RENEW,
        &work::HAND_BACK,
        &work::PARDON_ATTEMPTS,
        &work::PARDON_JOBS,
        &act::REPLAY,
        &act::FORGET_EFFECTS,
        &act::RESOLVE,
        &act::REOPEN,
        &act::NEXT_IN_LINE,
    ];
    let mut texts = vec![work::CLAIM, work::CLAIM_IN_ORDER, sweep::SWEEP, sweep::IS_ANY_DUE, sweep::DUE_JOBS];
    texts.extend(many.iter().flat_map(|statement| [1, 256].map(|rows| statement.of_size(rows).0)));
    for text in texts {
        for line in plans(&store, text).await {
            let table = line.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let tables = ["jobs", "held", "earlier", "dead", "behind", "events", "head", "effects", "attempts"];
            assert!(!tables.contains(&table), "{line} in {text}");
        }
    }
}

/// How many steps SQLite takes for the statements of a text, about the last job of the key.
fn steps(connection: &Connection, text: &str, blocks: bool) -> i32 {
    let mut steps = 0;
    for statement in text.split(';') {
        let mut statement = connection.prepare(statement).expect("the statement is right");
        for index in 1..=statement.parameter_count() {
            let name = statement.parameter_name(index).expect("all have a name").to_owned();
            let is_claim = text != sweep::DUE_JOBS;
            let bound = match (name.as_str(), is_claim) {
                ("$1", _) => statement.raw_bind_parameter(index, "ledger"),
                ("$2", true) => statement.raw_bind_parameter(index, format!("[\"{}\"]", "ff".repeat(16))),
                ("$2", false) => statement.raw_bind_parameter(index, 0),
                ("$3", _) => statement.raw_bind_parameter(index, [0_u8; 16]),
                ("$4", true) => statement.raw_bind_parameter(index, "w1"),
                ("$6", false) | ("$9", _) => statement.raw_bind_parameter(index, blocks),
                _ => statement.raw_bind_parameter(index, 1000),
            };
            bound.expect("there is such a parameter");
        }
        let mut rows = statement.raw_query();
        while rows.next().expect("it runs").is_some() {}
        drop(rows);
        steps += statement.get_status(StatementStatus::VmStep);
    }
    steps
}

/// Postgres' side of this is among the conformance tests.
#[tokio::test]
async fn many_dead_letters_of_a_key_cost_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.db");
    let _store = SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.expect("opens");
    let connection = Connection::open(&path).expect("opens");
    let all_steps = || {
        let both = [true, false];
        [work::CLAIM_IN_ORDER, sweep::DUE_JOBS].map(|text| {
            both.map(|blocks| {
                connection.execute_batch("BEGIN").expect("it runs");
                let steps = steps(&connection, text, blocks);
                connection.execute_batch("ROLLBACK").expect("it runs");
                steps
            })
        })
    };
    let job = "INSERT INTO jobs (event_id, handler, due_at, ordering_key)
               VALUES (unhex('ffffffffffffffffffffffffffffffff'), 'ledger', 1, 'a')";
    connection.execute_batch(job).expect("it runs");
    let alone = all_steps();
    let dead_letters = "
        WITH RECURSIVE ids (number) AS (VALUES (1) UNION ALL SELECT number + 1 FROM ids WHERE number < 2000)
        INSERT INTO jobs (event_id, handler, state, due_at, ordering_key, reason, finished_at)
        SELECT unhex(printf('%032x', number)), 'ledger', 'dead_letter', 1, 'a', 'refused', 1 FROM ids";
    connection.execute_batch(dead_letters).expect("it runs");
    let behind_many = all_steps();
    for (alone, behind_many) in alone.iter().flatten().zip(behind_many.iter().flatten()) {
        assert!(*alone > 0 && *behind_many < alone + 100, "{alone} steps became {behind_many}");
    }
}
