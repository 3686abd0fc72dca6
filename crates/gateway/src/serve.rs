//! `hookfast serve`, `receive` and `work`: everything in one process, or one of its halves.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hookfast_ingest::{Ingest, Recording, Source, Table};
use hookfast_processor::{Handlers, Staff, Surroundings};
use hookfast_queue::{Queue, QueueUrl};
use hookfast_store::{Migrate, Store, StoreError, StoreUrl};
use hookfast_webhook::{Clock, HandlerName, Request, SampleOrder, Secret, SourceName, SystemClock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::apart::OwnProcess;
use crate::config::{self, ConfiguredHandler};
use crate::development::{Development, Missing, supply_secrets};
use crate::exit::Exit;
use crate::keeping::Keeping;
use crate::unclaimed::{self, Configured, Report};
use crate::{Config, Problem, in_runtime, log_lines};

/// File descriptors that are not connections: databases, listeners, logs.
const OTHER_FILES: u64 = 128;

/// How long to wait before workers that could not start try again.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the gateway waits before it says what it waits for.
const SAY_AFTER: Duration = Duration::from_secs(5);

/// Beside its own time-out, the end of the workers may take this long.
const WORKERS_END_WITHIN: Duration = Duration::from_secs(6);

/// How long the queue may take to send what is under way.
const QUEUE_CLOSES_WITHIN: Duration = Duration::from_secs(2);

/// Which halves of the gateway this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Both.
    All,
    /// The one that receives.
    Receive,
    /// The one that works, for these handlers or for all if there is none.
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

/// Says what is waited for, again and again, for as long as it lasts.
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

/// One process cannot see the other's writes coming on SQLite, and both would wait for each other's locks.
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

fn is_named(handler: &ConfiguredHandler, name: &str) -> bool {
    handler.subscription.handler.as_str() == name
}

/// The workers of this process. They start when there is a store to work on.
struct Workers {
    /// The handlers that they run; none if this process only receives.
    staff: Option<Vec<Staff>>,
    config: hookfast_processor::Config,
    queue: Arc<dyn Queue>,
    apart: Arc<OwnProcess>,
    configured: Arc<Configured>,
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
    fn of(config: &Config, role: &Role, file: Option<&Path>, queue: &Arc<dyn Queue>) -> Self {
        let longest_run = config.handlers.iter().map(|handler| handler.config.deadline).max().unwrap_or_default();
        Self {
            staff: role.works().then(|| staff(config, role)),
            config: config.work.clone(),
            queue: Arc::clone(queue),
            apart: Arc::new(OwnProcess { config_file: file.map(Path::to_owned), longest_run }),
            configured: Configured::of(config),
            stage: Stage::NotYet,
        }
    }

    fn are_to_start(&self) -> bool {
        self.staff.is_some() && matches!(self.stage, Stage::NotYet)
    }

    /// Their claims, sweeps and outcomes go beside the commits: on SQLite these take turns, and a turn that waits for the
    /// requests to leave time holds up recording.
    fn begin(&mut self, store: Arc<dyn Store>, commits: &Handle, threads: &Handle) {
        if let Some(staff) = &self.staff {
            commits.spawn(unclaimed::warn(Arc::clone(&store), Arc::clone(&self.configured)));
            let (queue, handlers) = (Arc::clone(&self.queue), threads.clone());
            let surroundings = Surroundings { store, queue, handlers, apart: Some(Arc::clone(&self.apart) as _) };
            let start = start_workers(surroundings, staff.clone(), self.config.clone());
            self.stage = Stage::Starting(commits.spawn(start));
        }
    }

    /// Waits for the end of their start, if they are starting.
    async fn started(&mut self) -> Result<(), StoreError> {
        let Stage::Starting(starting) = &mut self.stage else { return std::future::pending().await };
        let running = starting.await.expect("nothing in it panics or ends it")?;
        // A reload may have paused some meanwhile.
        running.pause(&self.paused());
        self.stage = Stage::Running(running);
        Ok(())
    }

    fn paused(&self) -> HashSet<HandlerName> {
        let staff = self.staff.iter().flatten();
        staff.filter(|staff| staff.is_paused).map(|staff| staff.name.clone()).collect()
    }

    /// Pauses the handlers that the configuration pauses or does not have any more, and lets the others go on.
    fn pause(&mut self, config: &Config) {
        for staff in self.staff.iter_mut().flatten() {
            let configured = config.handlers.iter().find(|handler| is_named(handler, staff.name.as_str()));
            staff.is_paused = configured.is_none_or(|handler| handler.is_paused);
        }
        if let Stage::Running(running) = &self.stage {
            running.pause(&self.paused());
        }
    }

    fn must_end(&self) -> CancellationToken {
        match &self.stage {
            Stage::Running(running) => running.must_end.clone(),
            _ => CancellationToken::new(),
        }
    }

    async fn shut_down(self) {
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

/// Starts workers, as soon as the store can be used.
async fn start_workers(
    surroundings: Surroundings,
    staff: Vec<Staff>,
    config: hookfast_processor::Config,
) -> Result<hookfast_processor::Running, StoreError> {
    loop {
        let start = hookfast_processor::start(surroundings.clone(), staff.clone(), config.clone());
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

    /// On a thread of its own, because the end of the process must not wait for it.
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

/// Everything that a gateway has begun with.
struct Begun {
    admin: hookfast_admin::Running,
    queue: Arc<dyn Queue>,
    workers: Workers,
    ingest: Option<hookfast_ingest::Running>,
    upkeep: JoinHandle<()>,
    fixed: Fixed,
}

impl Gateway {
    /// Starts to receive. The workers come later, because what they wait for must not keep events out.
    async fn begin(&self, mut config: Config) -> Result<Begun, Exit> {
        let metrics = install_metrics()?;
        config.ingest.connections = connections_within_limits(config.ingest.connections);
        let role = &self.prepared.role;
        let development = match role.receives() {
            true => supply_secrets(&mut config, Missing::MakeUp).map_err(Exit::Failed)?,
            false => None,
        };
        let admin_listener = bind(config.admin_listen, "admin").await?;
        let admin =
            hookfast_admin::start(admin_listener, metrics.clone(), &config.admin_hosts).map_err(Exit::failed)?;
        let queue = say_if_slow("the queue", self.open_queue(&config)).await?;
        let fixed = Fixed::of(&config);
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
        Ok(Begun { admin, queue, workers, ingest, upkeep, fixed })
    }

    async fn run(self, begun: Begun, signals: Signals) -> Result<(), Exit> {
        let Begun { admin, queue, mut workers, ingest, upkeep, fixed } = begun;
        let ended = self.wait(signals, ingest.as_ref(), &mut workers, &fixed).await;
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
            // Whoever starts us again should not have to wait for what may never end.
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
        let listener = bind(config.ingest_listen, "ingest").await?;
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

    /// Whose hints the queue takes. A queue in memory leads only to the workers of this process.
    fn served(&self, config: &Config) -> Vec<HandlerName> {
        let here = || staff(config, &self.prepared.role).into_iter().filter(|staff| !staff.is_paused);
        let anywhere = config.handlers.iter().filter(|handler| !handler.is_paused);
        match config.queue.url {
            QueueUrl::Memory => here().map(|staff| staff.name).collect(),
            QueueUrl::Nats(_) => anywhere.map(|handler| handler.subscription.handler.clone()).collect(),
        }
    }

    /// Waits for a reason to end, and says what is wrong if something is.
    async fn wait(
        &self,
        mut signals: Signals,
        ingest: Option<&hookfast_ingest::Running>,
        workers: &mut Workers,
        fixed: &Fixed,
    ) -> Option<String> {
        let of_ingest = ingest.map(|ingest| (ingest.store_broken.clone(), ingest.must_end.clone()));
        let (store_broken, receiving_must_end) = of_ingest.unwrap_or_default();
        let ended = loop {
            let must_end = workers.must_end();
            tokio::select! {
                name = signals.next() => {
                    if name == "SIGHUP" {
                        self.reload(ingest, workers, fixed).await;
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
        tokio::spawn(async move {
            while signals.next().await == "SIGHUP" {}
            tracing::warn!("ended by a second signal");
            log_lines::flush();
            std::process::exit(130);
        });
        ended
    }

    /// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
    async fn reload(&self, ingest: Option<&hookfast_ingest::Running>, workers: &mut Workers, fixed: &Fixed) {
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
fn table(config: Config) -> Table {
    let sources = config
        .sources
        .into_iter()
        .map(|(name, source)| Source::new(name, source.provider, source.secrets, source.limits));
    let subscriptions = config.handlers.into_iter().map(|handler| handler.subscription);
    Table::new(sources.collect(), subscriptions.collect())
}

/// Whom this process works for.
pub(crate) fn staff(config: &Config, role: &Role) -> Vec<Staff> {
    let is_wanted = |handler: &&ConfiguredHandler| match role {
        Role::Work(wanted) if !wanted.is_empty() => wanted.iter().any(|name| is_named(handler, name)),
        _ => true,
    };
    let wanted = config.handlers.iter().filter(is_wanted);
    wanted
        .map(|ConfiguredHandler { subscription, handler, config, is_paused }| Staff {
            name: subscription.handler.clone(),
            handler: Arc::clone(handler),
            config: config.clone(),
            is_paused: *is_paused,
        })
        .collect()
}

/// What a reload cannot change.
#[derive(PartialEq)]
struct Fixed {
    ingest_listen: SocketAddr,
    ingest: hookfast_ingest::Config,
    admin_listen: SocketAddr,
    /// How the rest is written: none of it is secret, and not all of it can be compared.
    rest: String,
}

impl Fixed {
    fn of(config: &Config) -> Self {
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

async fn bind(address: SocketAddr, section: &str) -> Result<TcpListener, Exit> {
    TcpListener::bind(address).await.map_err(|error| {
        Exit::Failed(format!(
            "cannot listen on {address}: {error}. Choose another address with `listen` in `[{section}]`"
        ))
    })
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

fn install_metrics() -> Result<PrometheusHandle, Exit> {
    const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
    const BYTES: [f64; 8] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
    const LAG: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0, 14400.0];
    const EVENTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_lag_seconds".into()), &LAG))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), &BYTES))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_events".into()), &EVENTS))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Exit::failed)?;
    hookfast_ingest::describe_metrics();
    hookfast_processor::describe_metrics();
    log_lines::start_metrics();
    Ok(handle)
}

/// Histograms collect what was observed until somebody does this.
async fn keep_metrics_small(metrics: PrometheusHandle) {
    let mut timer = tokio::time::interval(Duration::from_secs(5));
    loop {
        timer.tick().await;
        metrics.run_upkeep();
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Exit> {
        let listen = |kind| signal(kind).map_err(Exit::failed);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to end.
    async fn asked_to_end(&mut self) -> &'static str {
        loop {
            match self.next().await {
                "SIGHUP" => {}
                name => return name,
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// What `serve` says when it is ready.
struct Greeting {
    lines: Vec<String>,
}

impl Greeting {
    fn of(config: &Config, role: &Role, admin: SocketAddr) -> Self {
        let mut lines = vec![
            format!("Hookfast {} is ready.", env!("CARGO_PKG_VERSION")),
            format!("  admin   http://{admin}/metrics"),
            format!("  store   {}", describe(&config.store.url)),
        ];
        if let QueueUrl::Nats(servers) = &config.queue.url {
            lines.push(format!("  queue   {servers}"));
        }
        if role.works() {
            lines.extend(describe_handlers(config, role));
        }
        Self { lines }
    }

    fn add_ingest(&mut self, config: &Config, development: Option<&Development>, ingest: SocketAddr) {
        self.lines.insert(1, format!("  ingest  http://{ingest}/webhooks/{{source}}"));
        let lines = &mut self.lines;
        if config.sources.is_empty() {
            lines.push("  There is no source yet: add a section `[sources.NAME]` to the configuration.".into());
        }
        if let Some(development) = development {
            let names: Vec<_> = development.signing_keys.keys().map(SourceName::as_str).collect();
            lines.push(format!("  sources {}", names.join(", ")));
            let stripe = development.signing_keys.iter().find(|(name, _)| name.as_str() == "stripe");
            lines.extend(stripe.and_then(|(name, key)| try_out(config, name, key, ingest)));
            lines.push(
                "\nOr play any provider: hookfast simulate github --count 10\nThen look: hookfast events list".into(),
            );
            tracing::warn!(
                endpoint = %format_args!("http://{ingest}/webhooks/{{source}}"), file = %development.file.display(),
                secrets = names.join(", "),
                "no configuration file: each source has a development secret, which stands in the file under the \
                 source's name. For real traffic write a hookfast.toml"
            );
        }
    }

    fn say_store_is_away(&mut self) {
        self.lines.push("  The store is not reached yet: events are recorded into the spool.".into());
    }

    fn say_queue_is_away(&mut self) {
        self.lines
            .push("  The queue is not reached yet: the sweeper finds the jobs in the store, a little later.".into());
    }

    fn print(self) {
        outln!("{}", self.lines.join("\n"));
    }
}

/// Whom we work for, and whose jobs wait.
fn describe_handlers(config: &Config, role: &Role) -> Vec<String> {
    let works = staff(config, role).into_iter().filter(|staff| !staff.is_paused);
    let works: Vec<_> = works.map(|staff| staff.name).collect();
    let paused = config.handlers.iter().filter(|handler| handler.is_paused);
    let paused: Vec<_> = paused.map(|handler| handler.subscription.handler.clone()).collect();
    let line = |what: &str, names: &[HandlerName]| {
        let names: Vec<_> = names.iter().map(HandlerName::as_str).collect();
        (!names.is_empty()).then(|| format!("  {what} {}", names.join(", ")))
    };
    [line("works for", &works), line("paused:", &paused)].into_iter().flatten().collect()
}

fn describe(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUrl::Postgres(options) => format!("postgres at {}:{}", options.get_host(), options.get_port()),
    }
}

/// A signed request to send by hand.
fn try_out(config: &Config, name: &SourceName, key: &Secret, ingest: SocketAddr) -> Option<String> {
    let now = SystemClock.now();
    let url = format!("http://{ingest}/webhooks/{name}");
    let serial = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let order = SampleOrder { kind: None, url: &url, key: Some(key), now, serial };
    let sample = config.sources.get(name)?.provider.sample(&order).ok()?;
    Some(format!("\nTry the source `{name}` (the signature is good for five minutes):\n\n  {}", curl(&sample)))
}

/// A request as a command. Samples hold no quotes of the kind that a shell would end at.
fn curl(request: &Request) -> String {
    let headers = request
        .headers
        .iter()
        .map(|(name, value)| format!("-H '{name}: {}' ", String::from_utf8_lossy(value.as_bytes())));
    let body = String::from_utf8_lossy(&request.body);
    format!("curl -i {} {}--data-binary '{body}'", request.url, headers.collect::<String>())
}
