//! Jobs that nothing runs, because their handlers are not in the configuration: renamed, removed, or of another program.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use hookfast_ingest::Details;
use hookfast_queue::Queue;
use hookfast_store::{Backlog, Measure};

use crate::Config;
use crate::keeping::Keeping;

/// What `/readyz?verbose` says about queue and jobs.
pub(crate) struct Report {
    pub(crate) keeping: Arc<Keeping>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) configured: Arc<Configured>,
}

/// The names of all handlers of the configuration, also of those that are paused or run elsewhere.
pub(crate) struct Configured(RwLock<BTreeMap<String, IsPaused>>);

type IsPaused = bool;

const PAUSED: &str = "is paused";

impl Configured {
    pub(crate) fn of(config: &Config) -> Arc<Self> {
        Arc::new(Self(RwLock::new(handlers(config))))
    }

    /// The configuration was reloaded.
    pub(crate) fn reload(&self, config: &Config) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = handlers(config);
    }

    /// Handlers that have jobs which nothing here runs, each with the reason and its counts by state.
    fn unclaimed<'a>(&self, backlog: &'a Backlog) -> BTreeMap<&'a str, (&'static str, String)> {
        let now = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeMap::new();
        for (handler, state, count) in &backlog.jobs {
            let why = match now.get(handler) {
                None => "is not in the configuration",
                Some(true) => PAUSED,
                Some(false) => continue,
            };
            if *count > 0 {
                let (_, counts): &mut (_, Vec<String>) =
                    found.entry(handler.as_str()).or_insert_with(|| (why, Vec::new()));
                counts.push(format!("{count} {state}"));
            }
        }
        found.into_iter().map(|(handler, (why, counts))| (handler, (why, counts.join(", ")))).collect()
    }
}

fn handlers(config: &Config) -> BTreeMap<String, IsPaused> {
    config.handlers.iter().map(|handler| (handler.subscription.handler.to_string(), handler.is_paused)).collect()
}

#[async_trait]
impl Details for Report {
    async fn lines(&self) -> Vec<String> {
        let queue = match self.queue.check().await {
            Ok(()) => "queue: it can be used".to_owned(),
            Err(_) => "queue: it cannot be used, so the sweeper finds the jobs; the log says why".to_owned(),
        };
        let mut lines = vec![queue];
        let Some(store) = self.keeping.store() else { return lines };
        match store.backlog().await {
            Ok(backlog) => {
                let unclaimed = self.configured.unclaimed(&backlog);
                let line = |(handler, (why, count)): (&str, (&str, String))| {
                    format!("jobs of `{handler}`, which {why}: {count}")
                };
                lines.extend(unclaimed.into_iter().map(line));
            }
            Err(_) => lines.push("jobs: the store does not say how many there are".into()),
        }
        lines
    }
}

/// Warns of jobs that nothing runs, and says what can be done about them. That a handler is paused is meant.
pub(crate) async fn warn(store: Arc<dyn Measure>, configured: Arc<Configured>) {
    match store.backlog().await {
        Ok(backlog) => {
            let unclaimed = configured.unclaimed(&backlog).into_iter().filter(|(_, (why, _))| *why != PAUSED);
            for (handler, (why, count)) in unclaimed {
                tracing::warn!(
                    handler,
                    "there are jobs of `{handler}`, which {why}, so nothing runs them: {count}. \
                     `hookfast jobs list --handler {handler}` shows them; `hookfast jobs move` gives them to another \
                     handler, `hookfast jobs resolve` ends them"
                );
            }
        }
        Err(error) => tracing::debug!(%error, "whether there are jobs of unknown handlers could not be asked"),
    }
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::JobState;

    use super::*;

    #[test]
    fn jobs_of_handlers_that_are_not_configured_are_counted_by_state() {
        let job = |handler: &str, state, count| (handler.to_owned(), state, count);
        let jobs = vec![
            job("aa", JobState::Pending, 320),
            job("aa", JobState::Failed, 2),
            job("bb", JobState::Pending, 5),
            job("cc", JobState::DeadLetter, 0),
            job("dd", JobState::Pending, 7),
            job("ee", JobState::Pending, 1),
        ];
        let backlog = Backlog { jobs, ..Backlog::default() };
        let now = [("bb", false), ("dd", false), ("ee", true)].map(|(name, is_paused)| (name.to_owned(), is_paused));
        let configured = Configured(RwLock::new(now.into()));
        let found = configured.unclaimed(&backlog);
        let gone = ("is not in the configuration", "320 pending, 2 failed".to_owned());
        let paused = (PAUSED, "1 pending".to_owned());
        assert_eq!(found, BTreeMap::from([("aa", gone), ("ee", paused)]));
    }
}
