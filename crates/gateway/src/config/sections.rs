//! Every section and key.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use hookfast_ingest::{Pattern, SourceLimits, Subscription};
use hookfast_store::StoreUrl;
use hookfast_webhook::{HandlerName, Secrets, SourceName};
use toml::{Table, Value};

use super::document::Document;
use super::{Config, OpenDevelopmentSecrets, SourceConfig, parse};
use crate::development::DevelopmentSecrets;
use crate::providers::Builtin;

pub(super) const SECTIONS: [&str; 5] = ["ingest", "admin", "store", "sources", "handlers"];

/// A section whose keys are taken out one by one; what is left in the end is unknown.
struct Section<'a> {
    document: &'a mut Document,
    name: String,
    table: Table,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    fn new(document: &'a mut Document, name: &str, table: Table) -> Self {
        Self { document, name: name.into(), table, known: Vec::new() }
    }

    fn top(document: &'a mut Document, name: &str) -> Self {
        let table = document.take(name);
        Self::new(document, name, table)
    }

    /// The value of a key, if it is there and right.
    fn optional<T>(&mut self, key: &'static str, parse: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        parse(&value).map_err(|problem| self.problem(key, problem)).ok()
    }

    /// The same with a default.
    fn value<T>(&mut self, key: &'static str, parse: impl FnOnce(&Value) -> Result<T, String>, default: T) -> T {
        self.optional(key, parse).unwrap_or(default)
    }

    fn problem(&mut self, key: &str, problem: String) {
        let key = if key.is_empty() { self.name.clone() } else { format!("{}.{key}", self.name) };
        self.document.problem(&key, problem);
    }

    fn finish(mut self) {
        for key in std::mem::take(&mut self.table).keys() {
            let allowed = self.known.join(", ");
            self.problem(key, format!("there is no such key; allowed here: {allowed}"));
        }
    }
}

