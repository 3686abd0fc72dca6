//! Files of test vectors: requests with the verdict that a correct receiver gives. `docs/vectors.md` describes the format.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use data_encoding::BASE64;
use hookfast_webhook::{Answer, BlankSecret, Reading, Refusal, Request, Secret, Secrets, Verified, moment, verify};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::UtcOffset;

use crate::exit::Exit;
use crate::providers::Providers;

#[derive(Deserialize)]
struct File {
    provider: String,
    vectors: Vec<Vector>,
}

/// One request and what is expected of it. Fields for readers of the file are left alone.
#[derive(Deserialize)]
struct Vector {
    id: String,
    name: String,
    level: String,
    #[serde(default)]
    config: serde_json::Map<String, Value>,
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
    Batch { items: Vec<serde_json::Map<String, Value>> },
    One(serde_json::Map<String, Value>),
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

/// What became of one vector.
struct Outcome {
    file: PathBuf,
    id: String,
    name: String,
    level: String,
    /// What differs from what is expected; nothing if it agrees.
    differences: Vec<String>,
    /// The verdict and its reason, in words.
    verdict: String,
}

pub(super) fn run(providers: &Providers, files: &[PathBuf], as_json: bool) -> Result<(), Exit> {
    let mut outcomes = Vec::new();
    for file in files {
        outcomes.extend(run_file(providers, file)?);
    }
    let disagreeing = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).count();
    if as_json {
        print_json(&outcomes, disagreeing);
    } else {
        outcomes.iter().for_each(print_line);
        outln!("{} vectors: {} agree, {disagreeing} disagree", outcomes.len(), outcomes.len() - disagreeing);
    }
    if disagreeing == 0 { Ok(()) } else { Err(Exit::No) }
}

fn run_file(providers: &Providers, path: &Path) -> Result<Vec<Outcome>, Exit> {
    let text = fs::read_to_string(path)
        .map_err(|error| Exit::Failed(format!("{} cannot be read: {error}", path.display())))?;
    let file: File = serde_json::from_str(&text)
        .map_err(|error| Exit::Failed(format!("{} is not a file of vectors: {error}", path.display())))?;
    Ok(file.vectors.iter().map(|vector| run_vector(providers, path, &file.provider, vector)).collect())
}

fn run_vector(providers: &Providers, file: &Path, provider: &str, vector: &Vector) -> Outcome {
    let (verdict, differences) = match judge(providers, provider, vector) {
        Ok(judged) => (judged.words.clone(), differences(vector, &judged)),
        Err(problem) => (String::new(), vec![problem]),
    };
    let Vector { id, name, level, .. } = vector;
    Outcome { file: file.into(), id: id.clone(), name: name.clone(), level: level.clone(), differences, verdict }
}

/// What ingest would do with the request.
struct Judged {
    verdict: Verdict,
    words: String,
    readings: Vec<Reading>,
    answer: Answer,
}

fn judge(providers: &Providers, provider: &str, vector: &Vector) -> Result<Judged, String> {
    let settings = toml::Table::try_from(&vector.config).map_err(|error| format!("`config`: {error}"))?;
    let provider = providers.find(provider)?.build(settings)?;
    let now = OffsetDateTime::from_unix_timestamp(vector.now).map_err(|error| format!("`now`: {error}"))?;
    let request = request(vector)?;
    // A source with a blank secret does not even start, so it accepts nothing.
    let secrets = vector.secrets.iter().map(Secret::new).collect::<Result<Vec<_>, BlankSecret>>();
    let verdict = match secrets {
        Ok(secrets) => verify(provider.as_ref(), request, &Secrets::new(secrets), now),
        Err(BlankSecret) => Err(Refusal::NoSecret),
    };
    Ok(match verdict {
        Ok(Verified::Genuine(genuine)) => Judged {
            verdict: Verdict::Valid,
            words: "genuine".into(),
            readings: genuine.readings(provider.as_ref()).unwrap_or_default(),
            answer: genuine.answer(provider.as_ref()),
        },
        Ok(Verified::Handshake(answer)) => {
            Judged { verdict: Verdict::Valid, words: "a handshake".into(), readings: Vec::new(), answer }
        }
        Err(refusal) => Judged {
            verdict: Verdict::Invalid,
            words: format!("refused: {refusal}"),
            readings: Vec::new(),
            answer: Answer { status: hookfast_ingest::status_of(&refusal), ..Answer::EMPTY_OK },
        },
    })
}

fn request(vector: &Vector) -> Result<Request, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &vector.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("`{name}` is no header"))?;
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("`{value}` is no header value"))?,
        );
    }
    let body = match (&vector.body, &vector.body_base64) {
        (Some(text), None) => Bytes::from(text.clone()),
        (None, Some(text)) => BASE64.decode(text.as_bytes()).map_err(|error| format!("`body_base64`: {error}"))?.into(),
        _ => return Err("there must be either `body` or `body_base64`".into()),
    };
    let method =
        Method::from_bytes(vector.method.as_bytes()).map_err(|_| format!("`{}` is no method", vector.method))?;
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
        differences.push(format!("the answer is another one: {:?}", judged.answer));
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

/// Vectors have times in the forms that providers use. One without a zone is compared with the local time of the event.
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
    // An unknown form must not fit an event without a time.
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

fn print_line(outcome: &Outcome) {
    let Outcome { id, name, level, differences, verdict, .. } = outcome;
    if differences.is_empty() {
        outln!("agrees     {id}  {level:10}  {name}");
    } else {
        outln!("DISAGREES  {id}  {level:10}  {name}");
        outln!("           verdict: {verdict}");
        differences.iter().for_each(|difference| outln!("           {difference}"));
    }
}

fn print_json(outcomes: &[Outcome], disagreeing: usize) {
    let vectors: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            json!({
                "file": outcome.file.display().to_string(),
                "id": outcome.id,
                "name": outcome.name,
                "level": outcome.level,
                "agrees": outcome.differences.is_empty(),
                "verdict": outcome.verdict,
                "differences": outcome.differences,
            })
        })
        .collect();
    outln!("{}", json!({"vectors": vectors, "agree": outcomes.len() - disagreeing, "disagree": disagreeing}));
}
