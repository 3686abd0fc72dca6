//! `hookfast events`

use std::io::Write;
use std::sync::Arc;

use hookfast_admin::operate::how_many;
use hookfast_store::{
    Attempt, EventSummary, Filter, Found, JobId, JobSummary, KeptArrival, Migrate, Store, StoredEvent, Which, open,
};
use hookfast_webhook::{EventId, HandlerName};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::config::OperatorConfig;
use crate::exit::Exit;

pub(crate) async fn list(config: OperatorConfig, limit: u32, unhandled: bool, as_json: bool) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    if unhandled {
        return list_unhandled(&*store, limit, as_json).await;
    }
    let events = store.latest_events(limit).await?;
    store.close().await;
    if as_json {
        events.iter().for_each(|event| outln!("{}", summary_json(event)));
    } else if events.is_empty() {
        outln!("No events yet. `hookfast serve` prints where to send them.");
    } else {
        print_table(&events);
    }
    Ok(())
}

pub(crate) async fn show(config: OperatorConfig, id: Uuid, raw: bool, as_json: bool) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let event = store.event(EventId(id)).await?;
    let jobs = jobs_with_attempts(&*store, EventId(id)).await?;
    store.close().await;
    let event = event
        .ok_or_else(|| Exit::NotFound(format!("there is no event {id}. `hookfast events list` shows the newest")))?;
    if raw {
        return std::io::stdout().write_all(&event.body).map_err(Exit::failed);
    }
    if as_json {
        outln!("{}", event_json(&event, &jobs));
    } else {
        print_event(&event, &jobs);
    }
    Ok(())
}

async fn list_unhandled(store: &dyn Store, limit: u32, as_json: bool) -> Result<(), Exit> {
    let found = store.find(Which::Unhandled, &Filter::default(), None, limit).await?;
    let count = how_many(store, Which::Unhandled, &Filter::default(), found.len(), limit).await?;
    store.close().await;
    if as_json {
        found.iter().for_each(|found| outln!("{}", found_json(found)));
    } else if found.is_empty() {
        outln!("Every event has a handler.");
    } else {
        print_unhandled(&found);
        outln!("\n{} of {count}. `hookfast replay --unhandled --handler NAME` gives them to a handler.", found.len());
    }
    Ok(())
}

/// A job and its runs.
struct JobHistory {
    job: JobSummary,
    attempts: Vec<Attempt>,
}

async fn jobs_with_attempts(store: &dyn Store, event: EventId) -> Result<Vec<JobHistory>, Exit> {
    let mut jobs = Vec::new();
    for job in store.jobs_of(event).await? {
        let id = JobId { event, handler: HandlerName::new(&job.handler).map_err(Exit::failed)? };
        jobs.push(JobHistory { attempts: store.attempts(&id).await?, job });
    }
    Ok(jobs)
}

pub(crate) async fn open_existing(config: &OperatorConfig) -> Result<Arc<dyn Store>, Exit> {
    if let hookfast_store::StoreUrl::Sqlite(path) = &config.store.url
        && !path.exists()
    {
        return Err(Exit::NotFound(format!("there is no database {} yet. `hookfast serve` makes one", path.display())));
    }
    Ok(open(&config.store, Migrate::Never).await?)
}

fn print_table(events: &[EventSummary]) {
    outln!(
        "{:36}  {:20}  {:16}  {:32}  {:>6}  {:>5}  {:>4}",
        "ID",
        "RECEIVED",
        "SOURCE",
        "TYPE",
        "BYTES",
        "CAME",
        "JOBS"
    );
    for event in events {
        let EventSummary { id, source, event_type, size_bytes, resends, jobs, .. } = event;
        let received = to_the_second(event.received_at);
        let came = format!("{}x", resends + 1);
        outln!("{id}  {received:20}  {source:16}  {event_type:32}  {size_bytes:>6}  {came:>5}  {jobs:>4}");
    }
}

pub(crate) fn print_unhandled(found: &[Found]) {
    outln!("{:36}  {:20}  {:16}  TYPE", "ID", "RECEIVED", "SOURCE");
    for found in found {
        let Found { event, source, .. } = found;
        let received = to_the_second(found.received_at);
        outln!("{event}  {received:20}  {source:16}  {}", plain(&found.event_type));
    }
}

