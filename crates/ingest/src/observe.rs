//! Metrics and log lines about requests. [`observe`] is called once for each request, with its outcome.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Record, Recorded};
use hookfast_webhook::{EventId, RequestId, SourceName, UNREADABLE, Unreadable};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::answer::{AnswerTo, Answered};
use crate::http::path::shown;
use crate::log_limit::{Due, LogLimit};
use crate::record::Described;
use crate::rejection::Rejection;
use crate::shared::Caller;
use crate::source::Source;
use crate::stages::Visit;

/// How long a log line about a resend waits for the id of the first event.
const FIND_FIRST_WITHIN: Duration = Duration::from_secs(1);

/// How many lines about resends may wait for their look-ups at the same time. Further lines name the key instead.
static LOOK_UPS: Semaphore = Semaphore::const_new(16);

/// Limits the lines about requests whose path names no source.
static WITHOUT_SOURCE: LogLimit = LogLimit::new();

/// Counts and logs a finished request.
pub(crate) fn observe(visit: Visit<'_>, start: Instant, outcome: &Result<Answered, Rejection>) {
    let metrics = &visit.source.metrics;
    metrics.duration.record(start.elapsed());
    match outcome {
        Ok(answered) => {
            metrics.accepted.increment(1);
            observe_accepted(visit, &answered.to);
        }
        Err(rejection) => {
            metrics.count_rejection(rejection);
            log_rejection(rejection, visit);
        }
    }
}

fn observe_accepted(visit: Visit<'_>, to: &AnswerTo) {
    match to {
        AnswerTo::Handshake => visit.source.metrics.handshakes.increment(1),
        AnswerTo::Events { recorded, .. } if recorded.is_empty() => {}
        AnswerTo::Events { body_bytes, recorded, described } => {
            visit.source.metrics.payload.record(*body_bytes as f64);
            count_events(visit.source, recorded);
            if let Some(events) = described {
                log_events(visit, events, recorded);
            }
        }
    }
}

fn count_events(source: &Source, recorded: &[Recorded]) {
    let count = |which: Recorded| recorded.iter().filter(|recorded| **recorded == which).count() as u64;
    source.metrics.new.increment(count(Recorded::New));
    source.metrics.duplicates.increment(count(Recorded::Duplicate));
}

/// Writes one line about the new events of a request, and one about its resends.
fn log_events(visit: Visit<'_>, events: &[Described], recorded: &[Recorded]) {
    let Caller { request_id, address, trace_id, .. } = visit.caller;
    let source = &visit.source.name;
    let (again, new): (Vec<_>, Vec<_>) =
        events.iter().zip(recorded).partition(|(_, recorded)| **recorded == Recorded::Duplicate);
    if let Some((event, _)) = new.first() {
        let what = and_more(format!("{} {}", event.id, event.event_type), new.len());
        tracing::debug!(%request_id, %source, client = %address, trace_id, "recorded: {what}");
    }
    if let Some((event, _)) = again.first() {
        let Described { dedupe_key, event_type, .. } = event;
        let resend = Resend {
            request_id: *request_id,
            source: source.clone(),
            client: *address,
            trace_id: trace_id.clone(),
            dedupe_key: dedupe_key.clone(),
            event_type: event_type.clone(),
            count: again.len(),
        };
        resend.log(&visit.ingest.store);
    }
}

/// The parts of a resend that the log shows.
struct Resend {
    request_id: RequestId,
    source: SourceName,
    client: IpAddr,
    trace_id: Option<String>,
    /// The key and the type of the first event that came again.
    dedupe_key: String,
    event_type: String,
    /// The number of events that came again.
    count: usize,
}

impl Resend {
    /// Writes the line in a task of its own, because the answer must not wait for the look-up.
    fn log(self, store: &Arc<dyn Record>) {
        let Ok(permit) = LOOK_UPS.try_acquire() else { return self.write(None) };
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let first = timeout(FIND_FIRST_WITHIN, store.first_of(self.source.as_str(), &self.dedupe_key)).await;
            self.write(first.ok().and_then(Result::ok).flatten());
            drop(permit);
        });
    }

    /// `first` is the event that came first with this key: operators can look up that event, and not its resends.
    fn write(&self, first: Option<EventId>) {
        let Self { request_id, source, client, trace_id, dedupe_key, event_type, count } = self;
        let first = first.map_or_else(|| format!("an event with the key {dedupe_key}"), |first| first.to_string());
        let what = and_more(format!("{first} {event_type}"), *count);
        tracing::debug!(%request_id, %source, %client, trace_id, "came again: {what}");
    }
}

/// The first event, and the number of the others.
fn and_more(first: String, count: usize) -> String {
    if count == 1 { first } else { format!("{first} and {} more", count - 1) }
}

pub(crate) fn log_unreadable(problem: &Unreadable, visit: Visit<'_>) {
    let Some(Due { left_out }) = visit.source.log_limit.line(UNREADABLE) else { return };
    let (request_id, source) = (visit.caller.request_id, &visit.source.name);
    tracing::warn!(%request_id, %source, %problem, left_out, "genuine but unreadable: kept whole");
}

/// Logs a request whose path names no source.
pub(crate) fn log_misdirected(rejection: &Rejection, caller: &Caller<'_>, path: &str) {
    let reason = rejection.reason();
    let Some(Due { left_out }) = WITHOUT_SOURCE.line(reason) else { return };
    let Caller { request_id, address, trace_id, .. } = caller;
    let path = shown(path);
    tracing::debug!(%request_id, client = %address, trace_id, reason, left_out, "rejected: {path}");
}

fn log_rejection(rejection: &Rejection, visit: Visit<'_>) {
    let reason = match rejection {
        Rejection::Refused(refused) => refused.refusal.reason(),
        other => other.reason(),
    };
    let Some(Due { left_out }) = visit.source.log_limit.line(reason) else { return };
    let source = &visit.source.name;
    let Caller { request_id, address, trace_id, .. } = visit.caller;
    match rejection {
        Rejection::Refused(refused) => {
            let (refusal, probably) = (&refused.refusal, visit.explain(refused));
            tracing::warn!(%request_id, %source, client = %address, trace_id, reason, left_out, probably, "refused: {refusal}");
        }
        Rejection::AddressNotAllowed | Rejection::TooLarge | Rejection::TooManyEvents | Rejection::Internal => {
            tracing::warn!(%request_id, %source, client = %address, trace_id, reason, left_out, "rejected");
        }
        // Under a flood or an outage there are many of these; the metrics count them.
        _ => tracing::debug!(%request_id, %source, client = %address, trace_id, reason, left_out, "rejected"),
    }
}
