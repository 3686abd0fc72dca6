//! Jobs, their attempts and their effects.

use std::collections::BTreeMap;

use hookfast_store::{self as store, AskError, Filter, Found, Operate, Which};
use hookfast_webhook::{EventId, HandlerName, JobState};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::serde::rfc3339;

use crate::operate::HandlerJobs;

/// A job as a line in a list, or an event without a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// The event.
    pub event_id: String,
    /// The handler, if there is a job.
    pub handler: Option<String>,
    /// The job's state.
    pub state: Option<JobState>,
    /// Why it died.
    pub reason: Option<String>,
    /// What an operator decided about it.
    pub review: Option<ReviewView>,
    /// The message of the last attempt that failed.
    pub message: Option<String>,
    /// The number of its attempts.
    pub attempts: u32,
    /// When the sweeper looks at it next. While a worker has the job, this is the end of the lease.
    #[serde(with = "rfc3339::option")]
    pub due_at: Option<OffsetDateTime>,
    /// When a worker claimed it, while one has it.
    #[serde(with = "rfc3339::option")]
    pub claimed_at: Option<OffsetDateTime>,
    /// When it ended.
    #[serde(with = "rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// The source of the event.
    pub source: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The provider's account that the event belongs to.
    pub account: Option<String>,
    /// When the event arrived.
    #[serde(with = "rfc3339")]
    pub received_at: OffsetDateTime,
    /// The priority of the job.
    pub priority: &'static str,
    /// The job's ordering key.
    pub ordering_key: Option<String>,
}

impl From<&Found> for JobView {
    fn from(found: &Found) -> Self {
        Self {
            event_id: found.event.to_string(),
            handler: found.handler.as_ref().map(ToString::to_string),
            state: found.state,
            reason: found.reason.clone(),
            review: found.review.as_ref().map(ReviewView::from),
            message: found.message.clone(),
            attempts: found.attempts,
            due_at: found.due_at,
            claimed_at: found.claimed_at,
            finished_at: found.finished_at,
            source: found.source.clone(),
            event_type: found.event_type.clone(),
            account: found.account.clone(),
            received_at: found.received_at,
            priority: found.priority.as_str(),
            ordering_key: found.ordering_key.clone(),
        }
    }
}

/// What an operator decided about a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReviewView {
    /// The decision.
    pub resolution: &'static str,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub reviewed_at: OffsetDateTime,
    /// The operator.
    pub reviewed_by: Option<String>,
    /// The operator's reason.
    pub note: Option<String>,
    /// The id of the audit row.
    pub audit: Option<String>,
}

impl From<&store::Review> for ReviewView {
    fn from(review: &store::Review) -> Self {
        Self {
            resolution: review.resolution.as_str(),
            reviewed_at: review.at,
            reviewed_by: review.by.clone(),
            note: review.note.clone(),
            audit: review.audit.map(|audit| audit.to_string()),
        }
    }
}

/// A job, and whether its handler is in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedJobView {
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
    /// Whether its handler is configured.
    pub configured: bool,
}

/// A dead letter with its history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadLetterView {
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
    /// Its attempts, the first one first.
    pub history: Vec<AttemptView>,
    /// The markers of its effects, by key.
    pub effects: Vec<EffectView>,
}

/// The dead letters of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadLettersView {
    /// The event.
    pub event_id: String,
    /// Its dead letters, one for each handler.
    pub dead_letters: Vec<DeadLetterView>,
}

/// The unfinished jobs and dead letters of a handler, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandlerJobsView {
    /// The handler.
    pub handler: String,
    /// Whether it is configured.
    pub configured: bool,
    /// The number of jobs in each state.
    pub jobs: BTreeMap<JobState, u64>,
}

impl From<&HandlerJobs> for HandlerJobsView {
    fn from(of: &HandlerJobs) -> Self {
        let HandlerJobs { handler, is_configured, by_state } = of;
        Self { handler: handler.clone(), configured: *is_configured, jobs: by_state.clone() }
    }
}

/// An attempt: one run of a job and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptView {
    /// Its number, counted from 1. A replay starts again at 1.
    pub number: u32,
    /// When it began.
    #[serde(with = "rfc3339")]
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration_ms: f64,
    /// The kind of the failure, if it failed.
    pub failure: Option<String>,
    /// The message of the failure.
    pub message: Option<String>,
    /// The worker that ran it.
    pub worker: String,
}

impl From<&store::Attempt> for AttemptView {
    fn from(attempt: &store::Attempt) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at,
            duration_ms: attempt.duration.as_secs_f64() * 1000.0,
            failure: attempt.failure.as_ref().map(ToString::to_string),
            message: attempt.message.clone(),
            worker: attempt.worker.clone(),
        }
    }
}

/// The marker of a side effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectView {
    /// The key that the handler gave it.
    pub key: String,
    /// The idempotency key that is sent to the other side.
    pub idempotency_key: String,
    /// How often it was begun.
    pub runs: u32,
    /// Whether it is done.
    pub done: bool,
    /// When it was done.
    #[serde(with = "rfc3339::option")]
    pub done_at: Option<OffsetDateTime>,
    /// Its result.
    pub result: Option<Value>,
}

impl From<&store::Effect> for EffectView {
    fn from(effect: &store::Effect) -> Self {
        Self {
            key: effect.key.clone(),
            idempotency_key: effect.id.to_string(),
            runs: effect.runs,
            done: effect.is_done,
            done_at: effect.done_at,
            result: effect.result.as_deref().and_then(|result| serde_json::from_str(result).ok()),
        }
    }
}

/// A limit that the number of handlers never reaches.
const EVERY_HANDLER: u32 = 10_000;

/// The dead letters of an event, or only the one of `handler`.
pub async fn dead_letters_of(
    store: &dyn Operate,
    event: EventId,
    handler: Option<&str>,
) -> Result<Vec<DeadLetterView>, AskError> {
    let filter = Filter { events: vec![event], handler: handler.map(Into::into), ..Filter::default() };
    let found = store.find(Which::DeadLetters, &filter, None, EVERY_HANDLER).await?;
    let (attempts, effects) = (store.attempts(event).await?, store.effects(event).await?);
    let view = |(found, handler): (&Found, &HandlerName)| DeadLetterView {
        job: found.into(),
        history: views(attempts.get(handler.as_str())),
        effects: views(effects.get(handler.as_str())),
    };
    Ok(found.iter().filter_map(|found| Some((found, found.handler.as_ref()?))).map(view).collect())
}

/// The views of what a job has.
pub(super) fn views<'a, T, V: From<&'a T>>(rows: Option<&'a Vec<T>>) -> Vec<V> {
    rows.into_iter().flatten().map(V::from).collect()
}
