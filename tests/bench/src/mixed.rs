//! Receiving and working at the same time, at a fixed rate.

use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;

use crate::database::Database;
use crate::load;
use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::statistics::Percentiles;
use crate::table::{Table, fine, or_dash, whole};
use crate::turns::WARM_UP_SECONDS;
use crate::workplace::{Kind, Workplace};

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Mixed {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) setup: Kind,
    pub(crate) load: Load,
    /// Events that were sent in a second.
    pub(crate) sent_per_second: f64,
    pub(crate) answer: Option<Percentiles>,
    /// Jobs that were finished in a second while events came in.
    pub(crate) handled_per_second: f64,
    /// From receiving to the end of the job, of the jobs that were finished while events came in.
    pub(crate) lag: Option<Percentiles>,
    pub(crate) waiting_at_the_end: u64,
}

/// How many events come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    HalfOfReceiving,
    HalfOfWorking,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::HalfOfReceiving => "half of what it can receive",
            Self::HalfOfWorking => "half of what it handled then",
        }
    }
}

impl Part for Mixed {
    const HEADING: &'static str = "Receiving and working at once";
    const METHOD: &'static str = "\
One process, `serve`, receives in an open loop and works at the same time; the job is the one of the section above. First at half of what
it can receive while nobody works, which is more than it can handle, so that jobs queue up; then at half of what it handled per
second in that time. Handled are the jobs that were finished while events came in, and the lag is from receiving an event to
the end of its job, of those jobs.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for setup in Kind::ALL {
            eprintln!("mixed: {}, what it can receive", setup.name());
            let capacity = capacity(setup, options)?;
            let first = at_rate(setup, Load::HalfOfReceiving, capacity / 2.0, options)?;
            anyhow::ensure!(first.handled_per_second > 0.0, "{}: nothing was handled", setup.name());
            let second = at_rate(setup, Load::HalfOfWorking, first.handled_per_second / 2.0, options)?;
            rows.extend([first, second]);
        }
        Ok(Self { rows })
    }

    fn tables(&self) -> Vec<Table> {
        let heads = [
            "set-up",
            "load",
            "events/s",
            "answer p99 ms",
            "handled/s",
            "lag p50 ms",
            "lag p99 ms",
            "waiting at the end",
        ];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            table.row([
                row.setup.name().into(),
                row.load.name().into(),
                whole(row.sent_per_second),
                or_dash(row.answer.map(|answer| answer.p99_ms), fine),
                whole(row.handled_per_second),
                or_dash(row.lag.map(|lag| lag.p50_ms), fine),
                or_dash(row.lag.map(|lag| lag.p99_ms), fine),
                whole(row.waiting_at_the_end as f64),
            ]);
        }
        vec![table]
    }
}

/// What this process can receive while its handler is paused.
fn capacity(setup: Kind, options: &Options) -> anyhow::Result<f64> {
    let Workplace { gateway, .. } = &Workplace::new(setup)?;
    let server = gateway.start("serve", &[("HOOKFAST_HANDLERS__BENCH__PAUSED", "true")])?;
    let mut reached = 0.0;
    for seconds in [WARM_UP_SECONDS, options.seconds] {
        let requests = Requests::for_seconds(seconds, options.body_bytes, options.ids)?;
        let time = Duration::from_secs(seconds);
        reached = load::closed(server.address, &requests, options.connections, time, false)?.per_second();
    }
    Ok(reached)
}

fn at_rate(setup: Kind, load: Load, per_second: f64, options: &Options) -> anyhow::Result<Row> {
    eprintln!("mixed: {}, {}", setup.name(), load.name());
    // Twice as long, because a queue needs some time to show itself.
    let seconds = 2 * options.seconds;
    let count = (per_second * seconds as f64) as usize;
    let requests = Requests::sign(count.max(1), options.body_bytes, options.ids)?;
    let Workplace { gateway, .. } = &Workplace::new(setup)?;
    let server = gateway.start("serve", &[])?;
    let seen = load::open(server.address, &requests, options.connections, per_second)?;
    let end = OffsetDateTime::now_utc();
    let mut database = Database::open(&gateway.store_url)?;
    let lags = database.lags(end)?;
    drop(server);
    Ok(Row {
        setup,
        load,
        sent_per_second: requests.len() as f64 / seen.elapsed.as_secs_f64(),
        handled_per_second: lags.len() as f64 / seen.elapsed.as_secs_f64(),
        waiting_at_the_end: database.events()?.saturating_sub(lags.len() as u64),
        answer: Percentiles::of(seen.latencies),
        lag: Percentiles::of(lags),
    })
}
