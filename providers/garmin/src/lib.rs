//! Garmin: unsigned JSON, with many records of many users and kinds in one request.
//!
//! `CONTRACT.md` next to this crate says what Garmin sends, and what we decided where its documentation is unclear.

mod path;
mod sample;

use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::{
    NoSample, Proof, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secret, Secrets, Unreadable, json,
    moment, signature,
};
use http::HeaderName;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

static CLIENT_ID: HeaderName = HeaderName::from_static("garmin-client-id");

/// Types of records that have the same bytes each time they happen to the same user.
const REPEATABLE: [&str; 2] = ["deregistrations", "userPermissionsChange"];

/// For this time a record of such a type with the same bytes counts as a resend. It is longer than Garmin takes for its
/// first tries, and shorter than a user takes to connect and disconnect again.
const REPEATABLE_WINDOW: Duration = Duration::from_hours(1);

/// The longest name of a summary type. It is copied to each of its records, so a long one could fill the memory.
const TYPE_MAX_BYTES: usize = 255;

/// The settings of a source of this provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The client id of the application, which the header `garmin-client-id` must contain. `None` turns this check off.
    pub client_id: Option<String>,
}

/// Garmin's contract.
#[derive(Debug, Clone)]
pub struct Garmin {
    client_id: Option<String>,
}

impl Garmin {
    /// The contract with the settings of one source.
    pub fn new(config: &Config) -> Self {
        Self { client_id: config.client_id.clone() }
    }

    fn refuse_other_client(&self, request: &Request) -> Result<(), Refusal> {
        let Some(expected) = &self.client_id else { return Ok(()) };
        let presented = request.proof_header(&CLIENT_ID)?;
        if signature::is_same(expected, presented.as_bytes()) {
            Ok(())
        } else {
            Err(Refusal::NotOurs("garmin-client-id"))
        }
    }
}

impl Provider for Garmin {
    fn name(&self) -> &str {
        "garmin"
    }

    fn proof_headers(&self) -> &[HeaderName] {
        if self.client_id.is_some() { std::slice::from_ref(&CLIENT_ID) } else { &[] }
    }

    fn prove(&self, request: &Request, secrets: &Secrets, _now: OffsetDateTime) -> Result<Proved, Refusal> {
        let proof = prove_path_token(request, secrets)?;
        self.refuse_other_client(request)?;
        Ok(proof.into())
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let body = &request.body;
        let mut readings = Vec::new();
        match path::event_type(&request.url) {
            Some(event_type) if is_array(body) => add_records(&mut readings, event_type, body, body)?,
            _ => json::for_each_member(body, |event_type, take| {
                add_records(&mut readings, event_type, take()?.get().as_bytes(), body).map_err(|problem| problem.0)
            })?,
        }
        Ok(readings)
    }

    fn needs_secret(&self) -> bool {
        false
    }

    fn trusts_addresses_only(&self, secrets: &Secrets) -> bool {
        secrets.is_empty() && self.client_id.is_none()
    }

    fn check_secret(&self, secret: &Secret) -> Result<(), String> {
        if path::is_segment(secret.expose()) {
            Ok(())
        } else {
            Err("a path token is part of a URL: use up to 127 letters, digits, `-` and `_`".into())
        }
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::request(order, self.client_id.as_deref())
    }

    fn retries(&self) -> u32 {
        // Garmin names no number. It sends again with growing pauses until its queue is full.
        8
    }
}

fn prove_path_token(request: &Request, secrets: &Secrets) -> Result<Proof, Refusal> {
    if secrets.is_empty() {
        return Ok(Proof::unsigned());
    }
    let [token, _] = path::tail(&request.url);
    let token = token.ok_or_else(|| Refusal::Missing("path token".into()))?;
    signature::prove_token(secrets, token.as_bytes())
}

fn is_array(json: &[u8]) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

fn add_records(readings: &mut Vec<Reading>, event_type: &str, array: &[u8], body: &Bytes) -> Result<(), Unreadable> {
    if !(1..=TYPE_MAX_BYTES).contains(&event_type.len()) {
        return Err(Unreadable("the name of a summary type is empty or too long".into()));
    }
    let records = json::elements(array)?;
    if readings.len() + records.len() > json::EVENTS_MAX {
        return Err(Unreadable(format!("there are more than {} records", json::EVENTS_MAX)));
    }
    readings.extend(records.into_iter().map(|record| read_record(event_type, record, body)));
    Ok(())
}

fn read_record(event_type: &str, record: &RawValue, body: &Bytes) -> Reading {
    let names = [
        "userId",
        "summaryId",
        "callbackURL",
        "startTimeInSeconds",
        "measurementTimeInSeconds",
        "changeTimeInSeconds",
        "summary",
    ];
    // A record of an unknown form is still an event, because losing it would be worse than reading little of it.
    let [user, summary_id, callback, start, measured, changed, summary] =
        json::members(record.get(), names).unwrap_or_default();
    let (account, summary_id, callback) = (json::scalar(user), json::scalar(summary_id), json::scalar(callback));

    let user = account.as_deref().unwrap_or("-");
    let identity = summary_id.clone().or_else(|| callback.as_ref().map(|url| signature::sha256_hex(url.as_bytes())));
    let identity = identity.as_deref().unwrap_or("-");
    let content = signature::sha256_hex(record.get().as_bytes());
    // An update has the same identity but other content, so it must be another event. Only an exact repeat is a resend.
    let dedupe_key = format!("{event_type}:{user}:{identity}:{content}");
    Reading {
        // The id contains the user, so that no user's record replaces another user's.
        object_id: summary_id.as_ref().map(|id| format!("{event_type}:{user}:{id}")),
        occurred_at: [start, measured, changed].into_iter().find_map(moment::from_json).or_else(|| start_of(summary)),
        ping: callback.is_some(),
        event_id: summary_id,
        account,
        key_window: REPEATABLE.contains(&event_type).then_some(REPEATABLE_WINDOW),
        ..Reading::new(dedupe_key, event_type, json::slice_of(body, record))
    }
}

/// The start of activity details, which is in the summary inside them.
fn start_of(summary: Option<&RawValue>) -> Option<OffsetDateTime> {
    let [start] = json::members(summary?.get(), ["startTimeInSeconds"]).ok()?;
    moment::from_json(start)
}

#[cfg(test)]
mod tests;
