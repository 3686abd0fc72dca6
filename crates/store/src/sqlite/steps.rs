//! How many steps SQLite takes for what operators ask and do, on a filled store. A plan that looks right can still walk
//! through all that ever happened: the number of steps shows it, on every machine alike.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use rusqlite::types::Value;
use rusqlite::{Connection, StatementStatus};
use time::OffsetDateTime;
use uuid::{NoContext, Timestamp, Uuid};

use super::{SqliteStore, act, find};
use crate::{Filter, Migrate, Which};

/// How many events there are, one a minute, each with one job.
const EVENTS: u32 = 20_000;

/// The first ones are dead letters of one ordering key; the last half is pending, each with a key of its own.
const DEAD: u32 = 5_000;
const PENDING: u32 = 10_000;

/// More than any statement here needs for one job. A walk through all jobs takes over a hundred thousand steps.
const FEW: i32 = 2_000;

struct Filled {
    connection: Connection,
    _folder: tempfile::TempDir,
}

fn arrival(number: u32) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_790_000_000 + i64::from(number) * 60).unwrap()
}

fn id(number: u32) -> Uuid {
    let seconds = arrival(number).unix_timestamp().unsigned_abs();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, 0))
}

impl Filled {
    async fn new() -> (Self, Vec<Uuid>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db");
        drop(SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.unwrap());
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("BEGIN").unwrap();
        let ids: Vec<_> = (0..EVENTS).map(id).collect();
        for (number, id) in (0..EVENTS).zip(&ids) {
            Self::insert(&connection, number, id);
        }
        connection.execute_batch("COMMIT").unwrap();
        (Self { connection, _folder: folder }, ids)
    }

    fn insert(connection: &Connection, number: u32, id: &Uuid) {
        let key = if number < DEAD { "dead".into() } else { format!("key-{number}") };
        let (state, finished) = match number {
            _ if number < DEAD => ("dead_letter", Some(1)),
            _ if number >= EVENTS - PENDING => ("pending", None),
            _ => ("succeeded", Some(1)),
        };
        let micros = arrival(number).unix_timestamp() * 1_000_000;
        connection
            .prepare_cached(
                "INSERT INTO events (id, source, dedupe_key, event_type, received_at, proof, request_id, remote_address,
                                     method, url, headers, body)
                 VALUES (?1, 'stripe', ?2, 'invoice.paid', ?3, '', x'', '', '', '', x'', x'')",
            )
            .unwrap()
            .execute((id.as_bytes(), number, micros))
            .unwrap();
        connection
            .prepare_cached(
                "INSERT INTO jobs (event_id, handler, state, due_at, ordering_key, finished_at, reason)
                 VALUES (?1, 'ledger', ?2, 0, ?3, ?4, 'timeout')",
            )
            .unwrap()
            .execute((id.as_bytes(), state, key, finished))
            .unwrap();
    }

    /// The steps of a statement with these values, which are undone.
    fn steps(&self, text: &str, values: &[Value]) -> i32 {
        self.connection.execute_batch("SAVEPOINT counted").unwrap();
        let mut statement = self.connection.prepare(text).unwrap();
        for place in 1..=statement.parameter_count() {
            // sqlx's `$3` is the third value wherever it stands.
            let number = statement.parameter_name(place).map_or(place, |name| name[1..].parse().unwrap());
            statement.raw_bind_parameter(place, values.get(number - 1).unwrap_or(&Value::Null)).unwrap();
        }
        let mut rows = statement.raw_query();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        let steps = statement.get_status(StatementStatus::VmStep);
        drop(statement);
        self.connection.execute_batch("ROLLBACK TO counted; RELEASE counted").unwrap();
        steps
    }
}

fn blob(id: &Uuid) -> Value {
    Value::Blob(id.as_bytes().to_vec())
}

#[tokio::test]
async fn an_act_on_one_job_takes_few_steps_however_many_there_are() {
    let (filled, ids) = Filled::new().await;
    // The oldest: everything else comes after it.
    let (event, ledger, time) = (blob(&ids[0]), Value::from("ledger".to_owned()), Value::from(1_i64));
    let word = |word: &str| Value::from(word.to_owned());
    let job = vec![event.clone(), ledger.clone()];
    let cases = [
        (
            "replay",
            &*act::REPLAY,
            [&job[..], &[time.clone(), word("normal"), Value::Null, Value::Null, event.clone()]].concat(),
        ),
        ("forget effects", &*act::FORGET_EFFECTS, job.clone()),
        ("resolve", &*act::RESOLVE, [&job[..], &[word("ignored"), time.clone(), Value::Null, event.clone()]].concat()),
        ("reopen", &*act::REOPEN, [&job[..], &[Value::Null]].concat()),
        ("next in line", &*act::NEXT_IN_LINE, job.clone()),
        ("abandon", &*act::ABANDON, [&job[..], &[word("moved"), time.clone(), event.clone()]].concat()),
        ("make", &*act::MAKE, [&job[..], &[time, word("normal"), Value::Null]].concat()),
    ];
    for (name, statement, values) in cases {
        let steps = filled.steps(statement.of_size(1).0, &values);
        assert!(steps < FEW, "{name}: {steps} steps");
    }
}

/// What is finished is not read for what is not.
#[tokio::test]
async fn unfinished_jobs_are_found_without_a_walk_through_the_finished_ones() {
    let (filled, _) = Filled::new().await;
    filled.connection.execute("UPDATE jobs SET state = 'succeeded', finished_at = 1", ()).unwrap();
    let steps = filled.steps(find::OLDEST_UNFINISHED, &[]);
    assert!(steps < FEW, "{steps} steps");
}

#[tokio::test]
async fn a_question_about_a_short_time_takes_few_steps_however_long_the_history_is() {
    let (filled, _) = Filled::new().await;
    let last_minutes = Filter { since: Some(arrival(EVENTS - 10)), ..Filter::default() };
    let first_minutes = Filter { until: Some(arrival(10)), ..Filter::default() };
    // An hour more on either side, and so about 70 events with some 100 steps each.
    let about_seventy = 70 * 200;
    for which in [Which::DeadLetters, Which::Succeeded, Which::Finished, Which::Unhandled] {
        for (filter, times) in [(&last_minutes, "since"), (&first_minutes, "until")] {
            let bounds = [filter.first_id(None), filter.last_id()].map(|id| blob(&id));
            for text in find::all_texts(which) {
                let mut values = bounds.to_vec();
                values.resize(22, Value::Null);
                values.push(Value::from(i64::from(EVENTS)));
                let steps = filled.steps(text, &values);
                assert!(steps < about_seventy, "{which:?} {times}: {steps} steps in {text}");
            }
        }
    }
}
