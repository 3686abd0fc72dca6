//! Measures Hookfast. `tests/run bench ingest` and `tests/run bench process` build everything, start a private Postgres and
//! run this.
//!
//! Only ratios within one run mean anything: the load generator shares the machine with what it measures, and so do
//! others. That is why the set-ups take turns, round after round.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod floor;
mod graphile;
mod ingest;
mod load;
mod process;
mod requests;
mod server;
mod unfinished;

use clap::{Args, Parser};

#[derive(Debug, Parser)]
enum Command {
    /// How many requests are received in a second, and how soon they are answered
    Ingest(IngestArguments),
    /// How many jobs are done in a second
    Process(ProcessArguments),
    /// The server that only reads the body, on the same HTTP stack
    Floor,
}

#[derive(Debug, Args)]
struct IngestArguments {
    /// Connections that send one request after the other
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// The size of a body
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// What the events' ids look like
    #[arg(long, value_enum, default_value_t = requests::Ids::Stripe)]
    ids: requests::Ids,
    /// How long a set-up is measured in each round
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often each set-up has its turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure only the floor and this set-up
    #[arg(long)]
    only: Option<String>,
    /// Print one JSON object for each set-up
    #[arg(long)]
    json: bool,
}

/// Variables such as `HOOKFAST_WORK__CONCURRENCY` reach the gateways, to try settings with.
#[derive(Debug, Args)]
struct ProcessArguments {
    /// Jobs that each set-up has to do in each round; SQLite a quarter of them
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// The size of an event's body
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// How often each set-up has its turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure only this set-up
    #[arg(long)]
    only: Option<process::Setup>,
    /// Print one JSON object for each set-up
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Ingest(arguments) => ingest::run(&arguments),
        Command::Process(arguments) => process::run(&arguments),
        Command::Floor => floor::run(),
    }
}
