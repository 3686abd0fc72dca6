//! The two steps that every webhook takes: verify, then read. A handshake ends after the first.
//!
//! Before it, `ingest::verify` calls [`verify`], which calls [`Provider::prove`]. After it, `ingest::read` calls
//! [`Genuine::read`], which calls [`Provider::read`]; then `ingest::route` gives the events their jobs.

use std::sync::Arc;

use http::HeaderValue;
use time::OffsetDateTime;

use crate::{
    Answer, Arrival, DedupeKey, Delivery, Event, EventId, Label, Proof, Proved, Provider, Reading, Refusal, Request,
    Secret, Secrets, UNREADABLE, Unreadable, signature,
};

/// A request that is proved to come from its provider, unchanged.
#[derive(Debug)]
pub struct Genuine {
    request: Arc<Request>,
    proof: Proof,
}

/// A request that was not refused.
#[derive(Debug)]
pub enum Verified {
    /// It may carry events.
    Genuine(Genuine),
    /// The provider only checks that the endpoint exists. This is the answer to that check.
    Handshake(Answer),
}

impl Verified {
    /// The request, unless it was a handshake.
    pub fn genuine(self) -> Option<Genuine> {
        match self {
            Self::Genuine(genuine) => Some(genuine),
            Self::Handshake(_) => None,
        }
    }
}

/// Verifies a request, or says why it is refused.
pub fn verify(
    provider: &dyn Provider,
    request: impl Into<Arc<Request>>,
    secrets: &Secrets,
    now: OffsetDateTime,
) -> Result<Verified, Refusal> {
    let request = request.into();
    refuse_repeated_headers(provider, &request)?;
    Ok(match provider.prove(&request, secrets, now)? {
        Proved::Genuine(proof) => {
            let token = proof.token_index().and_then(|index| secrets.iter().nth(index));
            let request = token.map_or(Arc::clone(&request), |token| Arc::new(without_token(&request, token)));
            Verified::Genuine(Genuine { request, proof })
        }
        Proved::Handshake(answer) => Verified::Handshake(answer),
    })
}

/// Replaces a secret in a stored request.
const REDACTED: &str = "REDACTED";

/// The request without the secret in its headers and URL. Otherwise everyone who can read stored requests could also
/// send some.
fn without_token(request: &Request, token: &Secret) -> Request {
    let token = token.expose().as_bytes();
    let mut headers = request.headers.clone();
    for value in headers.values_mut() {
        if let Some(redacted) = redact(value.as_bytes(), token) {
            *value = HeaderValue::try_from(redacted).unwrap_or(HeaderValue::from_static(REDACTED));
        }
    }
    let url = redact(request.url.as_bytes(), token).map(|url| String::from_utf8_lossy(&url).into_owned());
    Request { url: url.unwrap_or_else(|| request.url.clone()), headers, ..request.clone() }
}

/// The text without the token, however its characters are percent-encoded. `None` if the token is not in the text.
fn redact(text: &[u8], token: &[u8]) -> Option<Vec<u8>> {
    let mut redacted = Vec::new();
    let (mut kept, mut at) = (0, 0);
    while at < text.len() {
        match spelled_length(&text[at..], token) {
            Some(length) => {
                redacted.extend_from_slice(&text[kept..at]);
                redacted.extend_from_slice(REDACTED.as_bytes());
                at += length;
                kept = at;
            }
            None => at += 1,
        }
    }
    redacted.extend_from_slice(&text[kept..]);
    (kept > 0).then_some(redacted)
}

/// If the text begins with the token, the number of bytes that the token takes there.
fn spelled_length(text: &[u8], token: &[u8]) -> Option<usize> {
    if text.starts_with(token) {
        return Some(token.len());
    }
    token.iter().try_fold(0, |length, byte| Some(length + spelled_byte(&text[length..], *byte)?))
}

/// If the text begins with this byte, the number of bytes that it takes there: one if it is not encoded, three if it is
/// percent-encoded, and more if its percent sign is encoded, too (`%2541`).
fn spelled_byte(text: &[u8], byte: u8) -> Option<usize> {
    let Some(digits) = text.strip_prefix(b"%") else { return (text.first() == Some(&byte)).then_some(1) };
    let encoded_signs = 2 * digits.chunks_exact(2).take_while(|pair| *pair == b"25").count();
    if byte == b'%' {
        return Some(1 + encoded_signs);
    }
    let digits = str::from_utf8(digits.get(encoded_signs..encoded_signs + 2)?).ok()?;
    (u8::from_str_radix(digits, 16) == Ok(byte)).then_some(encoded_signs + 3)
}

fn refuse_repeated_headers(provider: &dyn Provider, request: &Request) -> Result<(), Refusal> {
    match provider.proof_headers().iter().find(|name| request.headers.get_all(*name).iter().nth(1).is_some()) {
        Some(name) => Err(Refusal::RepeatedHeader(name.clone())),
        None => Ok(()),
    }
}

