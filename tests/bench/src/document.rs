//! `docs/benchmarks.md`.

use serde::Serialize;

use crate::report::{Part, Report};
use crate::targets::{self, Target};

const START: &str = "\
# Benchmarks

Written by `tests/run bench`, all from one run; what that run did not measure is \"not measured\". Load, gateway and database server
share one machine, so that rates say little about another one; the ratios are what to look at.
";

/// The whole page.
pub(crate) fn write(report: &Report) -> String {
    [
        START.into(),
        format!("\n## Targets\n\n{}", targets::table(report).markdown()),
        format!("\n## The machine\n\n{}", report.machine.table().markdown()),
        section(report.ingest.as_ref()),
        section(report.bodies.as_ref()),
        section(report.stored.as_ref()),
        section(report.process.as_ref()),
        section(report.mixed.as_ref()),
        section(report.neighbours.as_ref()),
        section(report.footprint.as_ref()),
    ]
    .concat()
}

/// Everything for programs.
pub(crate) fn json(report: &Report) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Everything<'a> {
        #[serde(flatten)]
        report: &'a Report,
        targets: Vec<Target>,
    }
    serde_json::to_string_pretty(&Everything { report, targets: targets::all(report) })
}

/// What was measured, for a person who waits for it.
pub(crate) fn summary(report: &Report) -> String {
    [
        found(report.ingest.as_ref()),
        found(report.bodies.as_ref()),
        found(report.stored.as_ref()),
        found(report.process.as_ref()),
        found(report.mixed.as_ref()),
        found(report.neighbours.as_ref()),
        found(report.footprint.as_ref()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn section<P: Part>(part: Option<&P>) -> String {
    let found = part.map_or("\nNot measured.\n".into(), tables);
    format!("\n## {}\n\n{}\n{found}", P::HEADING, P::METHOD)
}

fn found<P: Part>(part: Option<&P>) -> Option<String> {
    part.map(|part| format!("\n{}:\n{}", P::HEADING, tables(part)))
}

fn tables<P: Part>(part: &P) -> String {
    part.tables().iter().map(|table| format!("\n{}", table.markdown())).collect()
}

#[cfg(test)]
mod tests;
