//! A provider's contract: how it signs, what it sends, what answer it wants.

use bytes::Bytes;
use http::{Method, StatusCode};
use time::OffsetDateTime;

use crate::{Proof, Refusal, Request, Secret, Secrets};

/// A third party's contract. Pure: request, secrets and the time go in; no clock, no I/O, no state.
pub trait Provider: Send + Sync {
    /// The provider's name, as in `provider = "stripe"`.
    fn name(&self) -> &'static str;

    /// The methods the provider uses.
    fn methods(&self) -> &'static [Method] {
        &[Method::POST]
    }

    /// The headers that carry the proof. A request that repeats one is refused before [`Provider::prove`] sees it.
    fn proof_headers(&self) -> &'static [&'static str];

    /// Finds the proof that the request is genuine. Called by [`crate::verify`] only, which does what all providers need.
    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proof, Refusal>;

    /// Finds the events in a request that was proved genuine.
    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable>;

    /// What the provider wants to hear once its events are durable.
    fn answer(&self) -> Answer {
        Answer::EMPTY_OK
    }

    /// A correctly signed request as the provider would send it, for tests, examples and load. Another `serial` is
    /// another event.
    fn sample(&self, url: &str, secret: &Secret, now: OffsetDateTime, serial: u64) -> Request;
}

/// What a provider reads of one event. The body is the event's own bytes, which for most providers is the whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// What stays the same when the provider sends this event again, and differs for every other event of the source.
    pub dedupe_key: String,
    /// The provider's own word for what happened.
    pub event_type: String,
    /// Whose event it is, where the provider says so.
    pub account: Option<String>,
    /// When it happened, where the provider says so.
    pub occurred_at: Option<OffsetDateTime>,
    /// The event's bytes.
    pub body: Bytes,
}

/// A genuine request whose events cannot be found. It is kept as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// An answer that a provider understands as "taken".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The content type, if there is a body.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// 200 without a body, which is right for most providers.
    pub const EMPTY_OK: Self = Self { status: StatusCode::OK, content_type: None, body: Bytes::new() };
}
