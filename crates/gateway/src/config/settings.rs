//! What is set, key by key: the value in effect, and where it stands.
//!
//! After a reload, values are compared key by key and not by `PartialEq` of whole sections, because the log names the keys
//! that changed.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::{Table, Value};

use super::{SECTIONS, parse};

/// The reference, which holds every default. A test compares it with the code.
const REFERENCE: &str = include_str!("../../../../deploy/hookfast.toml");

/// Sections that are read once, at the start.
const READ_AT_START: [&str; 5] = ["ingest", "admin", "store", "queue", "work"];

/// Keys of a source that hold no secret. Its provider's own keys may: tokens, and ids that requests are checked against.
const PUBLIC_KEYS: [&str; 12] = [
    "provider",
    "body_limit",
    "rate",
    "answer_deadline",
    "allow_from",
    "unsigned_type",
    "priority",
    "answer",
    "algorithm",
    "mode",
    "strategy",
    "notification_url",
];

const REDACTED: &str = "(redacted)";

/// One key with its value. It may hold a password, so it is only shown through [`Settings::shown`].
#[derive(Clone, PartialEq)]
struct Setting {
    /// As it was written.
    value: Value,
    /// What stands in the file or the variable that a URL names.
    content: Option<String>,
    /// A file with its line, a variable, or the default.
    origin: String,
}

/// All keys that have a value, in the order of the sections.
#[derive(Clone, Default)]
pub(crate) struct Settings(BTreeMap<(usize, String), Setting>);

/// A key as it may be shown.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: Value,
    pub(crate) origin: &'a str,
}

impl Settings {
    /// The defaults, and over them what a document says.
    pub(super) fn of(document: &Table, origin: impl Fn(&str) -> String) -> Self {
        let mut settings = Self::default();
        settings.add(&REFERENCE.parse().unwrap_or_default(), |_| "default".into());
        settings.add(document, origin);
        settings
    }

    fn add(&mut self, document: &Table, origin: impl Fn(&str) -> String) {
        for (name, section) in document {
            let place = SECTIONS.iter().position(|known| known == name).unwrap_or(SECTIONS.len());
            for (key, value) in keys(name, section, depth(name)) {
                let content = is_url(&key).then(|| parse::reference(value.as_str()?).ok()).flatten();
                let setting = Setting { value: value.clone(), content, origin: origin(&key) };
                self.0.insert((place, key), setting);
            }
        }
    }

    /// Every key, without its secrets.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        self.0.iter().map(|((_, key), setting)| Shown {
            key,
            value: shown(key, &setting.value),
            origin: &setting.origin,
        })
    }

    /// The keys that have another value in `new`, of those that are read only at the start.
    pub(crate) fn need_restart<'a>(&'a self, new: &'a Self) -> Vec<&'a str> {
        let has_changed = |place: &_| match (self.0.get(place), new.0.get(place)) {
            (Some(old), Some(new)) => (&old.value, &old.content) != (&new.value, &new.content),
            (old, new) => old.is_some() != new.is_some(),
        };
        let mut keys: Vec<_> = self.0.keys().chain(new.0.keys().filter(|place| !self.0.contains_key(*place))).collect();
        keys.sort();
        keys.into_iter()
            .filter(|place| is_read_at_start(&place.1) && has_changed(place))
            .map(|(_, key)| &**key)
            .collect()
    }
}

/// The sections of sources and handlers hold a section for each of them.
fn depth(section: &str) -> usize {
    if matches!(section, "sources" | "handlers") { 2 } else { 1 }
}

fn keys<'a>(name: &str, value: &'a Value, depth: usize) -> Vec<(String, &'a Value)> {
    match value {
        Value::Table(table) if depth > 0 => {
            table.iter().flat_map(|(key, value)| keys(&format!("{name}.{key}"), value, depth - 1)).collect()
        }
        _ => vec![(name.into(), value)],
    }
}

fn is_url(key: &str) -> bool {
    matches!(key, "store.url" | "queue.url")
}

fn is_read_at_start(key: &str) -> bool {
    let section = key.split('.').next().unwrap_or_default();
    READ_AT_START.contains(&section)
}

