//! `hookfast serve`, `receive` and `work`: everything in one process, or one of its halves.

mod greeting;
mod reload;
mod signals;
mod workers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;

use hookfast_handler::Handlers;
use hookfast_ingest::{Ingest, Recording};
use hookfast_queue::{Queue, QueueUrl};
use hookfast_store::{Migrate, StoreUrl};
use hookfast_webhook::{HandlerName, SystemClock};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::{self, Settings};
use crate::development::{Development, Missing, supply_secrets};
use crate::exit::Exit;
use crate::keeping::Keeping;
use crate::metrics::{install_metrics, keep_metrics_small};
use crate::unclaimed::Report;
use crate::{Config, Problem, in_runtime};
use greeting::Greeting;
use reload::table;
use signals::Signals;
pub(crate) use workers::assigned;
use workers::{Workers, is_named};

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Run missing migrations on Postgres too; on SQLite they always run
    #[arg(long)]
    pub(crate) migrate: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    /// Run missing migrations on Postgres too; on SQLite they always run
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Run only these, such as `ledger,mail` [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) handlers: Vec<String>,
}

/// File descriptors that are not connections: databases, listeners, logs.
const OTHER_FILES: u64 = 128;

/// How long the start waits before it logs what it waits for.
const SAY_AFTER: Duration = Duration::from_secs(5);

/// How long the queue may take to send what is under way.
const QUEUE_CLOSES_WITHIN: Duration = Duration::from_secs(2);

/// Which halves of the gateway run in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Both.
    All,
    /// Only the half that receives.
    Receive,
    /// Only the half that works: for these handlers, or for all if the list is empty.
    Work(Vec<String>),
}

impl Role {
    fn receives(&self) -> bool {
        !matches!(self, Self::Work(_))
    }

    fn works(&self) -> bool {
        *self != Self::Receive
    }
}

/// What a process needs to know about how it was started.
pub(crate) struct Start<'a> {
    pub(crate) role: Role,
    pub(crate) file: Option<&'a Path>,
    pub(crate) migrate: bool,
    pub(crate) handlers: &'a Handlers,
}

/// Opens the store and runs. The store has a runtime of its own, so that a commit never queues behind the requests that
/// wait for it; the handlers have one, so that one that does not yield holds up nothing else.
pub(crate) fn serve(mut config: Config, start: &Start<'_>) -> Result<(), Exit> {
    let Start { role, file, migrate, handlers } = start;
    check_role(&config, role)?;
    if *role == Role::Receive && matches!(config.queue.url, QueueUrl::Memory) {
        // Nobody here can tell the workers elsewhere, so that their sweepers should look at once.
        config.store.dispatch_grace = Duration::ZERO;
    }
    config.store.lock = true;
    let commits = Builder::new_multi_thread().worker_threads(1).thread_name("commits").enable_all().build();
    let commits = commits.map_err(Exit::failed)?;
    let migrate = if *migrate { Migrate::Run } else { Migrate::IfEmbedded };
    let for_handlers = handlers_runtime(&config)?;
    let prepared = Prepared {
        role: role.clone(),
        // Looked for once: without its file, a gateway that was configured must not become one for development.
        file: config::file_in_use(*file).map(Path::to_owned),
        own_handlers: (*handlers).clone(),
        commits: commits.handle().clone(),
        for_handlers: for_handlers.handle().clone(),
    };
    let ended = in_runtime(prepared.run(config, migrate));
    // A handler that does not yield would keep us for ever, and so would a migration.
    for_handlers.shutdown_background();
    commits.shutdown_background();
    ended
}

/// Logs what the start waits for, every few seconds, until it is there.
async fn say_if_slow<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    let mut waiting = pin!(waiting);
    let start = Instant::now();
    loop {
        match timeout(SAY_AFTER, &mut waiting).await {
            Ok(done) => return done,
            Err(_) => tracing::warn!(seconds = start.elapsed().as_secs(), "still waiting for {what}"),
        }
    }
}

pub(crate) fn handlers_runtime(config: &Config) -> Result<Runtime, Exit> {
    let threads = config.work.threads;
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("handlers")
        .enable_all()
        .build()
        .map_err(Exit::failed)
}

