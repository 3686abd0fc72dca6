//! Effects: the marker and the handler's own writes, once, and only by the worker that holds the job.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    BegunEffect, Claim, Claimed, EffectError, EffectKey, EffectKind, EffectTransaction, Outcome, Renewed, Store,
    StoreError, Token, Value,
};
use hookfast_webhook::JobState;
use time::OffsetDateTime;
use tokio::time::timeout;
use uuid::Uuid;

use crate::database::{
    Database, LEASE, claim, claim_one, dead, effect, effects_of, event, events_of, handler, lose_leases, paid,
    record_jobs, routed, settle, state, sweep, wish,
};

const POSTINGS: &str = "CREATE TABLE IF NOT EXISTS postings (account text NOT NULL, amount bigint NOT NULL)";

/// A store with a table of a handler, and a job that is ours.
async fn with_job(database: &Database) -> (Arc<dyn Store>, Claimed) {
    let store = database.open().await;
    store.prepare(POSTINGS).await.unwrap();
    let job = record_jobs(&store, 1).await.remove(0);
    let claimed = claim_one(&store, &job).await;
    (store, claimed)
}

async fn begin(store: &Arc<dyn Store>, claimed: &Claimed) -> BegunEffect {
    store.begin_effect(&effect(claimed, "post")).await.expect("the job is ours")
}

async fn post(transaction: &mut EffectTransaction) {
    let insert = "INSERT INTO postings (account, amount) VALUES ($1, $2)";
    assert_eq!(transaction.execute(insert, vec!["acct_1".into(), 25_i64.into()]).await.unwrap(), 1);
}

/// Neither double nor missing: there is no unique index that would hide it.
async fn postings(database: &Database) -> i64 {
    database.number("SELECT count(*) FROM postings").await
}

async fn lost(store: &Arc<dyn Store>, key: &EffectKey<'_>) -> bool {
    matches!(store.begin_effect(key).await, Err(EffectError::LostLease))
}

async fn the_marker_and_the_write_are_committed_together(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let mut begun = begin(&store, &claimed).await;
    assert_eq!((begun.is_done, begun.result.as_deref()), (false, None));
    post(&mut begun.transaction).await;
    assert_eq!(effects_of(&store, &claimed.job).await, [], "it is not visible before");
    begun.transaction.commit(&effect(&claimed, "post"), None).await.unwrap();

    assert_eq!(postings(&database).await, 1);
    let effects = effects_of(&store, &claimed.job).await;
    assert_eq!(effects.len(), 1);
    assert_eq!((effects[0].key.as_str(), effects[0].id), ("post", begun.id));
    assert_eq!((effects[0].runs, effects[0].is_done, effects[0].result.as_deref()), (1, true, None));
    assert!(effects[0].done_at.is_some());
    settle(&store, &claimed, Outcome::Succeeded).await;
}

