//! The gateway: configuration, wiring, subcommands. It knows every other crate, and none knows it.

/// Prints a line of output. Whoever reads it may have gone, as in `hookfast events list | head`, and `println!` would panic.
macro_rules! outln {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

mod cli;
mod config;
mod development;
mod events;
mod exit;
mod logging;
mod migrate;
mod providers;
mod serve;
mod simulate;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

pub use config::{Config, Problem};

use cli::{Cli, Command, ConfigCommand, EventsCommand, ProvidersCommand};
use exit::Exit;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    logging::start(&cli.log);
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

fn dispatch(cli: Cli) -> Result<(), Exit> {
    let load = || config::load(cli.config.as_deref()).map_err(Exit::Config);
    match cli.command {
        Command::Serve(arguments) => serve::serve(load()?, cli.config.as_deref(), &arguments),
        Command::Migrate => in_runtime(migrate::migrate(load()?)),
        Command::Verify(arguments) => verify::run(&arguments, cli.config.as_deref()),
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
        Command::Config(ConfigCommand::Check { json }) => config::check(cli.config.as_deref(), json),
        Command::Events(EventsCommand::List { limit, json }) => in_runtime(events::list(load()?, limit, json)),
        Command::Events(EventsCommand::Show { id, raw, json }) => in_runtime(events::show(load()?, id, raw, json)),
    }
}

/// One core is left to the store, which works beside the requests and would otherwise wait for them to let it run.
fn in_runtime(task: impl Future<Output = Result<(), Exit>>) -> Result<(), Exit> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let workers = cores.saturating_sub(1).max(1);
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().map_err(Exit::failed)?;
    runtime.block_on(task)
}
