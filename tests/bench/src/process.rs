//! Working: the three set-ups of the gateway, graphile-worker as the yardstick, and receiving on Postgres, in turns.

use std::sync::Arc;

use hookfast_harness::fresh_database;
use serde::Serialize;
use time::OffsetDateTime;

use crate::database::{Database, Jobs};
use crate::graphile::{self, Workers};
use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::Store;
use crate::statistics::median;
use crate::table::{Table, fine, or_dash, whole};
use crate::turns::{Round, Subject, Turns};
use crate::workplace::{Kind, Workplace, send_all};

/// What was found out about working.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) setup: Setup,
    pub(crate) jobs_per_second: f64,
    /// To the better one of the two with graphile-worker, if it was measured.
    pub(crate) ratio_to_graphile: Option<f64>,
    pub(crate) ratio_to_ingest: Option<f64>,
    pub(crate) live_jobs_per_second: Option<f64>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setup {
    Ingest,
    Graphile,
    GraphileTwo,
    /// Postgres, with a transaction for each effect.
    Once,
    Work(Kind),
}

/// With the names that `--only` takes.
const SETUPS: [(&str, Setup); 7] = [
    ("ingest", Setup::Ingest),
    ("graphile", Setup::Graphile),
    ("graphile-two", Setup::GraphileTwo),
    ("once", Setup::Once),
    ("sqlite", Setup::Work(Kind::Sqlite)),
    ("postgres", Setup::Work(Kind::Postgres)),
    ("jetstream", Setup::Work(Kind::Jetstream)),
];

/// What a set-up reached, turn by turn.
struct Reached {
    setup: Setup,
    turns: Vec<f64>,
    live: Vec<f64>,
}

impl Part for Process {
    const HEADING: &'static str = "Working";
    const METHOD: &'static str = "\
A job is one effect: one upsert, with its marker, written with `Effects::write`, so that effects of several jobs share a
transaction; up to 256 jobs run at once. \"A transaction for each\" is the same with `Effects::once`. Each turn has a database of its own. The jobs are recorded
first, while nobody works, and then worked off: measured from the start of the first job, when the process is up and the first claim
is through, until no job is unfinished. On JetStream the messages wait in the stream by then; in-process, the worker has to find the
jobs by itself. SQLite has a quarter of the jobs.

\"Live\" is the other extreme: one process receives the same number of events as fast as it can and works on them at the same
time; measured from the first request until no job is unfinished.

graphile-worker is set up as its page about performance says and does the same upsert in a transaction, without a marker and
without history; with one and with two processes, and compared with the better one. Receiving is a closed loop on Postgres as above.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let wanted = SETUPS.into_iter().filter(|(name, _)| options.wants(name));
        let mut all: Vec<_> = wanted.map(|(_, setup)| Reached { setup, turns: Vec::new(), live: Vec::new() }).collect();
        anyhow::ensure!(
            !all.is_empty(),
            "there is no such set-up; there is: {}",
            SETUPS.map(|(name, _)| name).join(", ")
        );
        for round in 1..=options.rounds {
            for Reached { setup, turns, live } in &mut all {
                eprintln!("process, round {round} of {}: {}", options.rounds, setup.name());
                turns.push(setup.turn(options)?);
                live.extend(setup.live_turn(options)?);
            }
        }
        Ok(Self { rows: rows(&all) })
    }

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::new(&["set-up", "jobs/s", "of graphile-worker", "of receiving", "live jobs/s"]);
        for row in &self.rows {
            table.row([
                row.setup.name().into(),
                whole(row.jobs_per_second),
                or_dash(row.ratio_to_graphile, fine),
                or_dash(row.ratio_to_ingest, fine),
                or_dash(row.live_jobs_per_second, whole),
            ]);
        }
        vec![table]
    }
}

impl Process {
    pub(crate) fn of(&self, kind: Kind) -> Option<&Row> {
        self.rows.iter().find(|row| row.setup == Setup::Work(kind))
    }
}

impl Setup {
    fn name(self) -> &'static str {
        match self {
            Self::Ingest => "receiving on Postgres",
            Self::Graphile => "graphile-worker",
            Self::GraphileTwo => "graphile-worker, two processes",
            Self::Once => "Postgres, a transaction for each",
            Self::Work(kind) => kind.name(),
        }
    }

    /// Jobs, or for ingest events, per second.
    fn turn(self, options: &Options) -> anyhow::Result<f64> {
        match self {
            Self::Ingest => receive(options),
            Self::Graphile => work_with_graphile(options, 1),
            Self::GraphileTwo => work_with_graphile(options, 2),
            Self::Once => work(Kind::Postgres, &[("BENCH_EFFECT", "once")], options),
            Self::Work(kind) => work(kind, &[], options),
        }
    }

    /// The same while events come in; only for those that can receive.
    fn live_turn(self, options: &Options) -> anyhow::Result<Option<f64>> {
        match self {
            Self::Ingest | Self::Graphile | Self::GraphileTwo | Self::Once => Ok(None),
            Self::Work(kind) => receive_and_work(kind, options).map(Some),
        }
    }
}

