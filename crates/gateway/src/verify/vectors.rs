//! `hookfast verify --vectors`: files of requests with the verdict that a correct receiver gives.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hookfast_webhook::vectors::{self, Outcome};
use serde::Serialize;
use toml::Table;

use super::read_limited;
use crate::commands::tables::print_json;
use crate::exit::Exit;
use crate::printable::plain;
use crate::providers::Providers;

pub(super) fn run(providers: &Providers, files: &[PathBuf], as_json: bool) -> Result<(), Exit> {
    let mut outcomes = Vec::new();
    for file in files {
        outcomes.extend(run_file(providers, file)?.into_iter().map(|outcome| (file.as_path(), outcome)));
    }
    let disagreeing = outcomes.iter().filter(|(_, outcome)| !outcome.differences.is_empty()).count();
    if as_json {
        let vectors = outcomes.iter().map(|(file, outcome)| VectorView::new(file, outcome)).collect();
        print_json(&Agreement { vectors, agree: outcomes.len() - disagreeing, disagree: disagreeing });
    } else {
        outcomes.iter().for_each(|(_, outcome)| print_line(outcome));
        outln!("{} vectors: {} agree, {disagreeing} disagree", outcomes.len(), outcomes.len() - disagreeing);
    }
    if disagreeing == 0 { Ok(()) } else { Err(Exit::No) }
}

fn run_file(providers: &Providers, path: &Path) -> Result<Vec<Outcome>, Exit> {
    let text = File::open(path)
        .and_then(read_limited)
        .and_then(|content| String::from_utf8(content).map_err(io::Error::other))
        .map_err(|error| Exit::Failed(format!("{} cannot be read: {error}", path.display())))?;
    let build = |provider: &str, settings| {
        let settings = Table::try_from(settings).map_err(|error| format!("`config`: {error}"))?;
        providers.find(provider)?.build(settings)
    };
    vectors::run(&text, build).map_err(|error| {
        Exit::Failed(format!("{} is not a file of vectors: {}", path.display(), plain(&error.to_string())))
    })
}

fn print_line(outcome: &Outcome) {
    let Outcome { differences, verdict, .. } = outcome;
    let [id, name, level] = [&outcome.id, &outcome.name, &outcome.level].map(|text| plain(text));
    if differences.is_empty() {
        outln!("agrees     {id}  {level:10}  {name}");
    } else {
        outln!("DISAGREES  {id}  {level:10}  {name}");
        outln!("           verdict: {}", plain(verdict));
        differences.iter().for_each(|difference| outln!("           {}", plain(difference)));
    }
}

/// What `--json` prints of all files.
#[derive(Serialize)]
struct Agreement<'a> {
    vectors: Vec<VectorView<'a>>,
    agree: usize,
    disagree: usize,
}

#[derive(Serialize)]
struct VectorView<'a> {
    file: String,
    id: &'a str,
    name: &'a str,
    level: &'a str,
    agrees: bool,
    verdict: &'a str,
    differences: &'a [String],
}

impl<'a> VectorView<'a> {
    fn new(file: &Path, outcome: &'a Outcome) -> Self {
        let Outcome { id, name, level, differences, verdict } = outcome;
        let file = file.display().to_string();
        Self { file, id, name, level, agrees: differences.is_empty(), verdict, differences }
    }
}
