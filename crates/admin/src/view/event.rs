//! Events, as a line in a list and in full.

use data_encoding::BASE64;
use hookfast_store::{self as store, Operate, StoreError};
use hookfast_webhook::{EventId, JobState, Priority};
use serde::Serialize;
use time::OffsetDateTime;
use time::serde::rfc3339;

use super::job::views;
use super::{AttemptView, ReviewView};

/// An event as a line in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventSummaryView {
    /// Its id.
    pub id: String,
    /// The source that it came to.
    pub source: String,
    /// The key by which a resend is recognised.
    pub dedupe_key: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The provider's account that it belongs to.
    pub account: Option<String>,
    /// When it happened, according to the provider.
    #[serde(with = "rfc3339::option")]
    pub occurred_at: Option<OffsetDateTime>,
    /// When it arrived.
    #[serde(with = "rfc3339")]
    pub received_at: OffsetDateTime,
    /// The size of its body.
    pub size_bytes: i64,
    /// How often it came again.
    pub resends: i64,
    /// The number of its jobs.
    pub job_count: i64,
}

impl From<&store::EventSummary> for EventSummaryView {
    fn from(event: &store::EventSummary) -> Self {
        Self {
            id: event.id.to_string(),
            source: event.source.clone(),
            dedupe_key: event.dedupe_key.clone(),
            event_type: event.event_type.clone(),
            account: event.account.clone(),
            occurred_at: event.occurred_at,
            received_at: event.received_at,
            size_bytes: event.size_bytes,
            resends: event.resends,
            job_count: event.jobs,
        }
    }
}

/// An event with its request, its jobs and their attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventView {
    /// The fields that a list shows.
    #[serde(flatten)]
    pub summary: EventSummaryView,
    /// How the request was proved genuine.
    pub proof: &'static str,
    /// The id of the object that it is about.
    pub object_id: Option<String>,
    /// Its priority when it came. Events recorded by earlier versions have neither this nor the next five fields.
    pub priority: Option<Priority>,
    /// The provider's own id of the event.
    pub provider_event_id: Option<String>,
    /// The provider's id of the delivery.
    pub delivery_id: Option<String>,
    /// Words by which it can be found.
    pub tags: Vec<String>,
    /// The number of the source's secret that matched, counted from 1.
    pub secret: Option<i32>,
    /// The sender's trace id.
    pub trace_id: Option<String>,
    /// The id of the request.
    pub request_id: String,
    /// The client's address.
    pub remote_address: String,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers. Bytes that are not valid text are replaced.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body_base64: String,
    /// The first and the latest resends.
    pub came_again: Vec<ArrivalView>,
    /// One job for each of its handlers.
    pub jobs: Vec<EventJobView>,
}

impl EventView {
    /// The view of an event with its jobs, as [`jobs_of`] returns them.
    pub fn new(event: &store::StoredEvent, jobs: Vec<EventJobView>) -> Self {
        let header = |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
        Self {
            summary: (&event.summary).into(),
            proof: event.proof.as_str(),
            object_id: event.summary.object_id.clone(),
            priority: event.priority,
            provider_event_id: event.provider_event_id.clone(),
            delivery_id: event.delivery_id.clone(),
            tags: event.tags.clone(),
            secret: event.secret_index.map(|index| index + 1),
            trace_id: event.trace_id.clone(),
            request_id: event.request_id.to_string(),
            remote_address: event.remote_address.clone(),
            method: event.method.clone(),
            url: event.url.clone(),
            headers: event.headers.iter().map(header).collect(),
            body_base64: BASE64.encode(&event.body),
            came_again: event.came_again.iter().map(ArrivalView::from).collect(),
            jobs,
        }
    }
}

/// A resend of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArrivalView {
    /// The number of the resend, counted from 1.
    pub number: i64,
    /// When it arrived.
    #[serde(with = "rfc3339")]
    pub received_at: OffsetDateTime,
    /// The id of the request.
    pub request_id: String,
    /// The client's address.
    pub remote_address: String,
}

impl From<&store::KeptArrival> for ArrivalView {
    fn from(arrival: &store::KeptArrival) -> Self {
        let store::KeptArrival { number, received_at, request_id, remote_address } = arrival;
        Self {
            number: *number,
            received_at: *received_at,
            request_id: request_id.to_string(),
            remote_address: remote_address.clone(),
        }
    }
}

/// A job of an event, with its attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventJobView {
    /// The handler that it is for.
    pub handler: String,
    /// Its state.
    pub state: JobState,
    /// The number of its attempts.
    pub attempts: i64,
    /// When the sweeper looks at it again.
    #[serde(with = "rfc3339")]
    pub due_at: OffsetDateTime,
    /// Its priority.
    pub priority: &'static str,
    /// Why it died, or why its last attempt failed.
    pub reason: Option<String>,
    /// When it ended.
    #[serde(with = "rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// What an operator decided about it.
    pub review: Option<ReviewView>,
    /// Its attempts, the first one first.
    pub history: Vec<AttemptView>,
}

/// The jobs of an event, each with its attempts.
pub async fn jobs_of(store: &dyn Operate, event: EventId) -> Result<Vec<EventJobView>, StoreError> {
    let jobs = store.jobs_of(event).await?;
    let attempts = store.attempts(event).await?;
    let view = |job: store::JobSummary| EventJobView {
        history: views(attempts.get(&job.handler)),
        handler: job.handler,
        state: job.state,
        attempts: job.attempts,
        due_at: job.due_at,
        priority: job.priority.as_str(),
        reason: job.reason,
        finished_at: job.finished_at,
        review: job.review.as_ref().map(ReviewView::from),
    };
    Ok(jobs.into_iter().map(view).collect())
}
