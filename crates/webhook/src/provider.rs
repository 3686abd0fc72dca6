//! A provider's contract: how it signs, what it sends, what answer it expects.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode};
use serde::Serialize;
use time::OffsetDateTime;

use crate::signature::{KeyPair, Scheme};
use crate::{Proof, Refusal, Request, Secret, Secrets};

/// A third party's contract. The methods are pure functions of request, secrets and time: no clock, no I/O, no state.
pub trait Provider: Send + Sync {
    /// The provider's name, as in `provider = "stripe"`.
    fn name(&self) -> &str;

    /// The HTTP methods that the provider uses.
    fn methods(&self) -> &[Method] {
        &[Method::POST]
    }

    /// The headers that carry the proof. A request that repeats one is refused before [`Provider::prove`] sees it.
    fn proof_headers(&self) -> &[HeaderName];

    /// Finds the proof that the request is genuine. Only [`crate::verify`] calls this; it also makes the checks that
    /// are the same for all providers.
    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal>;

    /// Finds the events in a genuine request. There may be none.
    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable>;

    /// The answer that the provider expects once the events of this request are durable.
    fn answer(&self, _request: &Request) -> Answer {
        Answer::EMPTY_OK
    }

    /// Whether a source of this provider needs a secret.
    fn needs_secret(&self) -> bool {
        true
    }

    /// Whether nothing in a request is checked with these settings and secrets. Then the sender's address must be
    /// checked.
    fn trusts_addresses_only(&self, _secrets: &Secrets) -> bool {
        false
    }

    /// Fails if the secret cannot be one of this provider's, as far as its text shows.
    fn check_secret(&self, _secret: &Secret) -> Result<(), String> {
        Ok(())
    }

    /// Makes keys for tests and development from random bytes.
    fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        Scheme::HMAC_SHA256.key_pair(random)
    }

    /// The kinds of requests that [`Provider::sample`] can make; the first is the usual one.
    fn sample_kinds(&self) -> Vec<&str>;

    /// A correctly signed request as the provider would send it, for tests, examples and load.
    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample>;

    /// How often the provider sends a request again that was not answered with 2xx.
    fn retries(&self) -> u32 {
        3
    }
}

/// The result of [`Provider::prove`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proved {
    /// The request is genuine, or its provider signs nothing.
    Genuine(Proof),
    /// The provider only checks that the endpoint exists. The request is answered, and leaves no event.
    Handshake(Answer),
}

impl From<Proof> for Proved {
    fn from(proof: Proof) -> Self {
        Self::Genuine(proof)
    }
}

/// One event as its provider reads it. `body` has the bytes of this event, which for most providers is the whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The key by which a resend is recognised: the same for every resend of this event, and different for every other
    /// event of the source. It is made from signed content, so that an attacker cannot make another event from a
    /// recorded request. If events cannot be told apart, each gets a new key, because recording an event twice is
    /// better than losing it.
    pub dedupe_key: String,
    /// The provider's own id of the event, where it has one.
    pub event_id: Option<String>,
    /// The provider's own word for what happened.
    pub event_type: String,
    /// Whether the type is made from signed content. If not, an attacker with a recorded request can choose another
    /// type.
    pub type_is_signed: bool,
    /// The provider's account that the event belongs to, if the provider names one.
    pub account: Option<String>,
    /// When it happened, if the provider says so.
    pub occurred_at: Option<OffsetDateTime>,
    /// The id of the object that the event is about, if the provider names one. Later events about it replace earlier
    /// ones.
    pub object_id: Option<String>,
    /// The provider's id of this delivery, if it differs from the event's id.
    pub delivery_id: Option<String>,
    /// Whether the event has no content, only the place where its content can be fetched.
    pub ping: bool,
    /// The priority of the event.
    pub priority: Priority,
    /// Words by which the event can be found.
    pub tags: Vec<String>,
    /// How long a request with the same dedupe key counts as a resend. After this time it is a new event; with `None`,
    /// never. For events that can really happen again with the same bytes, such as a user who disconnects a second
    /// time.
    pub key_window: Option<Duration>,
    /// The event's bytes.
    pub body: Bytes,
}

impl Reading {
    /// An event with only these three fields. All others are empty or have their defaults.
    pub fn new(dedupe_key: impl Into<String>, event_type: impl Into<String>, body: Bytes) -> Self {
        Self {
            dedupe_key: dedupe_key.into(),
            event_id: None,
            event_type: event_type.into(),
            type_is_signed: true,
            account: None,
            occurred_at: None,
            object_id: None,
            delivery_id: None,
            ping: false,
            priority: Priority::Normal,
            tags: Vec::new(),
            key_window: None,
            body,
        }
    }
}

/// How urgent an event or a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After all others, but never starved.
    Low,
    /// In the order of arrival.
    #[default]
    Normal,
    /// Before others.
    High,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The priority as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

crate::enum_of_words!(Priority, "a priority");

/// Why the events of a genuine request cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// An answer that a provider understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The content type, if there is a body.
    pub content_type: Option<Cow<'static, str>>,
    /// A further header that some handshakes need.
    pub header: Option<(HeaderName, http::HeaderValue)>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// 200 without a body, which is right for most providers.
    pub const EMPTY_OK: Self = Self { status: StatusCode::OK, content_type: None, header: None, body: Bytes::new() };

    /// 200 with a body.
    pub fn ok(content_type: impl Into<Cow<'static, str>>, body: impl Into<Bytes>) -> Self {
        Self { content_type: Some(content_type.into()), body: body.into(), ..Self::EMPTY_OK }
    }
}

/// What sample to make.
#[derive(Debug, Clone)]
pub struct SampleOrder<'a> {
    /// One of [`Provider::sample_kinds`]. `None` means the first one.
    pub kind: Option<&'a str>,
    /// The URL of the endpoint.
    pub url: &'a str,
    /// The key to sign with. A source that needs no secret may have none.
    pub key: Option<&'a Secret>,
    /// The sender's time.
    pub now: OffsetDateTime,
    /// The number of the event. Samples with different serials are different events.
    pub serial: u64,
}

/// Why no sample can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSample(pub String);

impl<'a> SampleOrder<'a> {
    /// The ordered kind, if it is one of `kinds`. Without an order, the first kind.
    pub fn kind_of(&self, kinds: &[&'a str]) -> Result<&'a str, NoSample> {
        match self.kind {
            None => kinds.first().copied().ok_or_else(|| NoSample("there are no samples".into())),
            Some(wanted) => kinds.iter().copied().find(|kind| *kind == wanted).ok_or_else(|| {
                NoSample(format!("there is no sample `{}`; there is: {}", wanted.escape_debug(), kinds.join(", ")))
            }),
        }
    }

    /// The key to sign with; an error if there is none.
    pub fn signing_key(&self) -> Result<&'a Secret, NoSample> {
        self.key.ok_or_else(|| NoSample("there is no secret to sign with".into()))
    }
}
