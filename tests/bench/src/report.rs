//! All results of one run.

use serde::Serialize;

use crate::bodies::Bodies;
use crate::footprint::Footprint;
use crate::ingest::Ingest;
use crate::machine::Machine;
use crate::mixed::Mixed;
use crate::neighbours::Neighbours;
use crate::options::{Arguments, Options, PartName};
use crate::process::Process;
use crate::stored::Stored;
use crate::table::Table;

/// A part of the measurements: how it is done, and what it found.
pub(crate) trait Part: Sized {
    /// The heading of its section.
    const HEADING: &'static str;
    /// How it is measured, for the reader of the numbers.
    const METHOD: &'static str;

    fn measure(options: &Options) -> anyhow::Result<Self>;

    fn tables(&self) -> Vec<Table>;
}

/// What was not run is missing.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) ingest: Option<Ingest>,
    pub(crate) bodies: Option<Bodies>,
    pub(crate) stored: Option<Stored>,
    pub(crate) process: Option<Process>,
    pub(crate) mixed: Option<Mixed>,
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) footprint: Option<Footprint>,
}

impl Report {
    /// Nothing was measured yet.
    pub(crate) fn new(machine: Machine) -> Self {
        let (ingest, bodies, stored, process, mixed) = Default::default();
        Self { machine, ingest, bodies, stored, process, mixed, neighbours: None, footprint: None }
    }

    /// Measures what is wanted. A part that fails does not take the others with it. Says whether all went well.
    pub(crate) fn measure(&mut self, arguments: &Arguments) -> bool {
        let mut is_complete = true;
        // What is short comes first, so that a mistake shows soon.
        run(arguments, PartName::Footprint, &mut self.footprint, &mut is_complete);
        run(arguments, PartName::Ingest, &mut self.ingest, &mut is_complete);
        run(arguments, PartName::Bodies, &mut self.bodies, &mut is_complete);
        run(arguments, PartName::Process, &mut self.process, &mut is_complete);
        run(arguments, PartName::Mixed, &mut self.mixed, &mut is_complete);
        run(arguments, PartName::Neighbours, &mut self.neighbours, &mut is_complete);
        run(arguments, PartName::Stored, &mut self.stored, &mut is_complete);
        is_complete
    }
}

fn run<P: Part>(arguments: &Arguments, name: PartName, place: &mut Option<P>, is_complete: &mut bool) {
    if !arguments.wants(name) {
        return;
    }
    match P::measure(&arguments.options) {
        Ok(found) => *place = Some(found),
        Err(error) => {
            eprintln!("{name:?} could not be measured: {error:#}");
            *is_complete = false;
        }
    }
}