/// The value without what is secret in it. Where a secret stands elsewhere, the place is shown.
fn shown(key: &str, value: &Value) -> Value {
    let last = key.rsplit('.').next().unwrap_or_default();
    match value {
        Value::String(text) if is_url(key) => without_password(text).into(),
        Value::String(text) if may_be_secret(key, last) && !parse::stands_elsewhere(text) => REDACTED.into(),
        Value::Array(values) => values.iter().map(|value| shown(key, value)).collect::<Vec<_>>().into(),
        _ => value.clone(),
    }
}

fn may_be_secret(key: &str, last: &str) -> bool {
    key.starts_with("sources.") && !PUBLIC_KEYS.contains(&last)
}

/// What stands before the host is not shown at all: a password that is not encoded may hold any sign.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest.into(), |(_, host)| format!("{REDACTED}@{host}"));
    let rest = rest
        .split_once('?')
        .filter(|(_, query)| query.contains("pass"))
        .map_or(rest.clone(), |(path, _)| format!("{path}?{REDACTED}"));
    if scheme.is_empty() { rest } else { format!("{scheme}://{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        Settings::of(&text.parse().expect("it is TOML"), |_| "here".into())
    }

    #[test]
    fn every_key_has_a_value_and_an_origin() {
        let settings = settings("[store]\nurl = \"postgres://u:p@h/d\"\n[sources.a]\nprovider = \"stripe\"\n");
        let shown: Vec<_> =
            settings.shown().map(|shown| format!("{} {} {}", shown.key, shown.value, shown.origin)).collect();
        assert!(shown.contains(&"ingest.listen \"127.0.0.1:8080\" default".to_owned()), "{shown:?}");
        assert!(shown.contains(&"store.url \"postgres://(redacted)@h/d\" here".to_owned()), "{shown:?}");
        assert_eq!(shown.last().map(String::as_str), Some("sources.a.provider \"stripe\" here"));
    }

    #[test]
    fn no_secret_is_shown_but_the_place_where_it_stands_is() {
        let settings = settings(
            "[store]\nurl = \"postgres://u:canary@c/a?n=1@h/d?password=canary\"\n[queue]\nurl = \"nats://canary@h:4222\"\n\
             [sources.a]\nsecrets = [\"canary\", \"env:NAME\"]\nclient_id = \"canary\"\nverify_token = \"file:/run/token\"\n",
        );
        let shown: Vec<_> = settings.shown().map(|shown| format!("{} = {}", shown.key, shown.value)).collect();
        assert!(!shown.iter().any(|line| line.contains("canary")), "{shown:?}");
        for line in [
            "queue.url = \"nats://(redacted)@h:4222\"",
            "sources.a.secrets = [\"(redacted)\", \"env:NAME\"]",
            "sources.a.client_id = \"(redacted)\"",
            "sources.a.verify_token = \"file:/run/token\"",
        ] {
            assert!(shown.contains(&line.to_owned()), "{line}: {shown:?}");
        }
    }

    #[test]
    fn exactly_the_keys_that_changed_and_are_read_at_start_need_a_restart() {
        let old = settings(
            "[ingest]\nlisten = \"127.0.0.1:1\"\nconnections = 7\n[work]\nthreads = 2\n[sources.a]\nrate = \"1/s\"\n",
        );
        let new = settings(
            "[ingest]\nlisten = \"127.0.0.1:2\"\nconnections = 7\npublic_url = \"https://h\"\n[sources.a]\nrate = \"2/s\"\n\
             [handlers.a]\npaused = true\ndeadline = \"1s\"\n",
        );
        let expected = ["ingest.listen", "ingest.public_url", "work.threads"];
        assert_eq!(old.need_restart(&new), expected);
        assert!(old.need_restart(&old.clone()).is_empty());
    }

    #[test]
    fn a_url_that_stands_in_a_file_is_compared_by_what_stands_there() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!("[store]\nurl = \"file:{}\"\n", file.path().display());
        std::fs::write(file.path(), "sqlite:a.db").expect("it can be written");
        let old = settings(&text);
        std::fs::write(file.path(), "sqlite:b.db").expect("it can be written");
        assert_eq!(old.need_restart(&settings(&text)), ["store.url"]);
    }
}