fn work(kind: Kind, variables: &[(&str, &str)], options: &Options) -> anyhow::Result<f64> {
    let events = events(kind, options)?;
    let Workplace { gateway, .. } = &Workplace::new(kind)?;
    let (receiver, worker) = if kind == Kind::Jetstream { ("receive", "work") } else { ("serve", "serve") };
    let server = gateway.start(receiver, &[("HOOKFAST_HANDLERS__BENCH__PAUSED", "true")])?;
    send_all(server.address, &events, options.connections)?;
    server.shut_down()?;

    let mut database = Database::open(&gateway.store_url)?;
    let _worker = gateway.start(worker, variables)?;
    let end = database.wait_for_the_last(Jobs::Ours, events.len())?;
    Ok(per_second(events.len(), database.first_start()?, end))
}

fn receive_and_work(kind: Kind, options: &Options) -> anyhow::Result<f64> {
    let events = events(kind, options)?;
    let Workplace { gateway, .. } = &Workplace::new(kind)?;
    let server = gateway.start("serve", &[])?;
    let start = OffsetDateTime::now_utc();
    send_all(server.address, &events, options.connections)?;
    let end = Database::open(&gateway.store_url)?.wait_for_the_last(Jobs::Ours, events.len())?;
    Ok(per_second(events.len(), start, end))
}

/// Signed only now, because signatures age. SQLite has fewer, or its turn would take longer than all others.
fn events(kind: Kind, options: &Options) -> anyhow::Result<Arc<Requests>> {
    let count = if kind == Kind::Sqlite { options.jobs.div_ceil(4) } else { options.jobs };
    Requests::sign(count, options.body_bytes, options.ids)
}

/// Receiving as `ingest` measures it, with a job for each event.
fn receive(options: &Options) -> anyhow::Result<f64> {
    let mut turns = Turns::of(Subject::on(Store::Postgres));
    turns.take(&Round::sign(options, options.body_bytes)?)?;
    Ok(turns.per_second())
}

fn work_with_graphile(options: &Options, processes: usize) -> anyhow::Result<f64> {
    let (url, events) = (fresh_database(), events(Kind::Postgres, options)?);
    graphile::add(&url, &events)?;
    let mut database = Database::open(&url)?;
    let workers = Workers::start(&url, processes)?;
    let end = database.wait_for_the_last(Jobs::Graphile, events.len())?;
    Ok(per_second(events.len(), workers.first_start()?, end))
}

fn per_second(jobs: usize, start: OffsetDateTime, end: OffsetDateTime) -> f64 {
    jobs as f64 / (end - start).as_seconds_f64()
}

/// The medians of the turns.
fn rows(all: &[Reached]) -> Vec<Row> {
    let best_of = |wanted: &[Setup]| {
        let of_wanted = all.iter().filter(|one| wanted.contains(&one.setup)).map(|one| median(&one.turns));
        of_wanted.max_by(f64::total_cmp)
    };
    let graphile = best_of(&[Setup::Graphile, Setup::GraphileTwo]);
    let ingest = best_of(&[Setup::Ingest]);
    let row = |Reached { setup, turns, live }: &Reached| {
        let jobs_per_second = median(turns);
        Row {
            setup: *setup,
            jobs_per_second,
            ratio_to_graphile: graphile.map(|graphile| jobs_per_second / graphile),
            ratio_to_ingest: ingest.map(|ingest| jobs_per_second / ingest),
            live_jobs_per_second: (!live.is_empty()).then(|| median(live)),
        }
    };
    all.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardstick_is_the_better_one_of_graphile_worker_and_the_median_counts() {
        let reached = |setup, turns: &[f64]| Reached { setup, turns: turns.to_vec(), live: Vec::new() };
        let rows = rows(&[
            reached(Setup::Graphile, &[100.0]),
            reached(Setup::GraphileTwo, &[200.0]),
            reached(Setup::Work(Kind::Postgres), &[50.0, 400.0, 9000.0]),
        ]);
        assert_eq!(rows[2].jobs_per_second, 400.0);
        assert_eq!(rows[2].ratio_to_graphile, Some(2.0));
        assert_eq!(rows[2].ratio_to_ingest, None);
    }
}
