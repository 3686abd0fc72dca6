//! The HTTP edge: what a rejection looks like from outside. The sender learns what to do; the reason goes to the log.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{Answer, Refusal, RequestId};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

pub(crate) type HttpResponse = Response<Full<Bytes>>;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Why a request did not become an event.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// Nothing has this path, or no source this name.
    NotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed(Vec<Method>),
    /// The request is not proper HTTP.
    BadRequest(&'static str),
    /// The client's address is not allowed here.
    AddressNotAllowed,
    /// The address or the source sends too much.
    RateLimited(Duration),
    /// The body is larger than the source allows.
    TooLarge,
    /// Its events would weigh too much: many, each with the whole head of the request.
    TooManyEvents,
    /// The body did not come in time.
    BodyTimeout,
    /// The client went away in the middle of the body.
    BodyBroken,
    /// It is not genuine, and this is probably what happened to it.
    Refused(Refusal, Option<String>),
    /// Too many requests wait already, or their bodies take too much memory.
    Overloaded,
    /// The commit did not end in time; it may yet succeed, and then the resend is a duplicate.
    Late,
    /// The store did not take it.
    NotRecorded,
    /// We have a bug: a provider's code panicked.
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

    /// Every word that [`Rejection::reason`] gives for a request to a source.
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

    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BadRequest(_) | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::AddressNotAllowed => StatusCode::FORBIDDEN,
            Self::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge | Self::TooManyEvents => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(refusal, _) => refusal.status(),
            Self::Overloaded | Self::Late | Self::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What the sender is told: nothing that would help to get past a check.
    fn detail(&self) -> &'static str {
        match self {
            Self::NotFound => "There is nothing here.",
            Self::MethodNotAllowed(_) => "This method is not used here.",
            Self::BadRequest(problem) => problem,
            Self::AddressNotAllowed => "This address is not allowed here.",
            Self::RateLimited(_) => "Too many requests. Send this one again later.",
            Self::TooLarge => "The body is too large.",
            Self::TooManyEvents => "The request has too many events for its size. Send fewer at once.",
            Self::BodyTimeout | Self::BodyBroken => "The body did not arrive whole.",
            Self::Refused(..) => "The request could not be verified.",
            Self::Overloaded | Self::Late | Self::NotRecorded | Self::Internal => {
                "The event was not recorded. Send it again later."
            }
        }
    }

    /// After these the rest of the request is unread or cannot be trusted to be where it should be.
    fn closes_connection(&self) -> bool {
        matches!(self, Self::BadRequest(_) | Self::TooLarge | Self::BodyTimeout | Self::BodyBroken)
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::RateLimited(wait) => Some(wait.as_secs() + 1),
            Self::Overloaded | Self::Late | Self::NotRecorded => Some(1),
            _ => None,
        }
    }
}

/// The answer a provider wants to hear.
pub(crate) fn accepted(answer: Answer, id: RequestId) -> HttpResponse {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if let Some(content_type) = answer.content_type {
        let content_type = match content_type {
            Cow::Borrowed(text) => Ok(HeaderValue::from_static(text)),
            Cow::Owned(text) => HeaderValue::try_from(text),
        };
        headers.extend(content_type.ok().map(|value| (CONTENT_TYPE, value)));
        // A handshake says again what the sender said: nobody may take that for a page.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    headers.extend(answer.header);
    headers.insert(REQUEST_ID, id_value(id));
    response
}

/// A rejection as `application/problem+json` (RFC 9457).
pub(crate) fn rejected(rejection: &Rejection, id: RequestId) -> HttpResponse {
    let mut response = problem(rejection.status(), rejection.detail(), id);
    let headers = response.headers_mut();
    if let Some(seconds) = rejection.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Rejection::MethodNotAllowed(methods) = rejection {
        let allowed = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        headers.insert(ALLOW, HeaderValue::try_from(allowed).expect("methods are legal in headers"));
    }
    if rejection.closes_connection() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    request_id: String,
}

pub(crate) fn problem(status: StatusCode, detail: &str, id: RequestId) -> HttpResponse {
    let title = status.canonical_reason().unwrap_or("Error");
    let body = Problem { kind: "about:blank", title, status: status.as_u16(), detail, request_id: id.to_string() };
    let body = serde_json::to_vec(&body).expect("text and numbers become JSON");
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(REQUEST_ID, id_value(id));
    response
}

fn id_value(id: RequestId) -> HeaderValue {
    let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(id.0.hyphenated().encode_lower(&mut buffer)).expect("hex and hyphens are legal in headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_the_sender_nothing_about_its_reason() {
        let id = RequestId::new();
        let first = rejected(&Rejection::Refused(Refusal::WrongSignature, None), id);
        let second = rejected(
            &Rejection::Refused(Refusal::MissingHeader(HeaderName::from_static("stripe-signature")), None),
            id,
        );
        assert_eq!(first.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }

    #[test]
    fn whatever_may_succeed_later_says_when_to_try_again() {
        let waits = |rejection: Rejection| rejected(&rejection, RequestId::new()).headers().contains_key(RETRY_AFTER);
        assert!(waits(Rejection::Overloaded) && waits(Rejection::Late) && waits(Rejection::NotRecorded));
        assert!(waits(Rejection::RateLimited(Duration::ZERO)));
        assert!(!waits(Rejection::Refused(Refusal::WrongSignature, None)));
    }
}
