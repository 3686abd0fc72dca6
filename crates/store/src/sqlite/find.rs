//! Which jobs or events, by what operators ask for.

use std::time::{Duration, Instant};

use hookfast_webhook::{EventId, JobState, Priority};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Error, Row};
use uuid::Uuid;

use super::moment::{micros, time};
use super::operate::ended;
use super::rows::id_list;
use crate::decode::{handler, optional_word, word};
use crate::{Cursor, Filter, Found, Resolution, Which};

/// Two texts for lists and one for counting.
struct Texts {
    find: &'static str,
    newest: &'static str,
    count: &'static str,
}

/// What the values of a filter mean for the event. `$1` to `$3` are the first event, the last one and the list of them.
macro_rules! of_event {
    () => {
        "     events.id >= $1 AND events.id <= $2
          AND ($3 IS NULL OR events.id IN (SELECT unhex(value) FROM json_each($3)))
          AND ($4 IS NULL OR events.source = $4)
          AND ($5 IS NULL OR events.event_type = $5)
          AND ($6 IS NULL OR substr(events.event_type, 1, length($6)) = $6)
          AND ($7 IS NULL OR events.account = $7)
          AND ($8 IS NULL OR events.received_at >= $8)
          AND ($9 IS NULL OR events.received_at < $9)
          AND ($16 IS NULL OR events.dedupe_key = $16 OR events.provider_event_id = $16)
          AND ($17 IS NULL OR events.object_id = $17)
          AND ($18 IS NULL OR EXISTS (SELECT 1 FROM json_each(events.tags) WHERE value = $18))"
    };
}

/// CROSS JOIN, so that SQLite begins with the jobs and has them in order.
macro_rules! jobs {
    ($select:literal, $jobs:literal, $end:literal) => {
        concat!(
            "SELECT ", $select, " FROM ", $jobs, " CROSS JOIN events ON events.id = jobs.event_id
             WHERE jobs.event_id >= $1 AND jobs.event_id <= $2
               AND ($10 IS NULL OR jobs.handler = $10) AND ($11 IS NULL OR jobs.reason = $11)
               AND ($12 IS NULL OR (jobs.event_id, jobs.handler) > ($12, $13))
               AND ($14 IS NULL OR jobs.finished_at IS NULL
                    OR (jobs.finished_at <= $14 AND coalesce(jobs.reviewed_at, 0) <= $14))
               AND ($15 IS NULL OR jobs.state = $15)
               AND ($19 IS NULL OR jobs.priority = $19)
               AND ($20 IS NULL OR (jobs.finished_at >= $20 AND jobs.state <> 'succeeded'))
               AND ($21 IS NULL OR (jobs.finished_at < $21 AND jobs.state <> 'succeeded'))
               AND ($22 IS NULL OR jobs.resolution = $22)
               AND ", of_event!(), $end
        )
    };
    (@list $jobs:literal, $end:literal) => {
        jobs!(
            "jobs.event_id, jobs.handler, jobs.state, jobs.reason, jobs.attempts, jobs.due_at, jobs.claimed_at,
             jobs.finished_at, jobs.resolution, jobs.reviewed_at, jobs.reviewed_by, jobs.note, jobs.audit_id, jobs.priority, jobs.ordering_key, events.source, events.event_type, events.account,
             events.received_at,
             (SELECT message FROM attempts
              WHERE attempts.event_id = jobs.event_id AND attempts.handler = jobs.handler AND failure IS NOT NULL
              ORDER BY attempts.rowid DESC LIMIT 1) AS message",
            $jobs,
            $end
        )
    };
    ($jobs:literal) => {
        Texts {
            find: jobs!(@list $jobs, " ORDER BY jobs.event_id, jobs.handler LIMIT $23"),
            newest: jobs!(@list $jobs, " ORDER BY jobs.event_id DESC, jobs.handler DESC LIMIT $23"),
            count: jobs!("count(*)", $jobs, ""),
        }
    };
}

