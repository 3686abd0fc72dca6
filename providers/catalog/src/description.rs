//! A provider as data: the contents of a file of the catalog.

use std::collections::BTreeMap;
use std::fmt;

use hookfast_webhook::signature::{self, KeyForm, Scheme};
use http::HeaderName;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};

use crate::check::check;
use crate::priority::PriorityRule;
use crate::template::{ArrayPlace, Json, MethodName, Part, Place, Places, Template};

/// A provider that needs no code. `docs/providers.md` explains every key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name, as in `provider = "github"`.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// The URL where the provider describes its webhooks.
    pub documentation: String,
    /// How to set it up in the provider's console.
    pub setup: String,
    /// What we decided where the provider's documentation is unclear, and other things to know.
    #[serde(default)]
    pub notes: String,
    /// Whether the file is tested with test vectors.
    #[serde(default)]
    pub vector_tested: bool,
    /// How often the provider sends a request again that was not answered with 2xx.
    #[serde(default = "three")]
    pub retries: u32,
    /// The ways in which it signs. One match is enough.
    #[serde(default)]
    pub(crate) signature: Vec<SignatureRule>,
    pub(crate) token: Option<TokenRule>,
    pub(crate) freshness: Option<Freshness>,
    pub(crate) event: EventRule,
    #[serde(default)]
    pub(crate) handshake: Vec<HandshakeRule>,
    #[serde(default)]
    pub(crate) answer: AnswerRule,
    pub(crate) sample: Vec<SampleRule>,
}

fn three() -> u32 {
    3
}

impl Description {
    /// Whether everything in a template is signed in each of the provider's ways to sign.
    pub(crate) fn signs(&self, template: &Template) -> bool {
        template.parts.iter().all(|part| self.signs_part(part))
    }

    pub(crate) fn signs_part(&self, part: &Part) -> bool {
        !self.signature.is_empty() && self.signature.iter().all(|rule| rule.signs(part))
    }

    /// Whether an event can have a signed type. If the first template is not signed, an attacker can decide whether it is used.
    pub fn can_sign_type(&self) -> bool {
        self.event.event_type.0.first().is_some_and(|template| self.signs(template))
    }
}

/// Where a signature is and what it signs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignatureRule {
    pub(crate) from: Places,
    #[serde(default)]
    pub(crate) prefix: String,
    pub(crate) list: Option<EntryList>,
    #[serde(with = "SignatureEncoding")]
    pub(crate) encoding: signature::Encoding,
    #[serde(with = "Algorithm")]
    pub(crate) algorithm: signature::Algorithm,
    #[serde(default)]
    pub(crate) key: KeyRule,
    pub(crate) signed: Template,
    /// Whether the signature covers the events.
    #[serde(default = "yes")]
    pub(crate) covers_events: bool,
}

fn yes() -> bool {
    true
}

/// A header with several entries, such as `ts=1;h1=x` or `v1,x v1,y`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryList {
    pub(crate) separator: char,
    pub(crate) assign: char,
    /// The name of the entries that are signatures.
    pub(crate) name: String,
}

/// The encoding of a signature.
#[derive(Deserialize)]
#[serde(remote = "signature::Encoding", rename_all = "lowercase")]
enum SignatureEncoding {
    Hex,
    Base64,
}

/// The encoding of a key.
#[derive(Deserialize)]
#[serde(remote = "signature::Encoding", rename_all = "lowercase")]
enum KeyEncoding {
    Text,
    Hex,
    Base64,
}

#[derive(Deserialize)]
#[serde(remote = "signature::Algorithm", rename_all = "kebab-case")]
enum Algorithm {
    HmacSha1,
    HmacSha256,
    HmacSha512,
    Ed25519,
    EcdsaP256,
}

/// How a secret becomes a key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeyRule {
    #[serde(with = "KeyEncoding")]
    pub(crate) encoding: signature::Encoding,
    pub(crate) prefix: String,
    pub(crate) prefix_needed: bool,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self { encoding: signature::Encoding::Text, prefix: String::new(), prefix_needed: false }
    }
}

