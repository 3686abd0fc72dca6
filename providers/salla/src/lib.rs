//! Salla: one JSON event per request, proved in one of three ways. The configuration must name the way.
//!
//! `CONTRACT.md` next to this crate says what Salla sends, and what we decided where its documentation is unclear.

mod config;
mod sample;

use hookfast_webhook::signature::{self, Encoding, Scheme};
use hookfast_webhook::{
    NoSample, Priority, Proof, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secrets, Unreadable, json,
    moment,
};
use http::HeaderName;
use http::header::AUTHORIZATION;
use serde_json::value::RawValue;
use time::macros::offset;
use time::{OffsetDateTime, UtcOffset};

pub use crate::config::{Config, Strategy};

static SIGNATURE: HeaderName = HeaderName::from_static("x-salla-signature");

/// The time zone of Salla and of nearly all its merchants. It has no summer time.
const RIYADH: UtcOffset = offset!(+3);

/// Salla's contract.
#[derive(Debug, Clone)]
pub struct Salla {
    config: Config,
}

impl Salla {
    /// The contract with the settings of one source.
    pub fn new(config: &Config) -> Self {
        Self { config: config.clone() }
    }
}

impl Provider for Salla {
    fn name(&self) -> &str {
        "salla"
    }

    fn proof_headers(&self) -> &[HeaderName] {
        match self.config.strategy {
            Strategy::Signature => std::slice::from_ref(&SIGNATURE),
            Strategy::Token => &[AUTHORIZATION],
            Strategy::None => &[],
        }
    }

    /// Ignores `X-Salla-Security-Strategy`. It is not signed, so an attacker would set it to `None`.
    fn prove(&self, request: &Request, secrets: &Secrets, _now: OffsetDateTime) -> Result<Proved, Refusal> {
        let proof = match self.config.strategy {
            Strategy::Signature => prove_signature(request, secrets)?,
            Strategy::Token => self.prove_token(request, secrets)?,
            Strategy::None => Proof::unsigned(),
        };
        Ok(proof.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let names = ["event", "merchant", "created_at", "data"];
        let [event, merchant, created_at, data] = json::members(&request.body, names)?;
        let Some(event) = json::text(event).filter(|event| !event.is_empty()) else {
            return Err(Unreadable("`event` is missing, empty or not text".into()));
        };
        let merchant = json::scalar(merchant);
        let account = merchant.as_deref().unwrap_or_default();
        let dedupe_key = format!("{account}:{event}:{}", signature::sha256_hex(&request.body));
        Ok(vec![Reading {
            account: merchant,
            occurred_at: time_of(created_at),
            object_id: data.and_then(id_of),
            priority: if event.starts_with("order.") { Priority::High } else { Priority::Normal },
            ..Reading::new(dedupe_key, event, request.body.clone())
        }])
    }

    fn needs_secret(&self) -> bool {
        self.config.strategy != Strategy::None
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::make(order, &self.config)
    }

    fn retries(&self) -> u32 {
        // With about five minutes between them.
        3
    }
}

fn prove_signature(request: &Request, secrets: &Secrets) -> Result<Proof, Refusal> {
    let problem = "it is not lower-case hex";
    let signature = Encoding::Hex
        .decode(request.proof_header(&SIGNATURE)?)
        .ok_or(Refusal::MalformedHeader { name: SIGNATURE.clone(), problem: problem.into() })?;
    Scheme::HMAC_SHA256.prove(secrets, &[&request.body], &[signature])
}

impl Salla {
    fn prove_token(&self, request: &Request, secrets: &Secrets) -> Result<Proof, Refusal> {
        let value = request.proof_header(&AUTHORIZATION)?;
        let verbatim = signature::prove_token(secrets, value.as_bytes());
        match value.strip_prefix("Bearer ") {
            // A secret may itself begin with `Bearer`, so the whole value is tried first.
            Some(token) if self.config.allow_bearer => verbatim.or(signature::prove_token(secrets, token.as_bytes())),
            _ => verbatim,
        }
    }
}

fn time_of(created_at: Option<&RawValue>) -> Option<OffsetDateTime> {
    let text = json::scalar(created_at)?;
    moment::from_text(&text).or_else(|| moment::from_javascript(&text)).or_else(|| moment::from_local(&text, RIYADH))
}

fn id_of(data: &RawValue) -> Option<String> {
    let [id] = json::members(data.get(), ["id"]).ok()?;
    json::scalar(id)
}

#[cfg(test)]
mod tests;