/// An event without a job has no handler and no failure.
macro_rules! unhandled {
    (@list $end:literal) => {
        unhandled!(
            "events.id AS event_id, NULL AS handler, NULL AS state, NULL AS reason, 0 AS attempts, NULL AS due_at,
             NULL AS claimed_at, NULL AS finished_at, NULL AS resolution, NULL AS reviewed_at, NULL AS reviewed_by, NULL AS note,
             NULL AS audit_id, coalesce(events.priority, 'normal') AS priority, NULL AS ordering_key, events.source,
             events.event_type, events.account, events.received_at, NULL AS message",
            $end
        )
    };
    ($select:literal, $end:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM events
             WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.event_id = events.id)
               AND $10 IS NULL AND $11 IS NULL
               AND ($12 IS NULL OR (events.id, '') > ($12, $13)) AND ($14 IS NULL OR TRUE) AND $15 IS NULL
               AND ($19 IS NULL OR coalesce(events.priority, 'normal') = $19)
               AND $20 IS NULL AND $21 IS NULL AND $22 IS NULL
               AND ",
            of_event!(),
            $end
        )
    };
}

/// Their newest are those that died last.
const DEAD_LETTERS: Texts = Texts {
    newest: jobs!(
        @list "(SELECT * FROM jobs WHERE state = 'dead_letter') AS jobs",
        " ORDER BY jobs.finished_at DESC, jobs.event_id DESC, jobs.handler DESC LIMIT $23"
    ),
    ..jobs!("(SELECT * FROM jobs WHERE state = 'dead_letter') AS jobs")
};
const SUCCEEDED: Texts = jobs!("(SELECT * FROM jobs WHERE state = 'succeeded') AS jobs");
const FINISHED: Texts = jobs!("(SELECT * FROM jobs WHERE state IN ('dead_letter', 'succeeded', 'resolved')) AS jobs");
const UNFINISHED: Texts = jobs!("(SELECT * FROM jobs WHERE finished_at IS NULL) AS jobs");
const UNHANDLED: Texts = Texts {
    find: unhandled!(@list " ORDER BY events.id LIMIT $23"),
    newest: unhandled!(@list " ORDER BY events.id DESC LIMIT $23"),
    count: unhandled!("count(*)", ""),
};

fn texts(which: Which) -> Texts {
    match which {
        Which::DeadLetters => DEAD_LETTERS,
        Which::Succeeded => SUCCEEDED,
        Which::Finished => FINISHED,
        Which::Unfinished => UNFINISHED,
        Which::Unhandled => UNHANDLED,
    }
}

/// Unfinished jobs are few among all, and mostly new: nothing before the oldest of them need be read. The `+` keeps SQLite from
/// looking for it in the order of events, which would be through all that is finished.
pub(super) const OLDEST_UNFINISHED: &str = "SELECT min(+event_id) FROM jobs WHERE finished_at IS NULL";

/// The first event that can be among them.
async fn first(readers: &SqlitePool, which: Which, filter: &Filter, after: Option<&Cursor>) -> Result<Uuid, Error> {
    let first = filter.first_id(after);
    if which != Which::Unfinished {
        return Ok(first);
    }
    let oldest: Option<Uuid> = sqlx::query_scalar(OLDEST_UNFINISHED).fetch_one(readers).await?;
    Ok(oldest.map_or(Uuid::max(), |oldest| oldest.max(first)))
}

/// The statements about these jobs.
#[cfg(test)]
pub(super) fn all_texts(which: Which) -> [&'static str; 3] {
    let Texts { find, newest, count } = texts(which);
    [find, newest, count]
}