/// A secret that each request contains unchanged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRule {
    pub(crate) from: HeaderPlace,
}

/// `header:NAME`
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HeaderPlace(pub(crate) HeaderName);

impl TryFrom<String> for HeaderPlace {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse()? {
            Place::Header(name) => Ok(Self(name)),
            _ => Err(format!("`{text}` is not a header; write header:NAME")),
        }
    }
}

/// How old a request may be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Freshness {
    /// Where the time is. It must be signed.
    pub(crate) time: Places,
    /// The greatest age. If it is not set, age is checked only for sources with the setting `tolerance_seconds`.
    pub(crate) tolerance_seconds: Option<u32>,
    /// Whether the limit also holds for a time in the future.
    #[serde(default = "yes")]
    pub(crate) both_ways: bool,
}

/// Where the events are, and how to read their fields. A field has the value of its first template whose places are all there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventRule {
    /// The array whose elements are the events: `json:` for the whole body, `json:PATH` for a member.
    pub(crate) each: Option<ArrayPlace>,
    /// The form field that contains the JSON, if the body is a form.
    pub(crate) json_in_form: Option<String>,
    #[serde(default)]
    pub(crate) id: Alternatives,
    #[serde(rename = "type")]
    pub(crate) event_type: Alternatives,
    #[serde(default)]
    pub(crate) account: Alternatives,
    #[serde(default)]
    pub(crate) time: Alternatives,
    #[serde(default)]
    pub(crate) object: Alternatives,
    #[serde(default)]
    pub(crate) delivery: Alternatives,
    pub(crate) dedupe: Alternatives,
    #[serde(default)]
    pub(crate) priority: PriorityRule,
}

impl EventRule {
    /// The fields of an event, by key.
    pub(crate) fn fields(&self) -> [(&'static str, &Alternatives); 7] {
        [
            ("id", &self.id),
            ("type", &self.event_type),
            ("account", &self.account),
            ("time", &self.time),
            ("object", &self.object),
            ("delivery", &self.delivery),
            ("dedupe", &self.dedupe),
        ]
    }
}

/// One template or several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alternatives(pub(crate) Vec<Template>);

/// Written by hand, because the error of an untagged enum would not say what is wrong with a template.
impl<'de> Deserialize<'de> for Alternatives {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Alternatives;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a template in quotes, or a list of templates")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.to_owned().try_into().map(|template| Alternatives(vec![template])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut templates = Vec::new();
                while let Some(template) = list.next_element()? {
                    templates.push(template);
                }
                Ok(Alternatives(templates))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

impl fmt::Display for Alternatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let templates: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&templates.join(", else "))
    }
}

/// A request with which the provider only checks that the endpoint exists.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandshakeRule {
    #[serde(default = "post")]
    pub(crate) method: MethodName,
    /// The requests that are this handshake: those with this value at every place. `*` stands for any value.
    #[serde(default)]
    pub(crate) when: Conditions,
    /// Whether it is signed like other requests.
    #[serde(default = "yes")]
    pub(crate) signed: bool,
    pub(crate) answer: AnswerRule,
}

/// Places and the values that they must have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub(crate) struct Conditions(pub(crate) Vec<(Place, String)>);

impl TryFrom<BTreeMap<String, String>> for Conditions {
    type Error = String;

    fn try_from(conditions: BTreeMap<String, String>) -> Result<Self, String> {
        conditions.into_iter().map(|(place, value)| Ok((place.parse()?, value))).collect::<Result<_, _>>().map(Self)
    }
}

fn post() -> MethodName {
    MethodName(http::Method::POST)
}

/// An answer. The default is 200 with an empty body; it can have a text or JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AnswerRule {
    pub(crate) status: Option<u16>,
    pub(crate) text: Option<Template>,
    /// The JSON of the answer. Its strings are templates.
    pub(crate) json: Option<Json>,
    pub(crate) headers: Headers<Template>,
}

