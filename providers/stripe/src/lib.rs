//! Stripe: one signed JSON event per request, in two shapes, snapshot and thin.
//!
//! `CONTRACT.md` next to this crate says what Stripe sends, and what we decided where its documentation is unclear.
//!
//! Before it, `webhook::genuine` has a request: `verify` calls [`Provider::prove`], and `Genuine::read` calls
//! [`Provider::read`]. After it, `ingest::route` gives the events their jobs, and `ingest::record` makes both durable.

mod header;
mod sample;

use hookfast_webhook::signature::{KeyForm, KeyPair, Scheme};
use hookfast_webhook::{
    NoSample, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secrets, Unreadable, json, moment,
};
use http::HeaderName;
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

pub use sample::sign;

static SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");

/// The settings of a source of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The greatest age of a signature, in seconds.
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
    fn name(&self) -> &str {
        "stripe"
    }

    fn proof_headers(&self) -> &[HeaderName] {
        std::slice::from_ref(&SIGNATURE)
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal> {
        let header = header::parse(request.proof_header(&SIGNATURE)?)?;
        // Like Stripe's own packages, we print the parsed timestamp again, and do not use its text in the header.
        let timestamp = header.timestamp.to_string();
        let signed = [timestamp.as_bytes(), b".", &request.body];
        let proof = Scheme::HMAC_SHA256.prove(secrets, &signed, &header.signatures)?;
        self.refuse_stale(header.timestamp, now)?;
        Ok(proof.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let names = ["id", "type", "account", "context", "created"];
        let [id, event_type, account, context, created] = json::members(&request.body, names)?;
        let needed = |value| json::text(value).filter(|text| !text.is_empty());
        let (Some(id), Some(event_type)) = (needed(id), needed(event_type)) else {
            return Err(Unreadable("`id` or `type` is missing, empty or not text".into()));
        };
        Ok(vec![Reading {
            event_id: Some(id.clone()),
            // An event never has both: snapshot events of Connect have `account`, thin events have `context`.
            account: json::text(account).or_else(|| json::text(context)),
            // Snapshot events have unix seconds, thin events RFC 3339 text.
            occurred_at: moment::from_json(created),
            ..Reading::new(id, event_type, request.body.clone())
        }])
    }

    fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        let key = KeyForm { prefix: "whsec_".into(), ..KeyForm::TEXT };
        Scheme { key, ..Scheme::HMAC_SHA256 }.key_pair(random)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::request(order)
    }

    fn retries(&self) -> u32 {
        // About this number over three days, in live mode.
        16
    }
}

impl Stripe {
    /// Refuses only old timestamps. Like Stripe's own packages, we accept one from the future: only the holder of the
    /// secret can sign it.
    fn refuse_stale(&self, timestamp: i64, now: OffsetDateTime) -> Result<(), Refusal> {
        let age = Duration::seconds(now.unix_timestamp().saturating_sub(timestamp));
        if age > self.tolerance { Err(Refusal::Stale { age, tolerance: self.tolerance }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
