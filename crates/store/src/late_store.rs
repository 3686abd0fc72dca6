//! Postgres behind a spool: the gateway starts while the database cannot be reached, and opens it later.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_webhook::EventId;
use tokio::sync::{Mutex, SetOnce};

use crate::postgres::PostgresStore;
use crate::{
    Behind, Check, Config, Migrate, NotTaken, OpenError, Record, Recorded, Routed, Spooled, Store, StoreError, StoreUrl,
};

/// A Postgres that need not be there yet when the gateway starts.
pub struct LateStore {
    config: Config,
    migrate: Migrate,
    opening: Mutex<()>,
    opened: SetOnce<Arc<PostgresStore>>,
}

impl LateStore {
    /// Postgres, as configured; nothing is done about it yet. SQLite is always there.
    pub fn new(config: &Config, migrate: Migrate) -> Option<Self> {
        let StoreUrl::Postgres(_) = &config.url else { return None };
        Some(Self { config: config.clone(), migrate, opening: Mutex::new(()), opened: SetOnce::new() })
    }

    /// Opens it, unless that was done before.
    pub async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        Ok(self.open_postgres().await?)
    }

    /// Waits until it is open.
    pub async fn opened(&self) -> Arc<dyn Store> {
        Arc::clone(self.opened.wait().await) as _
    }

    /// The store, if it was opened.
    pub fn get(&self) -> Option<Arc<dyn Store>> {
        self.opened.get().map(|store| Arc::clone(store) as _)
    }

    async fn open_postgres(&self) -> Result<Arc<PostgresStore>, OpenError> {
        // One at a time, because it may be migrating.
        let _turn = self.opening.lock().await;
        if let Some(store) = self.opened.get() {
            return Ok(Arc::clone(store));
        }
        let StoreUrl::Postgres(url) = &self.config.url else {
            return Err(OpenError::Url("only Postgres is opened late".into()));
        };
        let store = Arc::new(PostgresStore::open(url, &self.config, self.migrate).await?);
        // This task holds `opening`, so it is the only one that sets this.
        let _ = self.opened.set(Arc::clone(&store));
        Ok(store)
    }

    fn if_opened(&self) -> Result<&Arc<PostgresStore>, StoreError> {
        self.opened.get().ok_or_else(|| StoreError::Unavailable("it was not reached yet".into()))
    }
}

#[async_trait]
impl Record for LateStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        self.if_opened()?.record(events).await
    }

    async fn first_of(&self, source: &str, dedupe_key: &str) -> Result<Option<EventId>, StoreError> {
        self.if_opened()?.first_of(source, dedupe_key).await
    }

    fn parallel_records(&self) -> usize {
        self.config.parallel_batches
    }
}

#[async_trait]
impl Check for LateStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.if_opened()?.check().await
    }
}

#[async_trait]
impl Behind for LateStore {
    async fn record_spooled(&self, events: &[Spooled], within: Duration) -> Result<Vec<Recorded>, NotTaken> {
        self.if_opened()?.record_spooled(events, within).await
    }

    async fn takes_events(&self) -> Result<(), StoreError> {
        self.if_opened()?.takes_events().await
    }

    async fn reach(&self) -> Result<(), StoreError> {
        let store = self.open_postgres().await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        store.check().await
    }
}
