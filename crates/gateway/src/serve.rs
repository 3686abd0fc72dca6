//! `hookfast serve`: everything in one process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hookfast_ingest::{Ingest, Running, Source, Table};
use hookfast_store::{Migrate, Store, StoreUrl, open};
use hookfast_webhook::{Clock, Request, SampleOrder, Secret, SourceName, SystemClock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ServeArguments;
use crate::development::{Development, Missing, supply_secrets};
use crate::exit::Exit;
use crate::{Config, Problem, in_runtime};

/// File descriptors that are not connections: databases, listeners, logs.
const OTHER_FILES: u64 = 128;

/// Opens the store and serves. The store has a runtime of its own, so that a commit never queues behind the requests that
/// wait for it.
pub(crate) fn serve(config: Config, file: Option<&Path>, arguments: &ServeArguments) -> Result<(), Exit> {
    let commits = Builder::new_multi_thread().worker_threads(1).thread_name("commits").enable_all().build();
    let commits = commits.map_err(Exit::failed)?;
    let migrate = if arguments.migrate { Migrate::Run } else { Migrate::IfEmbedded };
    let store = commits.block_on(open(&config.store, migrate))?;
    in_runtime(receive(config, file.map(Path::to_owned), store, commits.handle()))
}

async fn receive(
    mut config: Config,
    file: Option<PathBuf>,
    store: Arc<dyn Store>,
    commits: &Handle,
) -> Result<(), Exit> {
    let mut signals = Signals::listen()?;
    let metrics = install_metrics()?;
    config.ingest.connections = connections_within_limits(config.ingest.connections);
    let development = supply_secrets(&mut config, Missing::MakeUp).map_err(Exit::Failed)?;
    let ingest_listener = bind(config.ingest_listen, "ingest").await?;
    let admin_listener = bind(config.admin_listen, "admin").await?;

    let admin = hookfast_admin::start(admin_listener, metrics.clone()).map_err(Exit::failed)?;
    let address = ingest_listener.local_addr().map_err(Exit::failed)?;
    let greeting = Greeting::of(&config, development.as_ref(), address, admin.address);
    let fixed = Fixed::of(&config);
    let known_providers = config.providers.for_recognition();
    let ingest = Ingest::start(
        ingest_listener,
        config.ingest.clone(),
        table(config),
        known_providers,
        &store,
        Arc::new(SystemClock),
        commits,
    )
    .map_err(Exit::failed)?;
    greeting.print();

    let upkeep = tokio::spawn(keep_metrics_small(metrics));
    let store_broken = ingest.store_broken.clone();
    let broken = loop {
        tokio::select! {
            name = signals.next() => {
                if name == "SIGHUP" {
                    reload(&ingest, file.as_deref(), &fixed);
                    continue;
                }
                tracing::info!(signal = name, "shutting down: finishing what was accepted");
                break false;
            }
            () = store_broken.cancelled() => break true,
        }
    };
    tokio::spawn(async move {
        while signals.next().await == "SIGHUP" {}
        tracing::warn!("ended by a second signal");
        std::process::exit(130);
    });
    ingest.shut_down().await;
    upkeep.abort();
    admin.shut_down();
    store.close().await;
    if broken {
        let problem = "the store had an I/O error, so nothing more can be promised. Look at the disk, then start again";
        return Err(Exit::failed(problem));
    }
    tracing::info!("shut down: everything that was accepted is recorded");
    Ok(())
}

/// The sources and handlers of a configuration.
fn table(config: Config) -> Table {
    let sources = config
        .sources
        .into_iter()
        .map(|(name, source)| Source::new(name, source.provider, source.secrets, source.limits));
    Table::new(sources.collect(), config.handlers)
}

/// What a reload cannot change.
#[derive(PartialEq)]
struct Fixed {
    ingest_listen: SocketAddr,
    ingest: hookfast_ingest::Config,
    admin_listen: SocketAddr,
    store: String,
}

impl Fixed {
    fn of(config: &Config) -> Self {
        let Config { ingest_listen, admin_listen, .. } = *config;
        // Without the number of connections that this machine allows, which is not in the file.
        let ingest = hookfast_ingest::Config { connections: 0, ..config.ingest.clone() };
        Self { ingest_listen, ingest, admin_listen, store: format!("{:?}", config.store) }
    }
}

/// Reads the configuration and the files of secrets again. A bad one is refused as a whole.
fn reload(ingest: &Running, file: Option<&Path>, fixed: &Fixed) {
    let loaded = crate::config::load(file).and_then(|mut config| match supply_secrets(&mut config, Missing::MakeUp) {
        Ok(_) => Ok(config),
        Err(problem) => Err(vec![Problem { origin: "development".into(), key: String::new(), problem }]),
    });
    match loaded {
        Err(problems) => {
            for problem in &problems {
                tracing::error!("the configuration was not reloaded, everything stays as it was: {problem}");
            }
        }
        Ok(config) => {
            if Fixed::of(&config) != *fixed {
                tracing::warn!("changes in [ingest], [admin] and [store] take effect at the next start");
            }
            let (sources, handlers) = (config.sources.len(), config.handlers.len());
            ingest.reload(table(config));
            tracing::info!(sources, handlers, "the configuration was reloaded");
        }
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
    const EVENTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), &BYTES))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_events".into()), &EVENTS))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Exit::failed)?;
    hookfast_ingest::describe_metrics();
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
    fn of(config: &Config, development: Option<&Development>, ingest: SocketAddr, admin: SocketAddr) -> Self {
        let mut lines = vec![
            format!("Hookfast {} is ready.", env!("CARGO_PKG_VERSION")),
            format!("  ingest  http://{ingest}/webhooks/{{source}}"),
            format!("  admin   http://{admin}/metrics"),
            format!("  store   {}", describe(&config.store.url)),
        ];
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
        Self { lines }
    }

    fn print(self) {
        outln!("{}", self.lines.join("\n"));
    }
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
