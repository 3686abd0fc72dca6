//! `hookfast events`

use std::io::Write;
use std::sync::Arc;

use hookfast_store::{EventSummary, JobSummary, Migrate, Store, StoredEvent, open};
use hookfast_webhook::EventId;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::Config;
use crate::exit::Exit;

pub(crate) async fn list(config: Config, limit: u32, as_json: bool) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
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

pub(crate) async fn show(config: Config, id: Uuid, raw: bool, as_json: bool) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let event = store.event(EventId(id)).await?;
    let jobs = store.jobs_of(EventId(id)).await?;
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

async fn open_existing(config: &Config) -> Result<Arc<dyn Store>, Exit> {
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

fn print_event(event: &StoredEvent, jobs: &[JobSummary]) {
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
    line("from", &event.remote_address);
    line("proof", &event.proof);
    line("request", &event.request_id.to_string());
    for job in jobs {
        line("job", &format!("{} is {}, {} attempts", job.handler, job.state, job.attempts));
    }
    // Whoever sent it wrote the query, and this is a terminal.
    outln!("\n{} {}", event.method, event.url.escape_default());
    for (name, value) in event.headers.iter() {
        outln!("{name}: {}", value.escape_ascii());
    }
    outln!("\n{} bytes of body: `hookfast events show {} --raw` prints them", summary.size_bytes, summary.id);
}

fn event_json(event: &StoredEvent, jobs: &[JobSummary]) -> Value {
    let mut object = summary_json(&event.summary);
    object["proof"] = event.proof.clone().into();
    object["request_id"] = event.request_id.to_string().into();
    object["remote_address"] = event.remote_address.clone().into();
    object["method"] = event.method.clone().into();
    object["url"] = event.url.clone().into();
    object["headers"] =
        event.headers.iter().map(|(name, value)| json!([name, String::from_utf8_lossy(value)])).collect();
    object["body_base64"] = data_encoding::BASE64.encode(&event.body).into();
    object["jobs"] = jobs.iter().map(job_json).collect();
    object
}

fn job_json(job: &JobSummary) -> Value {
    json!({"handler": job.handler, "state": job.state, "attempts": job.attempts, "due_at": rfc3339(job.due_at)})
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

fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

fn to_the_second(time: OffsetDateTime) -> String {
    rfc3339(time.replace_nanosecond(0).unwrap_or(time))
}
