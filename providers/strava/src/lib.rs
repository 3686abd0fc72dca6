//! Strava: one small JSON event per request, usually unsigned, and a handshake by GET.
//!
//! `CONTRACT.md` next to this crate says what Strava sends, and what we decided where its documentation is unclear.

mod header;
mod sample;
mod updates;

use std::fmt;

use hookfast_webhook::signature::{self, Scheme};
use hookfast_webhook::{
    Answer, NoSample, Proof, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secret, Secrets, Unreadable,
    form, json, moment,
};
use http::{HeaderName, Method};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use updates::Updates;

pub use sample::sign;

static SIGNATURE: HeaderName = HeaderName::from_static("x-strava-signature");

/// The settings of a source of this provider.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The token that you gave to Strava for the subscription, and that the handshake must contain. If it is not set,
    /// any of the source's secrets is accepted.
    pub verify_token: Option<String>,
    /// The only subscription whose events are accepted. `None` turns this check off.
    pub subscription_id: Option<u64>,
    /// Whether events must be signed. If it is not set, they must be signed if the source has a secret.
    pub mode: Option<Mode>,
    /// The greatest age of a signature, in seconds.
    pub tolerance_seconds: u32,
}

/// Whether events must be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Signatures are ignored.
    Unsigned,
    /// Requests without a valid signature are refused.
    Signed,
}

impl Default for Config {
    fn default() -> Self {
        Self { verify_token: None, subscription_id: None, mode: None, tolerance_seconds: 300 }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("verify_token", &self.verify_token.as_ref().map(|_| "REDACTED"))
            .field("subscription_id", &self.subscription_id)
            .field("mode", &self.mode)
            .field("tolerance_seconds", &self.tolerance_seconds)
            .finish()
    }
}

/// Strava's contract.
#[derive(Debug, Clone)]
pub struct Strava {
    verify_token: Option<Secret>,
    subscription_id: Option<u64>,
    mode: Option<Mode>,
    tolerance: Duration,
}

impl Strava {
    /// The contract with the settings of one source. Fails if the settings are wrong.
    pub fn new(config: &Config) -> Result<Self, String> {
        let verify_token = config.verify_token.as_ref().map(Secret::new).transpose();
        Ok(Self {
            verify_token: verify_token.map_err(|_| "`verify_token` is blank, so everyone would have it")?,
            subscription_id: config.subscription_id,
            mode: config.mode,
            tolerance: Duration::seconds(config.tolerance_seconds.into()),
        })
    }

    fn wants_signature(&self, secrets: &Secrets) -> bool {
        self.mode.map_or(!secrets.is_empty(), |mode| mode == Mode::Signed)
    }
}

impl Provider for Strava {
    fn name(&self) -> &str {
        "strava"
    }

    fn methods(&self) -> &[Method] {
        &[Method::GET, Method::POST]
    }

    fn proof_headers(&self) -> &[HeaderName] {
        if self.mode == Some(Mode::Unsigned) { &[] } else { std::slice::from_ref(&SIGNATURE) }
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal> {
        if request.method == Method::GET {
            return self.shake_hands(form::query(&request.url), secrets).map(Proved::Handshake);
        }
        let signed = self.wants_signature(secrets);
        let proof = if signed { self.prove_signature(request, secrets, now)? } else { Proof::unsigned() };
        self.refuse_other_subscription(request)?;
        Ok(proof.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let names = ["object_type", "aspect_type", "object_id", "event_time", "owner_id", "subscription_id", "updates"];
        let [object_type, aspect_type, object_id, event_time, owner, subscription, updates] =
            json::members(&request.body, names)?;
        let word = |value| json::text(value).filter(|text| !text.is_empty());
        let (Some(object_type), Some(aspect_type)) = (word(object_type), word(aspect_type)) else {
            return Err(Unreadable("`object_type` or `aspect_type` is missing, empty or not text".into()));
        };
        // Without these, two events could have the same key, and one would be lost as a resend of the other.
        let (Some(object_id), Some(seconds)) = (json::scalar(object_id), json::scalar(event_time)) else {
            return Err(Unreadable("`object_id` or `event_time` is missing, empty or neither number nor text".into()));
        };

        let updates = Updates::of(updates)?;
        let identity = (json::scalar(subscription), &object_type, &object_id, &aspect_type, &seconds, &updates);
        let identity = serde_json::to_string(&identity).expect("text can be written as JSON");
        let event_type = match (object_type.as_str(), aspect_type.as_str()) {
            ("athlete", "update") if updates.revoke_access() => "athlete.deauthorize".to_owned(),
            _ => format!("{object_type}.{aspect_type}"),
        };
        Ok(vec![Reading {
            account: json::scalar(owner),
            occurred_at: moment::from_json(event_time),
            object_id: Some(object_id),
            ..Reading::new(signature::sha256_hex(identity.as_bytes()), event_type, request.body.clone())
        }])
    }

    fn needs_secret(&self) -> bool {
        self.mode == Some(Mode::Signed)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::request(self, order)
    }

    fn retries(&self) -> u32 {
        2
    }
}

impl Strava {
    fn shake_hands(&self, query: &str, secrets: &Secrets) -> Result<Answer, Refusal> {
        let value = |name| form::value(query.as_bytes(), name).filter(|value| !value.is_empty());
        let token = value("hub.verify_token").ok_or(Refusal::WrongVerifyToken)?;
        self.prove_verify_token(&token, secrets)?;
        if value("hub.mode").as_deref() != Some("subscribe") {
            return Err(Refusal::Missing("hub.mode=subscribe".into()));
        }
        let challenge = value("hub.challenge").ok_or_else(|| Refusal::Missing("hub.challenge".into()))?;
        Ok(Answer::ok("application/json", serde_json::json!({ "hub.challenge": challenge }).to_string()))
    }

    fn prove_verify_token(&self, token: &str, secrets: &Secrets) -> Result<(), Refusal> {
        let configured = self.verify_token.as_ref().map(|token| Secrets::new(vec![token.clone()]));
        let proof = signature::prove_token(configured.as_ref().unwrap_or(secrets), token.as_bytes());
        proof.map(|_| ()).map_err(|_| Refusal::WrongVerifyToken)
    }

    fn prove_signature(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proof, Refusal> {
        let header = header::parse(request.proof_header(&SIGNATURE)?)?;
        let signed = [header.signed_time.as_bytes(), b".", &request.body];
        let proof = Scheme::HMAC_SHA256.prove(secrets, &signed, &header.signatures)?;
        self.refuse_stale(header.timestamp, now)?;
        Ok(proof)
    }

    /// Refuses only old timestamps. A time from the future can only be signed by the holder of the secret, whose clock
    /// may be ahead.
    fn refuse_stale(&self, timestamp: i64, now: OffsetDateTime) -> Result<(), Refusal> {
        let age = Duration::seconds(now.unix_timestamp().saturating_sub(timestamp));
        if age > self.tolerance { Err(Refusal::Stale { age, tolerance: self.tolerance }) } else { Ok(()) }
    }

    fn refuse_other_subscription(&self, request: &Request) -> Result<(), Refusal> {
        let Some(expected) = self.subscription_id else { return Ok(()) };
        let missing = || Refusal::Missing("subscription_id".into());
        let [presented] = json::members(&request.body, ["subscription_id"]).map_err(|_| missing())?;
        let presented = json::scalar(presented).ok_or_else(missing)?;
        let ours = signature::is_same(&expected.to_string(), presented.as_bytes());
        if ours { Ok(()) } else { Err(Refusal::NotOurs("subscription_id")) }
    }
}

#[cfg(test)]
mod tests;
