//! One innocent handler at a steady rate, alone and beside another handler in each kind of trouble.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hookfast_harness::{NatsVersion, PrivateNats};
use serde::Serialize;
use time::OffsetDateTime;

use crate::database::Database;
use crate::fill::{Copies, Fate};
use crate::load;
use crate::options::Options;
use crate::report::Part;
use crate::requests::{Ids, Requests};
use crate::server::{Gateway, Sections, Server, Store, WITH_HANDLER};
use crate::statistics::{Percentiles, median, micros};
use crate::table::{Table, fine, or_dash, whole};
use crate::turns::WARM_UP_SECONDS;
use crate::workplace::{Kind, send_all};

/// The two ends of what there is.
pub(crate) const SETUPS: [Kind; 2] = [Kind::Sqlite, Kind::Jetstream];

/// Events of the innocent handler in a second: far less than it could do.
const PER_SECOND: f64 = 100.0;

/// How long it is waited for the last of them. What is not done by then counts as if it took this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The room of each handler in the queue where a backlog is to be larger, and that backlog.
const ROOM: (&str, &str) = ("HOOKFAST_QUEUE__CAPACITY", "1000");
const BEYOND_ROOM: u64 = 5000;

/// How long it is measured at most how many events are received.
const RECEIVING_SECONDS: u64 = 3;

const WAITING: u64 = 1_000_000;
const DEAD_LETTERS: u64 = 100_000;
const LARGE_BODIES: u64 = 200;

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Neighbours {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) setup: Kind,
    pub(crate) trouble: Trouble,
    /// From receiving to the end of the job, of the innocent handler.
    pub(crate) lag: Percentiles,
    pub(crate) lag_ratio: Option<f64>,
    /// Events that were received in a second in a closed loop.
    pub(crate) received_per_second: f64,
    /// Compared with a gateway without the trouble, just afterwards: in between, the machine changes by more than 5 %.
    pub(crate) receiving_ratio: Option<f64>,
    /// Events of the innocent handler that were not done in time.
    pub(crate) not_done: usize,
}

/// What the other handler suffers from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trouble {
    None,
    Paused,
    Slow,
    Poisoned,
    LargeBodies,
    ReceivingLargeBodies,
    Suspects,
    Waiting,
    DeadLetters,
    Removed,
}

impl Trouble {
    /// Alone at both ends, so that the yardstick is not a moment's luck.
    const ROUND: [Self; 11] = [
        Self::None,
        Self::Paused,
        Self::Slow,
        Self::Poisoned,
        Self::LargeBodies,
        Self::ReceivingLargeBodies,
        Self::Suspects,
        Self::DeadLetters,
        Self::Removed,
        Self::Waiting,
        Self::None,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "alone",
            Self::Paused => "paused, with a backlog beyond its room in the queue",
            Self::Slow => "slow, with a backlog beyond its room in the queue",
            Self::Poisoned => "statements that take too long; on SQLite panics",
            Self::LargeBodies => "works off bodies of 9.5 MB",
            Self::ReceivingLargeBodies => "gets bodies of 9.5 MB",
            Self::Suspects => "jobs that are dead if they crash once more",
            Self::Waiting => "a million jobs that wait",
            Self::DeadLetters => "100,000 dead letters of the key it keeps in order",
            Self::Removed => "removed, with a backlog",
        }
    }

    /// Lines of `[handlers.trouble]`.
    fn settings(self) -> &'static str {
        match self {
            Self::DeadLetters => "ordering = \"per_event_type\"",
            Self::Poisoned => "retry = [\"1s\", \"1s\"]",
            _ => "",
        }
    }

    /// What its events say.
    fn act(self, setup: Kind) -> &'static str {
        match self {
            Self::Slow | Self::LargeBodies | Self::Waiting | Self::Removed => r#"{"sleep_ms":1000}"#,
            Self::Suspects => r#"{"sleep_ms":3500}"#,
            Self::Poisoned if setup == Kind::Sqlite => r#"{"panic":true}"#,
            Self::Poisoned => r#"{"statement_ms":6000}"#,
            Self::None | Self::Paused | Self::ReceivingLargeBodies | Self::DeadLetters => "{}",
        }
    }

    /// How many copies of its first event there are, and what became of their jobs.
    fn backlog(self, options: &Options) -> Option<(u64, Fate)> {
        match self {
            Self::Paused | Self::Slow | Self::Removed => Some((BEYOND_ROOM, Fate::Waiting)),
            Self::Waiting => Some((WAITING.min(options.stored), Fate::Waiting)),
            Self::DeadLetters => Some((DEAD_LETTERS.min(options.stored), Fate::Dead)),
            Self::LargeBodies => Some((LARGE_BODIES, Fate::Waiting)),
            Self::Suspects => Some((15, Fate::Waiting)),
            Self::None | Self::Poisoned | Self::ReceivingLargeBodies => None,
        }
    }

    /// Events that come for it in a second while the innocent handler is measured.
    fn traffic(self) -> Option<f64> {
        match self {
            Self::Paused | Self::Slow | Self::DeadLetters => Some(20.0),
            Self::Poisoned | Self::ReceivingLargeBodies => Some(2.0),
            Self::None | Self::LargeBodies | Self::Suspects | Self::Waiting | Self::Removed => None,
        }
    }

    /// The size of its events' bodies, or as small as they can be.
    fn body_bytes(self) -> usize {
        if matches!(self, Self::LargeBodies | Self::ReceivingLargeBodies) { 9_500_000 } else { 0 }
    }

    /// The gateway's environment while it is measured.
    fn variables(self) -> Vec<(&'static str, &'static str)> {
        const THERE: (&str, &str) = ("BENCH_TROUBLE", "1");
        match self {
            Self::None => vec![],
            Self::Removed => vec![ROOM],
            Self::Paused => vec![THERE, ROOM, PAUSED],
            Self::Slow => vec![THERE, ROOM],
            // Its panics are what is wanted.
            Self::Poisoned => vec![THERE, ("RUST_BACKTRACE", "0")],
            _ => vec![THERE],
        }
    }
}

