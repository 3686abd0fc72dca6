//! One row of the table `events`, for both databases, the spool and the drain. It is made of a routed event, or read back from
//! a spool, and each database binds it in one place (`sqlite/event_row.rs`, `postgres/event_row.rs`).

use std::borrow::Cow;
use std::time::Duration;

use hookfast_webhook::{Event, Label, ProofKind};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Routed, head, operate};

/// The columns of an event, in the order in which both databases bind them.
macro_rules! event_columns {
    () => {
        "id, source, dedupe_key, received_at, request_id, remote_address, event_type, account, occurred_at, proof, method,
         url, headers, body, object_id, priority, provider_event_id, delivery_id, tags, trace_id, secret_index,
         key_window_us"
    };
}

pub(crate) use event_columns;

/// The values of these columns.
#[derive(Debug, Clone)]
pub(crate) struct EventRow<'a> {
    pub(crate) id: Uuid,
    pub(crate) source: Cow<'a, str>,
    pub(crate) dedupe_key: Cow<'a, str>,
    pub(crate) received_at: OffsetDateTime,
    pub(crate) request_id: Uuid,
    pub(crate) remote_address: Cow<'a, str>,
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) account: Option<Cow<'a, str>>,
    pub(crate) occurred_at: Option<OffsetDateTime>,
    pub(crate) proof: Cow<'a, str>,
    pub(crate) method: Cow<'a, str>,
    /// Empty if the head of the request stands in `request_heads`, as are the headers.
    pub(crate) url: Cow<'a, str>,
    pub(crate) headers: Cow<'a, [u8]>,
    pub(crate) body: Cow<'a, [u8]>,
    pub(crate) object_id: Option<Cow<'a, str>>,
    /// Events of earlier versions have none of the following.
    pub(crate) priority: Option<Cow<'a, str>>,
    pub(crate) provider_event_id: Option<Cow<'a, str>>,
    pub(crate) delivery_id: Option<Cow<'a, str>>,
    /// A JSON array of texts.
    pub(crate) tags: Option<Cow<'a, str>>,
    pub(crate) trace_id: Option<Cow<'a, str>>,
    /// Which of the source's secrets matched, counted from 0.
    pub(crate) secret_index: Option<i32>,
    /// How long the key stands for the event.
    pub(crate) key_window_us: Option<i64>,
}

impl<'a> EventRow<'a> {
    pub(crate) fn of(Routed { event, .. }: &'a Routed) -> Self {
        let delivery = event.delivery();
        let (arrival, request) = (&delivery.arrival, &delivery.request);
        let (url, headers) = match head::is_apart(delivery) {
            true => ("", Vec::new()),
            false => (request.url.as_str(), head::stored_headers(delivery)),
        };
        Self {
            id: event.id().0,
            source: arrival.source.as_str().into(),
            dedupe_key: event.dedupe_key().as_str().into(),
            received_at: arrival.received_at,
            request_id: arrival.request_id.0,
            remote_address: arrival.remote_address.to_string().into(),
            event_type: event.event_type().as_str().into(),
            account: text(event.account()),
            occurred_at: event.occurred_at(),
            proof: delivery.proof.kind().as_str().into(),
            method: request.method.as_str().into(),
            url: url.into(),
            headers: headers.into(),
            body: event.body()[..].into(),
            object_id: text(event.object_id()),
            priority: Some(event.priority().as_str().into()),
            provider_event_id: text(event.provider_event_id()),
            delivery_id: text(event.delivery_id()),
            tags: tags(event),
            trace_id: arrival.trace_id.as_deref().map(Into::into),
            secret_index: delivery.proof.secret_index().and_then(|index| index.try_into().ok()),
            key_window_us: event.key_window().and_then(|window| window.as_micros().try_into().ok()),
        }
    }
}

impl EventRow<'_> {
    /// Events with this key and a smaller id do not hold it any more: the window of the key has passed since they came. An id
    /// begins with the time of the arrival, so that an event that waited in a spool is judged by when it came.
    pub(crate) fn key_free_before(&self) -> Option<Uuid> {
        free_before(self.id, Duration::from_micros(self.key_window_us?.unsigned_abs()))
    }
}

/// The smallest id that still holds a key when this event comes, whose key has a window.
pub(crate) fn free_before(id: Uuid, window: Duration) -> Option<Uuid> {
    let (seconds, nanoseconds) = id.get_timestamp()?.to_unix();
    let came = Duration::new(seconds, nanoseconds);
    Some(operate::first_id_of_unix(came.saturating_sub(window)))
}

impl EventRow<'static> {
    /// A small event that is recorded and undone, to see whether the database takes events at all.
    pub(crate) fn to_try_out() -> Self {
        let id = Uuid::now_v7();
        Self {
            id,
            source: "hookfast".into(),
            dedupe_key: id.to_string().into(),
            received_at: OffsetDateTime::now_utc(),
            request_id: id,
            remote_address: "127.0.0.1".into(),
            event_type: "hookfast.try_out".into(),
            account: None,
            occurred_at: None,
            proof: ProofKind::Unsigned.as_str().into(),
            method: "POST".into(),
            url: "/".into(),
            headers: Cow::Borrowed(&[]),
            body: Cow::Borrowed(&[]),
            object_id: None,
            priority: None,
            provider_event_id: None,
            delivery_id: None,
            tags: None,
            trace_id: None,
            secret_index: None,
            key_window_us: None,
        }
    }
}

fn text(label: Option<&Label>) -> Option<Cow<'_, str>> {
    label.map(|label| label.as_str().into())
}

/// Most events have none, and then nothing is stored.
fn tags(event: &Event) -> Option<Cow<'_, str>> {
    let tags: Vec<_> = event.tags().iter().map(Label::as_str).collect();
    (!tags.is_empty()).then(|| serde_json::json!(tags).to_string().into())
}

/// The tags of a stored event.
pub(crate) fn stored_tags(json: Option<&str>) -> Result<Vec<String>, sqlx::Error> {
    json.map_or(Ok(Vec::new()), |json| serde_json::from_str(json).map_err(|error| sqlx::Error::Decode(error.into())))
}
