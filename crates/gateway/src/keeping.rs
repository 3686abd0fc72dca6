//! Where events are kept: in the store, or in Postgres with a spool before it.

use std::sync::Arc;
use std::time::Duration;

use hookfast_ingest::SpoolWay;
use hookfast_parts::{MustEnd, Part, Tasks};
use hookfast_store::{LateStore, Migrate, OpenError, Record, Spool, Store, open};
use tokio::time::timeout;

use crate::Config;
use crate::exit::Exit;

/// How long closing may wait for tasks that still use the store.
const CLOSE_WITHIN: Duration = Duration::from_secs(4);

/// With a spool, receiving starts after this time also if the store is still being opened.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// Where events are kept.
pub(crate) enum Keeping {
    /// In a store that is there.
    Store(Arc<dyn Store>),
    /// In a Postgres that may be away for a while, now or later.
    Spooled(Arc<LateStore>, SpoolWay),
}

impl Keeping {
    /// Opens the store, or at least the spool, if the gateway receives and has one.
    pub(crate) async fn open(config: &Config, receives: bool, migrate: Migrate) -> Result<Self, Exit> {
        let late = LateStore::new(&config.store, migrate);
        let (Some(late), Some(spool)) = (late, config.spool.as_ref().filter(|_| receives)) else {
            return Ok(Self::Store(open(&config.store, migrate).await?));
        };
        let late = Arc::new(late);
        let way = SpoolWay {
            spool: Arc::new(Spool::open(&spool.file).await?),
            store: Arc::clone(&late) as _,
            after: spool.after,
        };
        let opening = Arc::clone(&late);
        // After the time-out, opening goes on in its task; the drainer waits for it.
        let opening = tokio::spawn(async move { opening.open().await.map(drop) });
        match timeout(OPEN_WITHIN, opening).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error @ OpenError::Unreachable { .. }))) => {
                tracing::error!(%error, "the gateway starts all the same, and records into the spool");
            }
            Ok(Ok(Err(error))) => return Err(error.into()),
            Ok(Err(error)) => return Err(Exit::failed(error)),
            Err(_) => tracing::error!(
                "the store is not open yet: it is upgraded, or another process holds a lock on its tables. The gateway \
                 starts all the same, and records into the spool"
            ),
        }
        Ok(Self::Spooled(late, way))
    }

    /// The store, if it is there.
    pub(crate) fn store(&self) -> Option<Arc<dyn Store>> {
        match self {
            Self::Store(store) => Some(Arc::clone(store)),
            Self::Spooled(late, _) => late.get(),
        }
    }

    /// The store, once it is there.
    pub(crate) async fn reached(&self) -> Arc<dyn Store> {
        match self {
            Self::Store(store) => Arc::clone(store),
            Self::Spooled(late, _) => late.opened().await,
        }
    }

    /// What ingest needs of it.
    pub(crate) fn for_recording(&self) -> (Arc<dyn Record>, Option<SpoolWay>) {
        match self {
            Self::Store(store) => (Arc::clone(store) as _, None),
            Self::Spooled(late, way) => (Arc::clone(late) as _, Some(way.clone())),
        }
    }

    /// Says that the process must end once the store promises nothing more. Several parts use the store, and one may notice an
    /// I/O error while all the others are idle.
    async fn watch(self: Arc<Self>, must_end: MustEnd) {
        let problem = self.reached().await.broken().await;
        tracing::error!(problem, "the store had an I/O error and promises nothing more");
        must_end.because_of_the_store();
    }

    async fn close(&self) {
        if let Some(store) = self.store() {
            store.close().await;
        }
        if let Self::Spooled(_, way) = self {
            way.spool.close().await;
        }
    }

    /// The store is watched until it is closed, which is after what is under way has ended.
    pub(crate) fn part(self: Arc<Self>, tasks: &Tasks, must_end: &MustEnd) -> Part {
        let watching = tasks.spawn("store", Arc::clone(&self).watch(must_end.clone()));
        Part::new("the store", CLOSE_WITHIN, "what is not committed is undone", async move {
            watching.abort();
            // In a task of its own: a disk that stands still blocks its thread, and this deadline must pass all the same.
            let _ = tokio::spawn(async move { self.close().await }).await;
        })
    }
}