const PAUSED: (&str, &str) = ("HOOKFAST_HANDLERS__TROUBLE__PAUSED", "true");

impl Part for Neighbours {
    const HEADING: &'static str = "Beside a handler in trouble";
    const METHOD: &'static str = "\
One process, `serve`, with its default settings, and two handlers. The innocent one gets 100 events a second in an open loop; its job is
the one of the section about working. The lag is from receiving an event to the end of its job. The other handler is in the trouble
that the row names: backlogs and dead letters were written by SQL, and where its own events matter they come at the same time (2 or 20 a
second). \"Beyond its room\" is a backlog of 5,000 with a `capacity` of 1,000. Then events of the innocent handler come in a closed loop,
to see how many are received in a second, and again by a gateway alone just afterwards. Alone is measured twice in each round. All
numbers are medians of the rounds. What was not done 20 s after the last event counts as a lag of 20 s.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for setup in SETUPS.into_iter().filter(|setup| options.wants(&setup.name().to_lowercase())) {
            let mut found = Vec::new();
            for round in 1..=options.rounds {
                let is_wanted = |trouble: &Trouble| *trouble == Trouble::None || options.wants_trouble(trouble.name());
                for trouble in Trouble::ROUND.into_iter().filter(is_wanted) {
                    eprintln!("neighbours: {}, round {round}, {}", setup.name(), trouble.name());
                    found.push(beside(setup, trouble, options)?);
                }
            }
            rows.extend(compared(&found));
        }
        Ok(Self { rows })
    }

    fn tables(&self) -> Vec<Table> {
        let heads = [
            "set-up",
            "the other handler",
            "lag p50 ms",
            "lag p99 ms",
            "p99 of alone",
            "not done",
            "requests/s",
            "of alone",
        ];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            table.row([
                row.setup.name().into(),
                row.trouble.name().into(),
                fine(row.lag.p50_ms),
                fine(row.lag.p99_ms),
                or_dash(row.lag_ratio, fine),
                whole(row.not_done as f64),
                whole(row.received_per_second),
                or_dash(row.receiving_ratio, fine),
            ]);
        }
        vec![table]
    }
}

impl Neighbours {
    /// How much later than alone the innocent handler is beside the worst trouble.
    pub(crate) fn worst_lag(&self, setup: Kind) -> Option<f64> {
        self.of(setup).filter_map(|row| row.lag_ratio).max_by(f64::total_cmp)
    }

    /// How much less than alone is received beside the worst trouble.
    pub(crate) fn worst_ingest(&self, setup: Kind) -> Option<f64> {
        self.of(setup).filter_map(|row| row.receiving_ratio).min_by(f64::total_cmp)
    }

    fn of(&self, setup: Kind) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.setup == setup)
    }
}

/// One row for alone, and one for each trouble compared with it.
fn compared(found: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for Row { trouble, .. } in found {
        if rows.iter().all(|row| row.trouble != *trouble) {
            rows.push(median_of(&found.iter().filter(|row| row.trouble == *trouble).collect::<Vec<_>>()));
        }
    }
    if let Some((alone, others)) = rows.split_first_mut() {
        for row in others {
            row.lag_ratio = Some(row.lag.p99_ms / alone.lag.p99_ms);
        }
    }
    rows
}

