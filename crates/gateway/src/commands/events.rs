//! `hookfast events`

use std::io::Write;

use clap::{Args, Subcommand};
use hookfast_admin::operate::how_many;
use hookfast_admin::view::{self, EventJobView, ReviewView};
use hookfast_store::{EventSummary, Filter, KeptArrival, Operate, StoredEvent, Which};
use hookfast_webhook::EventId;
use uuid::Uuid;

use super::tables::{attempt_line, print_json, print_unhandled, rfc3339, to_the_second};
use super::{filter, open_existing};
use crate::config::OperatorConfig;
use crate::exit::Exit;
use crate::printable::plain;

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// List events, the newest first
    List(ListArguments),
    /// Show one event with its request, its jobs and their attempts
    Show(ShowArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Print at most this many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = filter::at_least_one())]
    limit: u32,

    /// List only events without a handler, the oldest first
    #[arg(long)]
    unhandled: bool,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The event's id
    #[arg(value_parser = filter::id)]
    id: Uuid,

    /// Print the body alone, byte for byte
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(config: OperatorConfig, command: EventsCommand) -> Result<(), Exit> {
    match command {
        EventsCommand::List(arguments) => list(config, &arguments).await,
        EventsCommand::Show(arguments) => show(config, &arguments).await,
    }
}

async fn list(config: OperatorConfig, arguments: &ListArguments) -> Result<(), Exit> {
    let ListArguments { limit, unhandled, json: as_json } = *arguments;
    let store = open_existing(&config).await?;
    if unhandled {
        list_unhandled(&*store, limit, as_json).await?;
        store.close().await;
        return Ok(());
    }
    let events = store.latest_events(limit).await?;
    store.close().await;
    if as_json {
        events.iter().for_each(|event| print_json(&view::EventSummaryView::from(event)));
    } else if events.is_empty() {
        outln!("No events yet. `hookfast serve` prints where to send them.");
    } else {
        print_table(&events);
    }
    Ok(())
}

async fn show(config: OperatorConfig, arguments: &ShowArguments) -> Result<(), Exit> {
    let ShowArguments { id, raw, json: as_json } = *arguments;
    let store = open_existing(&config).await?;
    let event = store.event(EventId(id)).await?;
    let jobs = view::jobs_of(&*store, EventId(id)).await?;
    store.close().await;
    let event = event
        .ok_or_else(|| Exit::NotFound(format!("there is no event {id}. `hookfast events list` shows the newest")))?;
    if raw {
        return std::io::stdout().write_all(&event.body).map_err(Exit::failed);
    }
    if as_json {
        print_json(&view::EventView::new(&event, jobs));
    } else {
        print_event(&event, &jobs);
    }
    Ok(())
}

async fn list_unhandled(store: &dyn Operate, limit: u32, as_json: bool) -> Result<(), Exit> {
    let found = store.find(Which::Unhandled, &Filter::default(), None, limit).await?;
    let count = how_many(store, Which::Unhandled, &Filter::default(), found.len(), limit).await?;
    if as_json {
        found.iter().for_each(|found| print_json(&view::JobView::from(found)));
    } else if found.is_empty() {
        outln!("Every event has a handler.");
    } else {
        print_unhandled(&found);
        outln!("\n{} of {count}. `hookfast replay --unhandled --handler NAME` gives them to a handler.", found.len());
    }
    Ok(())
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

fn print_event(event: &StoredEvent, jobs: &[EventJobView]) {
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
    print_found_by(event);
    line("request", &event.request_id.to_string());
    for job in jobs {
        let reason = job.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let attempts = if job.attempts == 1 { "1 attempt".into() } else { format!("{} attempts", job.attempts) };
        line("job", &format!("{}: {}{reason} after {attempts}", job.handler, job.state));
        job.review.iter().for_each(|review| line("", &review_line(review)));
        job.history.iter().for_each(|attempt| line("", &attempt_line(attempt)));
    }
    // The sender wrote the query, and this is a terminal.
    outln!("\n{} {}", event.method, event.url.escape_default());
    for (name, value) in event.headers.iter() {
        outln!("{name}: {}", value.escape_ascii());
    }
    outln!("\n{} bytes of body: `hookfast events show {} --raw` prints them", summary.size_bytes, summary.id);
}

/// How it was proved genuine, and what it is found by.
fn print_found_by(event: &StoredEvent) {
    let proof = match event.secret_index {
        Some(index) => format!("{}, secret number {}", event.proof, index + 1),
        None => event.proof.to_string(),
    };
    let lines = [
        ("proof", Some(proof)),
        ("object", event.summary.object_id.clone()),
        ("provider id", event.provider_event_id.clone()),
        ("delivery", event.delivery_id.clone()),
        ("priority", event.priority.map(|priority| priority.to_string())),
        ("tags", (!event.tags.is_empty()).then(|| event.tags.join(", "))),
        ("trace", event.trace_id.clone()),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            outln!("{name:12}  {value}");
        }
    }
}

/// What an operator decided about a job, in one line.
fn review_line(review: &ReviewView) -> String {
    let ReviewView { resolution, reviewed_at, reviewed_by, note, .. } = review;
    let by = reviewed_by.as_deref().map(|by| format!(" by {}", plain(by))).unwrap_or_default();
    let note = note.as_deref().map(|note| format!(": {}", plain(note))).unwrap_or_default();
    format!("{resolution} {}{by}{note}", to_the_second(*reviewed_at))
}

fn arrival_line(arrival: &KeptArrival) -> String {
    let KeptArrival { number, received_at, request_id, remote_address } = arrival;
    format!("again #{number}  {}  from {remote_address}  request {request_id}", to_the_second(*received_at))
}
