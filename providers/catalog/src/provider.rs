//! The provider that a description describes: proves and reads requests according to its file.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use hookfast_webhook::signature::{self, KeyPair, Scheme};
use hookfast_webhook::{
    Answer, NoSample, Proof, Proved, Provider, Reading, Refusal, Request, SIGNATURE_CANDIDATES_MAX, SampleOrder,
    Secret, Secrets, Unreadable, json, moment,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use crate::description::{AnswerRule, Description, EntryList, Freshness, HandshakeRule, SignatureRule};
use crate::sample;
use crate::template::{Part, Place, Template};
use crate::view::View;

/// The longest text that is sent back in a handshake. Providers send a few dozen characters.
const ECHO_MAX_BYTES: usize = 1024;

/// The settings of a source. The description says which of them exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The greatest age of a request, in seconds.
    pub tolerance_seconds: Option<u32>,
    /// The URL as configured at the provider, if it is signed and differs from ours.
    pub notification_url: Option<String>,
}

/// A provider of the catalog with the settings of one source.
#[derive(Debug, Clone)]
pub struct CatalogProvider {
    pub(crate) description: Arc<Description>,
    settings: Settings,
    methods: Vec<Method>,
    proof_headers: Vec<HeaderName>,
    /// Every path into JSON that the description names.
    pub(crate) paths: Vec<Vec<String>>,
}

impl CatalogProvider {
    /// The provider with the settings of one source.
    pub fn new(description: Arc<Description>, settings: Settings) -> Self {
        let (methods, proof_headers) = (methods(&description), proof_headers(&description));
        let paths = paths(&description);
        Self { description, settings, methods, proof_headers, paths }
    }

    pub(crate) fn view<'a>(&'a self, request: &'a Request, bytes: &'a [u8]) -> View<'a> {
        let url = self.settings.notification_url.as_deref().unwrap_or(&request.url);
        View::new(request, url, bytes, self.description.event.json_in_form.as_deref(), &self.paths)
    }
}

impl Provider for CatalogProvider {
    fn name(&self) -> &str {
        &self.description.name
    }

    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn proof_headers(&self) -> &[HeaderName] {
        &self.proof_headers
    }

    fn prove(&self, request: &Request, secrets: &Secrets, now: OffsetDateTime) -> Result<Proved, Refusal> {
        let mut view = self.view(request, &request.body);
        let proof = match self.prove_event(&mut view, secrets, now) {
            Ok(proof) => proof,
            // Only an unproved request can be an unsigned handshake. A proved one may be an event, and would be lost.
            Err(refusal) => return self.handshake(&view, None)?.map(Proved::Handshake).ok_or(refusal),
        };
        let secret = proof.secret_index().and_then(|index| secrets.iter().nth(index));
        match self.handshake(&view, secret)? {
            Some(answer) => Ok(Proved::Handshake(answer)),
            None => Ok(proof.into()),
        }
    }

    fn read(&self, request: &Request) -> Result<Vec<Reading>, Unreadable> {
        let body = &request.body;
        match &self.description.event.each {
            None => Ok(vec![self.read_one(request, body)?]),
            Some(each) => {
                let [array] = json::select(body, std::slice::from_ref(&each.0))?[..] else { return Ok(Vec::new()) };
                let array = array.ok_or_else(|| Unreadable("the array of events is missing".into()))?;
                let elements = json::elements(array.get().as_bytes())?;
                elements.into_iter().map(|element| self.read_one(request, &json::slice_of(body, element))).collect()
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let view = self.view(request, &request.body);
        answer(&self.description.answer, &view, None).unwrap_or(Answer::EMPTY_OK)
    }

    fn check_secret(&self, secret: &Secret) -> Result<(), String> {
        let rules = &self.description.signature;
        if rules.is_empty() || rules.iter().any(|rule| rule.scheme().takes(secret)) {
            return Ok(());
        }
        let forms: Vec<_> = rules.iter().map(SignatureRule::key_in_words).collect();
        Err(format!("is not a key of this provider: it must be {}", forms.join(", or ")))
    }

    fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        let scheme = self.description.signature.first().map_or(Scheme::HMAC_SHA256, SignatureRule::scheme);
        scheme.key_pair(random)
    }

    fn sample_kinds(&self) -> Vec<&str> {
        self.description.sample.iter().map(|sample| sample.kind.as_str()).collect()
    }

    fn sample(&self, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
        sample::make(self, order)
    }

    fn retries(&self) -> u32 {
        self.description.retries
    }
}

impl CatalogProvider {
    fn prove_event(&self, view: &mut View<'_>, secrets: &Secrets, now: OffsetDateTime) -> Result<Proof, Refusal> {
        if view.request.method != Method::POST {
            return Err(Refusal::Missing("what this provider's handshake has in its URL".into()));
        }
        match &self.description.token {
            Some(token) => signature::prove_token(secrets, view.request.proof_header(&token.from.0)?.as_bytes()),
            None => self.prove_signature(view, secrets, now),
        }
    }

