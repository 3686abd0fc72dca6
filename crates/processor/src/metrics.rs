//! What is counted. Handles are made once, because looking a series up costs more than counting.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookfast_store::{Backlog, Outcome};
use hookfast_webhook::{FailureKind, HandlerName, JobState};
use metrics::{
    Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

/// The series of all handlers that this process runs or has run.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<HashMap<HandlerName, Arc<HandlerMetrics>>>);

impl Metrics {
    pub(crate) fn of(&self, handler: &HandlerName) -> Arc<HandlerMetrics> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(HandlerMetrics::new(handler));
        Arc::clone(all.entry(handler.clone()).or_insert_with(new))
    }

    /// The series of a handler. Those for events of these sources begin at zero.
    pub(crate) fn begin(&self, handler: &HandlerName, sources: &[String]) -> Arc<HandlerMetrics> {
        let metrics = self.of(handler);
        sources.iter().for_each(|source| drop(metrics.of(source)));
        metrics
    }
}

/// The series of one handler.
pub(crate) struct HandlerMetrics {
    handler: String,
    by_source: Mutex<HashMap<String, Arc<JobMetrics>>>,
    stale: Counter,
    durations: [Histogram; RESULTS.len()],
    pub(crate) lag: Histogram,
}

impl HandlerMetrics {
    fn new(handler: &HandlerName) -> Self {
        let handler = handler.to_string();
        let duration = |result: &'static str| histogram!("hookfast_attempt_duration_seconds", "handler" => handler.clone(), "result" => result);
        Self {
            by_source: Mutex::default(),
            stale: counter!("hookfast_stale_settle_total", "handler" => handler.clone()),
            durations: RESULTS.map(duration),
            lag: histogram!("hookfast_queue_lag_seconds", "handler" => handler.clone()),
            handler,
        }
    }

    /// The series of the handler's jobs for events of this source. The first call makes them, with the value zero: without
    /// that, Prometheus would not see the first increase of a counter.
    pub(crate) fn of(&self, source: &str) -> Arc<JobMetrics> {
        let mut all = self.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(source) {
            return Arc::clone(known);
        }
        let new = Arc::new(JobMetrics::new(self, source));
        all.insert(source.to_owned(), Arc::clone(&new));
        new
    }
}

/// The series that count what becomes of a handler's jobs for events of one source.
pub(crate) struct JobMetrics {
    processed: [Counter; RESULTS.len()],
    retries: [Counter; FailureKind::ALL.len()],
    dead_letters: [Counter; FailureKind::ALL.len()],
    /// Those of the handler, which do not tell its sources apart.
    durations: [Histogram; RESULTS.len()],
    stale: Counter,
}

impl JobMetrics {
    fn new(of: &HandlerMetrics, source: &str) -> Self {
        let counter = |name: &'static str, label: &'static str, value: &'static str| counter!(name, "handler" => of.handler.clone(), "source" => source.to_owned(), label => value);
        let by_kind = |name| FailureKind::ALL.map(|kind| counter(name, "reason", kind.as_str()));
        Self {
            processed: RESULTS.map(|result| counter("hookfast_jobs_processed_total", "result", result)),
            retries: by_kind("hookfast_retries_total"),
            dead_letters: by_kind("hookfast_dead_letters_total"),
            durations: of.durations.clone(),
            stale: of.stale.clone(),
        }
    }

    /// Counts a run that was settled.
    pub(crate) fn count(&self, outcome: &Outcome, duration: Duration) {
        self.durations[result(outcome)].record(duration);
        self.processed[result(outcome)].increment(1);
        match outcome {
            Outcome::Succeeded | Outcome::Snoozed { .. } => {}
            Outcome::Failed { kind, .. } => self.retries[index(*kind)].increment(1),
            Outcome::Dead { kind, .. } => self.count_dead(*kind),
            Outcome::Interrupted { by, .. } => self.retries[index(by.kind())].increment(1),
        }
    }

    /// Counts a run that had lost its job before its outcome was written.
    pub(crate) fn count_stale(&self) {
        self.stale.increment(1);
    }

    /// Counts a job whose lease had ended.
    pub(crate) fn count_crash(&self) {
        self.retries[index(FailureKind::Crash)].increment(1);
    }

    pub(crate) fn count_dead(&self, kind: FailureKind) {
        self.dead_letters[index(kind)].increment(1);
    }
}

/// What can come of a run, as a label.
const RESULTS: [&str; 5] = ["succeeded", "failed", "dead_letter", "interrupted", "snoozed"];

