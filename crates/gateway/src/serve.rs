//! `hookfast serve`, `receive` and `work`: everything in one process, or one of its halves.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hookfast_ingest::{Ingest, Recording, Source, Table};
use hookfast_processor::{Handlers, Staff, Surroundings};
use hookfast_queue::{Queue, QueueUrl};
use hookfast_store::{Migrate, Store, StoreError, StoreUrl};
use hookfast_webhook::{Clock, HandlerName, Request, SampleOrder, Secret, SourceName, SystemClock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::apart::OwnProcess;
use crate::config::ConfiguredHandler;
use crate::development::{Development, Missing, supply_secrets};
use crate::exit::Exit;
use crate::keeping::Keeping;
use crate::{Config, Problem, in_runtime};

/// File descriptors that are not connections: databases, listeners, logs.
const OTHER_FILES: u64 = 128;

/// How long to wait before workers that could not start try again.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

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
    let commits = Builder::new_multi_thread().worker_threads(1).thread_name("commits").enable_all().build();
    let commits = commits.map_err(Exit::failed)?;
    let migrate = if *migrate { Migrate::Run } else { Migrate::IfEmbedded };
    let keeping = commits.block_on(Keeping::open(&config, role.receives(), migrate))?;
    let for_handlers = handlers_runtime(&config)?;
    let gateway = Gateway {
        role: role.clone(),
        file: file.map(Path::to_owned),
        own_handlers: (*handlers).clone(),
        keeping,
        commits: commits.handle().clone(),
        for_handlers: for_handlers.handle().clone(),
    };
    let ended = in_runtime(gateway.run(config));
    // A handler that does not yield would keep us for ever.
    for_handlers.shutdown_background();
    ended
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
    /// Whom they work for; `None` if this process only receives.
    staff: Option<Vec<Staff>>,
    config: hookfast_processor::Config,
    queue: Arc<dyn Queue>,
    apart: Arc<OwnProcess>,
    running: Option<hookfast_processor::Running>,
}

impl Workers {
    fn of(config: &Config, role: &Role, file: Option<&Path>, queue: &Arc<dyn Queue>) -> Self {
        let longest_run = config.handlers.iter().map(|handler| handler.config.deadline).max().unwrap_or_default();
        Self {
            staff: role.works().then(|| staff(config, role)),
            config: config.work.clone(),
            queue: Arc::clone(queue),
            apart: Arc::new(OwnProcess { config_file: file.map(Path::to_owned), longest_run }),
            running: None,
        }
    }

    fn are_to_start(&self) -> bool {
        self.staff.is_some() && self.running.is_none()
    }

    /// Their claims, sweeps and outcomes go beside the commits: on SQLite these take turns, and a turn that waits for the
    /// requests to leave time holds up recording.
    async fn start(&mut self, store: Arc<dyn Store>, commits: &Handle, threads: &Handle) -> Result<(), StoreError> {
        if let Some(staff) = &self.staff {
            let (queue, handlers) = (Arc::clone(&self.queue), threads.clone());
            let surroundings = Surroundings { store, queue, handlers, apart: Some(Arc::clone(&self.apart) as _) };
            let running = hookfast_processor::start(surroundings, staff.clone(), self.config.clone());
            self.running = Some(commits.spawn(running).await.expect("nothing in it panics or ends it")?);
        }
        Ok(())
    }
}

impl Workers {
    /// Pauses the handlers that the configuration pauses, and lets the others go on.
    fn pause(&mut self, config: &Config) {
        let paused = config.handlers.iter().filter(|handler| handler.is_paused);
        let paused: HashSet<_> = paused.map(|handler| handler.subscription.handler.clone()).collect();
        for staff in self.staff.iter_mut().flatten() {
            staff.is_paused = paused.contains(&staff.name);
        }
        if let Some(running) = &self.running {
            running.pause(&paused);
        }
    }
}

/// The gateway before it runs.
struct Gateway {
    role: Role,
    file: Option<PathBuf>,
    own_handlers: Handlers,
    keeping: Keeping,
    commits: Handle,
    for_handlers: Handle,
}

