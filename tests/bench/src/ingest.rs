//! Receiving: the floor, SQLite, Postgres, and Postgres without group commit, in turns.

use std::sync::Arc;
use std::time::Duration;

use hookfast_harness::{fresh_database, warm_up_shared_server};
use serde::Serialize;

use crate::IngestArguments;
use crate::load;
use crate::requests::Requests;
use crate::server::{Gateway, Sections, Server};

/// More than any set-up can take in one turn.
pub(crate) const REQUESTS_PER_SECOND: usize = 60_000;

struct Setup {
    name: &'static str,
    server: Server,
    turns: Vec<f64>,
    latencies: Vec<u32>,
    cpu_time: Duration,
}

#[derive(Serialize)]
struct Row {
    setup: &'static str,
    rps: f64,
    ratio_to_floor: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// What the server itself used, without the database server's share.
    cpu_us: f64,
}

pub(crate) fn run(arguments: &IngestArguments) -> anyhow::Result<()> {
    let mut setups = setups(arguments)?;
    let time = Duration::from_secs(arguments.seconds);
    // The first round is for warming up: caches, connections, the first pages of the files.
    for round in 0..=arguments.rounds {
        let (time, count) = if round == 0 {
            (Duration::from_secs(1), REQUESTS_PER_SECOND)
        } else {
            (time, REQUESTS_PER_SECOND * usize::try_from(arguments.seconds)?)
        };
        let requests = Arc::new(Requests::sign(count, round, arguments.body_bytes, arguments.ids)?);
        for setup in &mut setups {
            eprintln!("round {round} of {}: {}", arguments.rounds, setup.name);
            let cpu_before = setup.server.cpu_time()?;
            let seen = load::run(setup.server.address, &requests, arguments.connections, time, setup.name == "floor")?;
            if round > 0 {
                setup.turns.push(seen.latencies.len() as f64 / seen.elapsed.as_secs_f64());
                setup.latencies.extend(seen.latencies);
                setup.cpu_time += setup.server.cpu_time()? - cpu_before;
            }
        }
    }
    print(&rows(setups), arguments.json)
}

fn setups(arguments: &IngestArguments) -> anyhow::Result<Vec<Setup>> {
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| only == name);
    let mut setups = Vec::new();
    let mut add = |name, server: Server| {
        setups.push(Setup { name, server, turns: vec![], latencies: vec![], cpu_time: Duration::ZERO });
    };
    add("floor", Server::floor()?);
    if wanted("postgres") || wanted("postgres-one-insert") {
        eprintln!("warming up the Postgres server");
        warm_up_shared_server();
    }
    if wanted("sqlite") {
        add("sqlite", gateway(None, "", "")?);
    }
    if wanted("postgres") {
        add("postgres", gateway(Some(fresh_database()), "", "")?);
    }
    if wanted("postgres-one-insert") {
        // As many connections as a usual pool has, so that Postgres can group commits by itself.
        let (ingest, store) = ("batch_events = 1\nanswer_deadline = \"5s\"", "parallel_batches = 16");
        add("postgres-one-insert", gateway(Some(fresh_database()), ingest, store)?);
    }
    Ok(setups)
}

/// A gateway that only receives: it records a job for each event, and nobody works.
pub(crate) fn gateway(store_url: Option<String>, ingest: &str, store: &str) -> anyhow::Result<Server> {
    let more = "[handlers.bench]\nrun = \"log\"\npaused = true";
    Gateway::new("hookfast", store_url, &Sections { ingest, store, more })?.start("serve", &[])
}

/// The median of the turns, and percentiles over all requests of all turns.
fn rows(setups: Vec<Setup>) -> Vec<Row> {
    let mut floor = None;
    let row = |mut setup: Setup| {
        setup.latencies.sort_unstable();
        let rps = median(setup.turns);
        let floor = *floor.get_or_insert(rps);
        let percentile = |share: f64| {
            let place = (setup.latencies.len() as f64 * share) as usize;
            setup.latencies.get(place).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
        };
        let cpu_us = setup.cpu_time.as_secs_f64() * 1e6 / setup.latencies.len().max(1) as f64;
        let (p50_ms, p99_ms) = (percentile(0.5), percentile(0.99));
        Row { setup: setup.name, rps, ratio_to_floor: rps / floor, p50_ms, p99_ms, cpu_us }
    };
    setups.into_iter().map(row).collect()
}

/// Nothing for no turns.
pub(crate) fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}

fn print(rows: &[Row], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        for row in rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    println!(
        "{:32}  {:>10}  {:>8}  {:>8}  {:>8}  {:>10}",
        "set-up", "requests/s", "of floor", "p50 ms", "p99 ms", "CPU us/req"
    );
    for Row { setup, rps, ratio_to_floor, p50_ms, p99_ms, cpu_us } in rows {
        println!("{setup:32}  {rps:>10.0}  {ratio_to_floor:>8.2}  {p50_ms:>8.2}  {p99_ms:>8.2}  {cpu_us:>10.1}");
    }
    Ok(())
}
