//! Receiving when there is much in the database already.

use std::time::Duration;

use serde::Serialize;

use crate::database::Database;
use crate::fill::{Copies, Fate};
use crate::load;
use crate::options::Options;
use crate::report::Part;
use crate::requests::Requests;
use crate::server::{Gateway, Store};
use crate::table::{Table, fine, whole};
use crate::turns::{Round, Subject, Turns};

/// How many jobs wait at most.
pub(crate) const BACKLOG: u64 = 1_000_000;

/// The body of what was stored before.
const STORED_BODY_BYTES: usize = 256;

/// What was found out.
#[derive(Debug, Serialize)]
pub(crate) struct Stored {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) store: Store,
    pub(crate) events: u64,
    pub(crate) jobs_waiting: u64,
    pub(crate) per_second: f64,
    pub(crate) ratio_to_empty: f64,
    pub(crate) refused: usize,
}

/// What is in a database before anything is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    events: u64,
    jobs: Fate,
}

impl Part for Stored {
    const HEADING: &'static str = "With much in the database";
    const METHOD: &'static str = "\
A closed loop as above, on databases that were filled by SQL: copies of one received event with a body of 256 bytes, each with
its own id, key and time, its dedupe key and its job, but no attempts and no effects, which receiving does not touch. Either all
jobs are done, or all of them wait and are due, and nobody works. The empty database is a new one in each turn; in the others,
what was received in a turn stays, its jobs done or waiting as the others. After filling, Postgres is vacuumed and both are checkpointed.";

    fn measure(options: &Options) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        for store in Store::ALL {
            rows.extend(on(store, options)?);
        }
        Ok(Self { rows })
    }

    fn tables(&self) -> Vec<Table> {
        let mut table =
            Table::new(&["store", "events stored", "jobs waiting", "requests/s", "of empty", "answered 503"]);
        for row in &self.rows {
            table.row([
                row.store.name().into(),
                whole(row.events as f64),
                whole(row.jobs_waiting as f64),
                whole(row.per_second),
                fine(row.ratio_to_empty),
                whole(row.refused as f64),
            ]);
        }
        vec![table]
    }
}

impl Stored {
    /// Compared with an empty database, with this many events stored whose jobs are done.
    pub(crate) fn with_events(&self, store: Store, events: u64) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.store == store && row.events == events && row.jobs_waiting == 0)?;
        Some(row.ratio_to_empty)
    }

    /// The same with this many jobs waiting.
    pub(crate) fn with_backlog(&self, store: Store, jobs: u64) -> Option<f64> {
        self.rows.iter().find(|row| row.store == store && row.jobs_waiting == jobs).map(|row| row.ratio_to_empty)
    }
}

/// One of the databases.
struct Setup {
    content: Content,
    /// None is a new one for each turn.
    url: Option<String>,
    turns: Turns,
}

impl Setup {
    fn new(store: Store, content: Content, options: &Options) -> anyhow::Result<Self> {
        if content.events == 0 {
            return Ok(Self { content, url: None, turns: Turns::of(Subject::on(store)) });
        }
        let gateway = filled(store, content, options)?;
        Ok(Self { content, url: Some(gateway.store_url.clone()), turns: Turns::of(Subject::Kept(gateway)) })
    }

    /// The next turn begins with the same, but for what was received.
    fn take(&mut self, round: &Round) -> anyhow::Result<()> {
        self.turns.take(round)?;
        match (&self.url, self.content.jobs) {
            (Some(url), Fate::Done) => Database::open(url)?.finish_all(),
            (Some(_), Fate::Waiting | Fate::Dead) | (None, _) => Ok(()),
        }
    }

    fn row(self, store: Store, empty: f64) -> anyhow::Result<Row> {
        let Self { content, url, turns } = self;
        if let Some(url) = url {
            Database::open(&url)?.empty()?;
        }
        Ok(Row {
            store,
            events: content.events,
            jobs_waiting: if content.jobs == Fate::Waiting { content.events } else { 0 },
            per_second: turns.per_second(),
            ratio_to_empty: turns.per_second() / empty,
            refused: turns.refused(),
        })
    }
}

fn on(store: Store, options: &Options) -> anyhow::Result<Vec<Row>> {
    let mut setups = Vec::new();
    for content in contents(options.stored) {
        eprintln!("stored, {}: {content:?}", store.name());
        setups.push(Setup::new(store, content, options)?);
    }
    for round in 1..=options.rounds {
        let sent = Round::sign(options, options.body_bytes)?;
        for setup in &mut setups {
            eprintln!("stored, round {round} of {}: {}, {:?}", options.rounds, store.name(), setup.content);
            setup.take(&sent)?;
        }
    }
    let empty = setups[0].turns.per_second();
    setups.into_iter().map(|setup| setup.row(store, empty)).collect()
}

/// Nothing, a million if that is not too much, as many as were asked for; and a backlog.
fn contents(most: u64) -> Vec<Content> {
    let mut sizes = vec![0, BACKLOG.min(most), most];
    sizes.dedup();
    let mut contents: Vec<_> = sizes.into_iter().map(|events| Content { events, jobs: Fate::Done }).collect();
    if most > 0 {
        contents.push(Content { events: BACKLOG.min(most), jobs: Fate::Waiting });
    }
    contents
}

/// A gateway whose database holds this much. The first event is received as any other.
fn filled(store: Store, content: Content, options: &Options) -> anyhow::Result<Gateway> {
    let gateway = Gateway::that_receives(store, "", "")?;
    let server = gateway.start("serve", &[])?;
    let first = Requests::sign(1, STORED_BODY_BYTES, options.ids)?;
    let seen = load::closed(server.address, &first, 1, Duration::from_secs(60), false)?;
    anyhow::ensure!(seen.latencies.len() == 1, "the first event was refused");
    server.shut_down()?;
    let copies = Copies { handler: "bench", jobs: content.jobs, ordering_key: None, ids: options.ids };
    Database::open(&gateway.store_url)?.fill(content.events, copies)?;
    Ok(gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_are_compared_with_none_and_with_one_million() {
        let of = |most| contents(most).into_iter().map(|content| (content.events, content.jobs)).collect::<Vec<_>>();
        let (million, done, waiting) = (1_000_000, Fate::Done, Fate::Waiting);
        assert_eq!(of(10 * million), [(0, done), (million, done), (10 * million, done), (million, waiting)]);
        assert_eq!(of(million), [(0, done), (million, done), (million, waiting)]);
        assert_eq!(of(5000), [(0, done), (5000, done), (5000, waiting)]);
        assert_eq!(of(0), [(0, done)]);
    }
}
