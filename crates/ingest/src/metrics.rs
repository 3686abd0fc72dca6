//! The metrics of receiving. Handles are made once, because looking up a series costs more than counting.

use hookfast_webhook::{Proof, Refusal, Secrets, SourceName};
use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};

use crate::rejection::Rejection;

/// The series of one source.
pub(crate) struct SourceMetrics {
    pub(crate) accepted: Counter,
    pub(crate) new: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) unreadable: Counter,
    pub(crate) handshakes: Counter,
    pub(crate) duration: Histogram,
    pub(crate) payload: Histogram,
    rejected: Vec<(&'static str, Counter)>,
    refused: Vec<(&'static str, Counter)>,
    by_secret: Vec<Counter>,
}

impl SourceMetrics {
    pub(crate) fn new(source: &SourceName, secrets: &Secrets) -> Self {
        let source = source.to_string();
        let requests = |outcome: &'static str| counter!("hookfast_ingest_requests_total", "source" => source.clone(), "outcome" => outcome);
        let refusals = |reason: &'static str| counter!("hookfast_verify_failures_total", "source" => source.clone(), "reason" => reason);
        let matches = |number: usize| counter!("hookfast_secret_matches_total", "source" => source.clone(), "secret" => number.to_string());
        Self {
            accepted: requests("accepted"),
            new: counter!("hookfast_events_total", "source" => source.clone()),
            duplicates: counter!("hookfast_duplicates_total", "source" => source.clone()),
            unreadable: counter!("hookfast_unreadable_total", "source" => source.clone()),
            handshakes: counter!("hookfast_handshakes_total", "source" => source.clone()),
            duration: histogram!("hookfast_ingest_duration_seconds", "source" => source.clone()),
            payload: histogram!("hookfast_ingest_payload_bytes", "source" => source.clone()),
            rejected: Rejection::REASONS.iter().map(|reason| (*reason, requests(reason))).collect(),
            refused: Refusal::REASONS.iter().map(|reason| (*reason, refusals(reason))).collect(),
            by_secret: (1..=secrets.iter().count()).map(matches).collect(),
        }
    }

    /// Counts the secret that matched, so that an operator sees when an old one is no longer used.
    pub(crate) fn count_proof(&self, proof: Proof) {
        if let Some(counter) = proof.secret_index().and_then(|index| self.by_secret.get(index)) {
            counter.increment(1);
        }
    }

    pub(crate) fn count_rejection(&self, rejection: &Rejection) {
        increment(&self.rejected, rejection.reason());
        if let Rejection::Refused(refused) = rejection {
            increment(&self.refused, refused.refusal.reason());
        }
    }
}

fn increment(counters: &[(&'static str, Counter)], reason: &str) {
    if let Some((_, counter)) = counters.iter().find(|(known, _)| *known == reason) {
        counter.increment(1);
    }
}

/// Describes the series. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!("hookfast_ingest_requests_total", "Requests by source and outcome");
    describe_counter!("hookfast_events_total", "New events recorded");
    describe_counter!("hookfast_duplicates_total", "Events that had been recorded before");
    describe_counter!("hookfast_unreadable_total", "Genuine requests that could not be read and were kept whole");
    describe_counter!("hookfast_verify_failures_total", "Requests that are not genuine, by reason");
    describe_counter!("hookfast_handshakes_total", "Handshakes answered");
    describe_counter!("hookfast_secret_matches_total", "Genuine requests by the secret that matched, counted from 1");
    describe_histogram!("hookfast_ingest_duration_seconds", Unit::Seconds, "From the head of a request to its answer");
    describe_histogram!("hookfast_ingest_payload_bytes", Unit::Bytes, "Sizes of accepted bodies");
    describe_histogram!("hookfast_commit_events", "Events in one commit");
    describe_histogram!("hookfast_commit_duration_seconds", Unit::Seconds, "Duration of a commit");
    describe_counter!("hookfast_connections_refused_total", "Connections refused because too many were open");
    describe_counter!(
        "hookfast_connections_evicted_total",
        "Silent connections closed for new ones, because too many were open"
    );
    describe_gauge!("hookfast_connections", "Open connections");
    describe_gauge!("hookfast_spooling", "1 while events are recorded into the spool of this machine, else 0");
    describe_gauge!("hookfast_spool_events", "Events waiting in the spool");
    describe_gauge!(
        "hookfast_spool_refused_events",
        "Events in the spool that are set aside because the store did not take them; an operator must look at them"
    );
    describe_gauge!("hookfast_spool_bytes", Unit::Bytes, "Bytes of the spool in use");
    describe_gauge!("hookfast_spool_max_bytes", Unit::Bytes, "Largest size of the spool");
    describe_gauge!("hookfast_spool_oldest_age_seconds", Unit::Seconds, "Age of the oldest event in the spool");
    describe_counter!("hookfast_spooled_events_total", "Events recorded into the spool");
    describe_counter!("hookfast_drained_events_total", "Events moved from the spool to the store");
    describe_counter!(
        "hookfast_spool_failures_total",
        "Events that the spool did not take: it is full, or its disk fails"
    );
}
