//! A provider's contract: how it signs, what it sends, what answer it wants.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode};
use serde::Serialize;
use time::OffsetDateTime;

use crate::signature::{KeyPair, Scheme};
use crate::{Proof, Refusal, Request, Secret, Secrets};

/// A third party's contract. Pure: request, secrets and the time go in; no clock, no I/O, no state.
pub trait Provider: Send + Sync {
    /// The provider's name, as in `provider = "stripe"`.
    fn name(&self) -> &str;

    /// The methods the provider uses.
    fn methods(&self) -> &[Method] {
        &[Method::POST]
    }

    /// The headers that carry the proof. A request that repeats one is refused before [`Provider::prove`] sees it.
    fn proof_headers(&self) -> &[HeaderName];

    /// Finds the proof that the request is genuine. Called by [`crate::verify`] only, which does what all providers need.
    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal>;

    /// Finds the events in a request that was proved genuine. There may be none.
    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable>;

    /// What the provider wants to hear once the events of this request are durable.
    fn answer(&self, _request: &Request) -> Answer {
        Answer::EMPTY_OK
    }

    /// Whether a source of this provider needs a secret.
    fn needs_secret(&self) -> bool {
        true
    }

    /// Whether nothing in a request is checked with these settings and this number of secrets, so that the addresses of
    /// the senders must be.
    fn trusts_addresses_only(&self, _secrets: &Secrets) -> bool {
        false
    }

    /// What is wrong with a secret of a source, if it can be told by looking at it.
    fn check_secret(&self, _secret: &Secret) -> Result<(), String> {
        Ok(())
    }

    /// Keys for tests and development, made of random bytes.
    fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        Scheme::HMAC_SHA256.key_pair(random)
    }

    /// The kinds of requests that [`Provider::sample`] can make; the first is the usual one.
    fn sample_kinds(&self) -> Vec<&str>;

    /// A correctly signed request as the provider would send it, for tests, examples and load.
    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample>;

    /// How often the provider sends again what was not taken.
    fn retries(&self) -> u32 {
        3
    }
}

/// What a provider finds out about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proved {
    /// It is genuine, or its provider proves nothing.
    Genuine(Proof),
    /// It only asks whether we are there. It is answered, and leaves no event.
    Handshake(Answer),
}

impl From<Proof> for Proved {
    fn from(proof: Proof) -> Self {
        Self::Genuine(proof)
    }
}

/// What a provider reads of one event. The body is the event's own bytes, which for most providers is the whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What stays the same when the provider sends this event again, and differs for every other event of the source. It
    /// follows from what is signed, so that nobody else can make another event of a recorded request.
    /// Where nothing tells events apart, something new each time: twice is better than lost.
    pub dedupe_key: String,
    /// The provider's own id of the event, where it has one.
    pub event_id: Option<String>,
    /// The provider's own word for what happened.
    pub event_type: String,
    /// Whether the type follows from what is signed. If not, whoever recorded the request can name another one.
    pub type_is_signed: bool,
    /// Whose event it is, where the provider says so.
    pub account: Option<String>,
    /// When it happened, where the provider says so.
    pub occurred_at: Option<OffsetDateTime>,
    /// The thing that the event is about, where the provider says so: later events about it supersede earlier ones.
    pub object_id: Option<String>,
    /// The provider's id of this delivery, where that is not the event's.
    pub delivery_id: Option<String>,
    /// Whether the event only says where its content can be fetched.
    pub ping: bool,
    /// How urgent it is.
    pub priority: Priority,
    /// Words to find the event by.
    pub tags: Vec<String>,
    /// How long the dedupe key stands for this event; `None` is for ever. For events whose bytes can honestly come again, as
    /// when a user disconnects a second time: after this time the same key is a new event.
    pub key_window: Option<Duration>,
    /// The event's bytes.
    pub body: Bytes,
}

impl Reading {
    /// An event of which nothing more is known.
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

/// How urgent an event is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// When there is nothing else to do.
    Low,
    /// In the order of arrival.
    #[default]
    Normal,
    /// Before others.
    High,
}

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

crate::enum_of_words!(Priority, "a priority");

/// A genuine request whose events cannot be found. It is kept as it is.
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
    /// One more header that some handshakes want.
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

/// Which sample is wanted.
#[derive(Debug, Clone)]
pub struct SampleOrder<'a> {
    /// One of [`Provider::sample_kinds`], or the usual one.
    pub kind: Option<&'a str>,
    /// The endpoint.
    pub url: &'a str,
    /// What to sign with; a source that needs no secret may have none.
    pub key: Option<&'a Secret>,
    /// The sender's clock.
    pub now: OffsetDateTime,
    /// Another serial is another event.
    pub serial: u64,
}

/// Why there is no sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSample(pub String);

impl<'a> SampleOrder<'a> {
    /// The kind that is wanted, if it is one of `kinds`; the first is the usual one.
    pub fn kind_of(&self, kinds: &[&'a str]) -> Result<&'a str, NoSample> {
        match self.kind {
            None => kinds.first().copied().ok_or_else(|| NoSample("there are no samples".into())),
            Some(wanted) => kinds.iter().copied().find(|kind| *kind == wanted).ok_or_else(|| {
                NoSample(format!("there is no sample `{}`; there is: {}", wanted.escape_debug(), kinds.join(", ")))
            }),
        }
    }

    /// The key, which most providers cannot do without.
    pub fn signing_key(&self) -> Result<&'a Secret, NoSample> {
        self.key.ok_or_else(|| NoSample("there is no secret to sign with".into()))
    }
}
