//! The workers of this process: which handlers they run, and their start, pause and end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookfast_processor::{Assigned, Surroundings};
use hookfast_queue::Queue;
use hookfast_store::{StoreError, Work};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Role, say_if_slow};
use crate::Config;
use crate::apart::OwnProcess;
use crate::config::ConfiguredHandler;
use crate::unclaimed::{self, Configured};

/// How long to wait before workers that could not start try again.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the end of the workers may take on top of their own `shutdown_timeout`.
const WORKERS_END_WITHIN: Duration = Duration::from_secs(6);

/// The workers of this process. They start when there is a store to work on.
pub(super) struct Workers {
    /// The handlers that they run; none if this process only receives.
    assigned: Option<Vec<Assigned>>,
    pub(super) config: hookfast_processor::Config,
    pub(super) queue: Arc<dyn Queue>,
    apart: Arc<OwnProcess>,
    pub(super) configured: Arc<Configured>,
    stage: Stage,
}

/// How far the workers are.
enum Stage {
    NotYet,
    /// They may wait for a lock on their handlers' tables, which holds up nothing else.
    Starting(JoinHandle<Result<hookfast_processor::Running, StoreError>>),
    Running(hookfast_processor::Running),
}

impl Workers {
    pub(super) fn of(config: &Config, role: &Role, file: Option<&Path>, queue: &Arc<dyn Queue>) -> Self {
        Self {
            assigned: role.works().then(|| assigned(config, role)),
            config: config.work.clone(),
            queue: Arc::clone(queue),
            apart: Arc::new(OwnProcess::new(file, longest_run(config))),
            configured: Configured::of(config),
            stage: Stage::NotYet,
        }
    }

    pub(super) fn are_to_start(&self) -> bool {
        self.assigned.is_some() && matches!(self.stage, Stage::NotYet)
    }

    /// Claims, sweeps and outcomes run in the runtime of the commits. On SQLite they take turns with recording, and in the
    /// runtime of the requests each turn would wait for the requests.
    pub(super) fn begin(&mut self, store: Arc<dyn Work>, commits: &Handle, threads: &Handle) {
        if let Some(assigned) = &self.assigned {
            commits.spawn(unclaimed::warn(Arc::clone(&store) as _, Arc::clone(&self.configured)));
            let (queue, handlers) = (Arc::clone(&self.queue), threads.clone());
            let surroundings = Surroundings { store, queue, handlers, apart: Some(Arc::clone(&self.apart) as _) };
            let start = start_workers(surroundings, assigned.clone(), self.config.clone());
            self.stage = Stage::Starting(commits.spawn(start));
        }
    }

    /// Waits for the end of their start, if they are starting.
    pub(super) async fn started(&mut self) -> Result<(), StoreError> {
        let Stage::Starting(starting) = &mut self.stage else { return std::future::pending().await };
        let running = starting.await.expect("nothing in it panics or ends it")?;
        // A reload may have changed them meanwhile.
        running.assign(self.assigned.clone().unwrap_or_default());
        self.stage = Stage::Running(running);
        Ok(())
    }

    /// Runs the handlers of a configuration that was reloaded, and no others.
    pub(super) fn assign(&mut self, config: &Config, role: &Role) {
        if self.assigned.is_none() {
            return;
        }
        let assigned = assigned(config, role);
        self.apart.set_longest_run(longest_run(config));
        if let Stage::Running(running) = &self.stage {
            running.assign(assigned.clone());
        }
        self.assigned = Some(assigned);
    }

    pub(super) fn must_end(&self) -> CancellationToken {
        match &self.stage {
            Stage::Running(running) => running.must_end.clone(),
            _ => CancellationToken::new(),
        }
    }

    pub(super) async fn shut_down(self) {
        let running = match self.stage {
            Stage::NotYet => return,
            Stage::Starting(starting) => {
                starting.abort();
                match starting.await {
                    Ok(Ok(running)) => running,
                    _ => return,
                }
            }
            Stage::Running(running) => running,
        };
        let within = self.config.shutdown_timeout + WORKERS_END_WITHIN;
        if timeout(within, running.shut_down()).await.is_err() {
            tracing::warn!("the workers did not end in time; their jobs are run again later");
        }
    }
}

/// The longest time that a run may take, of all handlers.
fn longest_run(config: &Config) -> Duration {
    config.handlers.iter().map(|handler| handler.config.deadline).max().unwrap_or_default()
}

/// Starts workers, as soon as the store can be used.
async fn start_workers(
    surroundings: Surroundings,
    assigned: Vec<Assigned>,
    config: hookfast_processor::Config,
) -> Result<hookfast_processor::Running, StoreError> {
    loop {
        let start = hookfast_processor::start(surroundings.clone(), assigned.clone(), config.clone());
        let what =
            "the tables of the handlers: the workers start when these are there, and events are received meanwhile";
        match say_if_slow(what, start).await {
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::error!(%error, "the workers cannot start; it is tried again");
                sleep(START_AGAIN_AFTER).await;
            }
            started => return started,
        }
    }
}

/// The handlers that this process runs.
pub(crate) fn assigned(config: &Config, role: &Role) -> Vec<Assigned> {
    let is_wanted = |handler: &&ConfiguredHandler| match role {
        Role::Work(wanted) if !wanted.is_empty() => wanted.iter().any(|name| is_named(handler, name)),
        _ => true,
    };
    let wanted = config.handlers.iter().filter(is_wanted);
    wanted
        .map(|ConfiguredHandler { subscription, handler, config, is_paused }| Assigned {
            name: subscription.handler.clone(),
            handler: Arc::clone(handler),
            config: config.clone(),
            is_paused: *is_paused,
        })
        .collect()
}

pub(super) fn is_named(handler: &ConfiguredHandler, name: &str) -> bool {
    handler.subscription.handler.as_str() == name
}
