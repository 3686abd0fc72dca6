//! `/livez` and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Record, StoreError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::spool::Spooling;

/// The store is asked at most this often: the question comes from outside, unauthenticated.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How a gateway is that takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    /// Somebody should look at it, and requests are recorded all the same.
    Degraded(&'static str),
}

type Verdict = Result<Ready, &'static str>;

/// Whether requests would be recorded now.
pub(crate) struct Readiness {
    store: Arc<dyn Record>,
    spooling: Option<Arc<Spooling>>,
    shutdown: CancellationToken,
    last: Mutex<Option<(Instant, Verdict)>>,
}

impl Readiness {
    pub(crate) fn new(store: Arc<dyn Record>, spooling: Option<Arc<Spooling>>, shutdown: CancellationToken) -> Self {
        Self { store, spooling, shutdown, last: Mutex::new(None) }
    }

    /// Ready, or in a few words why not. The words are public; the cause is in the log.
    pub(crate) async fn check(&self) -> Verdict {
        if self.shutdown.is_cancelled() {
            return Err("shutting down");
        }
        let mut last = self.last.lock().await;
        match *last {
            Some((asked, verdict)) if asked.elapsed() < CHECK_INTERVAL => verdict,
            _ => {
                let verdict = match &self.spooling {
                    Some(spooling) => self.ask_both(spooling).await,
                    None => self.ask_store().await.map(|()| Ready::Yes),
                };
                *last = Some((Instant::now(), verdict));
                verdict
            }
        }
    }

    async fn ask_store(&self) -> Result<(), &'static str> {
        match answer_in_time(self.store.check()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                tracing::warn!(%error, "the store cannot be used");
                Err("the store cannot be used")
            }
            None => {
                tracing::warn!("the store does not answer");
                Err("the store does not answer")
            }
        }
    }

    /// With a spool, either is enough to record.
    async fn ask_both(&self, spooling: &Spooling) -> Verdict {
        let spool_takes = matches!(answer_in_time(spooling.spool.check()).await, Some(Ok(())));
        if spooling.is_spooling().await {
            return match (spooling.is_away(), spool_takes) {
                (true, true) => Ok(Ready::Degraded("the store cannot be used, so events are recorded into the spool")),
                (false, true) => Ok(Ready::Degraded("the spool is being drained into the store")),
                (false, false) => Ok(Ready::Degraded("the spool cannot be used; events are recorded in the store")),
                (true, false) => Err("neither the store nor the spool can be used"),
            };
        }
        match (self.ask_store().await, spool_takes) {
            (Ok(()), true) => Ok(Ready::Yes),
            (Ok(()), false) => Ok(Ready::Degraded("the spool cannot be used; events are recorded in the store")),
            (Err(_), true) => Ok(Ready::Degraded("the store cannot be used, so events are recorded into the spool")),
            (Err(_), false) => Err("neither the store nor the spool can be used"),
        }
    }
}

async fn answer_in_time(check: impl Future<Output = Result<(), StoreError>>) -> Option<Result<(), StoreError>> {
    timeout(Duration::from_secs(2), check).await.ok()
}
