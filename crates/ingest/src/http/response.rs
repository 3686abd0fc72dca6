//! What an answer or a rejection looks like in HTTP. The sender learns what to do; the reason of a rejection goes to
//! the log.

use std::borrow::Cow;

use bytes::Bytes;
use hookfast_webhook::{Answer, RequestId};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::rejection::Rejection;

pub(crate) type HttpResponse = Response<Full<Bytes>>;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

impl Rejection {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BadRequest(_) | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::AddressNotAllowed => StatusCode::FORBIDDEN,
            Self::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge | Self::TooManyEvents => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(refused) => refused.refusal.status(),
            Self::Overloaded | Self::Late | Self::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The text for the sender. It must not help an attacker to pass a check.
    fn detail(&self) -> &'static str {
        match self {
            Self::NotFound => "There is nothing here.",
            Self::MethodNotAllowed(_) => "This method is not allowed here.",
            Self::BadRequest(problem) => problem,
            Self::AddressNotAllowed => "This address is not allowed here.",
            Self::RateLimited(_) => "Too many requests. Send this one again later.",
            Self::TooLarge => "The body is too large.",
            Self::TooManyEvents => "The request has too many events for its size. Send fewer in one request.",
            Self::BodyTimeout | Self::BodyBroken => "The body did not arrive completely.",
            Self::Refused(..) => "The request could not be verified.",
            Self::Overloaded | Self::Late | Self::NotRecorded | Self::Internal => {
                "The event was not recorded. Send it again later."
            }
        }
    }

    /// After these rejections the connection cannot carry another request: the rest of this one is unread, or its end
    /// is unknown.
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

/// The answer that a provider expects.
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
        // The answer to a handshake repeats text from the sender. A browser must not show it as a page.
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

/// A plain text without a request id.
pub(crate) fn plain(text: impl Into<Bytes>) -> HttpResponse {
    Response::new(Full::new(text.into()))
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
    use std::time::Duration;

    use hookfast_webhook::Refusal;

    use super::*;
    use crate::rejection::Refused;

    fn refused(refusal: Refusal) -> Rejection {
        Rejection::Refused(Refused::for_test(refusal))
    }

    #[test]
    fn a_refusal_tells_the_sender_nothing_about_its_reason() {
        let id = RequestId::new();
        let first = rejected(&refused(Refusal::WrongSignature), id);
        let second = rejected(&refused(Refusal::MissingHeader(HeaderName::from_static("stripe-signature"))), id);
        assert_eq!(first.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }

    #[test]
    fn whatever_may_succeed_later_says_when_to_try_again() {
        let waits = |rejection: Rejection| rejected(&rejection, RequestId::new()).headers().contains_key(RETRY_AFTER);
        assert!(waits(Rejection::Overloaded) && waits(Rejection::Late) && waits(Rejection::NotRecorded));
        assert!(waits(Rejection::RateLimited(Duration::ZERO)));
        assert!(!waits(refused(Refusal::WrongSignature)));
    }
}
