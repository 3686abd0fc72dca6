//! `/livez` and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::Record;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// The store is asked at most this often: the question comes from outside, unauthenticated.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether requests would be recorded now.
pub(crate) struct Readiness {
    store: Arc<dyn Record>,
    shutdown: CancellationToken,
    last: Mutex<Option<(Instant, Result<(), &'static str>)>>,
}

impl Readiness {
    pub(crate) fn new(store: Arc<dyn Record>, shutdown: CancellationToken) -> Self {
        Self { store, shutdown, last: Mutex::new(None) }
    }

    /// Ready, or in a few words why not. The words are public; the cause is in the log.
    pub(crate) async fn check(&self) -> Result<(), &'static str> {
        if self.shutdown.is_cancelled() {
            return Err("shutting down");
        }
        let mut last = self.last.lock().await;
        match *last {
            Some((asked, verdict)) if asked.elapsed() < CHECK_INTERVAL => verdict,
            _ => {
                let verdict = self.ask_store().await;
                *last = Some((Instant::now(), verdict));
                verdict
            }
        }
    }

    async fn ask_store(&self) -> Result<(), &'static str> {
        match timeout(Duration::from_secs(2), self.store.check()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready");
                Err("the store cannot be used")
            }
            Err(_) => {
                tracing::warn!("not ready: the store does not answer");
                Err("the store does not answer")
            }
        }
    }
}
