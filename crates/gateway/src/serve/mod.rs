//! `hookfast serve`, `receive` and `work`: everything in one process, or one of its halves.
//!
//! This file has the roles and their checks. `opening` opens the store, `parts` starts everything that runs and lists it,
//! and `run` waits for a reason to end and then shuts it down.

mod greeting;
mod opening;
mod parts;
mod reload;
mod run;
mod signals;
mod workers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hookfast_handler::Handlers;
use hookfast_parts::MustEnd;
use hookfast_queue::QueueUrl;
use hookfast_store::{Migrate, StoreUrl};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::exit::Exit;
use crate::{Config, Problem, config, in_runtime};
pub(crate) use workers::assigned;
use workers::is_named;

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
        // No hint leads to the workers, which run elsewhere, so their sweepers should look at once.
        config.store.dispatch_grace = Duration::ZERO;
    }
    config.store.lock = true;
    let commits = Builder::new_multi_thread().worker_threads(1).thread_name("commits").enable_all().build();
    let commits = commits.map_err(Exit::failed)?;
    let migrate = if *migrate { Migrate::Run } else { Migrate::IfEmbedded };
    let for_handlers = handlers_runtime(&config)?;
    let gateway = Gateway {
        role: role.clone(),
        // Looked for once: without its file, a gateway that was configured must not become one for development.
        file: config::file_in_use(*file).map(Path::to_owned),
        own_handlers: (*handlers).clone(),
        commits: commits.handle().clone(),
        for_handlers: for_handlers.handle().clone(),
        must_end: MustEnd::default(),
    };
    let ended = in_runtime(gateway.run(config, migrate));
    // A handler that does not yield would keep us for ever, and so would a migration.
    for_handlers.shutdown_background();
    commits.shutdown_background();
    ended
}

/// What the gateway has besides its configuration and its store. `run` is its way from start to end.
struct Gateway {
    role: Role,
    file: Option<PathBuf>,
    own_handlers: Handlers,
    commits: Handle,
    for_handlers: Handle,
    /// Why the process must end, from whatever part says so first.
    must_end: MustEnd,
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
