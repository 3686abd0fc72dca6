//! Measures Hookfast. `tests/run bench` builds everything, starts a private Postgres and runs this: all parts, and what
//! they found becomes `docs/benchmarks.md`. `tests/run bench ingest` and so on run only some and print what they found.
//!
//! Only ratios within one run mean anything: the load generator shares the machine with what it measures, and so do
//! others. That is why the set-ups take turns, round after round.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod bodies;
mod database;
mod disk;
mod document;
mod fill;
mod footprint;
mod graphile;
mod ingest;
mod load;
mod machine;
mod mixed;
mod neighbours;
mod options;
mod process;
mod report;
mod requests;
mod server;
mod statistics;
mod stored;
mod table;
mod targets;
mod turns;
mod workplace;

use std::process::ExitCode;

use clap::Parser;
use hookfast_harness::warm_up_shared_server;

use crate::machine::Machine;
use crate::options::{Arguments, Output};
use crate::report::Report;

/// What a full run writes.
const DOCUMENT: &str = "docs/benchmarks.md";

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut report = Report::new(Machine::look()?);
    eprintln!("warming up the Postgres server");
    warm_up_shared_server();
    let is_complete = report.measure(&arguments);
    match arguments.output() {
        Output::Json => println!("{}", document::json(&report)?),
        Output::Page => print!("{}", document::write(&report)),
        Output::Summary => print!("{}", document::summary(&report)),
    }
    if arguments.writes_document() {
        std::fs::write(DOCUMENT, document::write(&report))?;
        eprintln!("wrote {DOCUMENT}");
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
