//! Recording a batch: keys first, and whatever they say is new goes into the other tables.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use hookfast_webhook::EventId;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::moment::{after, micros};
use super::rows::{ManyRows, ROWS_MAX, Together, Values};
use crate::{NewJob, Recorded, Routed, headers};

// OR ROLLBACK, because without it SQLite keeps a copy of every page that a statement changes, to be able to undo just
// this statement; we undo the whole batch.

static TAKE_NEW_KEYS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new("INSERT OR ROLLBACK INTO dedupe_keys (source, dedupe_key, event_id) SELECT * FROM {rows}", 3)
});

static TAKE_KEYS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT OR ROLLBACK INTO dedupe_keys (source, dedupe_key, event_id)
         SELECT * FROM {rows} WHERE true ON CONFLICT DO NOTHING",
        3,
    )
});

static WHOSE_KEYS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "SELECT known.event_id FROM {rows} CROSS JOIN dedupe_keys AS known
         WHERE known.source = column1 AND known.dedupe_key = column2 AND known.event_id = column3",
        3,
    )
});

static INSERT_EVENTS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT OR ROLLBACK INTO events
         (id, source, dedupe_key, event_type, account, occurred_at, received_at, proof, request_id, remote_address,
          method, url, headers, body, object_id)
         SELECT * FROM {rows}",
        15,
    )
});

static INSERT_JOBS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT OR ROLLBACK INTO jobs (event_id, handler, due_at, priority, ordering_key) SELECT * FROM {rows}",
        5,
    )
});

static INSERT_RESENDS: LazyLock<ManyRows> = LazyLock::new(|| {
    ManyRows::new(
        "INSERT OR ROLLBACK INTO resends (source, dedupe_key, received_at, request_id, remote_address)
         SELECT * FROM {rows}",
        5,
    )
});

/// Records a batch. Somebody should look at its jobs after `grace`.
pub(super) async fn record(
    writer: &mut SqliteConnection,
    events: &[Routed],
    grace: Duration,
) -> Result<Vec<Recorded>, sqlx::Error> {
    if let Some(batch) = all_new(events, grace) {
        match batch.execute(writer).await {
            Ok(()) => return Ok(vec![Recorded::New; events.len()]),
            Err(error) => {
                // If this fails, there was no transaction left to end.
                let _ = sqlx::query("ROLLBACK").execute(&mut *writer).await;
                if !error.as_database_error().is_some_and(|error| error.is_unique_violation()) {
                    return Err(error);
                }
            }
        }
    }
    record_asking(writer, events, grace).await
}

/// The whole batch as one text, for the case that every event in it is new. It fails as a whole if one is not.
///
/// sqlx hands each text to SQLite's thread and waits for it, so five texts would be five hand-overs for each batch.
fn all_new(events: &[Routed], grace: Duration) -> Option<Together> {
    let all: Vec<_> = events.iter().collect();
    let jobs = jobs_of(&all);
    let fits = events.len() <= ROWS_MAX && jobs.len() <= ROWS_MAX && crate::in_statements(&all).nth(1).is_none();
    fits.then(|| {
        let due_at = after(grace);
        Together::default()
            .then("BEGIN IMMEDIATE")
            .then_rows(&TAKE_NEW_KEYS, events, bind_key)
            .then_rows(&INSERT_EVENTS, events, bind_event)
            .then_rows(&INSERT_JOBS, &jobs, |job, values| bind_job(job, due_at, values))
            .then("COMMIT")
    })
}

/// Records a batch of which some events may have been there before.
async fn record_asking(
    writer: &mut SqliteConnection,
    events: &[Routed],
    grace: Duration,
) -> Result<Vec<Recorded>, sqlx::Error> {
    // IMMEDIATE, because a transaction that begins with reading cannot wait for another writer.
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *writer).await?;
    let recorded = match insert(writer, events, grace).await {
        Ok(recorded) => sqlx::query("COMMIT").execute(&mut *writer).await.map(|_| recorded),
        Err(error) => Err(error),
    };
    if recorded.is_err() {
        // If this fails too, there was no transaction left to end.
        let _ = sqlx::query("ROLLBACK").execute(writer).await;
    }
    recorded
}

