//! Twilio: calls, messages and their statuses as forms or queries, Event Streams as JSON.
//!
//! The one thing to know: the signature covers the URL and the parameters of a form, but neither the method nor the
//! content type. So this crate never decides anything by these two; see `content.rs`.
//!
//! `CONTRACT.md` next to this crate says what Twilio sends, and what we decided where its documentation is unclear.

mod content;
mod parameters;
mod proof;
mod reading;
mod sample;

use hookfast_webhook::signature::{Algorithm, KeyForm, Scheme};
use hookfast_webhook::{
    Answer, NoSample, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secrets, Unreadable, form,
};
use http::{HeaderName, Method};
use serde::Deserialize;
use time::OffsetDateTime;

use crate::content::Content;
use crate::parameters::Parameters;

static PROOF_HEADERS: [HeaderName; 2] = [proof::SIGNATURE, proof::SETTINGS];

const NO_INSTRUCTIONS: &str = r#"<?xml version="1.0" encoding="UTF-8"?><Response/>"#;

/// The settings of a source of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The answer to calls and messages.
    pub answer: AnswerStyle,
    /// The algorithm with which Twilio signs. Anything but the default needs a shared key.
    pub algorithm: SignatureAlgorithm,
    /// The id of the only shared key that is accepted. `None` accepts any.
    pub key_id: Option<String>,
}

/// The answer to calls and messages. Other requests are always answered without a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerStyle {
    /// An empty TwiML document: do nothing more.
    #[default]
    Twiml,
    /// No body.
    Empty,
}

/// The algorithm with which Twilio signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SignatureAlgorithm {
    /// For the account's auth token, and for shared keys that were made with this algorithm.
    #[default]
    #[serde(rename = "HMAC_SHA1")]
    HmacSha1,
    /// Only for shared keys.
    #[serde(rename = "HMAC_SHA256")]
    HmacSha256,
}

impl SignatureAlgorithm {
    /// Twilio's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::HmacSha1 => "HMAC_SHA1",
            Self::HmacSha256 => "HMAC_SHA256",
        }
    }

    fn scheme(self) -> Scheme {
        let algorithm = match self {
            Self::HmacSha1 => Algorithm::HmacSha1,
            Self::HmacSha256 => Algorithm::HmacSha256,
        };
        Scheme { algorithm, key: KeyForm::TEXT }
    }
}

/// Twilio's contract.
#[derive(Debug, Clone)]
pub struct Twilio {
    config: Config,
}

impl Twilio {
    /// The contract with the settings of one source.
    pub fn new(config: &Config) -> Self {
        Self { config: config.clone() }
    }
}

impl Provider for Twilio {
    fn name(&self) -> &str {
        "twilio"
    }

    fn methods(&self) -> &[Method] {
        &[Method::POST, Method::GET]
    }

    fn proof_headers(&self) -> &[HeaderName] {
        &PROOF_HEADERS
    }

    fn prove(&self, request: &Request, secrets: &Secrets, _now: OffsetDateTime) -> Result<Proved, Refusal> {
        proof::refuse_other_settings(request, &self.config)?;
        proof::prove(request, secrets, &self.config.algorithm.scheme()).map(Proved::from)
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        match Content::of(request) {
            Content::HashedBody => reading::from_json(&request.body),
            Content::Form => Ok(vec![reading::from_form(request, request.body.clone())?]),
            // The query becomes the body of the event.
            Content::Query => Ok(vec![reading::from_form(request, form::query(&request.url).to_owned().into())?]),
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let form = match Content::of(request) {
            Content::HashedBody => return Answer::EMPTY_OK,
            Content::Form => &request.body[..],
            Content::Query => form::query(&request.url).as_bytes(),
        };
        match self.config.answer {
            AnswerStyle::Twiml if Parameters::parse(form).is_some_and(|all| reading::wants_instructions(&all)) => {
                Answer::ok("text/xml", NO_INSTRUCTIONS)
            }
            _ => Answer::EMPTY_OK,
        }
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::make(order, &self.config)
    }

    fn retries(&self) -> u32 {
        // Only if no connection could be made. Event Streams are sent again for four hours.
        1
    }
}

#[cfg(test)]
mod tests;
