//! `[queue]`: how workers learn of jobs.

use hookfast_queue::QueueUrl;
use toml::Value;

use super::parse;
use super::section::Section;

pub(super) fn read(mut section: Section<'_>) -> Option<hookfast_queue::Config> {
    let for_operators = section.document.for_operators;
    // The URL may hold a password, so it can stand elsewhere, as a secret can.
    let url = |value: &Value| {
        let text = parse::text::<String>(value)?;
        if for_operators && parse::stands_elsewhere(&text) {
            return Ok(QueueUrl::Memory);
        }
        parse::reference(&text)?.parse().map_err(|error: hookfast_queue::QueueError| error.to_string())
    };
    let url = section.value("url", |value| url(value).map(Some), Some(QueueUrl::Memory));
    let default = hookfast_queue::Config::new(QueueUrl::Memory);
    let config = hookfast_queue::Config {
        capacity: section.value("capacity", parse::count, default.capacity),
        prefix: section.value("prefix", prefix, default.prefix.clone()),
        replicas: section.value("replicas", parse::count, default.replicas),
        credentials: section.optional("credentials", parse::text),
        ..default
    };
    section.finish();
    Some(hookfast_queue::Config { url: url?, ..config })
}

/// It becomes a part of subjects, in which dots and stars mean something.
fn prefix(value: &Value) -> Result<String, String> {
    let text = parse::text::<String>(value)?;
    if hookfast_webhook::is_name(&text) { Ok(text) } else { Err("write lower-case letters, digits, `-` or `_`".into()) }
}
