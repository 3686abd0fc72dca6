//! Checks what a file of the catalog must not say although its form is right.

use std::fmt;

use hookfast_webhook::is_name;

use crate::description::{AnswerRule, Description, Freshness, HandshakeRule, SampleRule, SignatureRule};
use crate::template::{Part, Place, Template};

/// A problem and its key. Elements of lists are counted from 0: `signature.0.signed`.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) key: String,
    problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.key.split('.').filter(|word| word.parse::<usize>().is_err());
        write!(f, "`{}`: {}", words.collect::<Vec<_>>().join("."), self.problem)
    }
}

fn demand(holds: bool, key: impl Into<String>, problem: impl Into<String>) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { key: key.into(), problem: problem.into() }) }
}

pub(crate) fn check(description: &Description) -> Result<(), Fault> {
    let Description { name, signature, token, freshness, event, handshake, answer, sample, .. } = description;
    demand(is_name(name), "name", format!("`{name}` must be short, of lower-case letters, digits, - and _"))?;
    let proof = "write either [[signature]] or [token], to say how a request is proved";
    demand(signature.is_empty() != token.is_none(), if signature.is_empty() { "signature" } else { "token" }, proof)?;
    for (index, rule) in signature.iter().enumerate() {
        check_signature(rule, &format!("signature.{index}"))?;
    }
    if let Some(freshness) = freshness {
        check_freshness(freshness, signature)?;
    }
    for (key, field) in event.fields() {
        for template in &field.0 {
            let allowed = Allowed { unique: key == "dedupe", ..Allowed::default() };
            check_template(template, allowed, &format!("event.{key}"))?;
        }
    }
    for (key, field) in [("event.type", &event.event_type), ("event.dedupe", &event.dedupe)] {
        demand(!field.0.is_empty(), key, "at least one template is needed")?;
    }
    let both = event.each.is_some() && event.json_in_form.is_some();
    demand(!both, "event.each", "a form cannot contain an array of events: leave out `each` or `json_in_form`")?;
    for (index, rule) in handshake.iter().enumerate() {
        check_handshake(rule, &format!("handshake.{index}"))?;
    }
    check_answer(answer, Allowed::default(), "answer")?;
    check_samples(sample)
}

fn check_signature(rule: &SignatureRule, key: &str) -> Result<(), Fault> {
    let SignatureRule { from, prefix, list, key: secret, signed, covers_events, .. } = rule;
    let entry_of_itself = "`entry:` is a part of the signature's own header; write that header, such as header:NAME";
    demand(!from.0.iter().any(is_entry), format!("{key}.from"), entry_of_itself)?;
    check_template(signed, Allowed { entries: list.is_some(), ..Allowed::default() }, &format!("{key}.signed"))?;
    let covered = rule.signs(&Part::Body);
    let uncovered = "{body} is missing: add it, or write covers_events = false";
    demand(covered || !covers_events, format!("{key}.signed"), uncovered)?;
    let unprefixed = prefix.is_empty() || list.is_none();
    demand(
        unprefixed,
        format!("{key}.prefix"),
        "entries of a list have a name and no prefix: leave out one of `list` and `prefix`",
    )?;
    if let Some(list) = list {
        let differ = list.separator != list.assign;
        demand(differ, format!("{key}.list"), "`separator` and `assign` must be different characters")?;
    }
    let prefix_is_there = !secret.prefix_needed || !secret.prefix.is_empty();
    demand(prefix_is_there, format!("{key}.key.prefix_needed"), "it is set, but there is no `prefix`")
}

/// The time must be signed. Otherwise an attacker could change it, and it would not show the age of a request.
fn check_freshness(freshness: &Freshness, signatures: &[SignatureRule]) -> Result<(), Fault> {
    let time = Part::Place { places: freshness.time.0.clone(), signed: false };
    let all = !signatures.is_empty() && signatures.iter().all(|rule| rule.signs(&time));
    let unsigned =
        format!("`{}` is not signed: write it into the `signed` of every signature, in the same words", freshness.time);
    demand(all, "freshness.time", unsigned)
}

fn check_handshake(rule: &HandshakeRule, key: &str) -> Result<(), Fault> {
    let HandshakeRule { method, when, signed, answer } = rule;
    let some = !when.0.is_empty() || method.0 == http::Method::HEAD;
    demand(some, format!("{key}.when"), "without a condition every request would be a handshake")?;
    let entry = when.0.iter().any(|(place, _)| is_entry(place));
    demand(!entry, format!("{key}.when"), "`entry:` can be used only where a signature is checked")?;
    let can_be = !signed || method.0 == http::Method::POST;
    demand(can_be, format!("{key}.method"), "only POST is signed: write signed = false")?;
    check_answer(answer, Allowed { secret: *signed, ..Allowed::default() }, &format!("{key}.answer"))
}

fn check_answer(answer: &AnswerRule, allowed: Allowed, key: &str) -> Result<(), Fault> {
    for template in answer.templates() {
        check_template(template, allowed, key)?;
    }
    let one = answer.text.is_none() || answer.json.is_none();
    demand(one, format!("{key}.json"), "an answer has either `text` or `json`, not both")?;
    demand(answer.headers.0.len() <= 1, format!("{key}.headers"), "an answer can have only one header")?;
    let status = answer.status.is_none_or(|status| (200..300).contains(&status));
    demand(status, format!("{key}.status"), "an answer must be a success: write a status from 200 to 299")
}

fn check_samples(samples: &[SampleRule]) -> Result<(), Fault> {
    demand(!samples.is_empty(), "sample", "write at least one [[sample]], with which the file can be tested")?;
    for (index, sample) in samples.iter().enumerate() {
        let (key, kind) = (format!("sample.{index}.kind"), &sample.kind);
        demand(!kind.trim().is_empty(), &key, "it must not be blank")?;
        let is_new = samples[..index].iter().all(|other| other.kind != *kind);
        demand(is_new, &key, format!("there are two samples of the kind `{kind}`"))?;
    }
    Ok(())
}

/// Parts that only some templates may have.
#[derive(Clone, Copy, Default)]
struct Allowed {
    entries: bool,
    /// Values that are signed with a secret.
    secret: bool,
    /// A value that is new each time.
    unique: bool,
}

fn check_template(template: &Template, allowed: Allowed, key: &str) -> Result<(), Fault> {
    let entries = allowed.entries || !template.places().any(is_entry);
    demand(entries, key, "`entry:` can be used only in `signature.signed`, and only with `signature.list`")?;
    let unique = allowed.unique || !template.parts.contains(&Part::Unique);
    demand(unique, key, "`{unique}` can be used only in `event.dedupe`, for events that cannot be told apart")?;
    let filtered = template.parts.iter().any(|part| matches!(part, Part::Place { signed: true, .. }));
    let secret = "`|hmac-sha256-hex` can be used only in the answer of a handshake that is signed";
    demand(allowed.secret || !filtered, key, secret)
}

fn is_entry(place: &Place) -> bool {
    matches!(place, Place::Entry(_))
}
