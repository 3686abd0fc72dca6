//! Receiving larger bodies, and events that come again.

use std::sync::Arc;

use serde::Serialize;

use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::Store;
use crate::table::{Table, fine, whole};
use crate::turns::{Round, Subject, Turns};

/// So many events come again and again: few enough that all were recorded when it begins.
const DUPLICATES: usize = 2000;

/// What comes in.
struct Case {
    name: &'static str,
    body_bytes: usize,
    /// If it is not the usual number.
    connections: Option<usize>,
    has_duplicates: bool,
}

const CASES: [Case; 4] = [
    Case { name: "1 KB", body_bytes: 1 << 10, connections: None, has_duplicates: false },
    Case { name: "16 KB", body_bytes: 16 << 10, connections: None, has_duplicates: false },
    Case { name: "1 MB", body_bytes: 1 << 20, connections: Some(16), has_duplicates: false },
    Case { name: "1 KB, 50 % duplicates", body_bytes: 1 << 10, connections: None, has_duplicates: true },
];

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Bodies {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) bodies: &'static str,
    /// None is the floor.
    pub(crate) store: Option<Store>,
    pub(crate) connections: usize,
    pub(crate) per_second: f64,
    pub(crate) megabytes_per_second: f64,
    pub(crate) ratio_to_floor: f64,
    pub(crate) refused: usize,
}

impl Part for Bodies {
    const HEADING: &'static str = "Bodies and duplicates";
    const METHOD: &'static str = "\
A closed loop as above. Bodies of 1 MB come over 16 connections, because what 256 of them hold at once is more than is answered
within `answer_deadline`. Of the duplicates, every second request is one of 2,000 events that were recorded during the warm-up.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for case in &CASES {
            rows.extend(case.measure(options)?);
        }
        Ok(Self { rows })
    }

    fn tables(&self) -> Vec<Table> {
        let heads = ["bodies", "store", "connections", "requests/s", "MB/s", "of floor", "answered 503"];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            table.row([
                row.bodies.into(),
                name(row.store).into(),
                whole(row.connections as f64),
                whole(row.per_second),
                whole(row.megabytes_per_second),
                fine(row.ratio_to_floor),
                whole(row.refused as f64),
            ]);
        }
        vec![table]
    }
}

impl Case {
    fn measure(&self, options: &Options) -> anyhow::Result<Vec<Row>> {
        let mut setups = vec![(None, Turns::of(Subject::Floor))];
        setups.extend(Store::ALL.map(|store| (Some(store), Turns::of(Subject::on(store)))));
        for round in 1..=options.rounds {
            let sent = self.round(options)?;
            for (store, turns) in &mut setups {
                eprintln!("bodies, round {round} of {}: {}, {}", options.rounds, self.name, name(*store));
                turns.take(&sent)?;
            }
        }
        let floor = setups[0].1.per_second();
        let row = |(store, turns): (Option<Store>, Turns)| Row {
            bodies: self.name,
            store,
            connections: self.connections.unwrap_or(options.connections),
            per_second: turns.per_second(),
            megabytes_per_second: turns.per_second() * self.body_bytes as f64 / 1e6,
            ratio_to_floor: turns.per_second() / floor,
            refused: turns.refused(),
        };
        Ok(setups.into_iter().map(row).collect())
    }

    fn round(&self, options: &Options) -> anyhow::Result<Round> {
        let mut round = Round::sign(options, self.body_bytes)?;
        round.connections = self.connections.unwrap_or(options.connections);
        if self.has_duplicates {
            round.warm_up = Requests::sign(DUPLICATES, self.body_bytes, options.ids)?;
            round.measured = Arc::new(round.measured.in_turns_with(&round.warm_up));
        }
        Ok(round)
    }
}

fn name(store: Option<Store>) -> &'static str {
    store.map_or("floor", Store::name)
}
