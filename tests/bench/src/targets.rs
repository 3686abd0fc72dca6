//! What we want to reach, and whether we do.

use serde::Serialize;

use crate::neighbours::SETUPS;
use crate::report::Report;
use crate::server::Store;
use crate::stored::BACKLOG;
use crate::table::{NOT_MEASURED, Table, fine};
use crate::workplace::Kind;

const TEN_MILLION: u64 = 10_000_000;

/// One target, and what was measured if it was.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    what: String,
    wanted: String,
    measured: Option<f64>,
    unit: &'static str,
    verdict: &'static str,
}

impl Target {
    fn new(what: String, bound: Bound, measured: Option<f64>, unit: &'static str) -> Self {
        Self { what, wanted: bound.describe(unit), measured, unit, verdict: bound.verdict(measured) }
    }
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    Below(f64),
    AtMost(f64),
    /// It depends on what else was not measured.
    Unknown(&'static str),
}

impl Bound {
    fn describe(self, unit: &str) -> String {
        match self {
            Self::AtLeast(bound) => format!("at least {}{unit}", fine(bound)),
            Self::Below(bound) => format!("below {}{unit}", fine(bound)),
            Self::AtMost(bound) => format!("at most {}{unit}", fine(bound)),
            Self::Unknown(how) => how.into(),
        }
    }

    fn verdict(self, measured: Option<f64>) -> &'static str {
        let is_met = match (self, measured) {
            (Self::AtLeast(bound), Some(measured)) => measured >= bound,
            (Self::Below(bound), Some(measured)) => measured < bound,
            (Self::AtMost(bound), Some(measured)) => measured <= bound,
            (Self::Unknown(_), _) | (_, None) => return NOT_MEASURED,
        };
        if is_met { "met" } else { "not met" }
    }
}

pub(crate) fn table(report: &Report) -> Table {
    let mut table = Table::new(&["target", "wanted", "measured", "verdict"]);
    for Target { what, wanted, measured, unit, verdict } in all(report) {
        let value = measured.map_or(NOT_MEASURED.into(), |value| format!("{}{unit}", fine(value)));
        table.row([what, wanted, value, verdict.into()]);
    }
    table
}

pub(crate) fn all(report: &Report) -> Vec<Target> {
    let all = [
        receiving(report),
        answering(report),
        with_much_stored(report),
        footprint(report),
        working(report),
        beside_trouble(report),
    ];
    all.into_iter().flatten().collect()
}

fn receiving(report: &Report) -> Vec<Target> {
    let target = |(store, bound): (Store, f64)| {
        let measured = report.ingest.as_ref().and_then(|ingest| Some(ingest.of(store)?.ratio_to_floor));
        Target::new(format!("receiving on {}, of the floor", store.name()), Bound::AtLeast(bound), measured, "")
    };
    [(Store::Sqlite, 0.5), (Store::Postgres, 0.4)].map(target).into()
}

/// Four times as long as a server that does nothing takes at the same rate, and four times as long as the disk takes.
fn answering(report: &Report) -> Vec<Target> {
    let target = |store: Store| {
        let found = report.ingest.as_ref().and_then(|ingest| Some((ingest.at_half(store)?, ingest.median_fsync_ms)));
        let bound = found.map_or(Bound::Unknown("below 4 x floor's p99 + 4 fsyncs"), |(latency, fsync_ms)| {
            Bound::Below(4.0 * latency.floor.p99_ms + 4.0 * fsync_ms)
        });
        let what = format!("p99 of {} at half of its capacity (4 x floor's p99 + 4 median fsyncs)", store.name());
        Target::new(what, bound, found.map(|(latency, _)| latency.gateway.p99_ms), " ms")
    };
    Store::ALL.map(target).into()
}

fn with_much_stored(report: &Report) -> Vec<Target> {
    let target = |what: &str, store: Store, measured| {
        let what = format!("receiving on {} {what}, of the empty one", store.name());
        Target::new(what, Bound::AtLeast(0.9), measured, "")
    };
    let stored = report.stored.as_ref();
    let both = |store| {
        [
            target("with ten million events", store, stored.and_then(|stored| stored.with_events(store, TEN_MILLION))),
            target("with a million jobs waiting", store, stored.and_then(|stored| stored.with_backlog(store, BACKLOG))),
        ]
    };
    Store::ALL.into_iter().flat_map(both).collect()
}

fn footprint(report: &Report) -> Vec<Target> {
    let of = |store| report.footprint.as_ref().and_then(|footprint| footprint.of(store));
    let target = |what: &str, store: Store, bound, measured, unit| {
        Target::new(format!("{what} on {}", store.name()), Bound::Below(bound), measured, unit)
    };
    let memory = |store| {
        [
            target("resident memory, idle,", store, 40.0, of(store).map(|row| row.idle_mb), " MB"),
            target("resident memory, full load,", store, 150.0, of(store).map(|row| row.full_load_mb), " MB"),
        ]
    };
    let ready = of(Store::Sqlite).map(|row| row.ready_ms);
    let ready = target("time from start to ready", Store::Sqlite, 200.0, ready, " ms");
    Store::ALL.into_iter().flat_map(memory).chain([ready]).collect()
}

fn working(report: &Report) -> Vec<Target> {
    let row = report.process.as_ref().and_then(|process| process.of(Kind::Jetstream));
    let of_ingest = row.and_then(|row| row.ratio_to_ingest);
    let of_graphile = row.and_then(|row| row.ratio_to_graphile);
    let target = |what: &str, bound, measured| {
        let what = format!("working on {}, of {what}", Kind::Jetstream.name());
        Target::new(what, Bound::AtLeast(bound), measured, "")
    };
    vec![
        target("receiving on Postgres", 0.7, of_ingest),
        target("receiving on Postgres, the least", 0.5, of_ingest),
        target("graphile-worker", 1.0, of_graphile),
    ]
}

/// The worst of all kinds of trouble.
fn beside_trouble(report: &Report) -> Vec<Target> {
    let neighbours = report.neighbours.as_ref();
    let both = |setup: Kind| {
        let lag = neighbours.and_then(|neighbours| neighbours.worst_lag(setup));
        let ingest = neighbours.and_then(|neighbours| neighbours.worst_ingest(setup));
        let what = |what: &str| format!("{what} beside any trouble on {}, of alone", setup.name());
        [
            Target::new(what("p99 lag"), Bound::AtMost(3.0), lag, ""),
            Target::new(what("receiving"), Bound::AtLeast(0.95), ingest, ""),
        ]
    };
    SETUPS.into_iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_not_met_or_not_measured() {
        assert_eq!(Bound::AtLeast(0.5).verdict(Some(0.5)), "met");
        assert_eq!(Bound::AtLeast(0.5).verdict(Some(0.49)), "not met");
        assert_eq!(Bound::Below(40.0).verdict(Some(39.9)), "met");
        assert_eq!(Bound::Below(40.0).verdict(Some(40.0)), "not met");
        assert_eq!(Bound::Below(40.0).verdict(None), NOT_MEASURED);
        assert_eq!(Bound::Unknown("below something").verdict(Some(1.0)), NOT_MEASURED);
    }
}