/// Two processes that write to one SQLite file would wait for each other's locks.
fn check_role(config: &Config, role: &Role) -> Result<(), Exit> {
    let wrong = |key: &str, problem: String| {
        Err(Exit::Config(vec![Problem { origin: "the command".into(), key: key.into(), problem }]))
    };
    if *role != Role::All && matches!(config.store.url, StoreUrl::Sqlite(_)) {
        let problem =
            "SQLite is for one process, so `receive` and `work` cannot share it. Use `hookfast serve`, or Postgres";
        return wrong("store.url", problem.into());
    }
    if let Role::Work(wanted) = role
        && let Some(unknown) = wanted.iter().find(|name| !config.handlers.iter().any(|known| is_named(known, name)))
    {
        let known: Vec<_> = config.handlers.iter().map(|known| known.subscription.handler.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return wrong("--handlers", format!("there is no handler `{}`; there is: {known}", unknown.escape_debug()));
    }
    Ok(())
}

/// What a gateway needs beside its configuration and its store.
struct Prepared {
    role: Role,
    file: Option<PathBuf>,
    own_handlers: Handlers,
    commits: Handle,
    for_handlers: Handle,
}

impl Prepared {
    /// Opens the store and runs. Signals are heard from the beginning.
    async fn run(self, config: Config, migrate: Migrate) -> Result<(), Exit> {
        let mut signals = Signals::listen()?;
        let begin = async {
            let (config, keeping) = self.open(config, migrate).await?;
            let gateway = Gateway { keeping: Arc::new(keeping), prepared: self };
            let begun = gateway.begin(config).await?;
            Ok::<_, Exit>((gateway, begun))
        };
        tokio::select! {
            begun = begin => {
                let (gateway, begun) = begun?;
                gateway.run(begun, signals).await
            }
            name = signals.asked_to_end() => {
                tracing::info!(signal = name, "ended before the start was over; nothing was accepted");
                Ok(())
            }
        }
    }

    /// Opens the store on a thread of its own, because the end of the process must not wait for it.
    async fn open(&self, config: Config, migrate: Migrate) -> Result<(Config, Keeping), Exit> {
        let (commits, receives) = (self.commits.clone(), self.role.receives());
        let (opened, opening) = oneshot::channel();
        std::thread::spawn(move || {
            let keeping = commits.block_on(Keeping::open(&config, receives, migrate));
            let _ = opened.send((config, keeping));
        });
        let what = "the store: it is opened, or upgraded, and another process may hold a lock on it";
        let (config, keeping) = say_if_slow(what, opening).await.map_err(Exit::failed)?;
        Ok((config, keeping?))
    }
}

/// The gateway.
struct Gateway {
    keeping: Arc<Keeping>,
    prepared: Prepared,
}

/// The parts of a gateway that runs.
struct Begun {
    admin: hookfast_admin::Running,
    queue: Arc<dyn Queue>,
    workers: Workers,
    ingest: Option<hookfast_ingest::Running>,
    upkeep: JoinHandle<()>,
    at_start: Settings,
}

impl Gateway {
    /// Starts to receive. The workers come later, because what they wait for must not keep events out.
    async fn begin(&self, mut config: Config) -> Result<Begun, Exit> {
        let metrics = install_metrics()?;
        config.ingest.connections = connections_within_limits(config.ingest.connections);
        let role = &self.prepared.role;
        if config.handlers.is_empty() {
            say_that_nothing_is_handled();
        }
        let development = match role.receives() {
            true => supply_secrets(&mut config, Missing::MakeUp).map_err(Exit::Failed)?,
            false => None,
        };
        let admin_listener = bind(config.admin.listen, "admin").await?;
        let admin =
            hookfast_admin::start(admin_listener, metrics.clone(), &config.admin.hosts).map_err(Exit::failed)?;
        let queue = say_if_slow("the queue", self.open_queue(&config)).await?;
        let at_start = config.settings.clone();
        let mut greeting = Greeting::of(&config, role, admin.address);
        let workers = Workers::of(&config, role, self.prepared.file.as_deref(), &queue);
        if self.keeping.store().is_none() {
            greeting.say_store_is_away();
        }
        if queue.check().await.is_err() {
            greeting.say_queue_is_away();
        }
        let ingest = match role.receives() {
            true => Some(self.start_ingest(config, development.as_ref(), &workers, &mut greeting).await?),
            false => None,
        };
        greeting.print();
        let upkeep = tokio::spawn(keep_metrics_small(metrics));
        Ok(Begun { admin, queue, workers, ingest, upkeep, at_start })
    }

    async fn run(self, begun: Begun, signals: Signals) -> Result<(), Exit> {
        let Begun { admin, queue, mut workers, ingest, upkeep, at_start } = begun;
        let ended = self.wait(signals, ingest.as_ref(), &mut workers, &at_start).await;
        let patience = workers.config.shutdown_timeout;
        let orderly_end = async {
            let receiving = async {
                if let Some(ingest) = ingest {
                    ingest.shut_down().await;
                }
            };
            // At the same time: supervisors do not wait for one after the other.
            tokio::join!(receiving, workers.shut_down());
            upkeep.abort();
            admin.shut_down();
            let _ = timeout(QUEUE_CLOSES_WITHIN, queue.close()).await;
            self.keeping.close().await;
        };
        if let Some(problem) = ended {
            // The supervisor that starts us again should not wait for a part that may never end.
            let _ = timeout(patience, orderly_end).await;
            return Err(Exit::Failed(problem));
        }
        orderly_end.await;
        tracing::info!("shut down: everything that was accepted is recorded");
        Ok(())
    }

    async fn open_queue(&self, config: &Config) -> Result<Arc<dyn Queue>, Exit> {
        hookfast_queue::open(&config.queue, self.served(config)).await.map_err(Exit::failed)
    }

    async fn start_ingest(
        &self,
        config: Config,
        development: Option<&Development>,
        workers: &Workers,
        greeting: &mut Greeting,
    ) -> Result<hookfast_ingest::Running, Exit> {
        let listener = bind(config.ingest.listen, "ingest").await?;
        let address = listener.local_addr().map_err(Exit::failed)?;
        greeting.add_ingest(&config, development, address);
        let known_providers = config.providers.for_recognition();
        let queue = &workers.queue;
        let leads_to_workers = queue.is_shared() || self.prepared.role.works();
        let to_workers = leads_to_workers.then(|| Arc::clone(queue));
        let ingest = config.ingest.clone();
        let clock = Arc::new(SystemClock);
        let (store, spool) = self.keeping.for_recording();
        let (keeping, queue) = (Arc::clone(&self.keeping), Arc::clone(queue));
        let details = Report { keeping, queue, configured: Arc::clone(&workers.configured) };
        let details = Some(Arc::new(details) as _);
        let recording = Recording { store, spool, queue: to_workers, details, commits: &self.prepared.commits };
        Ingest::start(listener, ingest, table(config), known_providers, recording, clock).await.map_err(Exit::failed)
    }

    /// The handlers whose hints the queue takes. A queue in memory leads only to the workers of this process.
    fn served(&self, config: &Config) -> Vec<HandlerName> {
        let here = || assigned(config, &self.prepared.role).into_iter().filter(|assigned| !assigned.is_paused);
        let anywhere = config.handlers.iter().filter(|handler| !handler.is_paused);
        match config.queue.url {
            QueueUrl::Memory => here().map(|assigned| assigned.name).collect(),
            QueueUrl::Nats(_) => anywhere.map(|handler| handler.subscription.handler.clone()).collect(),
        }
    }

    /// Waits for a reason to end. Returns what went wrong, or `None` after a signal.
    async fn wait(
        &self,
        mut signals: Signals,
        ingest: Option<&hookfast_ingest::Running>,
        workers: &mut Workers,
        at_start: &Settings,
    ) -> Option<String> {
        let of_ingest = ingest.map(|ingest| (ingest.store_broken.clone(), ingest.must_end.clone()));
        let (store_broken, receiving_must_end) = of_ingest.unwrap_or_default();
        let ended = loop {
            let must_end = workers.must_end();
            tokio::select! {
                name = signals.next() => {
                    if name == "SIGHUP" {
                        self.reload(ingest, workers, at_start).await;
                        continue;
                    }
                    tracing::info!(signal = name, "shutting down: finishing what was accepted");
                    break None;
                }
                store = self.keeping.reached(), if workers.are_to_start() => {
                    workers.begin(store, &self.prepared.commits, &self.prepared.for_handlers);
                }
                started = workers.started() => {
                    if let Err(error) = started {
                        break Some(format!("the workers cannot start: {error}"));
                    }
                }
                () = store_broken.cancelled() => break Some(
                    "the store had an I/O error, so nothing more can be promised. Look at the disk, then start again".into(),
                ),
                () = receiving_must_end.cancelled() => break Some(
                    "receiving cannot go on; the log says why. Start again: what was answered with 2xx is durable".into(),
                ),
                () = must_end.cancelled() => break Some(
                    "the workers cannot go on; the log says why. Start again: what was not finished is run again".into(),
                ),
            }
        };
        tokio::spawn(signals.end_at_once());
        ended
    }
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
