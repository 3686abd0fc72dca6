//! What can be asked for.

use clap::{Args, Parser, ValueEnum};

use crate::requests::Ids;

/// Measures Hookfast: all parts, or those that are named.
#[derive(Debug, Parser)]
#[command(name = "tests/run bench")]
pub(crate) struct Arguments {
    /// What to measure; all of it without a name, and then docs/benchmarks.md is written, unless it is a quick run
    parts: Vec<PartName>,
    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

impl Arguments {
    fn is_everything(&self) -> bool {
        self.parts.is_empty()
    }

    /// Only numbers that mean something are kept.
    pub(crate) fn writes_document(&self) -> bool {
        self.is_everything() && !self.options.quick
    }

    pub(crate) fn output(&self) -> Output {
        match (self.json, self.is_everything()) {
            (true, _) => Output::Json,
            (false, true) => Output::Page,
            (false, false) => Output::Summary,
        }
    }

    pub(crate) fn wants(&self, part: PartName) -> bool {
        self.is_everything() || self.parts.contains(&part)
    }
}

/// What is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Json,
    /// What would be written.
    Page,
    /// What was measured.
    Summary,
}

/// A part of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartName {
    /// How many requests are received in a second, and how soon they are answered
    Ingest,
    /// The same with larger bodies, and with duplicates
    Bodies,
    /// The same with many events stored, and with many jobs waiting
    Stored,
    /// How many jobs are done in a second
    Process,
    /// Receiving and working at the same time
    Mixed,
    /// One handler beside another one that is in trouble
    Neighbours,
    /// Memory, start, size
    Footprint,
}

/// How thorough it is. Variables such as `HOOKFAST_WORK__CONCURRENCY` reach the gateways, to try settings with.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// A short run, to see whether everything works: its numbers mean little
    #[arg(long)]
    quick: bool,
    /// Connections that send requests
    #[arg(long, default_value_t = 256)]
    pub(crate) connections: usize,
    /// The size of a body
    #[arg(long, default_value_t = 1024)]
    pub(crate) body_bytes: usize,
    /// What the events' ids look like
    #[arg(long, value_enum, default_value_t = Ids::Stripe)]
    pub(crate) ids: Ids,
    /// How long a set-up is measured in each round
    #[arg(long, default_value_t = 4, default_value_if("quick", "true", "1"), value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// How often each set-up has its turn
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"), value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,
    /// Jobs that each set-up has to do in each round of `process`; SQLite a quarter of them
    #[arg(long, default_value_t = 20_000, default_value_if("quick", "true", "1000"), value_parser = at_least_one)]
    pub(crate) jobs: usize,
    /// How many events are stored in the largest database of `stored`: 10000000 takes some minutes more, and 15 GB of disk
    #[arg(long, default_value_t = 1_000_000, default_value_if("quick", "true", "10000"))]
    pub(crate) stored: u64,
    /// `ingest`, `process` and `neighbours`: measure only the set-up of this name, and what it is compared with
    #[arg(long)]
    only: Option<String>,
    /// `neighbours`: measure only the trouble whose description contains this text, and what it is compared with
    #[arg(long)]
    trouble: Option<String>,
}

impl Options {
    pub(crate) fn wants(&self, setup: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == setup)
    }

    pub(crate) fn wants_trouble(&self, description: &str) -> bool {
        self.trouble.as_ref().is_none_or(|text| description.contains(text))
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least one".into()),
        Ok(number) => Ok(number),
        Err(problem) => Err(format!("{problem}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    fn parse(words: &str) -> Arguments {
        Arguments::try_parse_from(["bench"].into_iter().chain(words.split_whitespace())).unwrap()
    }

    #[test]
    fn only_a_full_run_is_written_down() {
        let written = ["", "--json", "--stored 10000000"];
        let not_written = ["--quick", "ingest", "process --json"];
        assert!(written.iter().all(|words| parse(words).writes_document()));
        assert!(!not_written.iter().any(|words| parse(words).writes_document()));
    }
}
