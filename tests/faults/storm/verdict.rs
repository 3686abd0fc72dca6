//! What must hold after a storm beside what a ledger checks.

use hookfast_harness::query;

use super::crowd::WITH_A_REASON;

/// A database after the storm.
pub(crate) struct Verdict<'a> {
    pub(crate) store: &'a str,
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
        [self.finished_or_explained(), self.written_by_whoever_holds_it()].concat()
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

    fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        query(self.store, statement)
    }
}
