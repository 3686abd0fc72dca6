//! Effects that are one statement each, of many jobs in one transaction.

use std::sync::Arc;

use hookfast_store::{Claimed, EffectKind, EffectWrite, Outcome, Store, StoreError, Token, Value, Written};
use uuid::Uuid;

use crate::database::{Database, claim, claim_one, effect, effects_of, lose_leases, record_jobs, settle};

const NOTES: &str = "CREATE TABLE IF NOT EXISTS notes (text text, number bigint, real double precision, bytes bytea)";
const INSERT: &str = "INSERT INTO notes (text, number, real, bytes) VALUES ($1, $2, $3, $4)";

/// A store with a table of a handler, and jobs that are ours.
async fn with_jobs(database: &Database, count: usize) -> (Arc<dyn Store>, Vec<Claimed>) {
    let store = database.open().await;
    store.prepare(NOTES).await.unwrap();
    let jobs = record_jobs(&store, count).await;
    let claimed = claim(&store, &jobs).await;
    (store, claimed)
}

fn note(claimed: &Claimed, text: impl Into<Value>) -> EffectWrite {
    EffectWrite {
        job: claimed.job.clone(),
        token: claimed.token,
        key: "note".into(),
        statement: INSERT,
        values: vec![text.into(), 1_i64.into(), 0.5.into(), vec![0_u8, 255].into()],
    }
}

/// There is no unique index that would hide a double.
async fn notes(database: &Database) -> i64 {
    database.number("SELECT count(*) FROM notes").await
}

async fn the_effects_of_many_jobs_are_done_together(database: Database) {
    let (store, claimed) = with_jobs(&database, 300).await;
    let writes: Vec<_> = claimed.iter().map(|one| note(one, "x")).collect();
    assert_eq!(store.write_effects(&writes).await.unwrap(), vec![Written::Now; 300]);
    assert_eq!(notes(&database).await, 300);
    let effects = effects_of(&store, &claimed[0].job).await;
    assert_eq!((effects.len(), effects[0].key.as_str(), effects[0].is_done, effects[0].runs), (1, "note", true, 1));
    assert!(effects[0].done_at.is_some());
    settle(&store, &claimed[0], Outcome::Succeeded).await;
}

async fn what_was_done_before_is_not_done_again(database: Database) {
    let (store, claimed) = with_jobs(&database, 2).await;
    store.write_effects(&[note(&claimed[0], "x")]).await.unwrap();
    lose_leases(&database, &store).await;
    let again = [claim_one(&store, &claimed[0].job).await, claim_one(&store, &claimed[1].job).await];
    let writes = again.each_ref().map(|one| note(one, "x"));
    assert_eq!(store.write_effects(&writes).await.unwrap(), [Written::Before, Written::Now]);
    assert_eq!(notes(&database).await, 2);
    assert_eq!(effects_of(&store, &claimed[0].job).await[0].runs, 2);
}

async fn the_two_ways_to_do_an_effect_know_of_each_other(database: Database) {
    let (store, claimed) = with_jobs(&database, 2).await;
    let key = effect(&claimed[0], "note");
    store.begin_effect(&key).await.unwrap().transaction.commit(&key, None).await.unwrap();
    assert_eq!(store.write_effects(&[note(&claimed[0], "x")]).await.unwrap(), [Written::Before]);
    store.write_effects(&[note(&claimed[1], "x")]).await.unwrap();
    assert!(store.begin_effect(&effect(&claimed[1], "note")).await.unwrap().is_done);
    assert_eq!(notes(&database).await, 1);
}

async fn whoever_lost_a_job_writes_nothing_about_it(database: Database) {
    let (store, claimed) = with_jobs(&database, 3).await;
    let forged = EffectWrite { token: Token(Uuid::new_v4()), ..note(&claimed[0], "forged") };
    settle(&store, &claimed[1], Outcome::Succeeded).await;
    let writes = [forged, note(&claimed[1], "settled"), note(&claimed[2], "mine")];
    let written = store.write_effects(&writes).await.unwrap();
    assert_eq!(written, [Written::LostLease, Written::LostLease, Written::Now]);
    assert_eq!(database.number("SELECT count(*) FROM notes WHERE text = 'mine'").await, 1);
    assert_eq!(notes(&database).await, 1);
    assert_eq!(effects_of(&store, &claimed[0].job).await, []);
}

