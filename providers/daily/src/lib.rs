//! Daily: one signed JSON event per request, and an unsigned probe while a webhook is being created.
//!
//! `CONTRACT.md` next to this crate says what Daily sends, and what we decided where its documentation is unclear.

mod sample;

use hookfast_webhook::signature::{self, Encoding, KeyForm, KeyPair, Scheme};
use hookfast_webhook::{
    Answer, NoSample, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secret, Secrets, Unreadable, json,
    moment,
};
use http::HeaderName;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::{Duration, OffsetDateTime};

static PROOF_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-webhook-timestamp"), HeaderName::from_static("x-webhook-signature")];
static TIMESTAMP: &HeaderName = &PROOF_HEADERS[0];
static SIGNATURE: &HeaderName = &PROOF_HEADERS[1];

const SCHEME: Scheme = Scheme { key: KeyForm::BASE64, ..Scheme::HMAC_SHA256 };

/// A probe has 15 bytes. A much longer body cannot be one, and is not parsed before it is verified.
const PROBE_MAX_BYTES: usize = 64;

/// The settings of a source of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The greatest difference between the time of a signature and our clock, in seconds, in both directions. If it is
    /// not set, the time is not checked.
    pub tolerance_seconds: Option<u32>,
    /// Whether Daily has already returned its secret. Until then the source needs none, and only the probe is answered.
    pub hmac_known: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { tolerance_seconds: None, hmac_known: true }
    }
}

/// Daily's contract.
#[derive(Debug, Clone)]
pub struct Daily {
    tolerance: Option<Duration>,
    hmac_known: bool,
}

impl Daily {
    /// The contract with the settings of one source.
    pub fn new(config: &Config) -> Self {
        let tolerance = config.tolerance_seconds.map(|seconds| Duration::seconds(seconds.into()));
        Self { tolerance, hmac_known: config.hmac_known }
    }
}

impl Provider for Daily {
    fn name(&self) -> &str {
        "daily"
    }

    fn proof_headers(&self) -> &[HeaderName] {
        &PROOF_HEADERS
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal> {
        // A probe is answered even with a wrong signature, because three refusals would make Daily stop sending.
        if is_probe(&request.body) {
            return Ok(Proved::Handshake(Answer::EMPTY_OK));
        }
        if secrets.is_empty() {
            return Err(Refusal::NoSecret);
        }
        let timestamp = request.proof_header(TIMESTAMP)?;
        refuse_unless_number(timestamp)?;
        let signature = parse_signature(request.proof_header(SIGNATURE)?)?;
        let proof = SCHEME.prove(secrets, &[timestamp.as_bytes(), b".", &request.body], &[signature])?;
        self.refuse_stale(timestamp, now)?;
        Ok(proof.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let [id, event_type, payload, event_ts] = json::members(&request.body, ["id", "type", "payload", "event_ts"])?;
        let event_type = json::scalar(event_type).ok_or_else(|| Unreadable("`type` is missing or not text".into()))?;
        let id = json::scalar(id);
        // A resend has the same bytes. Two events of one kind differ in the time that the bytes contain.
        let key = id.clone().unwrap_or_else(|| format!("body:{}", signature::sha256_hex(&request.body)));
        Ok(vec![Reading {
            event_id: id,
            account: room(payload),
            occurred_at: moment::from_json(event_ts),
            ..Reading::new(key, event_type, request.body.clone())
        }])
    }

    fn needs_secret(&self) -> bool {
        self.hmac_known
    }

    fn check_secret(&self, secret: &Secret) -> Result<(), String> {
        if SCHEME.takes(secret) {
            Ok(())
        } else {
            Err("it is not base64; use the value that Daily's API returns as `hmac`".into())
        }
    }

    fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        SCHEME.key_pair(random)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        match order.kind_of(&sample::KINDS)? {
            sample::PROBE => Ok(sample::probe(order.url)),
            kind => {
                let timestamp = order.now.unix_timestamp().to_string();
                sample::sign(order.url, order.signing_key()?, &timestamp, sample::body(kind, order))
            }
        }
    }

    fn retries(&self) -> u32 {
        3
    }
}

impl Daily {
    fn refuse_stale(&self, timestamp: &str, now: OffsetDateTime) -> Result<(), Refusal> {
        let Some(tolerance) = self.tolerance else {
            return Ok(());
        };
        let timestamp = moment::from_text(timestamp).ok_or_else(|| malformed(TIMESTAMP, "it is not a time"))?;
        let age = now - timestamp;
        if age.abs() > tolerance { Err(Refusal::Stale { age, tolerance }) } else { Ok(()) }
    }
}

/// Whether the body is exactly `{"test":"test"}`, with or without blanks.
fn is_probe(body: &[u8]) -> bool {
    if body.len() > PROBE_MAX_BYTES {
        return false;
    }
    let mut members = 0;
    let mut is_test = false;
    let read = json::for_each_member(body, |name, take| {
        members += 1;
        is_test = name == "test" && json::text(Some(take()?)).as_deref() == Some("test");
        Ok(())
    });
    read.is_ok() && members == 1 && is_test
}

/// Refuses a timestamp that is not a number. A full stop ends the timestamp in the signed text. If the timestamp could
/// be any text, an attacker could move the beginning of a signed body into it, up to any full stop.
fn refuse_unless_number(timestamp: &str) -> Result<(), Refusal> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = timestamp.split_once('.').unwrap_or((timestamp, "0"));
    if is_digits(whole) && is_digits(fraction) { Ok(()) } else { Err(malformed(TIMESTAMP, "it is not a number")) }
}

fn parse_signature(header: &str) -> Result<Vec<u8>, Refusal> {
    let signature = Encoding::Base64.decode(header).filter(|signature| signature.len() == 32);
    signature.ok_or_else(|| malformed(SIGNATURE, "it is not 32 bytes in base64"))
}

fn malformed(name: &HeaderName, problem: &'static str) -> Refusal {
    Refusal::MalformedHeader { name: name.clone(), problem: problem.into() }
}

/// The room: recordings have it as `room_name`, meetings and participants as `room`.
fn room(payload: Option<&RawValue>) -> Option<String> {
    let [room_name, room] = json::members(payload?.get(), ["room_name", "room"]).ok()?;
    json::scalar(room_name).or_else(|| json::scalar(room))
}

#[cfg(test)]
mod tests;
