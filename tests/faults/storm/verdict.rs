//! What must hold after a storm, judged by what the senders know and what the database holds.

use std::collections::{BTreeMap, BTreeSet};

use hookfast_harness::query;

use super::crowd::WITH_A_REASON;
use super::senders::{Fate, Sent};

/// A database after the storm, and everything that was sent.
pub(crate) struct Verdict<'a> {
    pub(crate) store: &'a str,
    pub(crate) sent: &'a [Sent],
}

impl Verdict<'_> {
    /// How many jobs are not finished, without a reason that an operator can list.
    pub(crate) fn unfinished(&self) -> usize {
        let statement = format!("SELECT count(*) FROM jobs WHERE finished_at IS NULL AND NOT ({WITH_A_REASON})");
        self.rows(&statement)[0][0].parse().unwrap()
    }

    /// Unfinished jobs for which no reason can be listed.
    fn finished_or_explained(&self) -> Vec<String> {
        let rows = self.rows(&format!(
            "SELECT handler, dedupe_key, state, reason FROM jobs JOIN events ON events.id = event_id \
             WHERE finished_at IS NULL AND NOT ({WITH_A_REASON})"
        ));
        rows.iter().map(|row| format!("a job is unfinished without a reason: {}", row.join(", "))).collect()
    }

    /// How many jobs are dead because their runs were cut short too often.
    pub(crate) fn crashed(&self) -> usize {
        self.rows("SELECT count(*) FROM jobs WHERE state = 'dead_letter' AND reason = 'crash'")[0][0].parse().unwrap()
    }

    /// Everything that does not hold, in sentences.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let broken = [
            self.recorded_once(),
            self.finished(),
            self.finished_or_explained(),
            self.done_once(),
            self.in_order(),
            self.written_by_whoever_holds_it(),
        ];
        broken.concat()
    }

    /// What was promised is there, nothing is there twice, and the bytes are those that were sent.
    fn recorded_once(&self) -> Vec<String> {
        let body = if self.store.starts_with("sqlite:") { "lower(hex(body))" } else { "encode(body, 'hex')" };
        let mut bodies = BTreeMap::<_, Vec<_>>::new();
        for row in self.rows(&format!("SELECT dedupe_key, {body} FROM events")) {
            bodies.entry(row[0].clone()).or_default().push(row[1].clone());
        }
        let judge = |sent: &Sent| match bodies.get(&sent.id).map(Vec::as_slice) {
            None if sent.is_promised => Some(format!("{} was promised and is lost", sent.id)),
            None => None,
            Some([body]) if *body == hex(&sent.body) => None,
            Some([body]) => Some(format!("{} was changed: {body}", sent.id)),
            Some(several) => Some(format!("{} was recorded {} times", sent.id, several.len())),
        };
        self.sent.iter().filter_map(judge).collect()
    }

    /// Every recorded event has a job of its handler, which succeeded, or is dead if it gave up.
    fn finished(&self) -> Vec<String> {
        let mut states = BTreeMap::new();
        for row in self.rows("SELECT dedupe_key, handler, state FROM jobs JOIN events ON events.id = event_id") {
            states.insert((row[0].clone(), row[1].clone()), row[2].clone());
        }
        let recorded = self.by_event("SELECT dedupe_key, source FROM events");
        let judge = |sent: &Sent| {
            let expected = match sent.fate {
                Fate::Succeeds => "succeeded",
                Fate::Dies => "dead_letter",
                Fate::IsBlocked => "pending",
            };
            recorded.get(&sent.id)?;
            let state = states.get(&(sent.id.clone(), sent.handler.clone())).map_or("missing", String::as_str);
            (state != expected).then(|| format!("the job of {} is {state} and not {expected}", sent.id))
        };
        self.sent.iter().filter_map(judge).collect()
    }

    /// Every effect of a recorded event is there exactly once.
    fn done_once(&self) -> Vec<String> {
        let mut times = BTreeMap::<_, BTreeMap<_, usize>>::new();
        for row in self.rows("SELECT event, effect, count(*) FROM done GROUP BY event, effect") {
            times.entry(row[0].clone()).or_default().insert(row[1].clone(), row[2].parse().unwrap());
        }
        let recorded = self.by_event("SELECT dedupe_key, source FROM events");
        let nothing = BTreeMap::new();
        let judge = |sent: &Sent| {
            let done = times.get(&sent.id).unwrap_or(&nothing);
            let is_right = done.len() == sent.effects && done.values().all(|times| *times == 1);
            let is_wrong = recorded.contains_key(&sent.id) && !is_right;
            is_wrong.then(|| format!("{} should be done once, {} effects: {done:?}", sent.id, sent.effects))
        };
        self.sent.iter().filter_map(judge).collect()
    }

    /// The events of one account that were promised one after the other were done one at a time and in that order. Of an
    /// event that was not promised, the time of its recording is unknown.
    fn in_order(&self) -> Vec<String> {
        let promised: BTreeSet<_> = self.sent.iter().filter(|sent| sent.is_promised).map(|sent| &sent.id).collect();
        let mut rows = self.rows("SELECT ordering, place, event FROM done WHERE ordering <> '' ORDER BY 1, 2, 3");
        rows.retain(|row| promised.contains(&row[2]));
        let judge = |pair: &[Vec<String>]| {
            let [before, after] = pair else { return None };
            let is_wrong = before[0] == after[0] && (before[2] > after[2] || before[1] == after[1]);
            let told = |row: &[String]| format!("{} was done at place {}", row[2], row[1]);
            is_wrong.then(|| format!("not in order: {}, and then {}", told(before), told(after)))
        };
        rows.windows(2).filter_map(judge).collect()
    }

    /// A run that no longer held its job wrote nothing: no effect after a later run had begun, and no success but the last
    /// run's. Jobs that are replayed after they succeeded have several.
    fn written_by_whoever_holds_it(&self) -> Vec<String> {
        // After a pardon a number is used again: the run that wrote is the latest one with the number of the effect.
        let late_effects = "SELECT DISTINCT events.dedupe_key FROM done \
             JOIN events ON events.dedupe_key = done.event \
             JOIN effects ON effects.event_id = events.id AND effects.key = done.effect \
             JOIN attempts ON attempts.event_id = events.id AND attempts.handler = effects.handler \
             WHERE attempts.started_at < effects.done_at AND attempts.started_at > (\
                 SELECT max(own.started_at) FROM attempts AS own WHERE own.event_id = events.id \
                 AND own.handler = effects.handler AND own.number = done.attempt AND own.started_at < effects.done_at)";
        let late_successes = "SELECT events.dedupe_key FROM attempts \
             JOIN jobs ON jobs.event_id = attempts.event_id AND jobs.handler = attempts.handler \
             JOIN events ON events.id = jobs.event_id \
             WHERE attempts.failure IS NULL AND jobs.handler <> 'innocent' AND (jobs.state <> 'succeeded' \
             OR attempts.number < jobs.attempts OR EXISTS (\
                 SELECT 1 FROM attempts AS later WHERE later.event_id = attempts.event_id \
                 AND later.handler = attempts.handler AND later.started_at > attempts.started_at))";
        let told = |rows: Vec<Vec<String>>, what: &str| -> Vec<String> {
            rows.iter().map(|row| format!("{}: a late run {what}: {}", row[0], self.history(&row[0]))).collect()
        };
        [told(self.rows(late_effects), "wrote an effect"), told(self.rows(late_successes), "settled")].concat()
    }

    /// The runs of an event's jobs and the moments of their effects.
    fn history(&self, event: &str) -> String {
        let of = format!("JOIN events ON events.id = event_id WHERE dedupe_key = '{event}' ORDER BY");
        let attempts = self.rows(&format!(
            "SELECT handler, number, failure, started_at, attempts.worker FROM attempts {of} started_at"
        ));
        let effects = self.rows(&format!("SELECT key, done_at FROM effects {of} done_at"));
        format!("attempts {attempts:?}, effects {effects:?}")
    }

    fn by_event(&self, statement: &str) -> BTreeMap<String, String> {
        self.rows(statement).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    }

    fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        query(self.store, statement)
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