async fn a_second_run_learns_that_it_is_done_and_what_came_of_it(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let mut first = begin(&store, &claimed).await;
    post(&mut first.transaction).await;
    first.transaction.commit(&effect(&claimed, "post"), Some(r#"{"entry":7}"#)).await.unwrap();
    lose_leases(&database, &store).await;

    let again = claim_one(&store, &claimed.job).await;
    let second = begin(&store, &again).await;
    assert_eq!((second.id, second.is_done), (first.id, true));
    assert_eq!(second.result.as_deref(), Some(r#"{"entry":7}"#));
    drop(second);
    assert_eq!(postings(&database).await, 1);
}

async fn each_key_is_an_effect_of_its_own(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let mut seen = Vec::new();
    for key in ["b", "a"] {
        let begun = store.begin_effect(&effect(&claimed, key)).await.unwrap();
        assert!(!begun.is_done);
        seen.push(begun.id);
        begun.transaction.commit(&effect(&claimed, key), None).await.unwrap();
    }
    assert_ne!(seen[0], seen[1]);
    let keys: Vec<_> = effects_of(&store, &claimed.job).await.into_iter().map(|effect| effect.key).collect();
    assert_eq!(keys, ["a", "b"]);
}

async fn what_is_dropped_leaves_nothing(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let mut begun = begin(&store, &claimed).await;
    post(&mut begun.transaction).await;
    drop(begun);
    assert_eq!(effects_of(&store, &claimed.job).await, []);
    assert_eq!(postings(&database).await, 0);

    let mut again = begin(&store, &claimed).await;
    assert!(!again.is_done);
    post(&mut again.transaction).await;
    again.transaction.commit(&effect(&claimed, "post"), None).await.unwrap();
    assert_eq!(postings(&database).await, 1);
    assert_eq!(effects_of(&store, &claimed.job).await[0].runs, 1);
}

async fn without_the_job_there_is_no_effect(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let forged = EffectKey { token: Token(Uuid::new_v4()), ..effect(&claimed, "post") };
    assert!(lost(&store, &forged).await, "another token");
    lose_leases(&database, &store).await;
    assert!(lost(&store, &effect(&claimed, "post")).await, "the sweeper has taken it");
    let holder = claim_one(&store, &claimed.job).await;
    assert!(lost(&store, &effect(&claimed, "post")).await, "another holds it");
    settle(&store, &holder, dead()).await;
    assert!(lost(&store, &effect(&holder, "post")).await, "it is settled");
    assert_eq!(effects_of(&store, &claimed.job).await, []);
    store.record(&[paid("evt_2")]).await.expect("what failed holds nothing");
}

/// The lease has ended, but a claim of the job must wait until the effect is written or given up.
async fn while_an_effect_is_open_the_job_cannot_be_taken(database: Database) {
    let store = database.open().await;
    store.prepare(POSTINGS).await.unwrap();
    let jobs = record_jobs(&store, 1).await;
    let (ledger, events) = (handler("ledger"), events_of(&jobs));
    let at_once = Claim { lease: Duration::ZERO, ..wish(&ledger, &events) };
    let claimed = store.claim(&at_once).await.unwrap().remove(0);
    let mut begun = begin(&store, &claimed).await;
    post(&mut begun.transaction).await;
    let key = effect(&claimed, "post");
    let (swept, committed) = tokio::join!(sweep(&store), begun.transaction.commit(&key, None));
    committed.expect("the job was ours all the time");
    let swept_later = sweep(&store).await;
    assert_eq!(swept.crashed.len() + swept_later.crashed.len(), 1, "afterwards it is taken");
    assert_eq!(state(&store, &jobs[0]).await, JobState::Pending);
    assert_eq!(postings(&database).await, 1);
    assert!(begin(&store, &claim_one(&store, &jobs[0]).await).await.is_done);
}

async fn effects_of_many_jobs_at_the_same_time_are_written_once_each(database: Database) {
    let store = database.open().await;
    store.prepare(POSTINGS).await.unwrap();
    let jobs = record_jobs(&store, 30).await;
    let mut runs = Vec::new();
    for claimed in claim(&store, &jobs).await {
        let store = Arc::clone(&store);
        runs.push(tokio::spawn(async move {
            let mut begun = begin(&store, &claimed).await;
            post(&mut begun.transaction).await;
            begun.transaction.commit(&effect(&claimed, "post"), None).await.unwrap();
            settle(&store, &claimed, Outcome::Succeeded).await;
        }));
    }
    for run in runs {
        run.await.unwrap();
    }
    assert_eq!(postings(&database).await, 30);
    assert_eq!(database.number("SELECT count(*) FROM effects WHERE runs = 1").await, 30);
}

/// What two runs of one job do at the same time, because the first one has lost its lease without knowing.
async fn of_two_runs_only_the_holder_writes(database: Database) {
    let (store, late) = with_job(&database).await;
    lose_leases(&database, &store).await;
    let holder = claim_one(&store, &late.job).await;
    let run = async |claimed: &Claimed| {
        let mut begun = store.begin_effect(&effect(claimed, "post")).await?;
        post(&mut begun.transaction).await;
        begun.transaction.commit(&effect(claimed, "post"), None).await
    };
    let (late_run, holders_run) = tokio::join!(run(&late), run(&holder));
    assert!(matches!(late_run, Err(EffectError::LostLease)), "{late_run:?}");
    holders_run.unwrap();
    assert_eq!(postings(&database).await, 1);
}

fn call<'a>(claimed: &'a Claimed) -> EffectKey<'a> {
    EffectKey { kind: EffectKind::Outside, ..effect(claimed, "charge") }
}

async fn a_call_to_the_outside_keeps_its_id_until_it_is_done(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let begun = store.begin_effect(&call(&claimed)).await.unwrap();
    assert!(!begun.is_done);
    begun.transaction.commit_begun().await.unwrap();
    let effects = effects_of(&store, &claimed.job).await;
    assert_eq!((effects[0].id, effects[0].is_done, effects[0].done_at), (begun.id, false, None));

    lose_leases(&database, &store).await;
    let again = claim_one(&store, &claimed.job).await;
    let second = store.begin_effect(&call(&again)).await.unwrap();
    assert_eq!((second.id, second.is_done), (begun.id, false), "whether the call was made is unknown");
    second.transaction.commit_begun().await.unwrap();
    store.finish_effect(&call(&again), Some(r#""ch_1""#)).await.unwrap();

    let effects = effects_of(&store, &claimed.job).await;
    assert_eq!((effects[0].runs, effects[0].is_done, effects[0].result.as_deref()), (2, true, Some(r#""ch_1""#)));
    assert!(effects[0].done_at.is_some());
    let third = store.begin_effect(&call(&again)).await.unwrap();
    assert_eq!((third.is_done, third.result.as_deref()), (true, Some(r#""ch_1""#)));
}

async fn whoever_lost_the_job_finishes_no_call(database: Database) {
    let (store, late) = with_job(&database).await;
    store.begin_effect(&call(&late)).await.unwrap().transaction.commit_begun().await.unwrap();
    lose_leases(&database, &store).await;
    let finished = store.finish_effect(&call(&late), Some("1")).await;
    assert!(matches!(finished, Err(EffectError::LostLease)), "{finished:?}");
    let holder = claim_one(&store, &late.job).await;
    let finished = store.finish_effect(&call(&late), Some("1")).await;
    assert!(matches!(finished, Err(EffectError::LostLease)), "{finished:?}");
    assert!(!effects_of(&store, &late.job).await[0].is_done);
    store.finish_effect(&call(&holder), None).await.unwrap();
    assert!(effects_of(&store, &late.job).await[0].is_done);
}

async fn the_newest_is_told_from_the_superseded(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let at = |second: i64| OffsetDateTime::from_unix_timestamp(1_760_000_000 + second).unwrap();
    let ledger = handler("ledger");
    let mut begun = begin(&store, &claimed).await;
    let mut told = Vec::new();
    for second in [10, 5, 10, 11] {
        told.push(begun.transaction.is_newest(&ledger, "in_1", at(second)).await.unwrap());
    }
    assert_eq!(told, [true, false, true, true], "the same again is no older");
    assert!(begun.transaction.is_newest(&ledger, "in_2", at(1)).await.unwrap(), "another thing");
    assert!(begun.transaction.is_newest(&handler("mail"), "in_1", at(1)).await.unwrap(), "another handler");
    begun.transaction.commit(&effect(&claimed, "post"), None).await.unwrap();

    let mut undone = store.begin_effect(&effect(&claimed, "undone")).await.unwrap();
    assert!(!undone.transaction.is_newest(&ledger, "in_1", at(10)).await.unwrap(), "it is remembered");
    assert!(undone.transaction.is_newest(&ledger, "in_1", at(99)).await.unwrap());
    drop(undone);
    let mut next = store.begin_effect(&effect(&claimed, "next")).await.unwrap();
    assert!(next.transaction.is_newest(&ledger, "in_1", at(50)).await.unwrap(), "what was undone was not seen");
}

async fn values_of_every_kind_go_in_and_come_out(database: Database) {
    let (store, claimed) = with_job(&database).await;
    let mut transaction = begin(&store, &claimed).await.transaction;
    let posted = "SELECT amount FROM postings WHERE account = $1";
    assert_eq!(transaction.fetch(posted, vec!["unknown".into()]).await.unwrap(), None);
    post(&mut transaction).await;
    assert_eq!(transaction.fetch(posted, vec!["acct_1".into()]).await.unwrap(), Some(Value::Integer(25)));
    let sum = "SELECT max(account) FROM postings WHERE amount > $1";
    assert_eq!(transaction.fetch(sum, vec![1_i64.into()]).await.unwrap(), Some(Value::Text("acct_1".into())));
    assert_eq!(transaction.fetch(sum, vec![99_i64.into()]).await.unwrap(), Some(Value::Null));
    let rename = "UPDATE postings SET account = coalesce($1, account)";
    assert_eq!(transaction.execute(rename, vec![Value::Null]).await.unwrap(), 1);
    assert_eq!(transaction.execute(rename, vec!["acct_2".into()]).await.unwrap(), 1, "after a null, too");
    let body = "SELECT body FROM events WHERE dedupe_key = $1";
    let bytes = transaction.fetch(body, vec![claimed.event.dedupe_key.as_str().into()]).await.unwrap();
    assert_eq!(bytes, Some(Value::Bytes(claimed.event.body.as_deref().unwrap().to_vec())));
    assert_eq!(transaction.fetch("SELECT $1 * 2", vec![1.25.into()]).await.unwrap(), Some(Value::Real(2.5)));
}

async fn a_handlers_tables_are_made_once(database: Database) {
    let store = database.open().await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        let store = Arc::clone(&store);
        processes.push(tokio::spawn(async move {
            store
                .prepare(
                    "CREATE TABLE IF NOT EXISTS first (x bigint); CREATE TABLE IF NOT EXISTS second (x bigint);
                     CREATE INDEX IF NOT EXISTS second_x ON second (x)",
                )
                .await
        }));
    }
    for process in processes {
        process.await.unwrap().unwrap();
    }
    assert_eq!(database.number("SELECT (SELECT count(*) FROM first) + (SELECT count(*) FROM second)").await, 0);
    let wrong = store.prepare("CREATE TABLE IF NOT EXISTS third (x bigint); CREATE TALE x").await;
    assert!(matches!(wrong, Err(StoreError::Rejected(_))), "{wrong:?}");
    store.prepare("CREATE TABLE third (x bigint)").await.expect("all or nothing");
}

/// On SQLite a statement can end the whole transaction.
#[tokio::test]
async fn on_sqlite_a_transaction_that_undid_itself_is_not_taken_for_done() {
    let database = Database::sqlite();
    let (store, claimed) = with_job(&database).await;
    for result in [None, Some("1")] {
        let mut begun = begin(&store, &claimed).await;
        post(&mut begun.transaction).await;
        let connection = begun.transaction.sqlite().expect("this is SQLite");
        sqlx::query("ROLLBACK").execute(connection).await.unwrap();
        let committed = begun.transaction.commit(&effect(&claimed, "post"), result).await;
        assert!(matches!(committed, Err(EffectError::Store(StoreError::Rejected(_)))), "{committed:?}");
    }
    assert_eq!(effects_of(&store, &claimed.job).await, []);
    assert_eq!(postings(&database).await, 0);

    let mut begun = begin(&store, &claimed).await;
    post(&mut begun.transaction).await;
    begun.transaction.commit(&effect(&claimed, "post"), None).await.unwrap();
    assert_eq!(store.renew(&[(claimed.job.clone(), claimed.token)], LEASE).await.unwrap(), Renewed::default());
}

/// A disk that takes no more writes is an I/O error that a test can cause.
#[tokio::test]
async fn on_sqlite_an_io_error_in_an_effect_ends_all_promises() {
    let database = Database::sqlite();
    let (store, claimed) = with_job(&database).await;
    let mut begun = begin(&store, &claimed).await;
    let connection = begun.transaction.sqlite().expect("this is SQLite");
    sqlx::query("PRAGMA query_only = ON").execute(connection).await.unwrap();
    let committed = begun.transaction.commit(&effect(&claimed, "post"), Some("1")).await;
    assert!(matches!(committed, Err(EffectError::Store(StoreError::Broken(_)))), "{committed:?}");
    assert!(matches!(store.check().await, Err(StoreError::Broken(_))));
    assert!(matches!(store.record(&[paid("evt_2")]).await, Err(StoreError::Broken(_))));
    let renewed = store.renew(&[(claimed.job.clone(), claimed.token)], LEASE).await;
    assert!(matches!(renewed, Err(StoreError::Broken(_))), "{renewed:?}");
    assert!(store.broken().await.ends_with("attempt to write a readonly database"));
}

/// On Postgres a statement that failed dooms the transaction, and its commit is a rollback.
#[tokio::test]
async fn on_postgres_a_transaction_in_which_a_statement_failed_is_not_taken_for_done() {
    let database = Database::postgres();
    let (store, claimed) = with_job(&database).await;
    for result in [None, Some("1")] {
        let mut begun = begin(&store, &claimed).await;
        post(&mut begun.transaction).await;
        begun.transaction.execute("INSERT INTO postings (account) VALUES ($1)", vec!["x".into()]).await.unwrap_err();
        let committed = begun.transaction.commit(&effect(&claimed, "post"), result).await;
        assert!(matches!(committed, Err(EffectError::Store(_))), "{committed:?}");
    }
    assert_eq!(effects_of(&store, &claimed.job).await, []);
    assert_eq!(postings(&database).await, 0);
}

/// Of the eight connections two are kept for handlers that use none.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_handler_that_keeps_its_connections_holds_up_no_other() {
    let store = Database::postgres().open().await;
    let jobs = record_jobs(&store, 8).await;
    let mut ledgers = claim(&store, &jobs).await;
    let mut kept = Vec::new();
    for claimed in ledgers.drain(..6) {
        kept.push(begin(&store, &claimed).await);
    }
    let waiting: Vec<_> = ledgers
        .into_iter()
        .map(|claimed| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { drop(begin(&store, &claimed).await) })
        })
        .collect();
    let both = routed(event("stripe", "evt_others"), &["audit", "mail"]);
    store.record(slice::from_ref(&both)).await.unwrap();
    let mut others = Vec::new();
    for name in ["audit", "mail"] {
        let claimed = store.claim(&wish(&handler(name), &[both.event.id()])).await.unwrap().remove(0);
        let begun = timeout(Duration::from_secs(30), begin(&store, &claimed)).await;
        others.push(begun.unwrap_or_else(|_| panic!("{name} waits for another handler")));
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "what is kept for others is not theirs");
    drop(kept);
    for waiting in waiting {
        timeout(Duration::from_secs(30), waiting).await.expect("there are places again").unwrap();
    }
    drop(others);
    store.close().await;
}

on_both! {
    the_marker_and_the_write_are_committed_together
    a_second_run_learns_that_it_is_done_and_what_came_of_it
    each_key_is_an_effect_of_its_own
    what_is_dropped_leaves_nothing
    without_the_job_there_is_no_effect
    while_an_effect_is_open_the_job_cannot_be_taken
    effects_of_many_jobs_at_the_same_time_are_written_once_each
    of_two_runs_only_the_holder_writes
    a_call_to_the_outside_keeps_its_id_until_it_is_done
    whoever_lost_the_job_finishes_no_call
    the_newest_is_told_from_the_superseded
    values_of_every_kind_go_in_and_come_out
    a_handlers_tables_are_made_once
}