fn median_of(rounds: &[&Row]) -> Row {
    let of = |value: fn(&Row) -> f64| median(&rounds.iter().map(|row| value(row)).collect::<Vec<_>>());
    Row {
        setup: rounds[0].setup,
        trouble: rounds[0].trouble,
        lag: Percentiles {
            p50_ms: of(|row| row.lag.p50_ms),
            p99_ms: of(|row| row.lag.p99_ms),
            p999_ms: of(|row| row.lag.p999_ms),
        },
        lag_ratio: None,
        received_per_second: of(|row| row.received_per_second),
        receiving_ratio: rounds[0].receiving_ratio.map(|_| of(|row| row.receiving_ratio.unwrap_or_default())),
        not_done: rounds.iter().map(|row| row.not_done).sum(),
    }
}

/// A gateway with the trouble, and the server that its queue may need.
struct Place {
    gateway: Gateway,
    _queue: Option<PrivateNats>,
}

impl Place {
    fn new(setup: Kind, trouble: Trouble) -> anyhow::Result<Self> {
        let queue = (setup == Kind::Jetstream).then(|| PrivateNats::start(NatsVersion::Current));
        let queue_section =
            queue.as_ref().map_or(String::new(), |queue| format!("[queue]\nurl = \"{}\"\n", queue.url()));
        let section = match trouble {
            Trouble::None | Trouble::Removed => String::new(),
            _ => format!("[handlers.trouble]\n{}\n", trouble.settings()),
        };
        let store = if setup == Kind::Sqlite { Store::Sqlite } else { Store::Postgres };
        let more = format!("{queue_section}{section}");
        let sections = Sections { ingest: "answer_deadline = \"60s\"", store: "", more: &more };
        Ok(Self { gateway: Gateway::new(WITH_HANDLER, store, &sections)?, _queue: queue })
    }

    /// Writes the backlog, and starts the gateway.
    fn start(&self, setup: Kind, trouble: Trouble, options: &Options) -> anyhow::Result<Server> {
        if let Some((count, jobs)) = trouble.backlog(options) {
            self.write_backlog(setup, trouble, count, jobs)?;
        }
        self.gateway.start("serve", &trouble.variables())
    }

    /// The first event is received while its handler is paused, or works where its hints shall be in the queue.
    fn write_backlog(&self, setup: Kind, trouble: Trouble, count: u64, jobs: Fate) -> anyhow::Result<()> {
        let there = [("BENCH_TROUBLE", "1")];
        let server = self.gateway.start("serve", &[there.as_slice(), &paused(trouble)].concat())?;
        send_all(server.address, &Requests::of_trouble(1, trouble.act(setup), trouble.body_bytes())?, 1)?;
        server.shut_down()?;
        let mut database = Database::open(&self.gateway.store_url)?;
        let ordering_key = database.ordering_key()?;
        let copies = Copies { handler: "trouble", jobs, ordering_key: ordering_key.as_deref(), ids: Ids::Stripe };
        database.fill(count, copies)?;
        if trouble == Trouble::Suspects {
            database.execute("UPDATE jobs SET crashes = 2 WHERE handler = 'trouble'")?;
        }
        if trouble == Trouble::Removed {
            // Until its hints fill its room.
            let server = self.gateway.start("serve", &[there.as_slice(), &[ROOM]].concat())?;
            thread::sleep(Duration::from_secs(2));
            server.shut_down()?;
        }
        Ok(())
    }
}

/// A handler that is not in the configuration cannot be paused by a variable alone.
fn paused(trouble: Trouble) -> Vec<(&'static str, &'static str)> {
    if trouble == Trouble::Removed { vec![] } else { vec![PAUSED] }
}

fn beside(setup: Kind, trouble: Trouble, options: &Options) -> anyhow::Result<Row> {
    let place = Place::new(setup, trouble)?;
    let server = place.start(setup, trouble, options)?;
    let traffic = Traffic::start(&server, setup, trouble, options)?;
    at_a_steady_rate(&server, WARM_UP_SECONDS, options)?;

    let since = OffsetDateTime::now_utc();
    let sent = at_a_steady_rate(&server, options.seconds, options)?;
    let mut database = Database::open(&place.gateway.store_url)?;
    let mut lags = wait_for_lags(&mut database, since, sent)?;
    let not_done = sent.saturating_sub(lags.len());
    lags.resize(sent.max(lags.len()), micros(PATIENCE));

    let received_per_second = received_per_second(&server, options)?;
    traffic.end()?;
    let lag = Percentiles::of(lags).ok_or_else(|| anyhow::anyhow!("no event was sent"))?;
    drop(server);
    database.empty()?;
    let receiving_ratio = match trouble {
        Trouble::None => None,
        _ => Some(received_per_second / received_alone(setup, options)?),
    };
    Ok(Row { setup, trouble, lag, lag_ratio: None, received_per_second, receiving_ratio, not_done })
}

