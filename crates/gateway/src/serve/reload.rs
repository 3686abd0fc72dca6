//! SIGHUP: the configuration and the files of secrets are read again.

use std::sync::Arc;

use hookfast_ingest::{Source, Table};

use super::Gateway;
use super::workers::Workers;
use crate::config::{self, Settings};
use crate::development::{Missing, supply_secrets};
use crate::unclaimed;
use crate::{Config, Problem};

impl Gateway {
    /// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
    pub(super) async fn reload(
        &self,
        ingest: Option<&hookfast_ingest::Running>,
        workers: &mut Workers,
        at_start: &Settings,
    ) {
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
                warn_of_restart(at_start, &config.settings);
                let (sources, handlers) = (config.sources.len(), config.handlers.len());
                workers.queue.serve(&self.served(&config)).await;
                workers.assign(&config, &self.prepared.role);
                self.warn_of_unclaimed_jobs(workers, &config);
                if let Some(ingest) = ingest {
                    ingest.reload(table(config));
                }
                tracing::info!(sources, handlers, "the configuration was reloaded");
            }
        }
    }

    fn warn_of_unclaimed_jobs(&self, workers: &Workers, config: &Config) {
        workers.configured.reload(config);
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

fn warn_of_restart(at_start: &Settings, now: &Settings) {
    let keys = at_start.need_restart(now);
    if !keys.is_empty() {
        let keys = keys.join(", ");
        tracing::warn!(keys, "these keys have changed and take effect at the next start: {keys}");
    }
}
