//! Stripe: one signed JSON event per request, in two shapes, snapshot and thin.
//!
//! What Stripe sends and where we had to choose stands in `CONTRACT.md` beside this crate.

mod header;

use std::borrow::Cow;

use hookfast_webhook::{Proof, Provider, Reading, Refusal, Request, Secret, Secrets, Unreadable, signature};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

const SIGNATURE: &str = "stripe-signature";

/// What can be set for a source of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How old a signature may be, in seconds.
    pub tolerance_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { tolerance_seconds: 300 }
    }
}

/// Stripe's contract.
#[derive(Debug, Clone)]
pub struct Stripe {
    tolerance: Duration,
}

impl Stripe {
    /// The contract with the settings of one source.
    pub fn new(config: &Config) -> Self {
        Self { tolerance: Duration::seconds(config.tolerance_seconds.into()) }
    }
}

impl Provider for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn proof_headers(&self) -> &'static [&'static str] {
        &[SIGNATURE]
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proof, Refusal> {
        let header = header::parse(request.headers.get(SIGNATURE))?;
        // The timestamp is signed as Stripe's own packages print it after reading it, not as it stands in the header.
        let timestamp = header.timestamp.to_string();
        let signed = [timestamp.as_bytes(), b".", &request.body];
        let proof =
            signature::prove_hmac_sha256(secrets, &signed, &header.signatures).ok_or(Refusal::WrongSignature)?;
        self.refuse_stale(header.timestamp, now)?;
        Ok(proof)
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let envelope: Envelope<'_> = serde_json::from_slice(&request.body).map_err(|error| unreadable(&error))?;
        if envelope.id.is_empty() {
            return Err(Unreadable("`id` is empty".into()));
        }
        Ok(vec![Reading {
            dedupe_key: envelope.id.into_owned(),
            event_type: envelope.event_type.into_owned(),
            // Only one of the two is ever there: `account` in snapshot events of Connect, `context` in thin events.
            account: envelope.account.or(envelope.context).and_then(text),
            occurred_at: envelope.created.and_then(moment),
            body: request.body.clone(),
        }])
    }

    fn sample(&self, url: &str, secret: &Secret, now: OffsetDateTime, serial: u64) -> Request {
        let timestamp = now.unix_timestamp();
        let body = format!(
            r#"{{"id":"evt_sample_{serial}","object":"event","type":"invoice.paid","created":{timestamp},"livemode":false,"data":{{"object":{{"id":"in_{serial}","object":"invoice","amount_paid":2599,"currency":"eur"}}}}}}"#
        );
        sign(url, secret, timestamp, body)
    }
}

impl Stripe {
    /// Only age counts: like Stripe's own packages we take a timestamp from the future, which only the holder of the
    /// secret can sign.
    fn refuse_stale(&self, timestamp: i64, now: OffsetDateTime) -> Result<(), Refusal> {
        let age = Duration::seconds(now.unix_timestamp().saturating_sub(timestamp));
        if age > self.tolerance { Err(Refusal::Stale { age, tolerance: self.tolerance }) } else { Ok(()) }
    }
}

/// Signs `body` as Stripe does.
pub fn sign(url: &str, secret: &Secret, timestamp: i64, body: String) -> Request {
    let signed = [timestamp.to_string().as_bytes(), b".", body.as_bytes()].concat();
    let signature = signature::to_hex(&signature::hmac_sha256(secret, &[&signed]));
    let value = HeaderValue::try_from(format!("t={timestamp},v1={signature}")).expect("digits and hex are legal");
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8")),
        (HeaderName::from_static(SIGNATURE), value),
    ]);
    Request { method: Method::POST, url: url.into(), headers, body: body.into() }
}

/// The few fields of an event that we need. What is not needed to tell events apart may have any form.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    account: Option<&'a RawValue>,
    #[serde(borrow)]
    context: Option<&'a RawValue>,
    #[serde(borrow)]
    created: Option<&'a RawValue>,
}

/// The place and not the parser's words, which quote the payload.
fn unreadable(error: &serde_json::Error) -> Unreadable {
    let problem =
        if error.is_data() { "`id` or `type` is missing, doubled or not text" } else { "the body is not JSON" };
    Unreadable(format!("{problem} (line {}, column {})", error.line(), error.column()))
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Snapshot events have unix seconds, thin events RFC 3339 text.
fn moment(value: &RawValue) -> Option<OffsetDateTime> {
    match serde_json::from_str::<i64>(value.get()) {
        Ok(seconds) => OffsetDateTime::from_unix_timestamp(seconds).ok(),
        Err(_) => OffsetDateTime::parse(&text(value)?, &Rfc3339).ok(),
    }
}

#[cfg(test)]
mod tests;
