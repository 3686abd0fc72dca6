//! Receiving: how much, and how soon it is answered.

use std::sync::Arc;

use serde::Serialize;

use crate::disk::median_fsync_ms;
use crate::load;
use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::Store;
use crate::statistics::{Percentiles, median};
use crate::table::{Table, fine, whole};
use crate::turns::{Round, Subject, Turns, WARM_UP_SECONDS};

/// The shares of its capacity at which a gateway's latency is looked at. The target is about the first.
pub(crate) const SHARES: [f64; 2] = [0.5, 0.9];

/// What was found out about receiving.
#[derive(Debug, Serialize)]
pub(crate) struct Ingest {
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) median_fsync_ms: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Throughput {
    pub(crate) setup: &'static str,
    pub(crate) store: Option<Store>,
    pub(crate) per_second: f64,
    pub(crate) ratio_to_floor: f64,
    pub(crate) latency: Percentiles,
    pub(crate) cpu_us: f64,
    pub(crate) refused: usize,
}

/// At a fixed rate.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) store: Store,
    pub(crate) share_of_capacity: f64,
    pub(crate) per_second: f64,
    pub(crate) gateway: Percentiles,
    pub(crate) floor: Percentiles,
    pub(crate) refused: usize,
}

struct Setup {
    name: &'static str,
    /// The usual gateway on this store.
    store: Option<Store>,
    turns: Turns,
}

impl Part for Ingest {
    const HEADING: &'static str = "Receiving";
    const METHOD: &'static str = "\
Stripe events, signed beforehand, each with a job for a handler that is paused; sent over loopback from the same machine.
The floor is a server on the same HTTP stack that reads the body and does nothing with it. Throughput is a closed loop: each
connection sends the next request when it has the answer; the median of the rounds, in which the set-ups take turns, each turn with
an empty database and after a second for warming up. \"One insert each\" is a gateway that commits every event by itself. CPU is the gateway's own, without the database server's.

Latency is an open loop: requests are due at a fixed rate, and the time counts from when a request was due, so that whoever
waits behind a stall is counted. Requests are released every 0.1 ms, which is part of all latencies. Percentiles are over all
rounds. Beside each stands the floor at the same rate. A request that was answered 503 has no latency and is counted apart.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut setups = setups(options)?;
        for round in 1..=options.rounds {
            let sent = Round::sign(options, options.body_bytes)?;
            for setup in &mut setups {
                eprintln!("ingest, round {round} of {}: {}", options.rounds, setup.name);
                setup.turns.take(&sent)?;
            }
        }
        let floor = setups[0].turns.per_second();
        let throughput = setups.iter().map(|setup| setup.throughput(floor)).collect::<anyhow::Result<_>>()?;
        let (latency, median_fsync_ms) = latencies(options, &setups)?;
        Ok(Self { throughput, latency, median_fsync_ms })
    }

    fn tables(&self) -> Vec<Table> {
        let mut disk = Table::new(&["disk", "median fsync ms"]);
        disk.row(["where the databases are, between the rounds of latency".into(), fine(self.median_fsync_ms)]);
        vec![throughput_table(&self.throughput), latency_table(&self.latency), disk]
    }
}

impl Ingest {
    /// The usual gateway on this store.
    pub(crate) fn of(&self, store: Store) -> Option<&Throughput> {
        self.throughput.iter().find(|row| row.store == Some(store))
    }

    pub(crate) fn at_half(&self, store: Store) -> Option<&Latency> {
        self.latency.iter().find(|row| row.store == store && row.share_of_capacity == SHARES[0])
    }
}

fn setups(options: &Options) -> anyhow::Result<Vec<Setup>> {
    let mut setups = vec![Setup { name: "floor", store: None, turns: Turns::of(Subject::Floor) }];
    let mut add = |name, store, subject| setups.push(Setup { name, store, turns: Turns::of(subject) });
    if options.wants("sqlite") {
        add("SQLite", Some(Store::Sqlite), Subject::on(Store::Sqlite));
    }
    if options.wants("postgres") {
        add("Postgres", Some(Store::Postgres), Subject::on(Store::Postgres));
    }
    if options.wants("postgres-one-insert") {
        // As many connections as a usual pool has, so that Postgres can group commits by itself.
        let (ingest, store_lines) = ("batch_events = 1\nanswer_deadline = \"5s\"", "parallel_batches = 16");
        add("Postgres, one insert each", None, Subject::Anew { store: Store::Postgres, ingest, store_lines });
    }
    anyhow::ensure!(setups.len() > 1, "there is no such set-up; there is: sqlite, postgres, postgres-one-insert");
    Ok(setups)
}