fn print_event(event: &StoredEvent, jobs: &[JobHistory]) {
    let summary = &event.summary;
    let line = |name: &str, value: &str| outln!("{name:12}  {value}");
    line("event", &summary.id.to_string());
    line("type", &summary.event_type);
    line("source", &summary.source);
    line("key", &summary.dedupe_key);
    line("account", summary.account.as_deref().unwrap_or("-"));
    line("occurred", &summary.occurred_at.map_or("-".into(), rfc3339));
    line("received", &rfc3339(summary.received_at));
    line("came", &format!("{}x", summary.resends + 1));
    event.came_again.iter().for_each(|arrival| line("", &arrival_line(arrival)));
    line("from", &event.remote_address);
    line("proof", event.proof.as_str());
    line("request", &event.request_id.to_string());
    for JobHistory { job, attempts } in jobs {
        let reason = job.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        line("job", &format!("{} is {}{reason}, {} attempts", job.handler, job.state, job.attempts));
        attempts.iter().for_each(|attempt| line("", &attempt_line(attempt)));
    }
    // The sender wrote the query, and this is a terminal.
    outln!("\n{} {}", event.method, event.url.escape_default());
    for (name, value) in event.headers.iter() {
        outln!("{name}: {}", value.escape_ascii());
    }
    outln!("\n{} bytes of body: `hookfast events show {} --raw` prints them", summary.size_bytes, summary.id);
}

fn arrival_line(arrival: &KeptArrival) -> String {
    let KeptArrival { number, received_at, request_id, remote_address } = arrival;
    format!("again #{number}  {}  from {remote_address}  request {request_id}", to_the_second(*received_at))
}

fn arrival_json(arrival: &KeptArrival) -> Value {
    json!({
        "number": arrival.number,
        "received_at": rfc3339(arrival.received_at),
        "request_id": arrival.request_id.to_string(),
        "remote_address": arrival.remote_address,
    })
}

/// A run in one line. The sender of the event may have had a hand in the message.
pub(crate) fn attempt_line(attempt: &Attempt) -> String {
    let Attempt { number, started_at, duration, failure, message, worker } = attempt;
    let outcome = match (failure, message) {
        (None, _) => "succeeded".into(),
        (Some(failure), None) => failure.to_string(),
        (Some(failure), Some(message)) => format!("{failure}: {}", plain(message)),
    };
    let took = format!("{:.3} s", duration.as_secs_f64());
    format!("#{number}  {}  {took:>9}  {}  {outcome}", to_the_second(*started_at), plain(worker))
}

fn event_json(event: &StoredEvent, jobs: &[JobHistory]) -> Value {
    let mut object = summary_json(&event.summary);
    object["proof"] = event.proof.as_str().into();
    object["request_id"] = event.request_id.to_string().into();
    object["remote_address"] = event.remote_address.clone().into();
    object["method"] = event.method.clone().into();
    object["url"] = event.url.clone().into();
    object["headers"] =
        event.headers.iter().map(|(name, value)| json!([name, String::from_utf8_lossy(value)])).collect();
    object["body_base64"] = data_encoding::BASE64.encode(&event.body).into();
    object["came_again"] = event.came_again.iter().map(arrival_json).collect();
    object["jobs"] = jobs.iter().map(job_json).collect();
    object
}

fn job_json(history: &JobHistory) -> Value {
    let JobHistory { job, attempts } = history;
    json!({
        "handler": job.handler,
        "state": job.state,
        "attempts": job.attempts,
        "due_at": rfc3339(job.due_at),
        "priority": job.priority,
        "reason": job.reason,
        "history": attempts.iter().map(attempt_json).collect::<Vec<_>>(),
    })
}

pub(crate) fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "started_at": rfc3339(attempt.started_at),
        "duration_ms": attempt.duration.as_secs_f64() * 1000.0,
        "failure": attempt.failure,
        "message": attempt.message,
        "worker": attempt.worker,
    })
}

pub(crate) fn found_json(found: &Found) -> Value {
    json!({
        "event_id": found.event.to_string(),
        "handler": found.handler.as_ref().map(HandlerName::as_str),
        "state": found.state,
        "reason": found.reason,
        "message": found.message,
        "attempts": found.attempts,
        "due_at": found.due_at.map(rfc3339),
        "claimed_at": found.claimed_at.map(rfc3339),
        "finished_at": found.finished_at.map(rfc3339),
        "source": found.source,
        "type": found.event_type,
        "account": found.account,
        "received_at": rfc3339(found.received_at),
        "priority": found.priority.as_str(),
        "ordering_key": found.ordering_key,
    })
}

fn summary_json(event: &EventSummary) -> Value {
    json!({
        "id": event.id.to_string(),
        "source": event.source,
        "dedupe_key": event.dedupe_key,
        "type": event.event_type,
        "account": event.account,
        "occurred_at": event.occurred_at.map(rfc3339),
        "received_at": rfc3339(event.received_at),
        "size_bytes": event.size_bytes,
        "resends": event.resends,
        "job_count": event.jobs,
    })
}

pub(crate) fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

pub(crate) fn to_the_second(time: OffsetDateTime) -> String {
    rfc3339(time.replace_nanosecond(0).unwrap_or(time))
}

/// Text for a terminal: what would not be printed but obeyed is written out.
pub(crate) fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(plain("it's \"fine\" \\ ü"), "it's \"fine\" \\ ü");
        assert_eq!(plain("\x1b[2Jgone\r\n\u{202e}"), "\\u{1b}[2Jgone\\r\\n\\u{202e}");
    }
}
