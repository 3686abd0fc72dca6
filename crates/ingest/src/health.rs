//! The answers of `/livez` and `/readyz`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_store::{Record, SpoolStatus, StoreError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::spool::Spooling;

/// Shortest time between two checks of the store. `/readyz` needs no authentication, so its callers must not load the
/// store.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two collections of the details, which cost more.
const DETAILS_INTERVAL: Duration = Duration::from_secs(10);

/// Lines that the rest of the process adds to `/readyz?verbose`.
#[async_trait]
pub trait Details: Send + Sync {
    /// One line for each thing that an operator should know.
    async fn lines(&self) -> Vec<String>;
}

/// The state of a gateway that can record requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    /// Requests are recorded, but an operator should look at this problem.
    Degraded(&'static str),
}

type Verdict = Result<Ready, &'static str>;

/// Checks whether requests can be recorded now.
pub(crate) struct Readiness {
    store: Arc<dyn Record>,
    spooling: Option<Arc<Spooling>>,
    details: Option<Arc<dyn Details>>,
    shutdown: CancellationToken,
    last: Mutex<Option<(Instant, Verdict)>>,
    last_details: Mutex<Option<(Instant, Vec<String>)>>,
}

impl Readiness {
    pub(crate) fn new(
        store: Arc<dyn Record>,
        spooling: Option<Arc<Spooling>>,
        details: Option<Arc<dyn Details>>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { store, spooling, details, shutdown, last: Mutex::default(), last_details: Mutex::default() }
    }

    /// Ready, or a short reason why not. The reason is public; the cause is in the log.
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

    /// The verdict, then a line about each part.
    pub(crate) async fn report(&self, verdict: Verdict) -> String {
        let mut lines = vec![match verdict {
            Ok(Ready::Yes) => "ready".to_owned(),
            Ok(Ready::Degraded(why)) => format!("degraded: {why}"),
            Err(problem) => format!("not ready: {problem}"),
        }];
        let mut last = self.last_details.lock().await;
        let details = match &*last {
            Some((asked, details)) if asked.elapsed() < DETAILS_INTERVAL => details.clone(),
            _ => {
                let details = self.ask_for_details().await;
                *last = Some((Instant::now(), details.clone()));
                details
            }
        };
        lines.extend(details);
        lines.push(String::new());
        lines.join("\n")
    }

    async fn ask_for_details(&self) -> Vec<String> {
        let mut lines = vec![match answer_in_time(self.store.check()).await {
            Some(Ok(())) => "store: usable".to_owned(),
            Some(Err(_)) => "store: not usable; the log says why".to_owned(),
            None => "store: does not answer".to_owned(),
        }];
        if let Some(spooling) = &self.spooling {
            lines.push(match answer_in_time(spooling.spool.status()).await {
                Some(Ok(SpoolStatus { events, refused, .. })) => {
                    format!("spool: {events} events waiting, {refused} of them set aside")
                }
                _ => "spool: not readable; the log says why".to_owned(),
            });
        }
        if let Some(details) = &self.details {
            let asked = timeout(Duration::from_secs(3), details.lines()).await;
            lines.extend(asked.unwrap_or_else(|_| vec!["jobs: unknown, because the store does not answer".into()]));
        }
        lines
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

    /// With a spool, the store or the spool alone is enough to record.
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

/// Whether a client may see the details. Names of handlers and counts of jobs must not be public.
pub(crate) fn may_see_details(client: IpAddr) -> bool {
    match client {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

async fn answer_in_time<T>(check: impl Future<Output = Result<T, StoreError>>) -> Option<Result<T, StoreError>> {
    timeout(Duration::from_secs(2), check).await.ok()
}

#[cfg(test)]
mod tests {
    use super::may_see_details;

    #[test]
    fn details_are_for_clients_of_the_same_network() {
        for near in ["127.0.0.1", "10.1.2.3", "192.168.0.9", "169.254.1.1", "::1", "fd00::1", "fe80::1"] {
            assert!(may_see_details(near.parse().expect("an address")), "{near}");
        }
        for far in ["203.0.113.7", "8.8.8.8", "2001:db8::1"] {
            assert!(!may_see_details(far.parse().expect("an address")), "{far}");
        }
    }
}
