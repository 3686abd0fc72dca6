//! Everything that runs in this process: it is started here, and listed in the order in which it is shut down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hookfast_ingest::{Ingest, Recording};
use hookfast_parts::{Part, Parts, Tasks};
use hookfast_queue::Queue;
use hookfast_webhook::SystemClock;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::Gateway;
use super::greeting::Greeting;
use super::opening::say_if_slow;
use super::reload::{Reload, table};
use super::workers::{Workers, served};
use crate::Config;
use crate::development::{Development, Missing, supply_secrets};
use crate::exit::Exit;
use crate::keeping::Keeping;
use crate::metrics::{install_metrics, keep_metrics_small};
use crate::unclaimed::{Configured, Report};

/// File descriptors that are not connections: databases, listeners, logs.
const OTHER_FILES: u64 = 128;

/// How long the queue may take to send what is under way.
const QUEUE_CLOSES_WITHIN: Duration = Duration::from_secs(2);

/// What several parts use.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) keeping: Arc<Keeping>,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) configured: Arc<Configured>,
}

impl Gateway {
    /// Starts everything. The workers come last, because what they wait for must not keep events out.
    pub(super) async fn start(&self, mut config: Config, keeping: Arc<Keeping>) -> Result<(Parts, Reload<'_>), Exit> {
        let metrics = install_metrics()?;
        let development = self.complete(&mut config)?;
        let tasks = Tasks::new(&Handle::current(), &self.must_end);
        let listener = bind(config.admin.listen, "admin").await?;
        let admin = hookfast_admin::start(listener, metrics.clone(), &config.admin.hosts, &tasks);
        let admin = admin.map_err(Exit::failed)?;
        let queue = hookfast_queue::open(&config.queue, served(&config, &self.role), &tasks);
        let queue = say_if_slow("the queue", queue).await.map_err(Exit::failed)?;
        let shared = Shared { keeping, queue, configured: Configured::of(&config) };
        let mut greeting = Greeting::of(&config, &self.role, admin.address);
        shared.say_what_is_away(&mut greeting).await;
        let workers = self.role.works().then(|| Workers::of(&config, self));
        let mut reload = Reload::of(self, &shared, &config, workers.clone());
        let mut receiving = None;
        if self.role.receives() {
            let ingest = self.start_ingest(config, development.as_ref(), &shared, &mut greeting).await?;
            reload.table = Some(ingest.table.clone());
            receiving = Some(ingest.into_part());
        }
        greeting.print();
        let upkeep = tasks.spawn("metrics", keep_metrics_small(metrics));
        let parts = Parts::default()
            // At the same time: supervisors do not wait for one after the other.
            .then(receiving.into_iter().chain(workers.map(|workers| workers.start(self, &shared))))
            .then([admin.into_part(), Part::of_task("the upkeep of the metrics", upkeep)])
            .then([queue_part(shared.queue)])
            .then([shared.keeping.part(&tasks, &self.must_end)]);
        Ok((parts, reload))
    }

    /// Adds to the configuration what this machine and a gateway for development have.
    fn complete(&self, config: &mut Config) -> Result<Option<Development>, Exit> {
        config.ingest.connections = connections_within_limits(config.ingest.connections);
        if config.handlers.is_empty() {
            say_that_nothing_is_handled();
        }
        match self.role.receives() {
            true => supply_secrets(config, Missing::MakeUp).map_err(Exit::Failed),
            false => Ok(None),
        }
    }

    async fn start_ingest(
        &self,
        config: Config,
        development: Option<&Development>,
        shared: &Shared,
        greeting: &mut Greeting,
    ) -> Result<hookfast_ingest::Running, Exit> {
        let listener = bind(config.ingest.listen, "ingest").await?;
        let address = listener.local_addr().map_err(Exit::failed)?;
        greeting.add_ingest(&config, development, address);
        let known_providers = config.providers.for_recognition();
        let Shared { keeping, queue, configured } = shared.clone();
        let leads_to_workers = queue.is_shared() || self.role.works();
        let (store, spool) = keeping.for_recording();
        let recording = Recording {
            store,
            spool,
            queue: leads_to_workers.then(|| Arc::clone(&queue)),
            details: Some(Arc::new(Report { keeping, queue, configured })),
            commits: &self.commits,
            must_end: &self.must_end,
        };
        let (ingest, clock) = (config.ingest.clone(), Arc::new(SystemClock));
        Ingest::start(listener, ingest, table(config), known_providers, recording, clock).await.map_err(Exit::failed)
    }
}

impl Shared {
    async fn say_what_is_away(&self, greeting: &mut Greeting) {
        if self.keeping.store().is_none() {
            greeting.say_store_is_away();
        }
        if self.queue.check().await.is_err() {
            greeting.say_queue_is_away();
        }
    }
}

fn queue_part(queue: Arc<dyn Queue>) -> Part {
    let otherwise = "the sweeper finds the jobs whose hints were not sent";
    Part::new("the queue", QUEUE_CLOSES_WITHIN, otherwise, async move { queue.close().await })
}

async fn bind(address: SocketAddr, section: &str) -> Result<TcpListener, Exit> {
    TcpListener::bind(address).await.map_err(|error| {
        Exit::Failed(format!(
            "cannot listen on {address}: {error}. Choose another address with `listen` in `[{section}]`"
        ))
    })
}

/// Otherwise a new user waits for something to happen.
fn say_that_nothing_is_handled() {
    tracing::warn!(
        "no handler is configured: events are recorded, and nothing acts on them. docs/handlers.md says how to write a \
         handler; a section `[handlers.NAME]` with `run = \"log\"` adds one that logs each event"
    );
}

/// More connections than files may be open would make accepting fail; fewer is a clear answer.
fn connections_within_limits(wanted: usize) -> usize {
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX).max(1);
    if possible < wanted {
        tracing::warn!(files, "only {possible} connections are possible, not {wanted}: raise the limit of open files");
    }
    wanted.min(possible)
}
