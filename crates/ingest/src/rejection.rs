//! Why a request did not become an event. Every step of the path can end in a rejection.

use std::sync::Arc;
use std::time::Duration;

use hookfast_webhook::{Refusal, Request};
use http::Method;

use crate::memory::MemoryShare;

/// Why a request did not become an event.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The path does not exist, or it names no source.
    NotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed(Vec<Method>),
    /// The request is not valid HTTP.
    BadRequest(&'static str),
    /// The client's address is not allowed here.
    AddressNotAllowed,
    /// The client or the source exceeds its rate.
    RateLimited(Duration),
    /// The body is larger than the source allows.
    TooLarge,
    /// The request's events would need far more memory and storage than its size justifies.
    TooManyEvents,
    /// The body did not come in time.
    BodyTimeout,
    /// The client went away in the middle of the body.
    BodyBroken,
    /// The request is not genuine.
    Refused(Box<Refused>),
    /// Too many requests wait for a commit, or bodies use too much memory.
    Overloaded,
    /// The commit did not end before the deadline. If it succeeds later, the sender's resend counts as a duplicate.
    Late,
    /// The store did not record the events.
    NotRecorded,
    /// A provider's code panicked, which is a bug.
    Internal,
}

impl Rejection {
    /// The reason as one word, for metrics and the log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::BadRequest(_) => "bad_request",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::RateLimited(_) => "rate_limited",
            Self::TooLarge => "too_large",
            Self::TooManyEvents => "too_many_events",
            Self::BodyTimeout => "body_timeout",
            Self::BodyBroken => "body_broken",
            Self::Refused(..) => "refused",
            Self::Overloaded => "overloaded",
            Self::Late => "late",
            Self::NotRecorded => "not_recorded",
            Self::Internal => "internal",
        }
    }

    /// Every value of [`Rejection::reason`] for a request to a source.
    pub(crate) const REASONS: [&'static str; 13] = [
        "method_not_allowed",
        "bad_request",
        "address_not_allowed",
        "rate_limited",
        "too_large",
        "too_many_events",
        "body_timeout",
        "body_broken",
        "refused",
        "overloaded",
        "late",
        "not_recorded",
        "internal",
    ];
}

/// A request that is not genuine. It keeps its bytes and their memory share, because the log explains the refusal from
/// them.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) request: Arc<Request>,
    pub(crate) _memory: MemoryShare,
}

#[cfg(test)]
impl Refused {
    pub(crate) fn for_test(refusal: Refusal) -> Box<Self> {
        let request = Request {
            method: Method::POST,
            url: "http://localhost/webhooks/s".into(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        let memory = crate::memory::BodyMemory::new(0).share(None, 0);
        Box::new(Self { refusal, request: Arc::new(request), _memory: memory })
    }
}