pub(super) async fn find(
    readers: &SqlitePool,
    which: Which,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Found>, Error> {
    let first = first(readers, which, filter, after).await?;
    let rows = query(texts(which).find, filter, first, after).bind(limit).fetch_all(readers).await?;
    rows.iter().map(found).collect()
}

pub(super) async fn find_newest(
    readers: &SqlitePool,
    which: Which,
    filter: &Filter,
    limit: u32,
) -> Result<Vec<Found>, Error> {
    let first = first(readers, which, filter, None).await?;
    let rows = query(texts(which).newest, filter, first, None).bind(limit).fetch_all(readers).await?;
    rows.iter().map(found).collect()
}

/// How many steps SQLite takes before it looks at the clock again.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// How many there are; nothing if counting takes too long.
pub(super) async fn count(
    readers: &SqlitePool,
    which: Which,
    filter: &Filter,
    within: Duration,
) -> Result<Option<u64>, Error> {
    let first = first(readers, which, filter, None).await?;
    let mut connection = readers.acquire().await?;
    // The limit stays on the connection, so nothing else may be asked on it.
    connection.close_on_drop();
    let end = Instant::now() + within;
    connection.lock_handle().await?.set_progress_handler(STEPS_BETWEEN_LOOKS, move || Instant::now() < end);
    match query(texts(which).count, filter, first, None).fetch_one(&mut *connection).await {
        Err(error) if was_interrupted(&error) => Ok(None),
        counted => counted?.try_get(0).map(Some),
    }
}

fn was_interrupted(error: &Error) -> bool {
    const INTERRUPT: &str = "9";
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == INTERRUPT)
}

fn query<'q>(
    text: &'static str,
    filter: &'q Filter,
    first: Uuid,
    after: Option<&'q Cursor>,
) -> Query<'q, Sqlite, SqliteArguments> {
    let event_type = filter.event_type.as_deref();
    let prefix = event_type.and_then(|event_type| event_type.strip_suffix('*'));
    sqlx::query(text)
        // A condition that may be off is of no use to an index. These two always hold, so few events are a short way.
        .bind(first)
        .bind(filter.last_id())
        .bind((!filter.events.is_empty()).then(|| id_list(&filter.events)))
        .bind(filter.source.as_deref())
        .bind(event_type.filter(|_| prefix.is_none()))
        .bind(prefix)
        .bind(filter.account.as_deref())
        .bind(filter.since.map(micros))
        .bind(filter.until.map(micros))
        .bind(filter.handler.as_deref())
        .bind(filter.failure.map(|kind| kind.as_str()))
        .bind(after.map(|cursor| cursor.event.0))
        .bind(after.map(|cursor| cursor.handler.as_str()))
        .bind(filter.as_of.map(|moment| micros(moment.at)))
        .bind(filter.state.map(JobState::as_str))
        .bind(filter.key.as_deref())
        .bind(filter.object_id.as_deref())
        .bind(filter.tag.as_deref())
        .bind(filter.priority.map(Priority::as_str))
        .bind(filter.died_since.map(micros))
        .bind(filter.died_until.map(micros))
        .bind(filter.resolution.map(Resolution::as_str))
}

fn found(row: &SqliteRow) -> Result<Found, Error> {
    let moment = |column| row.try_get::<Option<i64>, _>(column)?.map(time).transpose();
    let ended = ended(row)?;
    let finished_at = ended.finished_at;
    let (reason, review) = ended.reason_and_review()?;
    Ok(Found {
        event: EventId(row.try_get("event_id")?),
        handler: row.try_get::<Option<&str>, _>("handler")?.map(handler).transpose()?,
        state: optional_word(row.try_get("state")?)?,
        reason,
        review,
        message: row.try_get("message")?,
        attempts: row.try_get("attempts")?,
        due_at: moment("due_at")?,
        claimed_at: moment("claimed_at")?,
        finished_at,
        source: row.try_get("source")?,
        event_type: row.try_get("event_type")?,
        account: row.try_get("account")?,
        received_at: time(row.try_get("received_at")?)?,
        priority: word(row.try_get("priority")?)?,
        ordering_key: row.try_get("ordering_key")?,
    })
}