    fn prove_signature(&self, view: &mut View<'_>, secrets: &Secrets, now: OffsetDateTime) -> Result<Proof, Refusal> {
        let mut refusal = None;
        for rule in &self.description.signature {
            match prove_rule(rule, view, secrets) {
                Ok(proof) => {
                    self.refuse_stale(view, now)?;
                    return Ok(if rule.covers_events { proof } else { proof.of_a_part() });
                }
                // A rule that found a signature and rejected it tells more than a rule that found none.
                Err(Refusal::WrongSignature) => refusal = Some(Refusal::WrongSignature),
                Err(problem) => refusal = refusal.or(Some(problem)),
            }
        }
        Err(refusal.unwrap_or(Refusal::WrongSignature))
    }

    /// Refuses a request that is too old. The time must always be a valid time, even if its age does not matter:
    /// otherwise an attacker could move a part of the body into it, if the signed text has nothing between the two.
    fn refuse_stale(&self, view: &View<'_>, now: OffsetDateTime) -> Result<(), Refusal> {
        let Some(Freshness { time, tolerance_seconds, both_ways }) = &self.description.freshness else {
            return Ok(());
        };
        let (place, text) = view.first(&time.0).ok_or_else(|| missing(&time.0))?;
        let time = moment::from_text(&text).ok_or_else(|| malformed(place, "it is not a time"))?;
        let Some(tolerance) = self.settings.tolerance_seconds.or(*tolerance_seconds) else { return Ok(()) };
        let (age, tolerance) = (now - time, Duration::seconds(tolerance.into()));
        let is_stale = age > tolerance || (*both_ways && age < -tolerance);
        if is_stale { Err(Refusal::Stale { age, tolerance }) } else { Ok(()) }
    }

    /// The answer, if the request is a handshake. `secret` is the one that proved the request, if it was proved.
    pub(crate) fn handshake(&self, view: &View<'_>, secret: Option<&Secret>) -> Result<Option<Answer>, Refusal> {
        let possible = |rule: &&HandshakeRule| rule.signed == secret.is_some() && rule.method.0 == view.request.method;
        let mut rules = self.description.handshake.iter().filter(possible);
        let Some(rule) = rules.find(|rule| applies(rule, view)) else { return Ok(None) };
        let answer = answer(&rule.answer, view, secret);
        answer.map(Some).ok_or_else(|| Refusal::Missing("the text that this provider's handshake expects back".into()))
    }

