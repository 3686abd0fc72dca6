//! Statements of handlers: why one fails, and what is written on the driver's own connection.

use hookfast_store::driver::sqlx;
use hookfast_store::{EffectTransaction, StatementError};

use crate::database::{Database, claim_one, effect, record_jobs};

const NOTES: &str = "CREATE TABLE IF NOT EXISTS notes (id bigint PRIMARY KEY)";

async fn a_statement_that_the_database_refuses_says_so(database: Database) {
    let store = database.open().await;
    store.prepare(NOTES).await.unwrap();
    let job = record_jobs(&store, 1).await.remove(0);
    let claimed = claim_one(&store, &job).await;
    for wrong in
        ["INSERT INTO nothing VALUES (1)", "INSERT INTO notes VALUES (NULL)x", "INSERT INTO notes VALUES (1), (1)"]
    {
        let mut transaction = store.begin_effect(&effect(&claimed, "note")).await.unwrap().transaction;
        let refused = transaction.execute(wrong, Vec::new()).await;
        assert!(matches!(refused, Err(StatementError::Refused(_))), "{wrong}: {refused:?}");
    }
}

/// What a limit of the store ends is told from what an administrator or a crash of the server ends.
#[tokio::test]
async fn on_postgres_a_statement_that_is_ended_says_by_what() {
    let store = Database::postgres().open().await;
    let job = record_jobs(&store, 1).await.remove(0);
    let claimed = claim_one(&store, &job).await;
    let begin = async || store.begin_effect(&effect(&claimed, "note")).await.unwrap().transaction;

    let mut transaction = begin().await;
    transaction.execute("SET LOCAL statement_timeout = '50ms'", Vec::new()).await.unwrap();
    let slow = transaction.fetch("SELECT CAST(pg_sleep(60) AS text)", Vec::new()).await;
    assert!(matches!(slow, Err(StatementError::TooSlow(_))), "{slow:?}");
    drop(transaction);

    let end = "SELECT pg_terminate_backend(pg_backend_pid())";
    let mut transaction = begin().await;
    let ended = transaction.execute(end, Vec::new()).await;
    assert!(matches!(ended, Err(StatementError::Overwhelmed(_))), "{ended:?}");
    let gone = transaction.execute("SELECT 1", Vec::new()).await;
    assert!(matches!(gone, Err(StatementError::Outage(_))), "{gone:?}");
}

async fn note_with_driver(transaction: &mut EffectTransaction, is_postgres: bool) {
    const INSERT: &str = "INSERT INTO notes VALUES (1)";
    assert_eq!((transaction.postgres().is_some(), transaction.sqlite().is_some()), (is_postgres, !is_postgres));
    if let Some(connection) = transaction.postgres() {
        sqlx::query(INSERT).execute(connection).await.unwrap();
    } else if let Some(connection) = transaction.sqlite() {
        sqlx::query(INSERT).execute(connection).await.unwrap();
    }
}

async fn what_is_written_on_the_drivers_connection_is_part_of_the_effect(database: Database) {
    let store = database.open().await;
    store.prepare(NOTES).await.unwrap();
    let is_postgres = !database.is_sqlite();
    let job = record_jobs(&store, 1).await.remove(0);
    let claimed = claim_one(&store, &job).await;
    let mut dropped = store.begin_effect(&effect(&claimed, "note")).await.unwrap().transaction;
    note_with_driver(&mut dropped, is_postgres).await;
    drop(dropped);
    assert_eq!(database.number("SELECT count(*) FROM notes").await, 0);

    let mut begun = store.begin_effect(&effect(&claimed, "note")).await.unwrap();
    assert!(!begun.is_done);
    note_with_driver(&mut begun.transaction, is_postgres).await;
    begun.transaction.commit(&effect(&claimed, "note"), None).await.unwrap();
    assert_eq!(database.number("SELECT count(*) FROM notes").await, 1);
    assert!(store.effects(job.event).await.unwrap()[job.handler.as_str()][0].is_done);
}

on_both! {
    a_statement_that_the_database_refuses_says_so
    what_is_written_on_the_drivers_connection_is_part_of_the_effect
}
