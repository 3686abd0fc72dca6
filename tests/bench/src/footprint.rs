//! What it costs to have a gateway: memory, time to start, disk.

use std::time::Duration;

use serde::Serialize;

use crate::database::Database;
use crate::load;
use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::{Gateway, HOOKFAST, Store, built_with_us};
use crate::statistics::median;
use crate::table::{Table, fine, whole};

/// How many connections a full load has.
const CONNECTIONS: usize = 1000;

/// How often it is started.
const STARTS: usize = 5;

/// When a process that has started is idle.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Footprint {
    pub(crate) rows: Vec<Row>,
    pub(crate) binary_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) store: Store,
    pub(crate) idle_mb: f64,
    pub(crate) full_load_mb: f64,
    pub(crate) ready_ms: f64,
    /// With the body of `--body-bytes`, its dedupe key and one job.
    pub(crate) bytes_per_event: f64,
    pub(crate) refused: usize,
}

impl Part for Footprint {
    const HEADING: &'static str = "Memory, start and disk";
    const METHOD: &'static str = "\
Memory is what is resident of the gateway's process, without the database server's: two seconds after the start, and the most
it ever was during a closed loop over 1,000 connections. Ready is from starting the process until it says so, with an empty database that
it sets up first; the median of five. An event takes its share of the database after that load, with headers, dedupe key, one job and
all indexes; Postgres is not vacuumed, and logs of what was written do not count.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let rows = Store::ALL.into_iter().map(|store| on(store, options)).collect::<anyhow::Result<_>>()?;
        Ok(Self { rows, binary_bytes: std::fs::metadata(built_with_us(HOOKFAST)?)?.len() })
    }

    fn tables(&self) -> Vec<Table> {
        let heads = ["store", "idle MB", "full load MB", "ready ms", "bytes per event", "answered 503"];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            table.row([
                row.store.name().into(),
                fine(row.idle_mb),
                fine(row.full_load_mb),
                whole(row.ready_ms),
                whole(row.bytes_per_event),
                whole(row.refused as f64),
            ]);
        }
        let mut program = Table::new(&["program", "MB"]);
        program.row(["hookfast, as it is built for release".into(), fine(self.binary_bytes as f64 / 1e6)]);
        vec![table, program]
    }
}

impl Footprint {
    pub(crate) fn of(&self, store: Store) -> Option<&Row> {
        self.rows.iter().find(|row| row.store == store)
    }
}

fn on(store: Store, options: &Options) -> anyhow::Result<Row> {
    eprintln!("footprint: {}", store.name());
    let ready_ms = ready_ms(store)?;
    let gateway = Gateway::that_receives(store, "", "")?;
    let server = gateway.start("serve", &[])?;
    std::thread::sleep(IDLE_AFTER);
    let idle_mb = server.resident_mb()?;
    let mut database = Database::open(&gateway.store_url)?;
    let size_before = database.size_bytes()?;
    let requests = Requests::for_seconds(options.seconds, options.body_bytes, options.ids)?;
    let time = Duration::from_secs(options.seconds);
    let seen = load::closed(server.address, &requests, CONNECTIONS, time, false)?;
    let full_load_mb = server.most_resident_mb()?;
    server.shut_down()?;
    let grown = database.size_bytes()?.saturating_sub(size_before);
    let bytes_per_event = grown as f64 / database.events()?.max(1) as f64;
    Ok(Row { store, idle_mb, full_load_mb, ready_ms, bytes_per_event, refused: seen.refused })
}

fn ready_ms(store: Store) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let server = Gateway::that_receives(store, "", "")?.start("serve", &[])?;
        times.push(server.ready_after.as_secs_f64() * 1000.0);
    }
    Ok(median(&times))
}
