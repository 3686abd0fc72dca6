//! Jobs that nothing runs, because their handlers are not in the configuration: renamed, removed, or of another program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use hookfast_ingest::Details;
use hookfast_queue::Queue;
use hookfast_store::{Backlog, Store};

use crate::Config;
use crate::keeping::Keeping;

/// What `/readyz?verbose` says about queue and jobs.
pub(crate) struct Report {
    pub(crate) keeping: Arc<Keeping>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) configured: BTreeSet<String>,
}

/// The names of all handlers of a configuration, also of those that are paused or run elsewhere.
pub(crate) fn configured(config: &Config) -> BTreeSet<String> {
    config.handlers.iter().map(|handler| handler.subscription.handler.to_string()).collect()
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
                let unclaimed = unclaimed(&backlog, &self.configured);
                let line = |(handler, count): (&str, String)| {
                    format!("jobs of `{handler}`, which is not in the configuration: {count}")
                };
                lines.extend(unclaimed.into_iter().map(line));
            }
            Err(_) => lines.push("jobs: the store does not say how many there are".into()),
        }
        lines
    }
}

/// Warns of jobs that nothing runs, and says what can be done about them.
pub(crate) async fn warn(store: Arc<dyn Store>, configured: BTreeSet<String>) {
    match store.backlog().await {
        Ok(backlog) => {
            for (handler, count) in unclaimed(&backlog, &configured) {
                tracing::warn!(
                    handler,
                    "there are jobs of `{handler}`, which is not in the configuration, so nothing runs them: {count}. \
                     `hookfast jobs list --handler {handler}` shows them; `hookfast jobs move` gives them to another \
                     handler, `hookfast jobs resolve` ends them"
                );
            }
        }
        Err(error) => tracing::debug!(%error, "whether there are jobs of unknown handlers could not be asked"),
    }
}

/// Handlers that have jobs and are not configured, each with its counts by state.
fn unclaimed<'a>(backlog: &'a Backlog, configured: &BTreeSet<String>) -> BTreeMap<&'a str, String> {
    let mut counts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (handler, state, count) in &backlog.jobs {
        if *count > 0 && !configured.contains(handler) {
            counts.entry(handler).or_default().push(format!("{count} {state}"));
        }
    }
    counts.into_iter().map(|(handler, counts)| (handler, counts.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_handlers_that_are_not_configured_are_counted_by_state() {
        let job = |handler: &str, state: &str, count| (handler.to_owned(), state.to_owned(), count);
        let jobs =
            vec![job("aa", "pending", 320), job("aa", "failed", 2), job("bb", "pending", 5), job("cc", "dead", 0)];
        let backlog = Backlog { jobs, ..Backlog::default() };
        let found = unclaimed(&backlog, &BTreeSet::from(["bb".to_owned()]));
        assert_eq!(found, BTreeMap::from([("aa", "320 pending, 2 failed".to_owned())]));
    }
}
