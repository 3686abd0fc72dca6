//! Runs files of test vectors: requests, each with the verdict of a correct receiver. `docs/vectors.md` describes the
//! format.

use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Map, Value};
use time::{OffsetDateTime, UtcOffset};

use crate::{Answer, BlankSecret, Provider, Reading, Refusal, Request, Secret, Secrets, Verified, moment, verify};

/// The result of one vector.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its id.
    pub id: String,
    /// What it tests.
    pub name: String,
    /// How binding it is: `must`, `sdk-parity` or `policy`.
    pub level: String,
    /// The differences from the expected result. Empty if there are none.
    pub differences: Vec<String>,
    /// The verdict and its reason, as text.
    pub verdict: String,
}

/// Runs every vector of a file. `build` makes the provider with a name and settings.
pub fn run(
    file: &str,
    build: impl Fn(&str, Map<String, Value>) -> Result<Arc<dyn Provider>, String>,
) -> Result<Vec<Outcome>, serde_json::Error> {
    let file: File = serde_json::from_str(file)?;
    Ok(file.vectors.iter().map(|vector| outcome(vector, build(&file.provider, vector.config.clone()))).collect())
}

fn outcome(vector: &Vector, provider: Result<Arc<dyn Provider>, String>) -> Outcome {
    let judged = provider.and_then(|provider| judge(provider.as_ref(), vector));
    let (verdict, differences) = match judged {
        Ok(judged) => (judged.words.clone(), differences(vector, &judged)),
        Err(problem) => (String::new(), vec![problem]),
    };
    let Vector { id, name, level, .. } = vector;
    Outcome { id: id.clone(), name: name.clone(), level: level.clone(), differences, verdict }
}

/// Panics with all differences, unless the file has vectors and every one of them agrees.
#[cfg(feature = "testing")]
pub fn assert_agreement<C: serde::de::DeserializeOwned, P: Provider + 'static>(
    file: &str,
    provider: impl Fn(&C) -> Result<P, String>,
) {
    let build = |_: &str, settings| {
        let config = serde_json::from_value(Value::Object(settings)).map_err(|error| error.to_string())?;
        Ok(Arc::new(provider(&config)?) as Arc<dyn Provider>)
    };
    let outcomes = run(file, build).expect("a file of vectors");
    assert!(!outcomes.is_empty(), "the file has no vectors");
    let disagreeing: Vec<_> = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).collect();
    assert!(disagreeing.is_empty(), "{disagreeing:#?}");
}

#[derive(Deserialize)]
struct File {
    provider: String,
    vectors: Vec<Vector>,
}

/// One request and the expected result. Other fields of the file are only for its readers.
#[derive(Deserialize)]
struct Vector {
    id: String,
    name: String,
    level: String,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    secrets: Vec<String>,
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_base64: Option<String>,
    now: i64,
    expect: Verdict,
    extract: Option<Extract>,
    expect_response: Option<ExpectedResponse>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Valid,
    Invalid,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Extract {
    Batch { items: Vec<Map<String, Value>> },
    One(Map<String, Value>),
}

#[derive(Deserialize)]
struct ExpectedResponse {
    status: Option<u16>,
    status_not: Option<u16>,
    #[serde(flatten)]
    content: ExpectedContent,
    #[serde(default)]
    any_of: Vec<ExpectedContent>,
    body_must_not_contain: Option<String>,
}

#[derive(Deserialize)]
struct ExpectedContent {
    content_type: Option<String>,
    body: Option<String>,
    body_json: Option<Value>,
}

/// What our code does with the request.
struct Judged {
    verdict: Verdict,
    words: String,
    readings: Vec<Reading>,
    answer: Answer,
}

fn judge(provider: &dyn Provider, vector: &Vector) -> Result<Judged, String> {
    let now = OffsetDateTime::from_unix_timestamp(vector.now).map_err(|error| format!("`now`: {error}"))?;
    let request = request(vector)?;
    // A gateway with a blank secret does not start, so it would accept nothing.
    let secrets = vector.secrets.iter().map(Secret::new).collect::<Result<Vec<_>, BlankSecret>>();
    let verdict = match secrets {
        Ok(secrets) => verify(provider, request, &Secrets::new(secrets), now),
        Err(BlankSecret) => Err(Refusal::NoSecret),
    };
    Ok(match verdict {
        Ok(Verified::Genuine(genuine)) => Judged {
            verdict: Verdict::Valid,
            words: "genuine".into(),
            readings: genuine.readings(provider).unwrap_or_default(),
            answer: genuine.answer(provider),
        },
        Ok(Verified::Handshake(answer)) => {
            Judged { verdict: Verdict::Valid, words: "a handshake".into(), readings: Vec::new(), answer }
        }
        Err(refusal) => Judged {
            verdict: Verdict::Invalid,
            words: format!("refused: {refusal}"),
            readings: Vec::new(),
            answer: Answer { status: refusal.status(), ..Answer::EMPTY_OK },
        },
    })
}

fn request(vector: &Vector) -> Result<Request, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &vector.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("`{name}` is not a header name"))?;
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("`{value}` is not a header value"))?,
        );
    }
    let body = match (&vector.body, &vector.body_base64) {
        (Some(text), None) => Bytes::from(text.clone()),
        (None, Some(text)) => BASE64.decode(text.as_bytes()).map_err(|error| format!("`body_base64`: {error}"))?.into(),
        _ => return Err("a vector needs either `body` or `body_base64`".into()),
    };
    let method =
        Method::from_bytes(vector.method.as_bytes()).map_err(|_| format!("`{}` is not a method", vector.method))?;
    Ok(Request { method, url: vector.url.clone(), headers, body })
}

