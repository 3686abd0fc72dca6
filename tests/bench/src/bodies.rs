//! Receiving larger bodies, and events that come again.

use std::sync::Arc;

use serde::Serialize;

use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::{Gateway, Store};
use crate::table::{Table, fine, or_dash, whole};
use crate::turns::{Round, Subject, Turns};

/// Each size of body with the number of connections: as many large ones at once as can be answered in time.
const SIZES: [(&str, usize, Option<usize>); 3] =
    [("1 KB", 1 << 10, None), ("16 KB", 16 << 10, None), ("1 MB", 1 << 20, Some(16))];

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Bodies {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) bodies: String,
    /// None is the floor.
    pub(crate) store: Option<Store>,
    pub(crate) connections: usize,
    pub(crate) per_second: f64,
    pub(crate) megabytes_per_second: f64,
    /// There is no floor for duplicates.
    pub(crate) ratio_to_floor: Option<f64>,
    pub(crate) refused: usize,
}

impl Part for Bodies {
    const HEADING: &'static str = "Bodies and duplicates";
    const METHOD: &'static str = "\
A closed loop as above. Bodies of 1 MB come over 16 connections, because what 256 of them hold at once is more than is
answered within `answer_deadline`. Of the duplicates, every second request is an event that was recorded during the warm-up.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for (name, body_bytes, connections) in SIZES {
            rows.extend(bodies(options, name, body_bytes, connections.unwrap_or(options.connections))?);
        }
        rows.extend(duplicates(options)?);
        Ok(Self { rows })
    }

    fn tables(&self) -> Vec<Table> {
        let heads = ["bodies", "store", "connections", "requests/s", "MB/s", "of floor", "answered 503"];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            table.row([
                row.bodies.clone(),
                row.store.map_or("floor", Store::name).into(),
                whole(row.connections as f64),
                whole(row.per_second),
                whole(row.megabytes_per_second),
                or_dash(row.ratio_to_floor, fine),
                whole(row.refused as f64),
            ]);
        }
        vec![table]
    }
}

fn bodies(options: &Options, name: &str, body_bytes: usize, connections: usize) -> anyhow::Result<Vec<Row>> {
    let mut setups = vec![(None, Turns::of(Subject::Floor))];
    setups.extend(both_stores()?);
    for round in 1..=options.rounds {
        let sent = Round { connections, ..Round::sign(options, body_bytes)? };
        for (store, turns) in &mut setups {
            let who = store.map_or("floor", Store::name);
            eprintln!("bodies, round {round} of {}: {name}, {who}", options.rounds);
            turns.take(&sent)?;
        }
    }
    let floor = setups[0].1.per_second();
    let row = |(store, turns): (Option<Store>, Turns)| {
        let ratio = turns.per_second() / floor;
        finish(name, store, connections, body_bytes, Some(ratio), &turns)
    };
    setups.into_iter().map(row).collect()
}

fn duplicates(options: &Options) -> anyhow::Result<Vec<Row>> {
    let (_, body_bytes, _) = SIZES[0];
    let mut setups = both_stores()?;
    for round in 1..=options.rounds {
        let mut sent = Round::sign(options, body_bytes)?;
        // So few that all are recorded when they come again.
        sent.warm_up = Requests::sign(2000, body_bytes, options.ids)?;
        sent.measured = Arc::new(sent.measured.in_turns_with(&sent.warm_up));
        for (store, turns) in &mut setups {
            let who = store.map_or("floor", Store::name);
            eprintln!("bodies, round {round} of {}: duplicates, {who}", options.rounds);
            turns.take(&sent)?;
        }
    }
    let row = |(store, turns): (Option<Store>, Turns)| {
        finish("1 KB, 50 % duplicates", store, options.connections, body_bytes, None, &turns)
    };
    setups.into_iter().map(row).collect()
}

fn both_stores() -> anyhow::Result<Vec<(Option<Store>, Turns)>> {
    let setup = |store| Ok((Some(store), Turns::of(Subject::Gateway(Gateway::that_receives(store, "", "")?))));
    Store::ALL.into_iter().map(setup).collect()
}

fn finish(
    bodies: &str,
    store: Option<Store>,
    connections: usize,
    body_bytes: usize,
    ratio_to_floor: Option<f64>,
    turns: &Turns,
) -> anyhow::Result<Row> {
    turns.give_back_disk()?;
    let per_second = turns.per_second();
    Ok(Row {
        bodies: bodies.into(),
        store,
        connections,
        per_second,
        megabytes_per_second: per_second * body_bytes as f64 / 1e6,
        ratio_to_floor,
        refused: turns.refused(),
    })
}
