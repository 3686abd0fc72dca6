//! What was seen, in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::send::Outcome;
use crate::commands::tables::print_json;
use crate::printable::plain;

pub(super) struct Report {
    pub(super) requests: usize,
    pub(super) accepted: usize,
    /// Answered 4xx.
    pub(super) refused: usize,
    retries: u32,
    events: usize,
    duplicates: usize,
    /// How often each last answer was given.
    answers: BTreeMap<String, usize>,
    /// The body of the answer, if there was just one request and it had one.
    answer: Option<String>,
    elapsed: Duration,
    /// Sorted.
    latencies: Vec<Duration>,
}

/// The report as `--json` prints it.
#[derive(Serialize)]
struct ReportView<'a> {
    requests: usize,
    events: usize,
    duplicates: usize,
    accepted: usize,
    refused: usize,
    retries: u32,
    answers: &'a BTreeMap<String, usize>,
    answer: Option<&'a str>,
    seconds: f64,
    requests_per_second: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Report {
    pub(super) fn of(outcomes: &[Outcome], events: usize, duplicates: usize, elapsed: Duration) -> Self {
        let mut answers = BTreeMap::new();
        for outcome in outcomes {
            let answer = outcome.status.map_or("no answer".into(), |status| status.as_u16().to_string());
            *answers.entry(answer).or_default() += 1;
        }
        let count = |wanted: fn(http::StatusCode) -> bool| {
            outcomes.iter().filter(|outcome| outcome.status.is_some_and(wanted)).count()
        };
        let answered = outcomes.iter().filter(|outcome| outcome.status.is_some());
        let mut latencies: Vec<_> = answered.map(|outcome| outcome.latency).collect();
        latencies.sort_unstable();
        let answer = match outcomes {
            [only] if !only.body.is_empty() => Some(String::from_utf8_lossy(&only.body).into_owned()),
            _ => None,
        };
        Self {
            requests: outcomes.len(),
            accepted: count(|status| status.is_success()),
            refused: count(|status| status.is_client_error()),
            retries: outcomes.iter().map(|outcome| outcome.tries - 1).sum(),
            events,
            duplicates,
            answers,
            answer,
            elapsed,
            latencies,
        }
    }

    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            print_json(&self.view());
            return;
        }
        let answers: Vec<_> = self.answers.iter().map(|(answer, count)| format!("{count} x {answer}")).collect();
        outln!("requests  {} ({} duplicates), with {} different events", self.requests, self.duplicates, self.events);
        outln!("answers   {}", answers.join(", "));
        if let Some(answer) = &self.answer {
            outln!("said      {}", plain(answer));
        }
        if self.retries > 0 {
            outln!("again     {} requests were sent again after a failure", self.retries);
        }
        let percentiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        let latencies = percentiles.map(|(name, share)| format!("{name} {:.1} ms", self.percentile_ms(share)));
        outln!("latency   {}", latencies.join(", "));
        outln!("rate      {:.0} requests a second, {:.2} s in all", self.rate(), self.elapsed.as_secs_f64());
    }

    fn view(&self) -> ReportView<'_> {
        ReportView {
            requests: self.requests,
            events: self.events,
            duplicates: self.duplicates,
            accepted: self.accepted,
            refused: self.refused,
            retries: self.retries,
            answers: &self.answers,
            answer: self.answer.as_deref(),
            seconds: self.elapsed.as_secs_f64(),
            requests_per_second: self.rate(),
            p50_ms: self.percentile_ms(0.5),
            p90_ms: self.percentile_ms(0.9),
            p99_ms: self.percentile_ms(0.99),
            max_ms: self.percentile_ms(1.0),
        }
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn percentile_ms(&self, share: f64) -> f64 {
        let place = ((self.latencies.len() as f64 * share) as usize).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(place).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}