    fn read_one(&self, request: &Request, bytes: &Bytes) -> Result<Reading, Unreadable> {
        let view = self.view(request, bytes);
        let rule = &self.description.event;
        let unreadable = |what: &str| match view.json_problem() {
            Some(problem) => problem.clone(),
            None => Unreadable(format!("there is no {what}")),
        };
        let types = &rule.event_type.0;
        let (index, event_type) = view.find_first(types).ok_or_else(|| unreadable("type"))?;
        let dedupe_key = view.fill_first(&rule.dedupe.0).ok_or_else(|| unreadable("id"))?;
        Ok(Reading {
            // The templates before the one that is used must be signed, too. Otherwise an attacker could remove their
            // values, so that a later template is used.
            type_is_signed: types[..=index].iter().all(|template| self.description.signs(template)),
            event_id: view.fill_first(&rule.id.0),
            account: view.fill_first(&rule.account.0),
            occurred_at: view.fill_first(&rule.time.0).and_then(|text| moment::from_text(&text)),
            object_id: view.fill_first(&rule.object.0),
            delivery_id: view.fill_first(&rule.delivery.0),
            priority: rule.priority.0.of(&event_type).unwrap_or_default(),
            ..Reading::new(dedupe_key, event_type, bytes.clone())
        })
    }
}

fn prove_rule(rule: &SignatureRule, view: &mut View<'_>, secrets: &Secrets) -> Result<Proof, Refusal> {
    let (place, text) = view.first(&rule.from.0).ok_or_else(|| missing(&rule.from.0))?;
    let text = text.into_owned();
    let written = match &rule.list {
        None => vec![
            text.strip_prefix(&rule.prefix)
                .ok_or_else(|| malformed(place, format!("it does not begin with `{}`", rule.prefix)))?,
        ],
        Some(list) => {
            view.entries = entries(&text, list);
            view.entries.iter().filter(|(name, _)| *name == list.name).map(|(_, value)| value.as_str()).collect()
        }
    };
    if written.is_empty() || written.len() > SIGNATURE_CANDIDATES_MAX {
        return Err(malformed(place, "it has no signature, or too many"));
    }
    // A text that is not a signature cannot match, but another one may.
    let candidates: Vec<_> = written.iter().filter_map(|text| rule.encoding.decode(text)).collect();
    let signed = signed_parts(&rule.signed, view)?;
    let signed: Vec<&[u8]> = signed.iter().map(AsRef::as_ref).collect();
    rule.scheme().prove(secrets, &signed, &candidates)
}

/// Reads the entries of a header literally: a blank belongs to the name or the value next to it.
fn entries(text: &str, list: &EntryList) -> Vec<(String, String)> {
    let pairs = text.split(list.separator).filter_map(|entry| entry.split_once(list.assign));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The text that is signed, in parts, so that the body is not copied.
pub(crate) fn signed_parts<'v>(template: &'v Template, view: &'v View<'_>) -> Result<Vec<Cow<'v, [u8]>>, Refusal> {
    let fill = |part: &'v Part| {
        Ok(match part {
            Part::Literal(text) => text.as_bytes().into(),
            Part::Body => view.bytes.into(),
            Part::Url => view.url.as_bytes().into(),
            Part::Method => view.request.method.as_str().as_bytes().into(),
            Part::Hash => signature::sha256_hex(view.bytes).into_bytes().into(),
            // `check` allows `{unique}` only in the dedupe key.
            Part::Unique => Cow::default(),
            Part::Place { places, .. } => match view.first(places).ok_or_else(|| missing(places))?.1 {
                Cow::Borrowed(text) => text.as_bytes().into(),
                Cow::Owned(text) => text.into_bytes().into(),
            },
        })
    };
    let filled = template.parts.iter().map(fill).collect::<Result<Vec<_>, _>>()?;
    for (index, part) in template.parts.iter().enumerate() {
        if let Part::Place { places, .. } = part
            && is_ambiguous(&template.parts, &filled, index)
        {
            let place = view.first(places).map_or(&places[0], |(place, _)| place);
            return Err(malformed(place, "it cannot be told where it ends in the signed text"));
        }
    }
    Ok(filled)
}

