//! The test vectors: requests of which the verdict, and what is to be read in them, is known.

use hookfast_webhook::{Answer, Provider, Reading, Request, Secret, Secrets, Verified, moment, verify};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::with;
use crate::{EMBEDDED, Settings};

macro_rules! vectors {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            agree(stringify!($name), include_str!(concat!("../../fixtures/", stringify!($name), ".json")));
        })*
    };
}

vectors! {
    discord
    github
    linear
    mailgun
    paddle
    sendgrid
    shopify
    slack
    square
    standardwebhooks
    zoom
}

#[test]
fn a_file_says_that_it_was_compared_if_it_was() {
    let claimed = EMBEDDED.iter().filter(|description| description.vector_tested);
    assert_eq!(claimed.map(|description| description.name.as_str()).collect::<Vec<_>>(), TESTED);
}

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    name: String,
    #[serde(default)]
    config: Settings,
    secrets: Vec<String>,
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: String,
    now: i64,
    expect: String,
    extract: Option<Value>,
    expect_response: Option<Value>,
}

fn agree(provider: &str, file: &str) {
    let file: File = serde_json::from_str(file).expect("a file of vectors");
    assert!(!file.vectors.is_empty());
    let problems: Vec<_> = file
        .vectors
        .iter()
        .filter_map(|vector| {
            run(provider, vector).err().map(|problem| format!("{} ({}): {problem}", vector.id, vector.name))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn run(provider: &str, vector: &Vector) -> Result<(), String> {
    let provider = with(provider, vector.config.clone());
    let secrets: Vec<_> = vector.secrets.iter().map(|text| Secret::new(text.as_str()).expect("not blank")).collect();
    for secret in &secrets {
        provider.check_secret(secret)?;
    }
    let now = OffsetDateTime::from_unix_timestamp(vector.now).expect("a time");
    let verdict = verify(&provider, request(vector), &Secrets::new(secrets), now);
    match (vector.expect.as_str(), verdict) {
        ("invalid", Err(_)) => Ok(()),
        ("valid", Ok(Verified::Handshake(answer))) => agrees(&answer, vector.expect_response.as_ref()),
        ("valid", Ok(Verified::Genuine(genuine))) => {
            agrees(&genuine.answer(&provider), vector.expect_response.as_ref())?;
            let readings = genuine.readings(&provider).map_err(|problem| problem.to_string())?;
            vector.extract.as_ref().map_or(Ok(()), |expected| extracts(&readings, expected))
        }
        (expected, verdict) => Err(format!("{expected} is expected, but it is {verdict:?}")),
    }
}

fn request(vector: &Vector) -> Request {
    let mut headers = HeaderMap::new();
    for (name, value) in &vector.headers {
        let name: HeaderName = name.parse().expect("a name");
        headers.append(name, HeaderValue::try_from(value).expect("a value"));
    }
    let method = vector.method.parse().expect("a method");
    Request { method, url: vector.url.clone(), headers, body: vector.body.clone().into() }
}

fn extracts(readings: &[Reading], expected: &Value) -> Result<(), String> {
    let expected =
        expected.get("items").and_then(Value::as_array).map_or(std::slice::from_ref(expected), Vec::as_slice);
    if readings.len() != expected.len() {
        return Err(format!("{} events are expected, but there are {}", expected.len(), readings.len()));
    }
    readings.iter().zip(expected).try_for_each(|(reading, expected)| extracts_one(reading, expected))
}

fn extracts_one(reading: &Reading, expected: &Value) -> Result<(), String> {
    for (name, value) in expected.as_object().expect("an object") {
        let text = |found: Option<&str>| found == value.as_str();
        let same = match name.as_str() {
            "event_id" => text(reading.event_id.as_deref()),
            "delivery_id" => text(reading.delivery_id.as_deref()),
            "event_type" => text(Some(&reading.event_type)),
            "account" => text(reading.account.as_deref()),
            "occurred_at" => reading.occurred_at == time(value),
            other => panic!("`{other}` is not compared"),
        };
        if !same {
            return Err(format!("`{name}` should be {value} in {reading:?}"));
        }
    }
    Ok(())
}

/// Seconds, milliseconds or RFC 3339.
fn time(value: &Value) -> Option<OffsetDateTime> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if value.is_null() { None } else { Some(moment::from_text(&text).expect("a time")) }
}

fn agrees(answer: &Answer, expected: Option<&Value>) -> Result<(), String> {
    let Some(expected) = expected else { return Ok(()) };
    let choices = expected.get("any_of").and_then(Value::as_array);
    let status = u64::from(answer.status.as_u16());
    let fits = expected.get("status").is_none_or(|wanted| *wanted == status)
        && choices.map_or(std::slice::from_ref(expected), Vec::as_slice).iter().any(|choice| has_body(answer, choice));
    if fits { Ok(()) } else { Err(format!("the answer should be {expected}, but is {answer:?}")) }
}

fn has_body(answer: &Answer, expected: &Value) -> bool {
    let is = |name: &str, found: &dyn Fn(&Value) -> bool| expected.get(name).is_none_or(found);
    is("content_type", &|wanted| answer.content_type.as_deref() == wanted.as_str())
        && is("body", &|wanted| wanted.as_str().is_some_and(|wanted| *wanted.as_bytes() == *answer.body))
        && is("body_json", &|wanted| serde_json::from_slice::<Value>(&answer.body).is_ok_and(|found| found == *wanted))
}
