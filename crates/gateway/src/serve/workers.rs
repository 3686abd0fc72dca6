//! The workers of this process: which handlers they run, and their start, change and end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookfast_parts::{MustEnd, Part, Tasks};
use hookfast_processor::{Assigned, Surroundings};
use hookfast_queue::QueueUrl;
use hookfast_store::StoreError;
use hookfast_webhook::HandlerName;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::opening::say_if_slow;
use super::parts::Shared;
use super::{Gateway, Role};
use crate::Config;
use crate::apart::OwnProcess;
use crate::config::ConfiguredHandler;
use crate::unclaimed;

/// How long to wait before workers that could not start try again.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the end of the workers may take on top of their own `shutdown_timeout`.
const WORKERS_END_WITHIN: Duration = Duration::from_secs(6);

/// The workers of this process. They start when there is a store to work on.
pub(super) struct Workers {
    config: hookfast_processor::Config,
    apart: Arc<OwnProcess>,
    state: Mutex<State>,
}

struct State {
    /// The handlers that the workers run, or will run once they have started.
    assigned: Vec<Assigned>,
    running: Option<hookfast_processor::Running>,
}

impl Workers {
    pub(super) fn of(config: &Config, gateway: &Gateway) -> Arc<Self> {
        Arc::new(Self {
            config: config.work.clone(),
            apart: Arc::new(OwnProcess::new(gateway.file.as_deref(), longest_run(config))),
            state: Mutex::new(State { assigned: assigned(config, &gateway.role), running: None }),
        })
    }

    /// Starts the workers as soon as the store is there. Claims, sweeps and outcomes run in the runtime of the commits. On
    /// SQLite they take turns with recording, and in the runtime of the requests each turn would wait for the requests.
    pub(super) fn start(self: Arc<Self>, gateway: &Gateway, shared: &Shared) -> Part {
        let tasks = Tasks::new(&gateway.commits, &gateway.must_end);
        let (handlers, must_end) = (gateway.for_handlers.clone(), gateway.must_end.clone());
        let starting = tasks.spawn("start_workers", Arc::clone(&self).begin(shared.clone(), handlers, must_end));
        let within = self.config.shutdown_timeout.saturating_add(WORKERS_END_WITHIN);
        Part::new("the workers", within, "their jobs are run again later", async move {
            starting.abort();
            let _ = starting.await;
            let running = self.state().running.take();
            if let Some(running) = running {
                running.shut_down().await;
            }
        })
    }

    /// Waits for the store and starts the workers. They may wait for a lock on their handlers' tables, which holds up
    /// nothing else.
    async fn begin(self: Arc<Self>, shared: Shared, handlers: Handle, must_end: MustEnd) {
        let Shared { keeping, queue, configured } = shared;
        let store = keeping.reached().await;
        tokio::spawn(unclaimed::warn(Arc::clone(&store) as _, configured));
        let apart = Some(Arc::clone(&self.apart) as _);
        let surroundings = Surroundings { store, queue, handlers, apart, must_end: must_end.clone() };
        let assigned = self.state().assigned.clone();
        match start_workers(surroundings, assigned, self.config.clone()).await {
            Ok(running) => self.state().set_running(running),
            Err(error) => must_end.because(format!("the workers cannot start: {error}")),
        }
    }

    /// Runs the handlers of a configuration that was reloaded, and no others.
    pub(super) fn assign(&self, config: &Config, role: &Role) {
        self.apart.set_longest_run(longest_run(config));
        self.state().assign(assigned(config, role));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_running(&mut self, running: hookfast_processor::Running) {
        // A reload may have changed the handlers meanwhile.
        running.assign(self.assigned.clone());
        self.running = Some(running);
    }

    fn assign(&mut self, assigned: Vec<Assigned>) {
        if let Some(running) = &self.running {
            running.assign(assigned.clone());
        }
        self.assigned = assigned;
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
    let sources: Vec<_> = config.sources.keys().map(ToString::to_string).collect();
    wanted
        .map(|ConfiguredHandler { subscription, handler, config, is_paused }| Assigned {
            name: subscription.handler.clone(),
            handler: Arc::clone(handler),
            config: config.clone(),
            is_paused: *is_paused,
            sources: sources.iter().filter(|source| subscription.wants_some_of(source)).cloned().collect(),
        })
        .collect()
}

/// The handlers whose hints the queue takes. A queue in memory leads only to the workers of this process.
pub(super) fn served(config: &Config, role: &Role) -> Vec<HandlerName> {
    let here = || assigned(config, role).into_iter().filter(|assigned| !assigned.is_paused);
    let anywhere = config.handlers.iter().filter(|handler| !handler.is_paused);
    match config.queue.url {
        QueueUrl::Memory => here().map(|assigned| assigned.name).collect(),
        QueueUrl::Nats(_) => anywhere.map(|handler| handler.subscription.handler.clone()).collect(),
    }
}

pub(super) fn is_named(handler: &ConfiguredHandler, name: &str) -> bool {
    handler.subscription.handler.as_str() == name
}