impl Genuine {
    /// The events in the request. If the provider cannot read the request, the result is one event of type
    /// [`UNREADABLE`] with the whole body, and the reason.
    pub fn read(self, provider: &dyn Provider, arrival: Arrival) -> (Vec<Event>, Option<Unreadable>) {
        let (readings, problem) = match self.readings(provider) {
            Ok(readings) => (readings, None),
            Err(problem) => (vec![self.unreadable()], Some(problem)),
        };
        let is_typed = readings.iter().all(|reading| reading.type_is_signed);
        let proof = if is_typed { self.proof } else { self.proof.without_type() };
        let event_count = readings.len();
        let delivery = Arc::new(Delivery { request: self.request, arrival, proof, event_count });
        let events = readings.into_iter().map(|reading| event(reading, &delivery)).collect();
        (events, problem)
    }

    /// Why the request counts as genuine.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The request, without the token that proved it.
    pub fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// The events that the provider finds in the request.
    pub fn readings(&self, provider: &dyn Provider) -> Result<Vec<Reading>, Unreadable> {
        provider.read(&self.request)
    }

    /// The answer that the provider expects once the events are durable.
    pub fn answer(&self, provider: &dyn Provider) -> Answer {
        provider.answer(&self.request)
    }

    fn unreadable(&self) -> Reading {
        let Request { url, body, .. } = &*self.request;
        // If the body is empty, the URL has the content. If not, the URL must not count: it may be unsigned, and then a
        // resend could have any URL.
        let hash = signature::sha256_hex(if body.is_empty() { url.as_bytes() } else { body });
        Reading::new(format!("{UNREADABLE}:{hash}"), UNREADABLE, body.clone())
    }
}

/// The most tags of an event.
const TAGS_MAX: usize = 16;

/// The tag of an event that only says where its content can be fetched.
const PING: &str = "ping";

fn event(reading: Reading, delivery: &Arc<Delivery>) -> Event {
    let ping = reading.ping.then(|| PING.to_owned());
    Event {
        id: EventId::new(),
        dedupe_key: DedupeKey::new(reading.dedupe_key),
        event_type: Label::new(reading.event_type),
        account: reading.account.map(Label::new),
        // A year before 1 cannot be right, and Postgres takes no time before 4713 BC.
        occurred_at: reading.occurred_at.filter(|time| time.year() > 0),
        object_id: reading.object_id.map(Label::new),
        priority: reading.priority,
        provider_event_id: reading.event_id.map(Label::new),
        delivery_id: reading.delivery_id.map(Label::new),
        tags: ping.into_iter().chain(reading.tags).take(TAGS_MAX).map(Label::new).collect(),
        key_window: reading.key_window,
        body: reading.body,
        delivery: Arc::clone(delivery),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn a_token_that_came_along_is_not_kept() {
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("Bearer s3cret"));
        headers.append("x-other", HeaderValue::from_static("kept"));
        let url = "https://hooks.example.com/webhooks/garmin/s3cret/sleeps?a=s3cret".to_owned();
        let request = Request { method: Method::POST, url, headers, body: Bytes::from_static(b"s3cret") };
        let kept = without_token(&request, &Secret::new("s3cret").expect("not blank"));
        assert_eq!(kept.url, "https://hooks.example.com/webhooks/garmin/REDACTED/sleeps?a=REDACTED");
        assert_eq!(
            (&kept.headers["authorization"], &kept.headers["x-other"]),
            (&HeaderValue::from_static("Bearer REDACTED"), &HeaderValue::from_static("kept"))
        );
        assert_eq!(kept.body, request.body, "the body is the provider's, byte for byte");
    }

    #[test]
    fn a_token_is_found_among_any_bytes_and_in_any_spelling() {
        let redacted = |text: &[u8]| redact(text, b"s3c/ret").map(|kept| String::from_utf8_lossy(&kept).into_owned());
        for spelled in ["s3c/ret", "s3c%2Fret", "s3c%2fret", "%733c%2Fre%74", "s3c%252Fret", "s3c%25252fret"] {
            assert_eq!(redacted(format!("/a/{spelled}?b").as_bytes()).as_deref(), Some("/a/REDACTED?b"), "{spelled}");
        }
        assert_eq!(redacted(b"\xffs3c/ret\xfe").as_deref(), Some("\u{fffd}REDACTED\u{fffd}"));
        assert_eq!(redacted(b"s3c/rets3c/ret").as_deref(), Some("REDACTEDREDACTED"));
        assert_eq!(redacted(b"s3s3c/ret").as_deref(), Some("s3REDACTED"));
        for other in [&b""[..], b"s3c/re", b"s3c%2", b"s3c%", b"s3c%2Gret", b"s3c\xffret"] {
            assert_eq!(redacted(other), None, "{other:?}");
        }
        for spelled in [&b"a%b"[..], b"a%25b", b"a%2525b", b"%61%25b"] {
            assert_eq!(redact(spelled, b"a%b").as_deref(), Some(REDACTED.as_bytes()), "{spelled:?}");
        }
        assert_eq!(redact(b"a%25", b"a%25").as_deref(), Some(REDACTED.as_bytes()));
    }
}
