//! Which jobs or events, by what operators ask for.

use std::time::Duration;

use hookfast_webhook::{EventId, JobState, Priority};
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Error, Row};
use uuid::Uuid;

use super::operate::ended;
use crate::decode::{handler, optional_word};
use crate::{Cursor, Filter, Found, Resolution, Which};

/// What holds for events. `starts_with` and not LIKE, which would read signs in the operator's text.
macro_rules! about_event {
    () => {
        "(cardinality($1::uuid[]) = 0 OR events.id = ANY($1))
    AND ($2::text IS NULL OR events.source = $2)
    AND ($3::text IS NULL OR events.event_type = $3)
    AND ($4::text IS NULL OR starts_with(events.event_type, $4))
    AND ($5::text IS NULL OR events.account = $5)
    AND ($6::timestamptz IS NULL OR (events.received_at >= $6 AND events.id >= $11))
    AND ($7::timestamptz IS NULL OR (events.received_at < $7 AND events.id <= $12))
    AND ($14::text IS NULL OR events.dedupe_key = $14 OR events.provider_event_id = $14)
    AND ($15::text IS NULL OR events.object_id = $15)
    AND ($16::text IS NULL OR jsonb_exists(events.tags::jsonb, $16))"
    };
}

macro_rules! about_job {
    ($state:literal) => {
        concat!(
            $state,
            "
    AND ($8::text IS NULL OR jobs.handler = $8)
    AND ($9::text IS NULL OR jobs.reason = $9)
    AND (cardinality($1::uuid[]) = 0 OR jobs.event_id = ANY($1))
    AND ($10::timestamptz IS NULL OR jobs.finished_at IS NULL
        OR (jobs.finished_at <= $10 AND (jobs.reviewed_at IS NULL OR jobs.reviewed_at <= $10)))
    AND jobs.event_id >= $11 AND jobs.event_id <= $12
    AND ($13::text IS NULL OR jobs.state = $13)
    AND ($17::text IS NULL OR jobs.priority = $17)
    AND ($18::timestamptz IS NULL OR (jobs.finished_at >= $18 AND jobs.state <> 'succeeded'))
    AND ($19::timestamptz IS NULL OR (jobs.finished_at < $19 AND jobs.state <> 'succeeded'))
    AND ($20::text IS NULL OR jobs.resolution = $20)
    AND ",
            about_event!()
        )
    };
}

macro_rules! about_unhandled {
    () => {
        concat!(
            "NOT EXISTS (SELECT FROM jobs WHERE jobs.event_id = events.id)
    AND events.id >= $11 AND events.id <= $12
    AND $8::text IS NULL AND $9::text IS NULL AND ($10::timestamptz IS NULL OR TRUE)
    AND $13::text IS NULL
    AND ($17::text IS NULL OR coalesce(events.priority, 'normal') = $17)
    AND $18::timestamptz IS NULL AND $19::timestamptz IS NULL AND $20::text IS NULL
    AND ",
            about_event!()
        )
    };
}

macro_rules! find_jobs {
    ($state:literal, $order:literal) => {
        concat!(
            "
SELECT event_id, handler, state, reason, attempts, due_at, claimed_at, finished_at, resolution, reviewed_at, reviewed_by,
    note, audit_id, source, event_type, account, received_at, jobs.priority, ordering_key,
    (SELECT message FROM attempts
     WHERE attempts.event_id = jobs.event_id AND attempts.handler = jobs.handler AND attempts.failure IS NOT NULL
     ORDER BY started_at DESC, number DESC LIMIT 1) AS message
FROM jobs JOIN events ON events.id = jobs.event_id
WHERE (jobs.event_id, jobs.handler) > ($21, $22)
    AND ",
            about_job!($state),
            "
ORDER BY ",
            $order,
            " LIMIT $23"
        )
    };
}

/// If nothing is asked about the events, Postgres leaves out the left join.
macro_rules! count_jobs {
    ($state:literal) => {
        concat!("SELECT count(*) FROM jobs LEFT JOIN events ON events.id = jobs.event_id WHERE ", about_job!($state))
    };
}

macro_rules! find_unhandled {
    ($order:literal) => {
        concat!(
    "
SELECT id AS event_id, NULL::text AS handler, NULL::text AS state, NULL::text AS reason, 0 AS attempts,
    NULL::timestamptz AS due_at, NULL::timestamptz AS claimed_at, NULL::timestamptz AS finished_at, source, event_type, account, received_at, priority, NULL::text AS resolution,
    NULL::timestamptz AS reviewed_at, NULL::text AS reviewed_by, NULL::text AS note, NULL::uuid AS audit_id,
    NULL::text AS ordering_key, NULL::text AS message
FROM events
WHERE (id, '') > ($21, $22)
    AND ",
            about_unhandled!(),
            "
ORDER BY ",
            $order,
            " LIMIT $23"
        )
    };
}

