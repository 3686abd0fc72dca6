//! The handlers that this process runs, each with its worker. The table can change while everything runs: the sweeper, the
//! metrics and the shutdown read it anew each time.

use std::sync::{Arc, PoisonError, RwLock};

use hookfast_parts::Tasks;
use hookfast_store::{StoreError, Work};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::suspects::{self, RunApart};
use crate::worker::{PAUSE, Shared, Worker};
use crate::{Assigned, Surroundings};

/// The workers by handler.
pub(crate) struct Table {
    shared: Arc<Shared>,
    /// Where the workers' own tasks run.
    runtime: Handle,
    apart: Option<Arc<dyn RunApart>>,
    /// How many suspects run at once, of all handlers.
    suspects: Arc<Semaphore>,
    workers: RwLock<Vec<Arc<Worker>>>,
    /// The tasks of all workers, also of those that were removed and have not ended yet.
    pub(crate) tasks: Tasks,
}

/// Whether the SQL tables of new handlers were made before, or their workers make them first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlTables {
    Made,
    ToMake,
}

impl Table {
    pub(crate) fn new(shared: Arc<Shared>, surroundings: &Surroundings) -> Self {
        let runtime = Handle::current();
        Self {
            tasks: Tasks::new(&runtime, &shared.must_end),
            shared,
            runtime,
            apart: surroundings.apart.clone(),
            suspects: Arc::new(Semaphore::new(suspects::OF_ALL_HANDLERS)),
            workers: RwLock::default(),
        }
    }

    /// The workers at this moment.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs these handlers from now on and no others. A handler that is removed takes no further jobs: what it runs comes to
    /// its end and is settled, and what it has claimed and not begun is handed back.
    pub(crate) fn assign(&self, assigned: Vec<Assigned>, sql_tables: SqlTables) {
        let _runtime = self.runtime.enter();
        let mut workers = self.workers.write().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|worker| {
            let stays = assigned.iter().any(|assigned| assigned.name == worker.name);
            if !stays {
                tracing::info!(handler = %worker.name, "the handler is removed: it takes no further jobs");
                worker.stop.cancel();
            }
            stays
        });
        for assigned in assigned {
            match workers.iter().find(|worker| worker.name == assigned.name) {
                Some(worker) => worker.change(assigned),
                None => workers.push(self.begin(assigned, sql_tables)),
            }
        }
    }

    /// Starts the tasks of a new worker.
    fn begin(&self, assigned: Assigned, sql_tables: SqlTables) -> Arc<Worker> {
        let worker = Worker::new(Arc::clone(&self.shared), assigned);
        let run = {
            let worker = Arc::clone(&worker);
            async move {
                if sql_tables == SqlTables::Made || worker.make_tables().await {
                    worker.run().await;
                }
            }
        };
        self.tasks.spawn("worker", run);
        for _ in 0..suspects::OF_ONE_HANDLER {
            let suspects = suspects::run(Arc::clone(&worker), self.apart.clone(), Arc::clone(&self.suspects));
            self.tasks.spawn("worker", suspects);
        }
        worker
    }
}

impl Worker {
    /// Makes the handler's tables, for as long as it takes. Says whether they are there: not if the worker is stopped first.
    async fn make_tables(&self) -> bool {
        let making = async {
            while let Err(error) = make(&*self.shared.store, self.settings().handler.tables()).await {
                tracing::error!(%error, handler = %self.name, "the handler's tables cannot be made, so it does not run; trying again");
                sleep(PAUSE).await;
            }
        };
        self.stop.run_until_cancelled(making).await.is_some()
    }
}

/// Makes the tables of handlers.
pub(crate) async fn make_all(store: &dyn Work, assigned: &[Assigned]) -> Result<(), StoreError> {
    for Assigned { handler, .. } in assigned {
        make(store, handler.tables()).await?;
    }
    Ok(())
}

async fn make(store: &dyn Work, tables: &'static str) -> Result<(), StoreError> {
    if tables.is_empty() { Ok(()) } else { store.prepare(tables).await }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use hookfast_handler::testing::{TestEvent, TestStore};
    use hookfast_handler::{Anything, Effects, Event, Handled, Handler, Handlers};
    use hookfast_parts::MustEnd;
    use hookfast_queue::MemoryQueue;
    use hookfast_webhook::HandlerName;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::{Config, HandlerConfig, Running, start};

    /// A handler whose runs end when the test says so.
    struct Held;

    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static END: Notify = Notify::const_new();

    impl Handler for Held {
        const NAME: &'static str = "held";
        const SUBSCRIBES: &'static [&'static str] = &["stripe/*"];
        type Payload = Anything;

        async fn handle(&self, _: &Event<Anything>, _: &Effects) -> Handled {
            BEGUN.fetch_add(1, SeqCst);
            END.notified().await;
            Ok(())
        }
    }

    fn held(concurrency: usize) -> Assigned {
        Assigned {
            name: HandlerName::new(Held::NAME).expect("a name"),
            handler: Arc::clone(Handlers::new().with(Held).get(Held::NAME).expect("it was added")),
            config: HandlerConfig { concurrency, ..HandlerConfig::default() },
            is_paused: false,
            sources: Vec::new(),
        }
    }

    async fn start_with(store: &TestStore, assigned: Vec<Assigned>) -> Running {
        let surroundings = Surroundings {
            store: Arc::clone(store.store()) as _,
            queue: Arc::new(MemoryQueue::new(100)),
            handlers: Handle::current(),
            apart: None,
            must_end: MustEnd::default(),
        };
        let config = Config { sweep_every: Duration::from_millis(20), ..Config::default() };
        start(surroundings, assigned, config).await.expect("the store answers")
    }

    async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let waiting = async {
            while !is_so().await {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("{what}"));
    }

    async fn states(store: &TestStore) -> Vec<String> {
        let rows = store.rows("SELECT state FROM jobs ORDER BY event_id").await;
        rows.into_iter().map(|mut row| row.remove(0)).collect()
    }

    #[tokio::test]
    async fn a_removed_handler_finishes_what_it_runs_and_hands_back_the_rest() {
        let store = TestStore::new::<Held>().await;
        let running = start_with(&store, vec![held(1)]).await;
        for _ in 0..3 {
            store.record::<Held>(&TestEvent::new("stripe", "t", "{}")).await;
        }
        store.rows("UPDATE jobs SET due_at = 1").await;
        eventually("a run begins", async || BEGUN.load(SeqCst) == 1).await;
        running.assign(Vec::new());
        eventually("what it did not begin is handed back", async || {
            states(&store).await.iter().filter(|state| *state == "pending").count() == 2
        })
        .await;
        END.notify_one();
        eventually("what it ran is settled", async || states(&store).await.contains(&"succeeded".to_owned())).await;
        assert_eq!(BEGUN.load(SeqCst), 1, "it began no further run");
        running.assign(vec![held(2)]);
        eventually("it comes back with more places", async || BEGUN.load(SeqCst) == 3).await;
        running.assign(vec![held(1)]);
        END.notify_waiters();
        eventually("all are done", async || states(&store).await == ["succeeded"; 3]).await;
        running.shut_down().await;
    }
}
