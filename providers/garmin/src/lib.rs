//! Garmin: unsigned JSON, many records of many users and kinds in one request.
//!
//! What Garmin sends and where we had to choose stands in `CONTRACT.md` beside this crate.

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

/// What has the same bytes whenever it happens to the same user.
const REPEATABLE: [&str; 2] = ["deregistrations", "userPermissionsChange"];

/// How long such a record counts as a resend: longer than Garmin's first tries, and shorter than the time in which a user
/// connects again and disconnects for good.
const REPEATABLE_WINDOW: Duration = Duration::from_hours(1);

/// The longest name of a summary type. It is copied to each of its records, so a long one could fill the memory.
const TYPE_MAX_BYTES: usize = 255;

/// What can be set for a source of this provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The client id of the application, which the header `garmin-client-id` must name. Not checked if it is not set.
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
            Err("a path token stands in a URL: use up to 127 letters, digits, `-` and `_`".into())
        }
    }

    fn sample_kinds(&self) -> Vec<&str> {
        sample::KINDS.to_vec()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::request(order, self.client_id.as_deref())
    }

    fn retries(&self) -> u32 {
        // Garmin names no number: it goes on, with growing pauses, for as long as its queue bears it.
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
    // A record of a form that we do not know is still an event: losing it would be worse than knowing little of it.
    let [user, summary_id, callback, start, measured, changed, summary] =
        json::members(record.get(), names).unwrap_or_default();
    let (account, summary_id, callback) = (json::scalar(user), json::scalar(summary_id), json::scalar(callback));

    let user = account.as_deref().unwrap_or("-");
    let identity = summary_id.clone().or_else(|| callback.as_ref().map(|url| signature::sha256_hex(url.as_bytes())));
    let identity = identity.as_deref().unwrap_or("-");
    let content = signature::sha256_hex(record.get().as_bytes());
    // An update has the same identity and other content, so it is another event; an exact repeat is not.
    let dedupe_key = format!("{event_type}:{user}:{identity}:{content}");
    Reading {
        // With the user in it, no user's record supersedes another's.
        object_id: summary_id.as_ref().map(|id| format!("{event_type}:{user}:{id}")),
        occurred_at: [start, measured, changed].into_iter().find_map(moment::from_json).or_else(|| start_of(summary)),
        ping: callback.is_some(),
        event_id: summary_id,
        account,
        key_window: REPEATABLE.contains(&event_type).then_some(REPEATABLE_WINDOW),
        ..Reading::new(dedupe_key, event_type, json::slice_of(body, record))
    }
}

/// Activity details keep their start in the summary inside them.
fn start_of(summary: Option<&RawValue>) -> Option<OffsetDateTime> {
    let [start] = json::members(summary?.get(), ["startTimeInSeconds"]).ok()?;
    moment::from_json(start)
}

#[cfg(test)]
mod tests;
