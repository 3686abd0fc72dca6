//! The command line: what can be typed, and a file for each command with its arguments and what it does.

mod act;
mod audit;
mod config;
mod dead_letters;
mod events;
pub(crate) mod filter;
mod jobs;
pub(crate) mod known;
mod migrate;
mod providers;
mod replay;
mod spool;
pub(crate) mod tables;
mod who;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use hookfast_handler::Handlers;
use hookfast_store::{Migrate, Store, StoreUrl, open};
use hookfast_webhook::HandlerName;
use uuid::Uuid;

use crate::config::{OperatorConfig, load, load_for_operators};
use crate::exit::Exit;
use crate::logging::LogArguments;
use crate::serve::{self, Role, ServeArguments, Start, WorkArguments};
use crate::simulate::{self, SimulateArguments};
use crate::verify::{self, VerifyArguments};
use crate::{apart, in_runtime};
use audit::AuditCommand;
use config::ConfigCommand;
use dead_letters::DeadLettersCommand;
use events::EventsCommand;
use jobs::JobsCommand;
use providers::ProvidersArguments;
use replay::ReplayArguments;

/// An inbound webhook gateway: verifies, makes durable, answers, and sees to it that every event is handled.
#[derive(Debug, Parser)]
#[command(name = "hookfast", version)]
pub(crate) struct Cli {
    /// The configuration file [default: hookfast.toml if it is there]
    #[arg(long, global = true, env = "HOOKFAST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) log: LogArguments,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole gateway; without a configuration file it uses development secrets and a SQLite file in this folder
    Serve(ServeArguments),
    /// Only receive: verify, record and answer; workers run in other processes
    Receive(ServeArguments),
    /// Only work: run handlers
    Work(WorkArguments),
    /// Run one job in this process, as the gateway does with jobs that crashed before
    #[command(hide = true)]
    RunJob {
        /// The event
        event: Uuid,
        /// The handler
        #[arg(value_parser = filter::handler_name)]
        handler: HandlerName,
    },
    /// Create or update the tables of the configured database
    Migrate,
    /// Check a request, or files of test vectors, offline, and explain the verdict
    Verify(VerifyArguments),
    /// Play a provider against a running gateway: correctly signed requests, also as load
    Simulate(SimulateArguments),
    /// List the supported providers
    Providers(ProvidersArguments),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show how many events wait in this machine's spool for Postgres, and since when
    Spool {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List and show recorded events
    #[command(subcommand)]
    Events(EventsCommand),
    /// List and count unfinished jobs; move or resolve those of a handler that is not configured
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// List, show and resolve dead letters: jobs that gave up
    #[command(subcommand, visible_alias = "dlq")]
    DeadLetters(DeadLettersCommand),
    /// Run jobs again; without --succeeded, --finished or --unhandled, dead letters
    Replay(ReplayArguments),
    /// List what operators did
    #[command(subcommand)]
    Audit(AuditCommand),
}

pub(crate) fn dispatch(cli: Cli, handlers: &Handlers) -> Result<(), Exit> {
    let config = || load(cli.config.as_deref(), handlers).map_err(Exit::Config);
    // What is asked of the store alone needs neither secrets nor the handlers' code.
    let operator = || load_for_operators(cli.config.as_deref(), handlers).map_err(Exit::Config);
    let serve =
        |role, migrate| serve::serve(config()?, &Start { role, file: cli.config.as_deref(), migrate, handlers });
    match cli.command {
        Command::Serve(arguments) => serve(Role::All, arguments.migrate),
        Command::Receive(arguments) => serve(Role::Receive, arguments.migrate),
        Command::Work(arguments) => serve(Role::Work(arguments.handlers), arguments.migrate),
        Command::RunJob { event, handler } => apart::run_job(&config()?, event, &handler),
        Command::Migrate => in_runtime(migrate::migrate(operator()?)),
        Command::Verify(arguments) => verify::run(&arguments, cli.config.as_deref(), handlers),
        Command::Simulate(arguments) => in_runtime(simulate::run(config()?, arguments)),
        Command::Providers(arguments) => providers::run(&arguments, cli.config.as_deref()),
        Command::Config(command) => config::run(&command, cli.config.as_deref(), handlers),
        Command::Spool { json } => in_runtime(spool::show(operator()?, json)),
        Command::Events(command) => in_runtime(events::run(operator()?, command)),
        Command::DeadLetters(command) => in_runtime(dead_letters::run(operator()?, command)),
        Command::Jobs(command) => in_runtime(jobs::run(operator()?, command)),
        Command::Replay(arguments) => in_runtime(replay::run(operator()?, arguments)),
        Command::Audit(command) => in_runtime(audit::run(operator()?, command)),
    }
}

/// Opens a store that is there already: to look must not make one.
pub(crate) async fn open_existing(config: &OperatorConfig) -> Result<Arc<dyn Store>, Exit> {
    if let StoreUrl::Sqlite(path) = &config.store.url
        && !path.exists()
    {
        return Err(Exit::NotFound(format!("there is no database {} yet. `hookfast serve` makes one", path.display())));
    }
    Ok(open(&config.store, Migrate::Never).await?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_well_formed() {
        Cli::command().debug_assert();
    }
}