async fn insert(
    writer: &mut SqliteConnection,
    events: &[Routed],
    grace: Duration,
) -> Result<Vec<Recorded>, sqlx::Error> {
    let recorded = take_keys(writer, events).await?;
    let with = |wanted| events.iter().zip(&recorded).filter(move |(_, recorded)| **recorded == wanted);
    let new: Vec<_> = with(Recorded::New).map(|(routed, _)| routed).collect();
    let resent: Vec<_> = with(Recorded::Duplicate).map(|(routed, _)| routed).collect();
    for part in crate::in_statements(&new) {
        INSERT_EVENTS.execute(writer, part, |routed, values| bind_event(routed, values)).await?;
    }
    INSERT_RESENDS.execute(writer, &resent, |routed, values| bind_resend(routed, values)).await?;

    let due_at = after(grace);
    INSERT_JOBS.execute(writer, &jobs_of(&new), |job, values| bind_job(job, due_at, values)).await?;
    Ok(recorded)
}

pub(super) type Job<'a> = (EventId, &'a NewJob);

pub(super) fn jobs_of<'a>(events: &[&'a Routed]) -> Vec<Job<'a>> {
    events.iter().flat_map(|routed| routed.jobs.iter().map(|job| (routed.event.id(), job))).collect()
}

/// Takes the keys that are free. Mostly all are, and then it need not be asked which.
async fn take_keys(writer: &mut SqliteConnection, events: &[Routed]) -> Result<Vec<Recorded>, sqlx::Error> {
    let taken = TAKE_KEYS.execute(writer, events, bind_key).await?;
    if taken == events.len() as u64 {
        return Ok(vec![Recorded::New; events.len()]);
    }
    let rows = WHOSE_KEYS.fetch(writer, events, bind_key).await?;
    let new = rows.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<Uuid>, _>>()?;
    Ok(events.iter().map(|routed| crate::recorded(&new, routed)).collect())
}

fn bind_key(routed: &Routed, values: &mut Values) {
    let event = &routed.event;
    values.add(event.delivery().arrival.source.as_str()).add(event.dedupe_key().as_str()).add(event.id().0);
}

pub(super) fn bind_job((event_id, job): &Job<'_>, due_at: i64, values: &mut Values) {
    values
        .add(event_id.0)
        .add(job.handler.as_str())
        .add(due_at)
        .add(job.priority.as_str())
        .add(job.ordering_key.as_deref());
}

pub(super) fn bind_event(routed: &Routed, values: &mut Values) {
    let event = &routed.event;
    let (arrival, request) = (&event.delivery().arrival, &event.delivery().request);
    let mut headers = Vec::with_capacity(512);
    headers::write(&request.headers, &mut headers);
    values
        .add(event.id().0)
        .add(arrival.source.as_str())
        .add(event.dedupe_key().as_str())
        .add(event.event_type().as_str())
        .add(event.account().map(|account| account.as_str()))
        .add(event.occurred_at().map(micros))
        .add(micros(arrival.received_at))
        .add(event.delivery().proof.kind())
        .add(arrival.request_id.0)
        .add(arrival.remote_address.to_string())
        .add(request.method.as_str())
        .add(request.url.as_str())
        .add(headers)
        .add(&event.body()[..])
        .add(event.object_id().map(|object| object.as_str()));
}

fn bind_resend(routed: &Routed, values: &mut Values) {
    let arrival = &routed.event.delivery().arrival;
    values
        .add(arrival.source.as_str())
        .add(routed.event.dedupe_key().as_str())
        .add(micros(arrival.received_at))
        .add(arrival.request_id.0)
        .add(arrival.remote_address.to_string());
}
