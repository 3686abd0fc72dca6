//! A store of its own for a test, with what a worker asks of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    Act, Action, Audit, Claim, Claimed, Config, JobId, Migrate, NewJob, Routed, Step, Store, StoreUrl, Token, open,
};
use hookfast_webhook::{HandlerName, Priority};
use tempfile::TempDir;
use time::OffsetDateTime;
use uuid::Uuid;

use super::TestEvent;
use super::provider::genuine;
use crate::Handler;

/// An SQLite store in a temporary folder.
pub struct TestStore {
    store: Arc<dyn Store>,
    file: PathBuf,
    _folder: TempDir,
}

impl TestStore {
    /// An empty store with the tables of a handler.
    pub async fn new<H: Handler>() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("kit.db");
        let config = Config::new(StoreUrl::Sqlite(file.clone()));
        let store = open(&config, Migrate::Run).await.expect("the store opens");
        if !H::TABLES.is_empty() {
            store.prepare(H::TABLES).await.unwrap_or_else(|error| panic!("the TABLES of `{}`: {error}", H::NAME));
        }
        Self { store, file, _folder: folder }
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The rows of a query, as texts.
    pub async fn rows(&self, query: &'static str) -> Vec<Vec<String>> {
        hookfast_store::testing::rows(&self.file, query).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Records an event with a job for the handler.
    pub async fn record<H: Handler>(&self, event: &TestEvent) -> JobId {
        let handler = HandlerName::new(H::NAME).unwrap_or_else(|error| panic!("a handler's NAME: {error}"));
        let genuine = genuine(event);
        let id = genuine.id();
        let job = NewJob { handler: handler.clone(), priority: Priority::Normal, ordering_key: None };
        self.store.record(&[Routed { event: genuine, jobs: vec![job] }]).await.expect("the event is recorded");
        JobId { event: id, handler }
    }

    /// Claims a job, if it can be claimed.
    pub async fn claim(&self, job: &JobId) -> Option<Claimed> {
        let claim = Claim {
            handler: &job.handler,
            events: &[job.event],
            worker: "test",
            token: Token::new(),
            lease: Duration::from_secs(60),
            ordering: None,
            crashes_below: None,
        };
        self.store.claim(&claim).await.expect("the store answers").pop()
    }

    /// Makes a finished job pending again.
    pub async fn replay(&self, job: &JobId) {
        let audit = Audit {
            id: Uuid::now_v7(),
            at: OffsetDateTime::now_utc(),
            who: "test".into(),
            action: Action::Replay,
            why: None,
            filter: "{}".into(),
            jobs: 0,
            next_after: None,
            is_done: false,
        };
        self.store.begin_act(&audit).await.expect("the store answers");
        let again = NewJob { handler: job.handler.clone(), priority: Priority::Normal, ordering_key: None };
        let act = Act::Replay { jobs: &[(job.event, again)], force_effects: false };
        let step = Step { audit: audit.id, act, next_after: None, is_last: true, as_of: None };
        self.store.act(&step).await.expect("the job is replayed");
    }
}