impl Gateway {
    async fn run(self, mut config: Config) -> Result<(), Exit> {
        let signals = Signals::listen()?;
        let metrics = install_metrics()?;
        config.ingest.connections = connections_within_limits(config.ingest.connections);
        let development = match self.role.receives() {
            true => supply_secrets(&mut config, Missing::MakeUp).map_err(Exit::Failed)?,
            false => None,
        };
        let admin_listener = bind(config.admin_listen, "admin").await?;
        let admin = hookfast_admin::start(admin_listener, metrics.clone()).map_err(Exit::failed)?;
        let queue = self.open_queue(&config).await?;
        let fixed = Fixed::of(&config);
        let mut greeting = Greeting::of(&config, &self.role, admin.address);
        let mut workers = Workers::of(&config, &self.role, self.file.as_deref(), &queue);
        match self.keeping.store() {
            Some(store) => workers.start(store, &self.commits, &self.for_handlers).await?,
            None => greeting.say_store_is_away(),
        }
        let ingest = match self.role.receives() {
            true => Some(self.start_ingest(config, development.as_ref(), &queue, &mut greeting).await?),
            false => None,
        };
        greeting.print();
        let upkeep = tokio::spawn(keep_metrics_small(metrics));
        let store_broken = ingest.as_ref().map(|ingest| ingest.store_broken.clone()).unwrap_or_default();
        let ended = self.wait(signals, ingest.as_ref(), &store_broken, &mut workers, &fixed).await;

        let orderly_end = async {
            if let Some(ingest) = ingest {
                ingest.shut_down().await;
            }
            if let Some(workers) = workers.running {
                workers.shut_down().await;
            }
            upkeep.abort();
            admin.shut_down();
            queue.close().await;
            self.keeping.close().await;
        };
        if let Some(problem) = ended {
            // Whoever starts us again should not have to wait for what may never end.
            let _ = timeout(workers.config.shutdown_timeout, orderly_end).await;
            return Err(Exit::failed(problem));
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
        queue: &Arc<dyn Queue>,
        greeting: &mut Greeting,
    ) -> Result<hookfast_ingest::Running, Exit> {
        let listener = bind(config.ingest_listen, "ingest").await?;
        let address = listener.local_addr().map_err(Exit::failed)?;
        greeting.add_ingest(&config, development, address);
        let known_providers = config.providers.for_recognition();
        let leads_to_workers = queue.is_shared() || self.role.works();
        let queue = leads_to_workers.then(|| Arc::clone(queue));
        let ingest = config.ingest.clone();
        let clock = Arc::new(SystemClock);
        let (store, spool) = self.keeping.for_recording();
        let recording = Recording { store, spool, queue, commits: &self.commits };
        Ingest::start(listener, ingest, table(config), known_providers, recording, clock).await.map_err(Exit::failed)
    }

    /// Whose hints the queue takes. A queue in memory leads only to the workers of this process.
    fn served(&self, config: &Config) -> Vec<HandlerName> {
        let here = || staff(config, &self.role).into_iter().filter(|staff| !staff.is_paused).map(|staff| staff.name);
        let anywhere = config.handlers.iter().filter(|handler| !handler.is_paused);
        match config.queue.url {
            QueueUrl::Memory => here().collect(),
            QueueUrl::Nats(_) => anywhere.map(|handler| handler.subscription.handler.clone()).collect(),
        }
    }

    /// Waits for a reason to end, and says what is wrong if something is.
    async fn wait(
        &self,
        mut signals: Signals,
        ingest: Option<&hookfast_ingest::Running>,
        store_broken: &CancellationToken,
        workers: &mut Workers,
        fixed: &Fixed,
    ) -> Option<&'static str> {
        let ended = loop {
            let must_end = workers.running.as_ref().map(|running| running.must_end.clone()).unwrap_or_default();
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
                    if let Err(error) = workers.start(store, &self.commits, &self.for_handlers).await {
                        tracing::error!(%error, "the workers cannot start; it is tried again");
                        sleep(START_AGAIN_AFTER).await;
                    }
                }
                () = store_broken.cancelled() => break Some(
                    "the store had an I/O error, so nothing more can be promised. Look at the disk, then start again",
                ),
                () = must_end.cancelled() => break Some(
                    "the workers cannot go on; the log says why. Start again: what was not finished is run again",
                ),
            }
        };
        tokio::spawn(async move {
            while signals.next().await == "SIGHUP" {}
            tracing::warn!("ended by a second signal");
            std::process::exit(130);
        });
        ended
    }

    /// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
    async fn reload(&self, ingest: Option<&hookfast_ingest::Running>, workers: &mut Workers, fixed: &Fixed) {
        let loaded = crate::config::load(self.file.as_deref(), &self.own_handlers).and_then(|mut config| {
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
                if let Some(ingest) = ingest {
                    ingest.reload(table(config));
                }
                tracing::info!(sources, handlers, "the configuration was reloaded");
            }
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
        let rest = format!("{:?} {:?} {:?} {:?} {handlers:?}", config.store, config.spool, config.queue, config.work);
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
