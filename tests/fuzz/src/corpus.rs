//! Where mutation begins: the vectors of all providers, and their samples. Also how a request is written to a file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use data_encoding::BASE64;
use hookfast_webhook::{Request, Secret, Secrets};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::target::{self, Target};

/// All sources and the requests that are made for them.
pub(crate) struct Corpus {
    pub(crate) targets: Vec<Target>,
    pub(crate) seeds: Vec<Seed>,
}

/// A request that a person thought of.
pub(crate) struct Seed {
    /// Its place in [`Corpus::targets`].
    pub(crate) target: usize,
    pub(crate) request: Request,
    pub(crate) now: OffsetDateTime,
}

/// An input. It is written as a vector, so that other programs understand it.
pub(crate) struct Case {
    pub(crate) target: usize,
    pub(crate) request: Request,
    pub(crate) now: OffsetDateTime,
    /// A request that we signed, and of which this one was made.
    pub(crate) signed: Option<Request>,
}

#[derive(Serialize, Deserialize)]
struct File {
    provider: String,
    vectors: Vec<Vector>,
}

#[derive(Serialize, Deserialize)]
struct Vector {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    level: String,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(flatten)]
    request: Written,
    now: i64,
    expect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed: Option<Written>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl Corpus {
    pub(crate) fn load() -> anyhow::Result<Self> {
        let mut corpus = Self { targets: target::all()?, seeds: Vec::new() };
        for target in 0..corpus.targets.len() {
            for request in corpus.targets[target].samples()? {
                corpus.seeds.push(Seed { target, request, now: target::now() });
            }
        }
        for file in fixtures()? {
            for Case { target, request, now, .. } in corpus.read(&file)? {
                corpus.seeds.push(Seed { target, request, now });
            }
        }
        Ok(corpus)
    }

    /// The requests in a file of vectors.
    pub(crate) fn read(&mut self, path: &Path) -> anyhow::Result<Vec<Case>> {
        let file = fs::read(path).with_context(|| path.display().to_string())?;
        let File { provider, vectors } = serde_json::from_slice(&file).with_context(|| path.display().to_string())?;
        let mut cases = Vec::new();
        for vector in &vectors {
            // A source with a blank secret does not start.
            let Ok(secrets) = vector.secrets.iter().map(Secret::new).collect() else { continue };
            let target = self.target(&provider, &vector.config, Secrets::new(secrets))?;
            cases.push(Case {
                target,
                request: vector.request.read().with_context(|| vector.id.clone())?,
                now: OffsetDateTime::from_unix_timestamp(vector.now)?,
                signed: vector.signed.as_ref().map(Written::read).transpose()?,
            });
        }
        Ok(cases)
    }

    fn target(&mut self, name: &str, config: &Map<String, Value>, secrets: Secrets) -> anyhow::Result<usize> {
        let is_same = |target: &Target| {
            target.name == name && target.config == *config && texts(&target.secrets) == texts(&secrets)
        };
        if let Some(known) = self.targets.iter().position(is_same) {
            return Ok(known);
        }
        self.targets.push(Target::new(name, config.clone(), secrets)?);
        Ok(self.targets.len() - 1)
    }

    /// A file of vectors with this case in it.
    pub(crate) fn write(&self, case: &Case, problem: &str) -> String {
        let target = &self.targets[case.target];
        let vector = Vector {
            id: "fuzz".into(),
            name: problem.into(),
            level: "must".into(),
            config: target.config.clone(),
            secrets: texts(&target.secrets).into_iter().map(str::to_owned).collect(),
            request: Written::of(&case.request),
            now: case.now.unix_timestamp(),
            expect: "invalid".into(),
            signed: case.signed.as_ref().map(Written::of),
        };
        format!("{:#}\n", json!(File { provider: target.name.clone(), vectors: vec![vector] }))
    }
}

fn texts(secrets: &Secrets) -> Vec<&str> {
    secrets.iter().map(Secret::expose).collect()
}

impl Written {
    fn of(request: &Request) -> Self {
        let Request { method, url, headers, body } = request;
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Self {
            method: method.to_string(),
            url: url.clone(),
            headers: headers.iter().map(header).collect(),
            body: None,
            body_base64: Some(BASE64.encode(body)),
        }
    }

    fn read(&self) -> anyhow::Result<Request> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(name.parse::<HeaderName>()?, HeaderValue::from_bytes(value.as_bytes())?);
        }
        let body = match (&self.body, &self.body_base64) {
            (Some(text), None) => text.clone().into(),
            (None, Some(text)) => BASE64.decode(text.as_bytes())?.into(),
            _ => bail!("there must be either `body` or `body_base64`"),
        };
        Ok(Request { method: Method::from_bytes(self.method.as_bytes())?, url: self.url.clone(), headers, body })
    }
}

/// The folder of all providers.
pub(crate) fn providers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers")
}

fn fixtures() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for provider in fs::read_dir(providers())? {
        let Ok(folder) = fs::read_dir(provider?.path().join("fixtures")) else { continue };
        for file in folder {
            files.push(file?.path());
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_has_seeds_and_a_case_survives_being_written() {
        let mut corpus = Corpus::load().expect("the corpus");
        for target in &corpus.targets {
            let has_name = |seed: &Seed| corpus.targets[seed.target].name == target.name;
            assert!(corpus.seeds.iter().any(has_name), "{}", target.name);
        }
        let seed = &corpus.seeds[0];
        let case = Case {
            target: seed.target,
            request: Request { body: b"\xff\0".to_vec().into(), ..seed.request.clone() },
            now: seed.now,
            signed: Some(seed.request.clone()),
        };
        let path = std::env::temp_dir().join(format!("hookfast-fuzz-{}.json", std::process::id()));
        fs::write(&path, corpus.write(&case, "a problem")).expect("a file");
        let read = corpus.read(&path).expect("vectors").remove(0);
        fs::remove_file(&path).expect("a file");
        assert_eq!((read.target, read.now), (case.target, case.now));
        assert_eq!((&read.request.headers, &read.request.body), (&case.request.headers, &case.request.body));
        assert_eq!(read.signed.map(|signed| signed.body), case.signed.map(|signed| signed.body));
    }
}
