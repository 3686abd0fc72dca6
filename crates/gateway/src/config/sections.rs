//! Every section and key.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hookfast_admin::HostName;
use hookfast_ingest::{SourceLimits, UnsignedType};
use hookfast_processor::Handlers;
use hookfast_queue::QueueUrl;
use hookfast_store::{SpoolConfig, StoreUrl};
use hookfast_webhook::{Provider, Secrets, SourceName};
use toml::{Table, Value};

use super::document::Document;
use super::{Config, OperatorConfig, SourceConfig, SpoolSettings, handlers, parse};
use crate::providers::{Kind, Providers};

pub(super) const SECTIONS: [&str; 8] = ["ingest", "admin", "store", "queue", "work", "catalog", "sources", "handlers"];

/// A section whose keys are taken out one by one; what is left in the end is unknown.
pub(super) struct Section<'a> {
    document: &'a mut Document,
    name: String,
    table: Table,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(document: &'a mut Document, name: &str, table: Table) -> Self {
        Self { document, name: name.into(), table, known: Vec::new() }
    }

    fn top(document: &'a mut Document, name: &str) -> Self {
        let table = document.take(name);
        Self::new(document, name, table)
    }

    /// The value of a key, if it is there and right.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        parse(&value).map_err(|problem| self.problem(key, problem)).ok()
    }

    /// The same with a default.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
        default: T,
    ) -> T {
        self.optional(key, parse).unwrap_or(default)
    }

    /// The value of a key that must be there, if it is right.
    fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
        what: &str,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.problem(key, format!("is missing: {what}"));
        }
        self.optional(key, parse)
    }

    pub(super) fn problem(&mut self, key: &str, problem: String) {
        let key = if key.is_empty() { self.name.clone() } else { format!("{}.{key}", self.name) };
        self.document.problem(&key, problem);
    }

    pub(super) fn finish(mut self) {
        for key in std::mem::take(&mut self.table).keys() {
            let allowed = self.known.join(", ");
            self.problem(key, format!("there is no such key; allowed here: {allowed}"));
        }
    }
}

pub(super) fn read(document: &mut Document, own_handlers: &Handlers) -> Option<Config> {
    let (ingest_listen, ingest) = read_ingest(Section::top(document, "ingest"));
    let (admin_listen, admin_hosts) = read_admin(Section::top(document, "admin"));
    let store = read_store(Section::top(document, "store"));
    let queue = read_queue(Section::top(document, "queue"));
    let work = read_work(Section::top(document, "work"));
    // Also those that turn out to be wrong: a handler of such a source is not wrong as well.
    let source_names = document.names_in("sources");
    let providers = read_catalog(document);
    let sources = read_sources(document, &providers);
    let handlers = handlers::read(document, &source_names, own_handlers);
    let for_development = document.for_development;
    let ((store, spool), mut queue) = (store?, queue?);
    // While a job is ours, its hint is renewed with the lease. Later another worker should have it.
    queue.ack_wait = work.lease;
    Some(Config {
        ingest_listen,
        ingest,
        admin_listen,
        admin_hosts,
        store,
        spool,
        queue,
        work,
        sources,
        for_development,
        providers,
        handlers,
    })
}

