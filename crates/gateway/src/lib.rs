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
mod commands;
mod config;
mod core_files;
mod development;
mod exit;
mod keeping;
mod log_lines;
mod logging;
mod metrics;
mod printable;
mod providers;
mod serve;
mod simulate;
mod unclaimed;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

pub use config::{Config, ConfiguredHandler, Problem, SpoolSettings};
#[cfg(feature = "driver")]
pub use hookfast_handler::driver;
#[cfg(feature = "testing")]
pub use hookfast_handler::testing;
pub use hookfast_handler::{
    Anything, Effects, Event, Handled, Handler, Handlers, IdempotencyKey, Transaction, Value, values,
};
pub use hookfast_webhook::{Failure, FailureKind, ProofKind};

use commands::{Cli, dispatch};
use exit::Exit;

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

/// One core is left to the store, which works beside the requests and would otherwise wait for them to let it run.
fn in_runtime(task: impl Future<Output = Result<(), Exit>>) -> Result<(), Exit> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let workers = cores.saturating_sub(1).max(1);
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().map_err(Exit::failed)?;
    let ended = runtime.block_on(task);
    // Something may wait for a disk that stands still, and the process ends all the same.
    runtime.shutdown_background();
    ended
}
