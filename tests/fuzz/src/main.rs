//! Feeds every provider with random requests, and checks what must hold whatever comes.
//!
//! `tests/run fuzz` builds this and runs it. The inputs follow from the seed alone; what fails is written as a file of
//! vectors (see docs/vectors.md), which `--replay` runs again.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod check;
mod corpus;
mod fuzz;
mod hostile;
mod mutate;
mod sign;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Feeds every provider with random requests
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    fuzz: FuzzArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures how long the worst requests take that we could make up
    Hostile(HostileArguments),
}

#[derive(Debug, Args)]
struct FuzzArguments {
    /// How long to go on
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Where to begin; a random place without it
    #[arg(long)]
    seed: Option<u64>,
    /// Only this provider
    #[arg(long)]
    provider: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Run the requests of this file of vectors instead
    #[arg(long)]
    replay: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct HostileArguments {
    /// Only this provider
    #[arg(long)]
    provider: Option<String>,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { command, fuzz } = Arguments::parse();
    let passed = match (command, &fuzz.replay) {
        (Some(Command::Hostile(arguments)), _) => hostile::run(&arguments)?,
        (None, Some(file)) => fuzz::replay(file)?,
        (None, None) => fuzz::run(&fuzz)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