fn differences(vector: &Vector, judged: &Judged) -> Vec<String> {
    let mut differences = Vec::new();
    if judged.verdict != vector.expect {
        differences.push(format!("expected {:?}, got {}", vector.expect, judged.words));
    }
    if let Some(extract) = &vector.extract {
        differences.extend(extract_differences(extract, &judged.readings));
    }
    if let Some(expected) = &vector.expect_response
        && !answer_fits(expected, &judged.answer)
    {
        differences.push(format!("the answer differs: {:?}", judged.answer));
    }
    differences
}

fn extract_differences(extract: &Extract, readings: &[Reading]) -> Vec<String> {
    let items = match extract {
        Extract::Batch { items } => items.as_slice(),
        Extract::One(item) => std::slice::from_ref(item),
    };
    if items.len() != readings.len() {
        return vec![format!("expected {} events, got {}", items.len(), readings.len())];
    }
    let pairs = items.iter().zip(readings);
    pairs
        .flat_map(|(item, reading)| item.iter().filter_map(|(key, value)| field_difference(key, value, reading)))
        .collect()
}

fn field_difference(key: &str, expected: &Value, reading: &Reading) -> Option<String> {
    let text_fits = |found: Option<&String>| {
        expected.as_str() == found.map(String::as_str) && (expected.is_string() || expected.is_null())
    };
    let fits = match key {
        "event_id" => text_fits(reading.event_id.as_ref()),
        "delivery_id" => text_fits(reading.delivery_id.as_ref()),
        "object_id" => text_fits(reading.object_id.as_ref()),
        "event_type" => text_fits(Some(&reading.event_type)),
        "account" => text_fits(reading.account.as_ref()),
        "occurred_at" => moment_fits(expected, reading.occurred_at),
        "ping" => expected.as_bool() == Some(reading.ping),
        _ => return Some(format!("`extract` has `{key}`, which is unknown")),
    };
    (!fits).then(|| format!("`{key}` should be {expected}, but the event is {reading:?}"))
}

/// Vectors have times in the forms that providers use. A time without a zone is compared in the zone of the event's
/// time.
fn moment_fits(expected: &Value, found: Option<OffsetDateTime>) -> bool {
    let text = match expected {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return found.is_none(),
    };
    let offset = found.map_or(UtcOffset::UTC, OffsetDateTime::offset);
    let expected = moment::from_text(&text)
        .or_else(|| moment::from_javascript(&text))
        .or_else(|| moment::from_local(&text, offset));
    // A time in an unknown form must not match an event without a time.
    expected.is_some() && expected == found
}

fn answer_fits(expected: &ExpectedResponse, answer: &Answer) -> bool {
    let status = answer.status.as_u16();
    let body = String::from_utf8_lossy(&answer.body);
    expected.status.is_none_or(|wanted| wanted == status)
        && expected.status_not.is_none_or(|unwanted| unwanted != status)
        && expected.body_must_not_contain.as_ref().is_none_or(|unwanted| !body.contains(unwanted.as_str()))
        && content_fits(&expected.content, answer)
        && (expected.any_of.is_empty() || expected.any_of.iter().any(|content| content_fits(content, answer)))
}

fn content_fits(expected: &ExpectedContent, answer: &Answer) -> bool {
    expected.content_type.as_deref().is_none_or(|wanted| answer.content_type.as_deref() == Some(wanted))
        && expected.body.as_ref().is_none_or(|wanted| answer.body == *wanted.as_bytes())
        && expected
            .body_json
            .as_ref()
            .is_none_or(|wanted| serde_json::from_slice(&answer.body).ok().as_ref() == Some(wanted))
}