/// The place in [`RESULTS`] of what came of a run.
fn result(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Succeeded => 0,
        Outcome::Failed { .. } => 1,
        Outcome::Dead { .. } => 2,
        Outcome::Interrupted { .. } => 3,
        Outcome::Snoozed { .. } => 4,
    }
}

fn index(kind: FailureKind) -> usize {
    FailureKind::ALL.iter().position(|known| *known == kind).expect("all kinds are in it")
}

/// The gauges of the backlog.
#[derive(Default)]
pub(crate) struct BacklogGauges {
    /// Every handler that was ever shown: one whose jobs are gone goes back to zero.
    shown: BTreeSet<String>,
}

impl BacklogGauges {
    /// Shows how much there is to do, for these handlers and for all others in the store. The age of due jobs leaves out
    /// those that are paused on purpose.
    pub(crate) fn show(&mut self, backlog: &Backlog, handlers: &[HandlerName], is_paused: impl Fn(&str) -> bool) {
        const STATES: [JobState; 4] = [JobState::Pending, JobState::Processing, JobState::Failed, JobState::DeadLetter];
        self.shown.extend(handlers.iter().map(ToString::to_string));
        self.shown.extend(backlog.jobs.iter().map(|(handler, _, _)| handler.clone()));
        for handler in &self.shown {
            for state in STATES {
                let found = backlog.jobs.iter().find(|(of, is, _)| of == handler && *is == state);
                let count = found.map_or(0, |(_, _, count)| *count);
                gauge!("hookfast_jobs", "handler" => handler.clone(), "state" => state.as_str()).set(count as f64);
            }
            let oldest = backlog.oldest_due.iter().find(|(of, _)| of == handler && !is_paused(of));
            let age = oldest.map_or(0.0, |(_, age)| age.as_secs_f64());
            gauge!("hookfast_oldest_due_age_seconds", "handler" => handler.clone()).set(age);
        }
        counter!("hookfast_replayed_jobs_total").absolute(backlog.replayed);
    }
}

/// Says what the series mean; called once, after the recorder is installed.
pub fn describe() {
    describe_counter!(
        "hookfast_jobs_processed_total",
        "Runs of jobs by handler, source of the event, and what came of them; a run that a crash cut short is not among them"
    );
    describe_counter!(
        "hookfast_stale_settle_total",
        "Runs whose outcome was not written, because the run had lost its job meanwhile. Many mean that the lease is too short"
    );
    describe_histogram!(
        "hookfast_attempt_duration_seconds",
        Unit::Seconds,
        "How long a run of a handler took, by handler and by what came of it"
    );
    describe_histogram!(
        "hookfast_queue_lag_seconds",
        Unit::Seconds,
        "From the arrival of an event to the beginning of its first run"
    );
    describe_counter!(
        "hookfast_retries_total",
        "Runs that will be repeated, by handler, source of the event, and why they failed. Reason crash: the process died or lost its lease; pipeline: our store went away; interrupted: the process was shut down or lost a lease while it lived"
    );
    describe_counter!(
        "hookfast_dead_letters_total",
        "Jobs that became dead letters, by handler, source of the event, and reason. Each needs a person: `hookfast dead-letters list`"
    );
    describe_gauge!(
        "hookfast_jobs",
        "Unfinished jobs and dead letters in the store by handler and state, for every handler that has any, paused and not configured ones too. Finished ones are not counted here"
    );
    describe_gauge!(
        "hookfast_oldest_due_age_seconds",
        Unit::Seconds,
        "By handler, for how long the job that is due longest has been waiting for a worker, dispatched or not; zero for paused handlers. Alert on this"
    );
    describe_counter!("hookfast_replayed_jobs_total", "Jobs that operators made pending again, by the audit log");
    describe_counter!(
        "hookfast_sweeper_dispatched_total",
        "Jobs that the sweeper dispatched: retries that were due, leases that had ended, dispatches that got lost"
    );
    describe_counter!("hookfast_dispatch_failed_total", "Jobs that the queue did not take; the sweeper tries again");
    describe_gauge!("hookfast_queue_waiting", "Hints that wait in the queue, by handler");
    describe_gauge!("hookfast_queue_up", "Whether the queue works: 1 or 0. While it is down, jobs wait in the store");
    describe_gauge!(
        "hookfast_stuck_runs",
        "Runs past their deadline that do not yield, each of which keeps a thread until it ends"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_source_are_looked_up_once() {
        let ledger = Metrics::default().of(&HandlerName::new("ledger").expect("a name"));
        assert!(Arc::ptr_eq(&ledger.of("stripe"), &ledger.of("stripe")));
        assert!(!Arc::ptr_eq(&ledger.of("stripe"), &ledger.of("no-longer-configured")));
    }
}