impl AnswerRule {
    /// Every template in it.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let headers = self.headers.0.iter().map(|(_, template)| template);
        self.text.iter().chain(headers).chain(self.json.iter().flat_map(Json::templates))
    }
}

/// Headers by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "BTreeMap<String, T>", bound = "T: Deserialize<'de>")]
pub(crate) struct Headers<T>(pub(crate) Vec<(HeaderName, T)>);

impl<T> TryFrom<BTreeMap<String, T>> for Headers<T> {
    type Error = String;

    fn try_from(headers: BTreeMap<String, T>) -> Result<Self, String> {
        let parse = |(name, value): (String, T)| match name.parse() {
            Ok(header) => Ok((header, value)),
            Err(_) => Err(format!("`{name}` is not the name of a header")),
        };
        headers.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }
}

impl<T> Default for Headers<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A sample request. Body and headers may contain `{serial}`, `{now}`, `{now_ms}`, `{now_rfc3339}` and `{signature}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleRule {
    pub(crate) kind: String,
    #[serde(default = "post")]
    pub(crate) method: MethodName,
    #[serde(default)]
    pub(crate) query: String,
    #[serde(default)]
    pub(crate) body: String,
    #[serde(default = "json_type")]
    pub(crate) content_type: String,
    #[serde(default)]
    pub(crate) headers: Headers<String>,
}

fn json_type() -> String {
    "application/json".into()
}

/// A problem in a file of the catalog, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, if it is known.
    pub line: Option<usize>,
    /// The problem, and what is allowed.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.problem)
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line of a key such as `signature.0.signed`, or of the longest part of it that exists.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let root = DeValue::Table(DeTable::parse(text).ok()?.into_inner());
    let (mut value, mut line) = (&root, None);
    for step in key.split('.') {
        let next = step.parse::<usize>().map_or_else(|_| value.get(step), |index| value.get(index));
        let Some(next) = next else { break };
        line = Some(line_at(text, next.span().start));
        value = next.get_ref();
    }
    line
}

impl Description {
    /// Reads a file of the catalog.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let description: Self = toml::from_str(text).map_err(|error| Problem {
            line: error.span().map(|span| line_at(text, span.start)),
            problem: error.message().to_owned(),
        })?;
        check(&description).map_err(|fault| Problem { line: line_of(text, &fault.key), problem: fault.to_string() })?;
        Ok(description)
    }

    /// The settings of a source of this provider, besides those of every source.
    pub fn settings(&self) -> Vec<&'static str> {
        let mut settings = Vec::new();
        if self.freshness.is_some() {
            settings.push("tolerance_seconds");
        }
        if self.signs_url() {
            settings.push("notification_url");
        }
        settings
    }

    pub(crate) fn signs_url(&self) -> bool {
        self.signature.iter().any(|rule| rule.signed.parts.contains(&Part::Url))
    }
}

impl SignatureRule {
    pub(crate) fn scheme(&self) -> Scheme {
        let KeyRule { encoding, prefix, prefix_needed } = self.key.clone();
        Scheme { algorithm: self.algorithm, key: KeyForm { prefix: prefix.into(), prefix_needed, encoding } }
    }

    /// Whether this part of a template is signed. A query never counts as signed: the signed URL may be the configured one.
    pub(crate) fn signs(&self, part: &Part) -> bool {
        let signed = &self.signed.parts;
        let signs_body = || signed.iter().any(|part| matches!(part, Part::Body | Part::Hash));
        let is_in_body = |place: &Place| matches!(place, Place::Json(_) | Place::Form(_));
        match part {
            Part::Literal(_) => true,
            Part::Body | Part::Hash => signs_body(),
            Part::Url | Part::Method => signed.contains(part),
            Part::Unique => false,
            Part::Place { places, .. } => {
                let is_named = |part: &Part| matches!(part, Part::Place { places: named, .. } if named == places);
                (places.iter().all(is_in_body) && signs_body()) || signed.iter().any(is_named)
            }
        }
    }
}