/// The statement that lists these, in the order that is written for jobs and for events.
macro_rules! find {
    ($which:expr, $jobs:literal, $events:literal) => {
        match $which {
            Which::DeadLetters => find_jobs!("jobs.state = 'dead_letter'", $jobs),
            Which::Succeeded => find_jobs!("jobs.state = 'succeeded'", $jobs),
            Which::Finished => find_jobs!("jobs.state IN ('dead_letter', 'succeeded', 'resolved')", $jobs),
            Which::Unfinished => find_jobs!("jobs.finished_at IS NULL", $jobs),
            Which::Unhandled => find_unhandled!($events),
        }
    };
}

const COUNT_UNHANDLED: &str = concat!("SELECT count(*) FROM events WHERE ", about_unhandled!());

pub(super) async fn find(
    connection: &mut PgConnection,
    which: Which,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Found>, Error> {
    let statement = find!(which, "jobs.event_id, jobs.handler", "id");
    list(connection, statement, filter, after, limit).await
}

pub(super) async fn find_newest(
    connection: &mut PgConnection,
    which: Which,
    filter: &Filter,
    limit: u32,
) -> Result<Vec<Found>, Error> {
    let statement = match which {
        // Those that died last.
        Which::DeadLetters => find!(which, "jobs.finished_at DESC, jobs.event_id DESC, jobs.handler DESC", "id DESC"),
        _ => find!(which, "jobs.event_id DESC, jobs.handler DESC", "id DESC"),
    };
    list(connection, statement, filter, None, limit).await
}

async fn list(
    connection: &mut PgConnection,
    statement: &'static str,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Found>, Error> {
    let rows = with_filter(statement, filter, after)
        .bind(after.map_or(Uuid::nil(), |cursor| cursor.event.0))
        .bind(after.map_or("", |cursor| cursor.handler.as_str()))
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(found).collect()
}

pub(super) async fn count(connection: &mut PgConnection, which: Which, filter: &Filter) -> Result<u64, Error> {
    let statement = match which {
        Which::DeadLetters => count_jobs!("jobs.state = 'dead_letter'"),
        Which::Succeeded => count_jobs!("jobs.state = 'succeeded'"),
        Which::Finished => count_jobs!("jobs.state IN ('dead_letter', 'succeeded', 'resolved')"),
        Which::Unfinished => count_jobs!("jobs.finished_at IS NULL"),
        Which::Unhandled => COUNT_UNHANDLED,
    };
    let row = with_filter(statement, filter, None).fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

/// Begins an operator's question. Only a plan for these very values can use an index for the conditions that are set and
/// forget the others.
pub(super) const BEGIN: &str = "
BEGIN READ ONLY;
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_seqscan = on
";

/// Lets what follows in the transaction take this long at most.
pub(super) async fn limit(connection: &mut PgConnection, at_most: Duration) -> Result<(), Error> {
    // Zero would be no limit.
    let milliseconds = at_most.as_millis().max(1).to_string();
    let set = sqlx::query("SELECT set_config('statement_timeout', $1, true)").bind(milliseconds);
    set.execute(connection).await.map(|_| ())
}

fn with_filter(
    statement: &'static str,
    filter: &Filter,
    after: Option<&Cursor>,
) -> Query<'static, Postgres, PgArguments> {
    let event_type = filter.event_type.as_deref();
    let prefix = event_type.and_then(|event_type| event_type.strip_suffix('*'));
    sqlx::query(statement)
        .bind(filter.events.iter().map(|event| event.0).collect::<Vec<_>>())
        .bind(filter.source.clone())
        .bind(event_type.filter(|_| prefix.is_none()).map(str::to_owned))
        .bind(prefix.map(str::to_owned))
        .bind(filter.account.clone())
        .bind(filter.since)
        .bind(filter.until)
        .bind(filter.handler.clone())
        .bind(filter.failure.map(|failure| failure.as_str()))
        .bind(filter.as_of.map(|moment| moment.at))
        .bind(filter.first_id(after))
        .bind(filter.last_id())
        .bind(filter.state.map(JobState::as_str))
        .bind(filter.key.clone())
        .bind(filter.object_id.clone())
        .bind(filter.tag.clone())
        .bind(filter.priority.map(Priority::as_str))
        .bind(filter.died_since)
        .bind(filter.died_until)
        .bind(filter.resolution.map(Resolution::as_str))
}

fn found(row: &PgRow) -> Result<Found, Error> {
    let name: Option<&str> = row.try_get("handler")?;
    let ended = ended(row)?;
    let finished_at = ended.finished_at;
    let (reason, review) = ended.reason_and_review()?;
    Ok(Found {
        event: EventId(row.try_get("event_id")?),
        handler: name.map(handler).transpose()?,
        state: optional_word(row.try_get("state")?)?,
        reason,
        review,
        message: row.try_get("message")?,
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        due_at: row.try_get("due_at")?,
        claimed_at: row.try_get("claimed_at")?,
        finished_at,
        source: row.try_get("source")?,
        event_type: row.try_get("event_type")?,
        account: row.try_get("account")?,
        received_at: row.try_get("received_at")?,
        priority: optional_word(row.try_get("priority")?)?.unwrap_or_default(),
        ordering_key: row.try_get("ordering_key")?,
    })
}