/// The same for what is asked of the store alone, which needs neither secrets nor the handlers' code. All else must be right.
pub(super) fn read_for_operators(document: &mut Document, own_handlers: &Handlers) -> Option<OperatorConfig> {
    document.for_operators = true;
    read_ingest(Section::top(document, "ingest"));
    read_admin(Section::top(document, "admin"));
    let store = read_store(Section::top(document, "store"));
    read_queue(Section::top(document, "queue"));
    read_work(Section::top(document, "work"));
    let sources = document.names_in("sources");
    let providers = read_catalog(document);
    read_sources(document, &providers);
    let handlers = handlers::read_for_operators(document, &sources, own_handlers);
    let (store, spool) = store?;
    Some(OperatorConfig { store, spool, sources, handlers })
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn read_ingest(mut section: Section<'_>) -> (SocketAddr, hookfast_ingest::Config) {
    let default = hookfast_ingest::Config::default();
    let listen = section.value("listen", parse::address, loopback(8080));
    let config = hookfast_ingest::Config {
        public_url: section.optional("public_url", parse::public_url),
        forwarded_url: section.value("forwarded_url", parse::flag, default.forwarded_url),
        answer_deadline: section.value("answer_deadline", parse::duration, default.answer_deadline),
        queue_requests: section.value("queue_requests", parse::count, default.queue_requests),
        batch_events: section.value("batch_events", parse::count, default.batch_events),
        batch_bytes: section.value("batch_bytes", parse::size, default.batch_bytes),
        body_memory: section.value("body_memory", parse::size, default.body_memory),
        connections: section.value("connections", parse::count, default.connections),
        connections_per_address: section.value(
            "connections_per_address",
            parse::count,
            default.connections_per_address,
        ),
        header_timeout: section.value("header_timeout", parse::duration, default.header_timeout),
        body_timeout: section.value("body_timeout", parse::duration, default.body_timeout),
        stall_timeout: section.value("stall_timeout", parse::duration, default.stall_timeout),
        idle_timeout: section.value("idle_timeout", parse::duration, default.idle_timeout),
        connection_lifetime: section.value("connection_lifetime", parse::duration, default.connection_lifetime),
        shutdown_timeout: section.value("shutdown_timeout", parse::duration, default.shutdown_timeout),
        trusted_proxies: section.value("trusted_proxies", parse::list, default.trusted_proxies),
        rate_per_address: section.optional("rate_per_address", parse::text),
        refusals_per_address: section.value("refusals_per_address", parse::text, default.refusals_per_address),
        conceal_sources: section.value("conceal_sources", parse::flag, default.conceal_sources),
    };
    section.finish();
    (listen, config)
}

fn read_admin(mut section: Section<'_>) -> (SocketAddr, Vec<HostName>) {
    let listen = section.value("listen", parse::loopback_address, loopback(8081));
    let hosts = section.value("hosts", parse::list, Vec::new());
    section.finish();
    (listen, hosts)
}

fn read_store(mut section: Section<'_>) -> Option<(hookfast_store::Config, Option<SpoolSettings>)> {
    // The URL may hold a password, so it can stand elsewhere, as a secret can.
    let url = |value: &Value| {
        parse::reference(&parse::text::<String>(value)?)?
            .parse()
            .map_err(|error: hookfast_store::OpenError| error.to_string())
    };
    let url = section.value("url", |value| url(value).map(Some), Some(StoreUrl::Sqlite("hookfast.db".into())));
    let default = hookfast_store::Config::new(StoreUrl::Sqlite("hookfast.db".into()));
    let parallel_batches = section.value("parallel_batches", parse::count, default.parallel_batches);
    let worker_connections = section.value("worker_connections", limit, default.worker_connections);
    let spool = read_spool(&mut section);
    section.finish();
    let config = hookfast_store::Config { url: url?, parallel_batches, worker_connections, ..default };
    let is_shared = matches!(config.url, StoreUrl::Postgres(_));
    Some((config, spool.filter(|_| is_shared)))
}

fn read_spool(section: &mut Section<'_>) -> Option<SpoolSettings> {
    let path = section.value("spool", spool_path, Some("hookfast-spool.db".into()));
    let max_bytes = section.value("spool_max", spool_max, 1 << 30);
    let after = section.value("spool_after", parse::duration, Duration::from_millis(150));
    Some(SpoolSettings { file: SpoolConfig { path: path?, max_bytes }, after })
}

/// The path of a file, or `false`.
fn spool_path(value: &Value) -> Result<Option<PathBuf>, String> {
    match value {
        Value::Boolean(false) => Ok(None),
        Value::String(path) if !path.is_empty() => Ok(Some(path.into())),
        _ => Err("write the path of a file in quotes, or false for none".into()),
    }
}

/// Less would hold its tables and hardly an event.
fn spool_max(value: &Value) -> Result<u64, String> {
    let size = parse::size(value)?;
    if size >= 1 << 20 { Ok(size) } else { Err("write a size of at least \"1MiB\"".into()) }
}

fn read_queue(mut section: Section<'_>) -> Option<hookfast_queue::Config> {
    let for_operators = section.document.for_operators;
    // The URL may hold a password, so it can stand elsewhere, as a secret can.
    let url = |value: &Value| {
        let text = parse::text::<String>(value)?;
        if for_operators && parse::stands_elsewhere(&text) {
            return Ok(QueueUrl::Memory);
        }
        parse::reference(&text)?.parse().map_err(|error: hookfast_queue::QueueError| error.to_string())
    };
    let url = section.value("url", |value| url(value).map(Some), Some(QueueUrl::Memory));
    let default = hookfast_queue::Config::new(QueueUrl::Memory);
    let config = hookfast_queue::Config {
        capacity: section.value("capacity", parse::count, default.capacity),
        prefix: section.value("prefix", prefix, default.prefix.clone()),
        replicas: section.value("replicas", parse::count, default.replicas),
        credentials: section.optional("credentials", parse::text),
        ..default
    };
    section.finish();
    Some(hookfast_queue::Config { url: url?, ..config })
}

/// It becomes a part of subjects, in which dots and stars mean something.
fn prefix(value: &Value) -> Result<String, String> {
    let text = parse::text::<String>(value)?;
    if hookfast_webhook::is_name(&text) { Ok(text) } else { Err("write lower-case letters, digits, `-` or `_`".into()) }
}

fn read_work(mut section: Section<'_>) -> hookfast_processor::Config {
    let default = hookfast_processor::Config::default();
    let config = hookfast_processor::Config {
        concurrency: section.value("concurrency", parse::count, default.concurrency),
        threads: section.value("threads", parse::count, default.threads),
        lease: section.value("lease", lease, default.lease),
        sweep_every: section.value("sweep_every", parse::duration, default.sweep_every),
        dispatch_again_after: section.value("dispatch_again_after", parse::duration, default.dispatch_again_after),
        crash_limit: section.value("crash_limit", limit, default.crash_limit),
        interruption_limit: section.value("interruption_limit", limit, default.interruption_limit),
        body_memory: section.value("body_memory", parse::size, default.body_memory),
        shutdown_timeout: section.value("shutdown_timeout", parse::duration, default.shutdown_timeout),
    };
    section.finish();
    config
}

/// Shorter than a second is shorter than a busy machine's pauses.
fn lease(value: &Value) -> Result<Duration, String> {
    let lease = parse::duration(value)?;
    if lease >= Duration::from_secs(1) { Ok(lease) } else { Err("write a time of at least \"1s\"".into()) }
}

fn limit(value: &Value) -> Result<u32, String> {
    u32::try_from(parse::count(value)?).map_err(|_| "this is too large".into())
}

pub(super) fn read_catalog(document: &mut Document) -> Providers {
    let mut section = Section::top(document, "catalog");
    let mut providers = Providers::embedded();
    let files: Vec<PathBuf> = section.value("files", parse::list, Vec::new());
    for file in files {
        if let Err(problem) = providers.add_file(&file) {
            section.problem("files", problem);
        }
    }
    section.finish();
    providers
}

fn read_sources(document: &mut Document, providers: &Providers) -> BTreeMap<SourceName, SourceConfig> {
    let mut sources = BTreeMap::new();
    for (name, value) in document.take("sources") {
        let key = format!("sources.{name}");
        let Value::Table(table) = value else {
            document.problem(&key, format!("must be a section: write `[{key}]` and its keys below"));
            continue;
        };
        let source = read_source(Section::new(document, &key, table), providers);
        match SourceName::new(&name) {
            Ok(name) => sources.extend(source.map(|source| (name, source))),
            Err(error) => document.problem(&key, error.to_string()),
        }
    }
    sources
}

fn read_source(mut section: Section<'_>, providers: &Providers) -> Option<SourceConfig> {
    // If a file of the catalog is wrong, its provider is missing for that reason, which was said already.
    let find = |value: &Value| match providers.find(&parse::text::<String>(value)?) {
        Err(_) if providers.is_incomplete() => Ok(None),
        found => found.map(Some),
    };
    let kind = section.required("provider", find, "write which provider sends here, such as \"stripe\"").flatten();
    let has_secrets = section.table.contains_key("secrets");
    let for_operators = section.document.for_operators;
    let secrets = section.optional("secrets", |value| match for_operators {
        true => Ok(Secrets::default()),
        false => parse::secrets(value),
    });
    let default = SourceLimits::default();
    let limits = SourceLimits {
        body_limit: section.value("body_limit", parse::size, default.body_limit),
        rate: section.optional("rate", parse::text),
        answer_deadline: section.optional("answer_deadline", parse::duration),
        allow_from: section.optional("allow_from", parse::list),
        unsigned_type: section.value("unsigned_type", parse::text, default.unsigned_type),
    };
    let kind = kind?;
    if limits.unsigned_type == UnsignedType::Refuse && kind.never_signs_type() {
        let problem =
            "this provider never signs the type of its events, so every request would be refused: leave it out";
        section.problem("unsigned_type", problem.into());
    }
    // Which further keys are allowed depends on the provider, so without one nothing more can be said of this section.
    let provider = read_settings(&mut section, kind);
    if !for_operators {
        check_proof(&mut section, provider.as_deref(), has_secrets, secrets.as_ref(), &limits);
    }
    section.finish();
    Some(SourceConfig { provider: provider?, secrets: secrets.unwrap_or_default(), limits })
}

/// What a source must have so that not everybody can send to it. Without a file, secrets are made up later.
fn check_proof(
    section: &mut Section<'_>,
    provider: Option<&dyn Provider>,
    has_secrets: bool,
    secrets: Option<&Secrets>,
    limits: &SourceLimits,
) {
    let needs_secret = provider.is_none_or(Provider::needs_secret);
    if !has_secrets && needs_secret && !section.document.for_development {
        section.problem("secrets", format!("is missing: {}", parse::SECRETS_ALLOWED));
    }
    let Some(provider) = provider else { return };
    for secret in secrets.iter().flat_map(|secrets| secrets.iter()) {
        if let Err(problem) = provider.check_secret(secret) {
            section.problem("secrets", problem);
        }
    }
    let none = Secrets::default();
    let open = provider.trusts_addresses_only(secrets.unwrap_or(&none)) && limits.allow_from.is_none();
    if open && !section.document.for_development {
        let problem = "nothing that comes here is proved: set `secrets` (a token in the path), another check of this \
                       provider, or `allow_from`";
        section.problem("", problem.into());
    }
}

/// The provider's own keys stand beside the others; the provider reads them. A text may stand elsewhere, as a secret can.
fn read_settings(section: &mut Section<'_>, kind: &Kind) -> Option<Arc<dyn Provider>> {
    let mut settings = Table::new();
    let (mut wrong, mut is_complete) = (false, true);
    for key in kind.settings() {
        section.known.push(key);
        let Some(value) = section.table.remove(key) else { continue };
        if section.document.for_operators && value.as_str().is_some_and(parse::stands_elsewhere) {
            is_complete = false;
            continue;
        }
        let value = match &value {
            Value::String(text) => parse::reference(text).map(Value::String),
            _ => Ok(value),
        };
        // One by one, so that each problem names its key.
        let alone = |value: &Value| kind.build(Table::from_iter([(key.to_owned(), value.clone())]));
        match value.and_then(|value| match alone(&value) {
            Err(problem) if !problem.starts_with("missing field") => Err(problem),
            _ => Ok(value),
        }) {
            Ok(value) => drop(settings.insert(key.into(), value)),
            Err(problem) => {
                wrong = true;
                section.problem(key, problem);
            }
        }
    }
    match kind.build(settings) {
        Ok(provider) if !wrong => Some(provider),
        Ok(_) => None,
        Err(_) if wrong || !is_complete => None,
        Err(problem) => {
            section.problem("", problem);
            None
        }
    }
}
