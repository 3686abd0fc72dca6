//! The configuration: one file, overridden by `HOOKFAST_…` variables, read once at start, all problems said at once.
//!
//! `deploy/hookfast.toml` documents every key and holds every default; tests compare it with the code.

mod admin;
mod catalog;
mod document;
mod handlers;
mod ingest;
pub(crate) mod parse;
mod queue;
mod section;
mod settings;
mod sources;
mod spool;
mod store;
mod work;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookfast_handler::Handlers;
use hookfast_ingest::SourceLimits;
use hookfast_store::SpoolConfig;
use hookfast_webhook::{Provider, Secrets, SourceName};
use serde::Serialize;

use crate::providers::Providers;
use document::Document;
pub use handlers::ConfiguredHandler;
use section::Section;
pub(crate) use settings::{Settings, Shown};

const SECTIONS: [&str; 8] = ["ingest", "admin", "store", "queue", "work", "catalog", "sources", "handlers"];

const DEFAULT_FILE: &str = "hookfast.toml";

/// Everything that can be set, checked.
pub struct Config {
    /// Where and how webhooks are received.
    pub ingest: hookfast_ingest::Config,
    /// Where operators look.
    pub admin: hookfast_admin::Config,
    /// Where events are kept.
    pub store: hookfast_store::Config,
    /// Where events wait while Postgres is away.
    pub spool: Option<SpoolSettings>,
    /// The endpoints.
    pub sources: BTreeMap<SourceName, SourceConfig>,
    /// Every key with its value, as it was written, and where it stands.
    pub(crate) settings: Settings,
    /// There is no file, so secrets may be missing.
    pub(crate) for_development: bool,
    /// Which providers there are.
    pub(crate) providers: Providers,
    /// How workers learn of jobs.
    pub queue: hookfast_queue::Config,
    /// How they work.
    pub work: hookfast_processor::Config,
    /// The handlers that get jobs.
    pub handlers: Vec<ConfiguredHandler>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ingest, admin, store, spool, queue, work, sources, handlers, .. } = self;
        f.debug_struct("Config")
            .field("ingest", ingest)
            .field("admin", admin)
            .field("store", store)
            .field("spool", spool)
            .field("queue", queue)
            .field("work", work)
            .field("sources", sources)
            .field("handlers", handlers)
            .finish()
    }
}

/// What commands need that only ask the store.
pub(crate) struct OperatorConfig {
    /// Where events are kept.
    pub(crate) store: hookfast_store::Config,
    /// Where events wait while Postgres is away.
    pub(crate) spool: Option<SpoolSettings>,
    /// The names of the endpoints.
    pub(crate) sources: Vec<String>,
    /// The handlers that get jobs.
    pub(crate) handlers: hookfast_admin::operate::Targets,
    /// Every key with its value, as it was written, and where it stands.
    pub(crate) settings: Settings,
}

/// Where events wait while Postgres is away, and when that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// The file.
    pub file: SpoolConfig,
    /// How long a batch may take at least before Postgres counts as away.
    pub after: Duration,
}

/// One endpoint.
#[derive(Clone)]
pub struct SourceConfig {
    /// The provider, with this source's settings.
    pub provider: Arc<dyn Provider>,
    /// The secrets of which any may match. Without a configuration file there may be none: `serve` makes one up then.
    pub secrets: Secrets,
    /// The limits.
    pub limits: SourceLimits,
}

impl fmt::Debug for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, secrets, limits } = self;
        f.debug_struct("SourceConfig")
            .field("provider", &provider.name())
            .field("secrets", secrets)
            .field("limits", limits)
            .finish()
    }
}

/// Something wrong with the configuration: where, what, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file and line, or the variable.
    pub origin: String,
    /// The key, such as `ingest.listen`.
    pub key: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

/// Loads the file that was named, or the one in this folder, or the defaults for development.
pub(crate) fn load(file: Option<&Path>, handlers: &Handlers) -> Result<Config, Vec<Problem>> {
    read(document(file)?, handlers)
}

/// The same for commands that only ask the store.
pub(crate) fn load_for_operators(file: Option<&Path>, handlers: &Handlers) -> Result<OperatorConfig, Vec<Problem>> {
    read_for_operators(document(file)?, handlers)
}

/// The file that is named, or the one that is found in the working folder.
pub(crate) fn file_in_use(file: Option<&Path>) -> Option<&Path> {
    file.or_else(|| Some(Path::new(DEFAULT_FILE)).filter(|path| path.exists()))
}

fn document(file: Option<&Path>) -> Result<Document, Vec<Problem>> {
    // Not `vars`, which panics at a variable that is not text, whoever set it.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    match file_in_use(file) {
        Some(file) => Document::read(file, variables),
        None => Document::for_development(variables),
    }
}

/// The providers there are: also those of a configuration that is otherwise wrong.
pub(crate) fn providers(file: Option<&Path>) -> Result<Providers, Vec<Problem>> {
    let Some(file) = file_in_use(file) else {
        return Ok(Providers::embedded());
    };
    let mut document = Document::read(file, std::iter::empty())?;
    let providers = catalog::read(&mut document);
    if document.problems.is_empty() { Ok(providers) } else { Err(document.problems) }
}

fn read(mut document: Document, handlers: &Handlers) -> Result<Config, Vec<Problem>> {
    let config = read_sections(&mut document, handlers);
    finish(document, config)
}

fn read_for_operators(mut document: Document, handlers: &Handlers) -> Result<OperatorConfig, Vec<Problem>> {
    let config = read_sections_for_operators(&mut document, handlers);
    finish(document, config)
}

fn read_sections(document: &mut Document, own_handlers: &Handlers) -> Option<Config> {
    let settings = document.settings();
    let ingest = ingest::read(Section::top(document, "ingest"));
    let admin = admin::read(Section::top(document, "admin"));
    let store = store::read(Section::top(document, "store"));
    let queue = queue::read(Section::top(document, "queue"));
    let work = work::read(Section::top(document, "work"));
    // Also those that turn out to be wrong: a handler of such a source is not wrong as well.
    let source_names = document.names_in("sources");
    let providers = catalog::read(document);
    let sources = sources::read(document, &providers);
    let handlers = handlers::read(document, &source_names, own_handlers);
    let for_development = document.for_development;
    let ((store, spool), mut queue) = (store?, queue?);
    // While a job is ours, its hint is renewed with the lease. Later another worker should have it.
    queue.ack_wait = work.lease;
    Some(Config { ingest, admin, store, spool, queue, work, sources, settings, for_development, providers, handlers })
}

/// The same for what is asked of the store alone, which needs neither secrets nor the handlers' code. All else must be right.
fn read_sections_for_operators(document: &mut Document, own_handlers: &Handlers) -> Option<OperatorConfig> {
    document.for_operators = true;
    let settings = document.settings();
    ingest::read(Section::top(document, "ingest"));
    admin::read(Section::top(document, "admin"));
    let store = store::read(Section::top(document, "store"));
    queue::read(Section::top(document, "queue"));
    work::read(Section::top(document, "work"));
    let sources = document.names_in("sources");
    let providers = catalog::read(document);
    sources::read(document, &providers);
    let handlers = handlers::read_for_operators(document, &sources, own_handlers);
    let (store, spool) = store?;
    Some(OperatorConfig { store, spool, sources, handlers, settings })
}

fn finish<T>(mut document: Document, config: Option<T>) -> Result<T, Vec<Problem>> {
    document.finish();
    match config {
        Some(config) if document.problems.is_empty() => Ok(config),
        _ => Err(document.problems),
    }
}