/// Of whatever kind the error is: the handler hears of it when the effect is done alone.
async fn one_that_fails_takes_all_back(database: Database) {
    let (store, claimed) = with_jobs(&database, 3).await;
    let wrong: [&'static str; 4] = [
        "INSERT INTO notes (number) VALUES ($1 / 0)",
        "INSERT INTO no_such_table VALUES ($1)",
        "this is no statement $1",
        "INSERT INTO notes (text) SELECT no_such_column FROM notes WHERE text = $1",
    ];
    // SQLite takes a division by zero for null.
    for statement in wrong.into_iter().skip(usize::from(database.is_sqlite())) {
        let values = if statement.contains("/ 0") { vec![1_i64.into()] } else { vec!["x".into()] };
        let bad = EffectWrite { statement, values, ..note(&claimed[1], "bad") };
        let written = store.write_effects(&[note(&claimed[0], "x"), bad, note(&claimed[2], "x")]).await;
        assert!(matches!(written, Err(StoreError::Rejected(_))), "{statement}: {written:?}");
        assert_eq!(notes(&database).await, 0, "{statement}");
        assert_eq!(effects_of(&store, &claimed[0].job).await, [], "{statement}");
    }
    let writes: Vec<_> = claimed.iter().map(|one| note(one, "x")).collect();
    assert_eq!(store.write_effects(&writes).await.unwrap(), [Written::Now; 3], "nothing stays behind");
}

async fn an_effect_that_was_begun_as_a_call_is_not_taken_for_new(database: Database) {
    let (store, claimed) = with_jobs(&database, 1).await;
    let call = hookfast_store::EffectKey { kind: EffectKind::Outside, ..effect(&claimed[0], "note") };
    store.begin_effect(&call).await.unwrap().transaction.commit_begun().await.unwrap();
    let written = store.write_effects(&[note(&claimed[0], "x")]).await;
    assert!(matches!(written, Err(StoreError::Rejected(_))), "{written:?}");
    assert_eq!(notes(&database).await, 0);
}

async fn values_arrive_as_they_are(database: Database) {
    let texts = ["it's", r"\'", "'); DROP TABLE notes; --", "$1 $$ ü \u{1f600}\n", ""];
    let (store, claimed) = with_jobs(&database, texts.len() + 1).await;
    let mut writes: Vec<_> = claimed.iter().zip(texts).map(|(one, text)| note(one, text)).collect();
    let nothing = vec![Value::Null; 4];
    writes.push(EffectWrite { values: nothing, ..note(&claimed[texts.len()], "") });
    store.write_effects(&writes).await.unwrap();
    let begun = store.begin_effect(&effect(&claimed[0], "look")).await.unwrap();
    let mut look = begun.transaction;
    for text in texts {
        let query = "SELECT count(*) FROM notes WHERE text = $1 AND number = $2 AND real = $3 AND bytes = $4";
        let values = vec![text.into(), 1_i64.into(), 0.5.into(), vec![0_u8, 255].into()];
        assert_eq!(look.fetch(query, values).await.unwrap(), Some(Value::Integer(1)), "{text:?}");
    }
    let query = "SELECT count(*) FROM notes WHERE text IS NULL AND number IS NULL AND real IS NULL AND bytes IS NULL";
    assert_eq!(look.fetch(query, vec![]).await.unwrap(), Some(Value::Integer(1)));
}

/// Much text is sent in parts, which are still one transaction.
async fn large_values_are_no_hindrance(database: Database) {
    let (store, claimed) = with_jobs(&database, 5).await;
    let large = "x".repeat(700_000);
    let writes: Vec<_> = claimed.iter().map(|one| note(one, large.as_str())).collect();
    assert_eq!(store.write_effects(&writes).await.unwrap(), [Written::Now; 5]);
    assert_eq!(database.number("SELECT sum(length(text)) FROM notes").await, 5 * 700_000);
}

/// Postgres would end the statement there.
#[tokio::test]
async fn on_postgres_a_text_with_a_nul_is_refused() {
    let database = Database::postgres();
    let (store, claimed) = with_jobs(&database, 1).await;
    let written = store.write_effects(&[note(&claimed[0], "a'\0b")]).await;
    assert!(matches!(written, Err(StoreError::Rejected(_))), "{written:?}");
    assert_eq!(notes(&database).await, 0);
}

/// The second would run when the first is prepared, without a look at the job.
#[tokio::test]
async fn on_postgres_two_statements_are_refused_and_not_run() {
    let database = Database::postgres();
    let (store, claimed) = with_jobs(&database, 2).await;
    store.write_effects(&[note(&claimed[0], "kept")]).await.unwrap();
    let two = "INSERT INTO notes (text) VALUES ('x'); COMMIT; DELETE FROM notes";
    let bad = EffectWrite { statement: two, values: Vec::new(), ..note(&claimed[1], "") };
    let written = store.write_effects(&[bad]).await;
    assert!(matches!(written, Err(StoreError::Rejected(_))), "{written:?}");
    assert_eq!(notes(&database).await, 1);
    assert_eq!(store.write_effects(&[note(&claimed[1], "x")]).await.unwrap(), [Written::Now]);
}

on_both! {
    the_effects_of_many_jobs_are_done_together
    what_was_done_before_is_not_done_again
    the_two_ways_to_do_an_effect_know_of_each_other
    whoever_lost_a_job_writes_nothing_about_it
    one_that_fails_takes_all_back
    an_effect_that_was_begun_as_a_call_is_not_taken_for_new
    values_arrive_as_they_are
    large_values_are_no_hindrance
}
