//! What a store holds when all jobs are finished.

use std::collections::BTreeMap;

use crate::query;

/// Events by their keys, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// More than one for a key is wrong.
    pub(super) events: BTreeMap<String, Vec<HeldEvent>>,
    /// The states of jobs, by event and handler.
    pub(super) jobs: BTreeMap<(String, String), String>,
    /// The places of effects, by event and effect. More than one place for an effect is wrong.
    pub(super) done: BTreeMap<String, BTreeMap<String, Vec<usize>>>,
}

#[derive(Debug)]
pub(super) struct HeldEvent {
    /// In hexadecimal digits.
    pub(super) body: String,
    pub(super) resends: usize,
}

impl Held {
    pub(super) fn in_store(store: &str) -> Self {
        let mut held = Self::default();
        let body = if store.starts_with("sqlite:") { "lower(hex(body))" } else { "encode(body, 'hex')" };
        let resends = "SELECT sum(resends) FROM dedupe_keys WHERE dedupe_keys.dedupe_key = events.dedupe_key";
        for row in query(store, &format!("SELECT dedupe_key, {body}, ({resends}) FROM events")) {
            let [id, body, resends] = columns(row);
            held.events.entry(id).or_default().push(HeldEvent { body, resends: number(&resends) });
        }
        for row in query(store, "SELECT dedupe_key, handler, state FROM jobs JOIN events ON events.id = event_id") {
            let [id, handler, state] = columns(row);
            held.jobs.insert((id, handler), state);
        }
        for row in query(store, "SELECT event, effect, place FROM done") {
            let [id, effect, place] = columns(row);
            held.done.entry(id).or_default().entry(effect).or_default().push(number(&place));
        }
        held
    }

    /// The first and the last place of the effects of an event, if it has any.
    pub(super) fn places(&self, id: &str) -> Option<(usize, usize)> {
        let places = || self.done.get(id).into_iter().flat_map(BTreeMap::values).flatten().copied();
        Some((places().min()?, places().max()?))
    }
}

/// The keys of all events, each with how many jobs it has.
pub(super) fn jobs_by_event(store: &str) -> Vec<(String, String)> {
    let rows = query(store, "SELECT dedupe_key, (SELECT count(*) FROM jobs WHERE event_id = events.id) FROM events");
    rows.into_iter().map(columns).map(|[id, jobs]| (id, jobs)).collect()
}

pub(super) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn columns<const COUNT: usize>(row: Vec<String>) -> [String; COUNT] {
    row.try_into().expect("as many columns as were asked for")
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}