fn received_alone(setup: Kind, options: &Options) -> anyhow::Result<f64> {
    let place = Place::new(setup, Trouble::None)?;
    let server = place.start(setup, Trouble::None, options)?;
    at_a_steady_rate(&server, WARM_UP_SECONDS, options)?;
    let received = received_per_second(&server, options)?;
    drop(server);
    Database::open(&place.gateway.store_url)?.empty()?;
    Ok(received)
}

fn received_per_second(server: &Server, options: &Options) -> anyhow::Result<f64> {
    let seconds = options.seconds.min(RECEIVING_SECONDS);
    let requests = Requests::for_seconds(seconds, options.body_bytes, options.ids)?;
    let time = Duration::from_secs(seconds);
    Ok(load::closed(server.address, &requests, options.connections, time, false)?.per_second())
}

/// Events for the innocent handler. Says how many.
fn at_a_steady_rate(server: &Server, seconds: u64, options: &Options) -> anyhow::Result<usize> {
    let count = (PER_SECOND * seconds as f64) as usize;
    let requests = Requests::sign(count, options.body_bytes, options.ids)?;
    let seen = load::open(server.address, &requests, options.connections.min(16), PER_SECOND)?;
    anyhow::ensure!(seen.refused == 0, "{} events of the innocent handler were refused", seen.refused);
    Ok(count)
}

fn wait_for_lags(database: &mut Database, since: OffsetDateTime, sent: usize) -> anyhow::Result<Vec<u32>> {
    let start = Instant::now();
    loop {
        let lags = database.lags_of("bench", since)?;
        if lags.len() >= sent || start.elapsed() > PATIENCE {
            return Ok(lags);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Events for the handler in trouble, on a thread of their own.
struct Traffic(Option<thread::JoinHandle<anyhow::Result<()>>>);

impl Traffic {
    fn start(server: &Server, setup: Kind, trouble: Trouble, options: &Options) -> anyhow::Result<Self> {
        let Some(per_second) = trouble.traffic() else { return Ok(Self(None)) };
        let seconds = WARM_UP_SECONDS + 2 * options.seconds;
        let count = ((per_second * seconds as f64) as usize).max(1);
        let requests: Arc<_> = Requests::of_trouble(count, trouble.act(setup), trouble.body_bytes())?;
        let address = server.address;
        Ok(Self(Some(thread::spawn(move || load::open(address, &requests, 4, per_second).map(drop)))))
    }

    fn end(self) -> anyhow::Result<()> {
        let Some(thread) = self.0 else { return Ok(()) };
        thread.join().map_err(|_| anyhow::anyhow!("events of the handler in trouble were not sent"))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_each_trouble_is_compared_with_the_median_of_alone() {
        let row = |trouble, p99_ms, received_per_second| Row {
            setup: Kind::Sqlite,
            trouble,
            lag: Percentiles { p50_ms: 1.0, p99_ms, p999_ms: 9.0 },
            lag_ratio: None,
            received_per_second,
            receiving_ratio: (trouble != Trouble::None).then_some(received_per_second / 1000.0),
            not_done: 0,
        };
        let rows = compared(&[
            row(Trouble::None, 5.0, 900.0),
            row(Trouble::Paused, 30.0, 500.0),
            row(Trouble::Slow, 14.0, 900.0),
            row(Trouble::None, 10.0, 1000.0),
            row(Trouble::None, 90.0, 5000.0),
            row(Trouble::Slow, 16.0, 1000.0),
            row(Trouble::Slow, 15.0, 950.0),
        ]);
        assert_eq!(rows.iter().map(|row| row.lag_ratio).collect::<Vec<_>>(), [None, Some(3.0), Some(1.5)]);
        let neighbours = Neighbours { rows };
        assert_eq!(neighbours.worst_lag(Kind::Sqlite), Some(3.0));
        assert_eq!(neighbours.worst_ingest(Kind::Sqlite), Some(0.5));
        assert_eq!(neighbours.worst_lag(Kind::Jetstream), None);
    }
}