/// Whether a value in the signed text could be longer or shorter while the signature still matches. For example `a.b` +
/// `.` + `c` is the same text as `a` + `.` + `b.c`, and `17` + `6{}` the same as `176` + `{}`, but these are different
/// requests.
fn is_ambiguous(parts: &[Part], filled: &[Cow<'_, [u8]>], index: usize) -> bool {
    let value = &filled[index][..];
    let is_number = value.iter().all(u8::is_ascii_digit);
    let before = index.checked_sub(1).is_some_and(|before| match &parts[before] {
        Part::Literal(text) => times(text, &[text.as_bytes(), value].concat()) > 1,
        Part::Body => is_number && filled[before].last().is_some_and(u8::is_ascii_digit),
        _ => false,
    });
    let after = parts.get(index + 1).is_some_and(|after| match after {
        Part::Literal(text) => times(text, &[value, text.as_bytes()].concat()) > 1,
        Part::Body => is_number && filled[index + 1].first().is_some_and(u8::is_ascii_digit),
        _ => false,
    });
    before || after
}

/// How often a literal, which is never empty, occurs in `text`.
fn times(literal: &str, text: &[u8]) -> usize {
    text.windows(literal.len()).filter(|window| *window == literal.as_bytes()).count()
}

fn missing(places: &[Place]) -> Refusal {
    match places.first() {
        Some(Place::Header(name)) => Refusal::MissingHeader(name.clone()),
        Some(place) => Refusal::Missing(place.to_string()),
        None => Refusal::Missing("the proof".into()),
    }
}

fn malformed(place: &Place, problem: impl Into<Cow<'static, str>>) -> Refusal {
    match place {
        Place::Header(name) => Refusal::MalformedHeader { name: name.clone(), problem: problem.into() },
        other => Refusal::Missing(other.to_string()),
    }
}

fn applies(rule: &HandshakeRule, view: &View<'_>) -> bool {
    rule.when.0.iter().all(|(place, wanted)| view.find(place).is_some_and(|found| wanted == "*" || *wanted == found))
}

fn answer(rule: &AnswerRule, view: &View<'_>, secret: Option<&Secret>) -> Option<Answer> {
    let fill = |template: &Template| view.fill(template, secret).filter(|text| text.len() <= ECHO_MAX_BYTES);
    let mut answer = match (&rule.text, &rule.json) {
        (Some(text), _) => Answer::ok("text/plain", fill(text)?),
        (None, Some(json)) => Answer::ok("application/json", json.fill(&fill)?.to_string()),
        (None, None) => Answer::EMPTY_OK,
    };
    if let Some(status) = rule.status {
        answer.status = StatusCode::from_u16(status).ok()?;
    }
    if let Some((name, template)) = rule.headers.0.first() {
        answer.header = Some((name.clone(), HeaderValue::try_from(fill(template)?).ok()?));
    }
    Some(answer)
}

fn methods(description: &Description) -> Vec<Method> {
    let mut methods = vec![Method::POST];
    for handshake in &description.handshake {
        if !methods.contains(&handshake.method.0) {
            methods.push(handshake.method.0.clone());
        }
    }
    methods
}

fn proof_headers(description: &Description) -> Vec<HeaderName> {
    let mut headers: Vec<HeaderName> = description.token.iter().map(|token| token.from.0.clone()).collect();
    let signatures = description.signature.iter().flat_map(|rule| rule.from.0.iter().chain(rule.signed.places()));
    let times = description.freshness.iter().flat_map(|freshness| &freshness.time.0);
    for place in signatures.chain(times) {
        if let Place::Header(name) = place
            && !headers.contains(name)
        {
            headers.push(name.clone());
        }
    }
    headers
}

fn paths(description: &Description) -> Vec<Vec<String>> {
    let Description { signature, freshness, event, handshake, answer, .. } = description;
    let fields = event.fields().into_iter().flat_map(|(_, field)| &field.0);
    let answers = handshake.iter().map(|rule| &rule.answer).chain([answer]).flat_map(AnswerRule::templates);
    let templates = fields.chain(answers).chain(signature.iter().map(|rule| &rule.signed));
    let places = templates.flat_map(Template::places).chain(signature.iter().flat_map(|rule| &rule.from.0));
    let times = freshness.iter().flat_map(|freshness| &freshness.time.0);
    let conditions = handshake.iter().flat_map(|rule| rule.when.0.iter().map(|(place, _)| place));
    let mut paths = Vec::new();
    for place in places.chain(times).chain(conditions) {
        if let Place::Json(path) = place
            && !paths.contains(path)
        {
            paths.push(path.clone());
        }
    }
    paths
}
