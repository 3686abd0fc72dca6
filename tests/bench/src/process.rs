//! Working: the three set-ups of the gateway, graphile-worker as the yardstick, and receiving on Postgres, in turns.
//!
//! A turn has a database of its own. The jobs are recorded first, while nobody works; then they are worked off. That is
//! measured from the start of the first job, when the process is up and the first claim is through, until no job is
//! unfinished. On JetStream the messages wait in the stream by then; in-process, the worker has to find the jobs by itself.
//!
//! "Live" is the other extreme: one process receives the same number of events as fast as it can and works on them at the
//! same time; measured from the first request until no job is unfinished.

use std::sync::Arc;
use std::time::Duration;

use hookfast_harness::{NatsVersion, PrivateNats, fresh_database, warm_up_shared_server};
use serde::Serialize;
use time::OffsetDateTime;

use crate::graphile::{self, Workers};
use crate::ingest::{self, REQUESTS_PER_SECOND, median};
use crate::requests::{Ids, Requests};
use crate::server::{Gateway, Sections};
use crate::unfinished::{Database, Jobs};
use crate::{ProcessArguments, load};

const CONNECTIONS: usize = 256;

/// How long receiving is measured in each round, after a second for warming up.
const RECEIVING: Duration = Duration::from_secs(4);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Setup {
    /// Receiving on Postgres
    Ingest,
    /// graphile-worker, one process
    Graphile,
    /// graphile-worker, two processes
    GraphileTwo,
    /// SQLite, in-process
    Sqlite,
    /// Postgres, in-process
    Postgres,
    /// Postgres and JetStream
    Jetstream,
}

const SETUPS: [(Setup, &str); 6] = [
    (Setup::Ingest, "ingest on postgres"),
    (Setup::Graphile, "graphile-worker"),
    (Setup::GraphileTwo, "graphile-worker, two processes"),
    (Setup::Sqlite, "sqlite"),
    (Setup::Postgres, "postgres"),
    (Setup::Jetstream, "postgres + jetstream"),
];

/// What a set-up reached, turn by turn.
struct Reached {
    setup: Setup,
    name: &'static str,
    turns: Vec<f64>,
    live: Vec<f64>,
}

#[derive(Serialize)]
struct Row {
    setup: &'static str,
    jobs_per_second: f64,
    /// To the better one of the two with graphile-worker, if it was measured.
    ratio_to_graphile: Option<f64>,
    ratio_to_ingest: Option<f64>,
    live_jobs_per_second: Option<f64>,
}

pub(crate) fn run(arguments: &ProcessArguments) -> anyhow::Result<()> {
    let wanted = SETUPS.into_iter().filter(|(setup, _)| arguments.only.is_none_or(|only| only == *setup));
    let mut all: Vec<_> =
        wanted.map(|(setup, name)| Reached { setup, name, turns: Vec::new(), live: Vec::new() }).collect();
    eprintln!("warming up the Postgres server");
    warm_up_shared_server();
    for round in 1..=arguments.rounds {
        for Reached { setup, name, turns, live } in &mut all {
            eprintln!("round {round} of {}: {name}", arguments.rounds);
            turns.push(setup.turn(arguments)?);
            live.extend(setup.live_turn(arguments)?);
        }
    }
    print(&rows(all), arguments.json)
}

impl Setup {
    /// Jobs, or for ingest events, per second.
    fn turn(self, arguments: &ProcessArguments) -> anyhow::Result<f64> {
        match self {
            Self::Ingest => receive(arguments),
            Self::Graphile => work_with_graphile(arguments, 1),
            Self::GraphileTwo => work_with_graphile(arguments, 2),
            Self::Sqlite | Self::Postgres | Self::Jetstream => self.work(arguments),
        }
    }

    /// The same while events come in; only for those that can receive.
    fn live_turn(self, arguments: &ProcessArguments) -> anyhow::Result<Option<f64>> {
        match self {
            Self::Ingest | Self::Graphile | Self::GraphileTwo => Ok(None),
            Self::Sqlite | Self::Postgres | Self::Jetstream => self.receive_and_work(arguments).map(Some),
        }
    }

    fn work(self, arguments: &ProcessArguments) -> anyhow::Result<f64> {
        let events = self.events(arguments)?;
        let place = Place::new(self)?;
        let (receiver, worker) = if self == Self::Jetstream { ("receive", "work") } else { ("serve", "serve") };
        let server = place.gateway.start(receiver, &[("HOOKFAST_HANDLERS__BENCH__PAUSED", "true")])?;
        send_all(server.address, &events)?;
        server.shut_down()?;

        let mut database = Database::open(&place.gateway.store_url, Jobs::Ours)?;
        let _worker = place.gateway.start(worker, &[])?;
        let end = database.wait_for_the_last(events.len())?;
        Ok(per_second(events.len(), database.first_start()?, end))
    }

