//! SIGHUP: the configuration and the files of secrets are read again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hookfast_ingest::{Source, Table};

use super::Gateway;
use super::workers::Workers;
use crate::config;
use crate::development::{Missing, supply_secrets};
use crate::unclaimed;
use crate::{Config, Problem};

impl Gateway {
    /// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
    pub(super) async fn reload(&self, ingest: Option<&hookfast_ingest::Running>, workers: &mut Workers, fixed: &Fixed) {
        let loaded = config::load(self.prepared.file.as_deref(), &self.prepared.own_handlers).and_then(|mut config| {
            match supply_secrets(&mut config, Missing::MakeUp) {
                Ok(_) => Ok(config),
                Err(problem) => Err(vec![Problem { origin: "development".into(), key: String::new(), problem }]),
            }
        });
        match loaded {
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("the configuration was not reloaded, everything stays as it was: {problem}");
                }
            }
            Ok(config) => {
                if Fixed::of(&config) != *fixed {
                    tracing::warn!(
                        "changes in [ingest], [admin], [store], [queue] and [work], and in how handlers are run, take \
                         effect at the next start"
                    );
                }
                let (sources, handlers) = (config.sources.len(), config.handlers.len());
                workers.queue.serve(&self.served(&config)).await;
                workers.pause(&config);
                self.tell_of_changed_handlers(workers, &config);
                if let Some(ingest) = ingest {
                    ingest.reload(table(config));
                }
                tracing::info!(sources, handlers, "the configuration was reloaded");
            }
        }
    }

    fn tell_of_changed_handlers(&self, workers: &Workers, config: &Config) {
        for handler in workers.configured.reload(config) {
            tracing::warn!(handler, "the handler `{handler}` is new: its jobs wait until the next start");
        }
        if let Some(store) = self.keeping.store() {
            tokio::spawn(unclaimed::warn(store, Arc::clone(&workers.configured)));
        }
    }
}

/// The sources and handlers of a configuration.
pub(super) fn table(config: Config) -> Table {
    let sources = config
        .sources
        .into_iter()
        .map(|(name, source)| Source::new(name, source.provider, source.secrets, source.limits));
    let subscriptions = config.handlers.into_iter().map(|handler| handler.subscription);
    Table::new(sources.collect(), subscriptions.collect())
}

/// What a reload cannot change.
#[derive(PartialEq)]
pub(super) struct Fixed {
    ingest_listen: SocketAddr,
    ingest: hookfast_ingest::Config,
    admin_listen: SocketAddr,
    /// How the rest is written: none of it is secret, and not all of it can be compared.
    rest: String,
}

impl Fixed {
    pub(super) fn of(config: &Config) -> Self {
        let Config { ingest_listen, admin_listen, .. } = *config;
        // Without the number of connections that this machine allows, which is not in the file.
        let ingest = hookfast_ingest::Config { connections: 0, ..config.ingest.clone() };
        let handlers: Vec<_> = config.handlers.iter().map(|handler| &handler.config).collect();
        // Without what the command decides.
        let store = hookfast_store::Config { lock: false, dispatch_grace: Duration::ZERO, ..config.store.clone() };
        let Config { admin_hosts, spool, queue, work, .. } = config;
        let rest = format!("{admin_hosts:?} {store:?} {spool:?} {queue:?} {work:?} {handlers:?}");
        Self { ingest_listen, ingest, admin_listen, rest }
    }
}