impl Setup {
    fn throughput(&self, floor: f64) -> anyhow::Result<Throughput> {
        let per_second = self.turns.per_second();
        Ok(Throughput {
            setup: self.name,
            store: self.store,
            per_second,
            ratio_to_floor: per_second / floor,
            latency: percentiles(self.turns.percentiles())?,
            cpu_us: self.turns.cpu_us(),
            refused: self.turns.refused(),
        })
    }
}

/// At each share of each store's capacity, and the disk's median fsync between them, while nothing else is going on.
fn latencies(options: &Options, setups: &[Setup]) -> anyhow::Result<(Vec<Latency>, f64)> {
    let (mut found, mut fsyncs) = (Vec::new(), Vec::new());
    for (setup, store) in setups.iter().filter_map(|setup| Some((setup, setup.store?))) {
        for share in SHARES {
            let per_second = share * setup.turns.per_second();
            let (mut gateway, mut floor) = (AtRate::default(), AtRate::default());
            for round in 1..=options.rounds {
                eprintln!("latency, round {round} of {}: {} at {share} of its capacity", options.rounds, setup.name);
                fsyncs.push(median_fsync_ms()?);
                gateway.take(&setup.turns.subject, options, per_second)?;
                floor.take(&Subject::Floor, options, per_second)?;
            }
            found.push(Latency {
                store,
                share_of_capacity: share,
                per_second,
                gateway: percentiles(Percentiles::of(gateway.latencies))?,
                floor: percentiles(Percentiles::of(floor.latencies))?,
                refused: gateway.refused,
            });
        }
    }
    Ok((found, if fsyncs.is_empty() { median_fsync_ms()? } else { median(&fsyncs) }))
}

/// What was seen at a fixed rate, over all rounds.
#[derive(Default)]
struct AtRate {
    latencies: Vec<u32>,
    refused: usize,
}

impl AtRate {
    fn take(&mut self, subject: &Subject, options: &Options, per_second: f64) -> anyhow::Result<()> {
        let started = subject.start()?;
        let address = started.server.address;
        let send = |seconds: u64| {
            let count = (per_second * seconds as f64) as usize;
            let requests: Arc<_> = Requests::sign(count.max(1), options.body_bytes, options.ids)?;
            load::open(address, &requests, options.connections, per_second)
        };
        send(WARM_UP_SECONDS)?;
        let seen = send(options.seconds)?;
        self.latencies.extend(seen.latencies);
        self.refused += seen.refused;
        started.stop()
    }
}

fn percentiles(found: Option<Percentiles>) -> anyhow::Result<Percentiles> {
    found.ok_or_else(|| anyhow::anyhow!("no request was answered 200"))
}

fn throughput_table(rows: &[Throughput]) -> Table {
    let heads = ["set-up", "requests/s", "of floor", "p50 ms", "p99 ms", "CPU us/request", "answered 503"];
    let mut table = Table::new(&heads);
    for row in rows {
        table.row([
            row.setup.into(),
            whole(row.per_second),
            fine(row.ratio_to_floor),
            fine(row.latency.p50_ms),
            fine(row.latency.p99_ms),
            whole(row.cpu_us),
            whole(row.refused as f64),
        ]);
    }
    table
}

fn latency_table(rows: &[Latency]) -> Table {
    let heads =
        ["store", "of capacity", "requests/s", "p50 ms", "p99 ms", "p99.9 ms", "floor's p99 ms", "answered 503"];
    let mut table = Table::new(&heads);
    for row in rows {
        table.row([
            row.store.name().into(),
            fine(row.share_of_capacity),
            whole(row.per_second),
            fine(row.gateway.p50_ms),
            fine(row.gateway.p99_ms),
            fine(row.gateway.p999_ms),
            fine(row.floor.p99_ms),
            whole(row.refused as f64),
        ]);
    }
    table
}
