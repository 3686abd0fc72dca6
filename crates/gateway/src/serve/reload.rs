//! SIGHUP: the configuration and the files of secrets are read again.

use std::sync::Arc;

use hookfast_ingest::{CurrentTable, Source, Table};

use super::Gateway;
use super::parts::Shared;
use super::workers::{Workers, served};
use crate::config::{self, Settings};
use crate::development::{Missing, supply_secrets};
use crate::unclaimed;
use crate::{Config, Problem};

/// What a reload changes, and what it compares the new configuration with.
pub(super) struct Reload<'a> {
    gateway: &'a Gateway,
    shared: Shared,
    at_start: Settings,
    workers: Option<Arc<Workers>>,
    /// What ingest looks sources and handlers up in, if this process receives.
    pub(super) table: Option<CurrentTable>,
}

impl<'a> Reload<'a> {
    pub(super) fn of(gateway: &'a Gateway, shared: &Shared, config: &Config, workers: Option<Arc<Workers>>) -> Self {
        Self { gateway, shared: shared.clone(), at_start: config.settings.clone(), workers, table: None }
    }

    /// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
    pub(super) async fn reload(&self) {
        match self.load() {
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("the configuration was not reloaded, everything stays as it was: {problem}");
                }
            }
            Ok(config) => self.change_to(config).await,
        }
    }

    fn load(&self) -> Result<Config, Vec<Problem>> {
        let mut config = config::load(self.gateway.file.as_deref(), &self.gateway.own_handlers)?;
        match supply_secrets(&mut config, Missing::MakeUp) {
            Ok(_) => Ok(config),
            Err(problem) => Err(vec![Problem { origin: "development".into(), key: String::new(), problem }]),
        }
    }

    async fn change_to(&self, config: Config) {
        let role = &self.gateway.role;
        warn_of_restart(&self.at_start, &config.settings);
        let (sources, handlers) = (config.sources.len(), config.handlers.len());
        self.shared.queue.serve(&served(&config, role)).await;
        if let Some(workers) = &self.workers {
            workers.assign(&config, role);
        }
        self.warn_of_unclaimed_jobs(&config);
        if let Some(current) = &self.table {
            current.replace(table(config));
        }
        tracing::info!(sources, handlers, "the configuration was reloaded");
    }

    fn warn_of_unclaimed_jobs(&self, config: &Config) {
        let Shared { keeping, configured, .. } = &self.shared;
        configured.reload(config);
        if let Some(store) = keeping.store() {
            tokio::spawn(unclaimed::warn(store, Arc::clone(configured)));
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