    fn receive_and_work(self, arguments: &ProcessArguments) -> anyhow::Result<f64> {
        let events = self.events(arguments)?;
        let place = Place::new(self)?;
        let server = place.gateway.start("serve", &[])?;
        let start = OffsetDateTime::now_utc();
        send_all(server.address, &events)?;
        let end = Database::open(&place.gateway.store_url, Jobs::Ours)?.wait_for_the_last(events.len())?;
        Ok(per_second(events.len(), start, end))
    }

    /// Signed only now, because signatures age. SQLite has fewer, or its turn would take longer than all others.
    fn events(self, arguments: &ProcessArguments) -> anyhow::Result<Arc<Requests>> {
        let count = if self == Self::Sqlite { arguments.jobs.div_ceil(4) } else { arguments.jobs };
        Ok(Arc::new(Requests::sign(count, 0, arguments.body_bytes, Ids::Stripe)?))
    }
}

/// A gateway with its own database, and its own queue if it has one.
struct Place {
    gateway: Gateway,
    _queue: Option<PrivateNats>,
}

impl Place {
    fn new(setup: Setup) -> anyhow::Result<Self> {
        let queue = (setup == Setup::Jetstream).then(|| PrivateNats::start(NatsVersion::Current));
        let store_url = (setup != Setup::Sqlite).then(fresh_database);
        let more = queue.as_ref().map_or(String::new(), |queue| format!("[queue]\nurl = \"{}\"", queue.url()));
        // Nobody's answer may be late, because every event counts.
        let sections = Sections { ingest: "answer_deadline = \"60s\"", store: "", more: &more };
        let gateway = Gateway::new("hookfast-bench-gateway", store_url, &sections)?;
        Ok(Self { gateway, _queue: queue })
    }
}

fn send_all(address: std::net::SocketAddr, events: &Arc<Requests>) -> anyhow::Result<()> {
    const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(3600);
    load::run(address, events, CONNECTIONS, AS_LONG_AS_IT_TAKES, false)?;
    Ok(())
}

/// Receiving as `bench ingest` measures it, with a job for each event.
fn receive(arguments: &ProcessArguments) -> anyhow::Result<f64> {
    let server = ingest::gateway(Some(fresh_database()), "", "")?;
    let mut events_per_second = 0.0;
    for (round, time) in [Duration::from_secs(1), RECEIVING].into_iter().enumerate() {
        let count = REQUESTS_PER_SECOND * usize::try_from(time.as_secs())?;
        let events = Arc::new(Requests::sign(count, round, arguments.body_bytes, Ids::Stripe)?);
        let seen = load::run(server.address, &events, CONNECTIONS, time, false)?;
        events_per_second = seen.latencies.len() as f64 / seen.elapsed.as_secs_f64();
    }
    Ok(events_per_second)
}

fn work_with_graphile(arguments: &ProcessArguments, processes: usize) -> anyhow::Result<f64> {
    let (url, events) = (fresh_database(), Setup::Graphile.events(arguments)?);
    graphile::add(&url, &events)?;
    let mut database = Database::open(&url, Jobs::Graphile)?;
    let workers = Workers::start(&url, processes)?;
    let end = database.wait_for_the_last(events.len())?;
    Ok(per_second(events.len(), workers.first_start()?, end))
}

fn per_second(jobs: usize, start: OffsetDateTime, end: OffsetDateTime) -> f64 {
    jobs as f64 / (end - start).as_seconds_f64()
}

/// The medians of the turns.
fn rows(all: Vec<Reached>) -> Vec<Row> {
    let all: Vec<_> = all.into_iter().map(|one| (one.setup, one.name, median(one.turns), one.live)).collect();
    let best_of = |wanted: &[Setup]| {
        let of_wanted = all.iter().filter(|(setup, ..)| wanted.contains(setup)).map(|(_, _, reached, _)| *reached);
        of_wanted.max_by(f64::total_cmp)
    };
    let graphile = best_of(&[Setup::Graphile, Setup::GraphileTwo]);
    let ingest = best_of(&[Setup::Ingest]);
    let row = |(_, setup, jobs_per_second, live): &(Setup, &'static str, f64, Vec<f64>)| Row {
        setup,
        jobs_per_second: *jobs_per_second,
        ratio_to_graphile: graphile.map(|graphile| jobs_per_second / graphile),
        ratio_to_ingest: ingest.map(|ingest| jobs_per_second / ingest),
        live_jobs_per_second: (!live.is_empty()).then(|| median(live.clone())),
    };
    all.iter().map(row).collect()
}

fn print(rows: &[Row], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    println!("{:32}  {:>8}  {:>11}  {:>9}  {:>11}", "set-up", "jobs/s", "of graphile", "of ingest", "live jobs/s");
    let number = |value: Option<f64>, digits| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    for row in rows {
        let Row { setup, jobs_per_second, ratio_to_graphile, ratio_to_ingest, live_jobs_per_second } = row;
        let (of_graphile, of_ingest) = (number(*ratio_to_graphile, 2), number(*ratio_to_ingest, 2));
        let live = number(*live_jobs_per_second, 0);
        println!("{setup:32}  {jobs_per_second:>8.0}  {of_graphile:>11}  {of_ingest:>9}  {live:>11}");
    }
    Ok(())
}
