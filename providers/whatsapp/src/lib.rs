//! WhatsApp Cloud API: signed JSON with many messages and statuses in one request, and a handshake by `GET`.
//!
//! `CONTRACT.md` next to this crate says what Meta sends, and what we decided where its documentation is unclear.

mod changes;
mod sample;

use std::fmt;

use hookfast_webhook::signature::{self, Encoding, Scheme};
use hookfast_webhook::{
    Answer, NoSample, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secret, Secrets, Unreadable, form,
};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use time::OffsetDateTime;

static SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");

/// The longest challenge that is sent back. Meta sends a short number, but an attacker could send any text.
const CHALLENGE_MAX_BYTES: usize = 1024;

/// The settings of a source of this provider.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The token that Meta must send in the handshake. If it is not set, any secret of the source is accepted, which is
    /// convenient for development but puts the app secret into a URL.
    pub verify_token: Option<String>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("verify_token", &self.verify_token.as_ref().map(|_| "REDACTED")).finish()
    }
}

/// WhatsApp's contract.
#[derive(Debug, Clone)]
pub struct WhatsApp {
    verify_token: Option<Secret>,
}

impl WhatsApp {
    /// The contract with the settings of one source. Fails if the settings are wrong.
    pub fn new(config: &Config) -> Result<Self, String> {
        let verify_token = config.verify_token.as_deref().map(Secret::new).transpose();
        let verify_token = verify_token.map_err(|_| {
            "`verify_token` is blank: write the token that you gave to Meta, or leave the line out to use the secret"
        })?;
        Ok(Self { verify_token })
    }
}

impl Provider for WhatsApp {
    fn name(&self) -> &str {
        "whatsapp"
    }

    fn methods(&self) -> &[Method] {
        &[Method::GET, Method::POST]
    }

    fn proof_headers(&self) -> &[HeaderName] {
        std::slice::from_ref(&SIGNATURE)
    }

    fn prove(&self, request: &Request, secrets: &Secrets, _now: OffsetDateTime) -> Result<Proved, Refusal> {
        if request.method == Method::GET {
            return self.handshake(&request.url, secrets).map(Proved::Handshake);
        }
        let signature = parse_signature(request.proof_header(&SIGNATURE)?)?;
        Ok(Scheme::HMAC_SHA256.prove(secrets, &[&request.body], &[signature])?.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        changes::read(&request.body)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        match order.kind_of(&sample::KINDS)? {
            sample::CHALLENGE => {
                let token = self.verify_token.as_ref().map_or_else(|| order.signing_key(), Ok)?;
                Ok(sample::challenge(order, token))
            }
            kind => Ok(sign(order.url, order.signing_key()?, sample::body(kind, order))),
        }
    }

    fn retries(&self) -> u32 {
        // Over seven days, with growing pauses. The number is not published.
        7
    }
}

impl WhatsApp {
    fn handshake(&self, url: &str, secrets: &Secrets) -> Result<Answer, Refusal> {
        let query = form::query(url).as_bytes();
        let is_subscription = form::value(query, "hub.mode").is_some_and(|mode| mode == "subscribe");
        let token = form::value(query, "hub.verify_token").unwrap_or_default();
        if !is_subscription || !self.is_our_token(token.as_bytes(), secrets) {
            return Err(Refusal::WrongVerifyToken);
        }
        let challenge = form::value(query, "hub.challenge").filter(|challenge| can_be_echoed(challenge));
        let challenge = challenge.ok_or_else(|| Refusal::Missing("hub.challenge".into()))?;
        Ok(Answer::ok("text/plain", challenge.into_owned()))
    }

    fn is_our_token(&self, presented: &[u8], secrets: &Secrets) -> bool {
        match &self.verify_token {
            Some(token) => signature::is_same(token.expose(), presented),
            None => signature::prove_token(secrets, presented).is_ok(),
        }
    }
}

fn can_be_echoed(challenge: &str) -> bool {
    (1..=CHALLENGE_MAX_BYTES).contains(&challenge.len()) && !challenge.chars().any(char::is_control)
}

fn parse_signature(header: &str) -> Result<Vec<u8>, Refusal> {
    let signature = header.strip_prefix("sha256=").and_then(|hex| Encoding::Hex.decode(hex));
    signature.filter(|signature| signature.len() == 32).ok_or_else(|| {
        let problem = "it is not `sha256=` and 64 lower-case hex digits";
        Refusal::MalformedHeader { name: SIGNATURE.clone(), problem: problem.into() }
    })
}

/// Signs `body` as Meta does.
pub fn sign(url: &str, app_secret: &Secret, body: String) -> Request {
    let signature = Scheme::HMAC_SHA256.sign(app_secret, &[body.as_bytes()]).expect("any text is a key");
    let value = format!("sha256={}", signature::to_hex(&signature));
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (SIGNATURE.clone(), HeaderValue::try_from(value).expect("hex is legal")),
    ]);
    Request { method: Method::POST, url: url.into(), headers, body: body.into() }
}

#[cfg(test)]
mod tests;