pub(super) fn read(document: &mut Document, development: Option<OpenDevelopmentSecrets>) -> Option<Config> {
    let (ingest_listen, ingest) = read_ingest(Section::top(document, "ingest"));
    let admin_listen = read_admin(Section::top(document, "admin"));
    let store = read_store(Section::top(document, "store"));
    let folder = store.as_ref().map(|store| folder_of(&store.url)).unwrap_or_default();
    let mut secrets = development
        .and_then(|open| open(Path::new(&folder)).map_err(|problem| document.problem("sources", problem)).ok());
    let sources = read_sources(document, &mut secrets);
    let handlers = read_handlers(document, &sources);
    Some(Config {
        ingest_listen,
        ingest,
        admin_listen,
        store: store?,
        sources,
        handlers,
        development_secrets: secrets.map(|secrets| secrets.path().to_owned()),
    })
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn read_ingest(mut section: Section<'_>) -> (SocketAddr, hookfast_ingest::Config) {
    let default = hookfast_ingest::Config::default();
    let listen = section.value("listen", parse::address, loopback(8080));
    let config = hookfast_ingest::Config {
        public_url: section.optional("public_url", parse::public_url),
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
        idle_timeout: section.value("idle_timeout", parse::duration, default.idle_timeout),
        connection_lifetime: section.value("connection_lifetime", parse::duration, default.connection_lifetime),
        shutdown_timeout: section.value("shutdown_timeout", parse::duration, default.shutdown_timeout),
        trusted_proxies: section.value("trusted_proxies", parse::list, default.trusted_proxies),
        rate_per_address: section.optional("rate_per_address", parse::text),
        conceal_sources: section.value("conceal_sources", parse::flag, default.conceal_sources),
    };
    section.finish();
    (listen, config)
}

fn read_admin(mut section: Section<'_>) -> SocketAddr {
    let listen = section.value("listen", parse::loopback_address, loopback(8081));
    section.finish();
    listen
}

fn read_store(mut section: Section<'_>) -> Option<hookfast_store::Config> {
    // The URL may hold a password, so it can stand elsewhere, as a secret can.
    let url = |value: &Value| {
        parse::reference(&parse::text::<String>(value)?)?
            .parse()
            .map_err(|error: hookfast_store::OpenError| error.to_string())
    };
    let url = section.value("url", |value| url(value).map(Some), Some(StoreUrl::Sqlite("hookfast.db".into())));
    let parallel_batches = section.value("parallel_batches", parse::count, 4);
    section.finish();
    Some(hookfast_store::Config { url: url?, parallel_batches })
}

/// Development secrets stand beside the database.
fn folder_of(url: &StoreUrl) -> std::path::PathBuf {
    match url {
        StoreUrl::Sqlite(path) => path.parent().map(Path::to_owned).unwrap_or_default(),
        StoreUrl::Postgres(_) => std::path::PathBuf::new(),
    }
}

fn read_sources(
    document: &mut Document,
    development: &mut Option<DevelopmentSecrets>,
) -> BTreeMap<SourceName, SourceConfig> {
    let mut sources = BTreeMap::new();
    for (name, value) in document.take("sources") {
        let key = format!("sources.{name}");
        let Value::Table(table) = value else {
            document.problem(&key, format!("must be a section: write `[{key}]` and its keys below"));
            continue;
        };
        let section = Section::new(document, &key, table);
        if let Some(source) = read_source(section, &name, development) {
            match SourceName::new(&name) {
                Ok(name) => drop(sources.insert(name, source)),
                Err(error) => document.problem(&key, error.to_string()),
            }
        }
    }
    sources
}

fn read_source(
    mut section: Section<'_>,
    name: &str,
    development: &mut Option<DevelopmentSecrets>,
) -> Option<SourceConfig> {
    let builtin = read_provider(&mut section);
    let secrets = section.optional("secrets", |value| {
        parse::list::<String>(value)?.iter().map(|text| parse::secret(text)).collect::<Result<Vec<_>, _>>()
    });
    let had_secrets =
        section.document.problems.iter().any(|problem| problem.key == format!("{}.secrets", section.name));
    let default = SourceLimits::default();
    let limits = SourceLimits {
        body_limit: section.value("body_limit", parse::size, default.body_limit),
        rate: section.optional("rate", parse::text),
        allow_from: section.optional("allow_from", parse::list),
    };
    let Some(builtin) = builtin else {
        // Which further keys are allowed depends on the provider, so nothing more can be said of this section.
        return None;
    };
    let provider = read_settings(&mut section, builtin);
    let secrets = match (secrets, development) {
        (Some(secrets), _) if !secrets.is_empty() => secrets,
        (None, Some(development)) if !had_secrets => match development.secret_of(name, builtin) {
            Ok(secret) => vec![secret],
            Err(problem) => {
                section.problem("secrets", problem);
                vec![]
            }
        },
        _ => {
            if !had_secrets {
                let allowed =
                    "is missing: write at least one secret, as \"env:NAME\", \"file:PATH\" or the text itself";
                section.problem("secrets", allowed.into());
            }
            vec![]
        }
    };
    section.finish();
    Some(SourceConfig { provider: provider?, secrets: Secrets::new(secrets), limits })
}

fn read_provider(section: &mut Section<'_>) -> Option<&'static Builtin> {
    let had_problems = section.document.problems.len();
    let builtin = section.optional("provider", |value| Builtin::find(&parse::text::<String>(value)?));
    if builtin.is_none() && section.document.problems.len() == had_problems {
        section.problem("provider", "is missing: write which provider sends here, such as \"stripe\"".into());
    }
    builtin
}

/// The provider's own keys stand beside the others; the provider reads them.
fn read_settings(
    section: &mut Section<'_>,
    builtin: &'static Builtin,
) -> Option<std::sync::Arc<dyn hookfast_webhook::Provider>> {
    let mut settings = Table::new();
    for key in builtin.settings {
        section.known.push(key);
        if let Some(value) = section.table.remove(*key) {
            // One by one, so that each problem names its key.
            let alone = Table::from_iter([((*key).to_owned(), value.clone())]);
            match builtin.build(alone) {
                Ok(_) => drop(settings.insert((*key).into(), value)),
                Err(problem) => section.problem(key, problem),
            }
        }
    }
    builtin.build(settings).map_err(|problem| section.problem("", problem)).ok()
}

fn read_handlers(document: &mut Document, sources: &BTreeMap<SourceName, SourceConfig>) -> Vec<Subscription> {
    let mut handlers = Vec::new();
    for (name, value) in document.take("handlers") {
        let key = format!("handlers.{name}");
        let Value::Table(table) = value else {
            document.problem(&key, format!("must be a section: write `[{key}]` and its keys below"));
            continue;
        };
        let mut section = Section::new(document, &key, table);
        let source = section.optional("source", |value| known_source(sources, &parse::text::<String>(value)?));
        let types = section.value("types", parse::list, vec![Pattern::Prefix(String::new())]);
        match HandlerName::new(&name) {
            Ok(handler) => handlers.push(Subscription { handler, source, types }),
            Err(error) => section.problem("", error.to_string()),
        }
        section.finish();
    }
    handlers
}

fn known_source(sources: &BTreeMap<SourceName, SourceConfig>, name: &str) -> Result<SourceName, String> {
    let names = || sources.keys().map(SourceName::as_str).collect::<Vec<_>>().join(", ");
    let known = sources.keys().find(|source| source.as_str() == name);
    known.cloned().ok_or_else(|| format!("there is no source `{}`; there is: {}", name.escape_debug(), names()))
}
