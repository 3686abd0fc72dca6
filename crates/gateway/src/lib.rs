//! The gateway: configuration, wiring, subcommands. It knows every other crate, and none knows it.
//!
//! It is also what a team's own gateway is made of: their handlers, and [`run`].
//!
//! ```no_run
//! use hookfast::{Anything, Effects, Event, Handled, Handler, Handlers};
//!
//! struct Greeter;
//!
//! impl Handler for Greeter {
//!     const NAME: &'static str = "greeter";
//!     const SUBSCRIBES: &'static [&'static str] = &["stripe/customer.created"];
//!     type Payload = Anything;
//!
//!     async fn handle(&self, event: &Event<Anything>, _: &Effects) -> Handled {
//!         println!("hello, {}", event.id);
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     hookfast::run(Handlers::new().with(Greeter))
//! }
//! ```

/// Prints a line of output. What reads it may have gone, as in `hookfast events list | head`, and `println!` would panic.
macro_rules! outln {
    ($($line:tt)*) => { $crate::printable::print_line(&format!($($line)*)) };
}

/// Prints a line on the standard error, which may be closed or not be read: `eprintln!` would panic or wait.
macro_rules! errln {
    ($($line:tt)*) => { $crate::log_lines::add(&format!("{}\n", format_args!($($line)*))) };
}

mod apart;
mod audit;
mod cli;
mod config;
mod core_files;
mod dead_letters;
mod development;
mod events;
mod exit;
mod filter;
mod jobs;
mod keeping;
mod known;
mod log_lines;
mod logging;
mod metrics;
mod migrate;
mod printable;
mod providers;
mod replay;
mod serve;
mod simulate;
mod spool;
mod unclaimed;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

pub use config::{Config, ConfiguredHandler, Problem, SpoolSettings};
pub use hookfast_processor::{
    Anything, Effects, Event, Handled, Handler, Handlers, IdempotencyKey, Transaction, Value, testing, values,
};
pub use hookfast_store::sqlx;
pub use hookfast_webhook::{Failure, FailureKind};

use cli::{AuditCommand, Cli, Command, ConfigCommand, DeadLettersCommand, EventsCommand, ProvidersCommand};
use config::OperatorConfig;
use exit::Exit;
use serve::{Role, Start};

/// Runs the command line of this process, with these handlers. Panics are written into the log by a panic hook that it
/// sets, and a crash leaves no core file.
#[expect(clippy::needless_pass_by_value, reason = "it is the last thing a program does with its handlers")]
pub fn run(handlers: Handlers) -> ExitCode {
    core_files::forbid();
    let cli = Cli::parse();
    let _flush = logging::start(&cli.log);
    match dispatch(cli, &handlers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

fn dispatch(cli: Cli, handlers: &Handlers) -> Result<(), Exit> {
    let load = || config::load(cli.config.as_deref(), handlers).map_err(Exit::Config);
    // What is asked of the store alone needs neither secrets nor the handlers' code.
    let operator = || config::load_for_operators(cli.config.as_deref(), handlers).map_err(Exit::Config);
    let serve = |role, migrate| serve::serve(load()?, &Start { role, file: cli.config.as_deref(), migrate, handlers });
    match cli.command {
        Command::Serve(arguments) => serve(Role::All, arguments.migrate),
        Command::Receive(arguments) => serve(Role::Receive, arguments.migrate),
        Command::Work(arguments) => serve(Role::Work(arguments.handlers), arguments.migrate),
        Command::RunJob { event, handler } => apart::run_job(&load()?, event, &handler),
        Command::Migrate => in_runtime(migrate::migrate(operator()?)),
        Command::Verify(arguments) => verify::run(&arguments, cli.config.as_deref(), handlers),
        Command::Simulate(arguments) => in_runtime(simulate::run(load()?, arguments)),
        Command::Providers(arguments) => {
            let providers = config::providers(cli.config.as_deref()).map_err(Exit::Config)?;
            match &arguments.command {
                None => providers::list(&providers, arguments.json),
                Some(ProvidersCommand::Show { name, json }) => {
                    providers::show(&providers, name, *json || arguments.json)?;
                }
            }
            Ok(())
        }
        Command::Config(ConfigCommand::Check { json }) => config::check(cli.config.as_deref(), handlers, json),
        Command::Config(ConfigCommand::Show { json }) => {
            config::show(&operator()?.settings, json);
            Ok(())
        }
        Command::Spool { json } => in_runtime(spool::show(operator()?, json)),
        Command::Events(EventsCommand::List { limit, unhandled, json }) => {
            in_runtime(events::list(operator()?, limit, unhandled, json))
        }
        Command::Events(EventsCommand::Show { id, raw, json }) => in_runtime(events::show(operator()?, id, raw, json)),
        Command::DeadLetters(command) => in_runtime(dead_letters(operator()?, command)),
        Command::Jobs(command) => in_runtime(jobs::run(operator()?, command)),
        Command::Replay(arguments) => in_runtime(replay::run(operator()?, arguments)),
        Command::Audit(AuditCommand::List(arguments)) => in_runtime(audit::list(operator()?, &arguments)),
    }
}

async fn dead_letters(config: OperatorConfig, command: DeadLettersCommand) -> Result<(), Exit> {
    match command {
        DeadLettersCommand::List(arguments) => dead_letters::list(config, &arguments).await,
        DeadLettersCommand::Show(arguments) => dead_letters::show(config, &arguments).await,
        DeadLettersCommand::Resolve(arguments) => dead_letters::resolve(config, arguments).await,
    }
}

/// One core is left to the store, which works beside the requests and would otherwise wait for them to let it run.
fn in_runtime(task: impl Future<Output = Result<(), Exit>>) -> Result<(), Exit> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let workers = cores.saturating_sub(1).max(1);
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().map_err(Exit::failed)?;
    runtime.block_on(task)
}
