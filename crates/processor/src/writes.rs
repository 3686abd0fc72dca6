//! Effects that are one statement each share their commits: whatever waits when a commit ends goes into the next one.

use std::sync::Arc;

use async_trait::async_trait;
use hookfast_handler::SharedCommits;
use hookfast_parts::Tasks;
use hookfast_store::{EffectWrite, StoreError, Work, Written};
use tokio::sync::{mpsc, oneshot};

use crate::faults::{self, Point};

/// How many effects share a commit.
const BATCH: usize = 256;

/// Sends effects of one handler to the task that writes them. Each handler has a task of its own, so that a handler that writes
/// badly or slowly holds up no other.
#[derive(Clone)]
pub(crate) struct Writer {
    waiting: mpsc::Sender<Waiting>,
}

/// An effect, and who waits for it.
struct Waiting {
    write: EffectWrite,
    answer: oneshot::Sender<Result<Written, StoreError>>,
}

impl Writer {
    /// Writes until no run is left that could want it.
    pub(crate) fn start(store: Arc<dyn Work>, background: &Tasks) -> Self {
        let (waiting, to_write) = mpsc::channel(BATCH);
        background.spawn("writer", write_all(store, to_write));
        Self { waiting }
    }
}

#[async_trait]
impl SharedCommits for Writer {
    async fn write(&self, write: EffectWrite) -> Result<Written, StoreError> {
        let ended = || StoreError::Unavailable("the workers have ended".into());
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Waiting { write, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn write_all(store: Arc<dyn Work>, mut waiting: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let (writes, answers): (Vec<_>, Vec<_>) = batch.drain(..).map(|one| (one.write, one.answer)).unzip();
        faults::pass(Point::BeforeEffect);
        let written = store.write_effects(&writes).await;
        faults::pass(Point::AfterEffect);
        // A run that does not wait any more finds the marker when it is repeated.
        match written {
            Ok(written) => answers.into_iter().zip(written).for_each(|(answer, one)| drop(answer.send(Ok(one)))),
            Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use hookfast_handler::testing::{Kit, TestEvent, TestStore};
    use hookfast_handler::{Effects, Event, Handled, Handler, Run, values};
    use hookfast_parts::MustEnd;
    use hookfast_webhook::FailureKind;
    use tokio::runtime::Handle;

    use super::*;
    use crate::hooks::WorkerHooks;

    struct Notes;

    impl Handler for Notes {
        const NAME: &'static str = "notes";
        const SUBSCRIBES: &'static [&'static str] = &["stripe/*"];
        const TABLES: &'static str = "CREATE TABLE IF NOT EXISTS notes (text TEXT NOT NULL)";
        type Payload = serde_json::Value;

        async fn handle(&self, event: &Event<serde_json::Value>, effects: &Effects) -> Handled {
            effects.write("note", INSERT, values![event.payload["text"].as_str().unwrap_or("?")]).await
        }
    }

    const INSERT: &str = "INSERT INTO notes (text) VALUES ($1)";

    fn note() -> TestEvent {
        TestEvent::new("stripe", "note", r#"{"text":"x"}"#)
    }

    /// Runs of several jobs with one writer.
    async fn runs<const N: usize>(store: &TestStore) -> [Run; N] {
        let background = Tasks::new(&Handle::current(), &MustEnd::default());
        let writer = Writer::start(Arc::clone(store.store()) as _, &background);
        let mut runs = Vec::new();
        for _ in 0..N {
            let claimed = store.claim(&store.record::<Notes>(&note()).await).await.expect("it is new");
            let hooks = Arc::new(WorkerHooks { writer: Some(writer.clone()) });
            runs.push(Run::new(Arc::clone(store.store()) as _, claimed.job, claimed.token, hooks));
        }
        runs.try_into().unwrap_or_else(|_| unreachable!("as many as there should be"))
    }

    #[tokio::test]
    async fn a_written_effect_happens_once_in_the_test_kit_too() {
        Kit::assert_exactly_once(&Notes, &note(), "SELECT * FROM notes").await;
    }

    #[tokio::test]
    async fn one_that_fails_fails_alone() {
        let store = TestStore::new::<Notes>().await;
        let [one, bad, other] = runs(&store).await;
        let (one, bad, other) = tokio::join!(
            one.effects().write("note", INSERT, values!["one"]),
            bad.effects().write("note", INSERT, values![None::<String>]),
            other.effects().write("note", INSERT, values!["other"]),
        );
        let failure = bad.expect_err("a text is needed");
        assert!(failure.message.contains("NOT NULL"), "{failure}");
        assert_ne!(failure.kind, FailureKind::Pipeline, "it is the handler's own fault");
        assert_eq!((one, other), (Ok(()), Ok(())));
        assert_eq!(store.rows("SELECT text FROM notes ORDER BY text").await, [["one"], ["other"]]);
    }

    const ENDLESS: &str = "INSERT INTO notes (text) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT $1 FROM n WHERE i < 0";

    /// SQLite undoes the transaction with it. What is written afterwards would be there without the marker, and twice.
    #[tokio::test]
    async fn after_a_statement_that_was_given_up_an_effect_writes_nothing_more() {
        let store = TestStore::new::<Notes>().await;
        let [run] = runs(&store).await;
        let done = run.effects().once("note", async |tx| {
            let slow = tx.execute(ENDLESS, values!["slow"]);
            assert!(tokio::time::timeout(std::time::Duration::from_millis(100), slow).await.is_err(), "it has no end");
            tx.execute(INSERT, values!["instead"]).await
        });
        done.await.expect_err("the transaction is undone");
        assert_eq!(store.rows("SELECT text FROM notes").await.len(), 0);
        run.effects()
            .once("note", async |tx| tx.execute(INSERT, values!["again"]).await)
            .await
            .expect("the store goes on");
        assert_eq!(store.rows("SELECT text FROM notes").await, [["again"]]);
    }

    /// It would keep everything else from being written.
    #[tokio::test]
    async fn a_statement_that_takes_too_long_is_ended_and_fails_alone() {
        let store = TestStore::new::<Notes>().await;
        let [one, bad] = runs(&store).await;
        let (one, bad) = tokio::join!(
            one.effects().write("note", INSERT, values!["one"]),
            bad.effects().write("note", ENDLESS, values!["bad"])
        );
        assert_eq!(one, Ok(()));
        assert_eq!(bad.expect_err("it takes too long").kind, FailureKind::Timeout);
        assert_eq!(store.rows("SELECT text FROM notes").await, [["one"]]);
    }

    #[tokio::test]
    async fn an_effect_that_was_done_is_skipped() {
        let store = TestStore::new::<Notes>().await;
        let [run] = runs(&store).await;
        for _ in 0..2 {
            run.effects().write("note", INSERT, values!["x"]).await.expect("it is done, or was");
        }
        assert_eq!(store.rows("SELECT text FROM notes").await.len(), 1);
    }

    #[tokio::test]
    async fn a_run_that_lost_its_job_is_told() {
        let store = TestStore::new::<Notes>().await;
        let claimed = store.claim(&store.record::<Notes>(&note()).await).await.expect("it is new");
        let forged = hookfast_store::Token(uuid::Uuid::new_v4());
        let background = Tasks::new(&Handle::current(), &MustEnd::default());
        let writer = Writer::start(Arc::clone(store.store()) as _, &background);
        let hooks = Arc::new(WorkerHooks { writer: Some(writer) });
        let run = Run::new(Arc::clone(store.store()) as _, claimed.job, forged, hooks);
        let failure = run.effects().write("note", INSERT, values!["x"]).await.expect_err("the job is not ours");
        assert_eq!(failure.kind, FailureKind::Crash);
        assert_eq!(store.rows("SELECT text FROM notes").await.len(), 0);
    }
}
