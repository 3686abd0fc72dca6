//! The file and the variables as one document of values, each of which knows where it stands.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{Problem, Settings};
use crate::providers::{Kind, Providers};

/// Variables that are flags of the command line.
const FLAGS: [&str; 3] = ["HOOKFAST_CONFIG", "HOOKFAST_LOG", "HOOKFAST_LOG_FORMAT"];

pub(super) struct Document {
    name: String,
    root: Table,
    /// Where each key stands: a line, or a variable.
    origins: BTreeMap<String, String>,
    /// There is no file, so secrets may be missing.
    pub(super) for_development: bool,
    /// Only the store is asked, so what stands elsewhere, as secrets do, may be out of reach.
    pub(super) for_operators: bool,
    /// Everything wrong so far.
    pub(super) problems: Vec<Problem>,
}

impl Document {
    /// A file with the variables over it.
    pub(super) fn read(file: &Path, variables: impl Iterator<Item = (String, String)>) -> Result<Self, Vec<Problem>> {
        let name = file.display().to_string();
        let problem = |origin, problem| vec![Problem { origin, key: String::new(), problem }];
        let text =
            fs::read_to_string(file).map_err(|error| problem(name.clone(), format!("cannot be read: {error}")))?;
        Self::parse(&name, &text, variables)
    }

    pub(super) fn parse(
        name: &str,
        text: &str,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Vec<Problem>> {
        let broken = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_at(text, span.start));
            let second = (error.message() == "duplicate key").then(|| said_twice(text, line));
            let problem = second.unwrap_or_else(|| format!("this is not TOML: {}", error.message()));
            vec![Problem { origin: format!("{name}:{line}"), key: String::new(), problem }]
        };
        let spans = DeTable::parse(text).map_err(broken)?;
        let root = text.parse().map_err(broken)?;
        let mut document = Self {
            name: name.into(),
            root,
            origins: BTreeMap::new(),
            for_development: false,
            for_operators: false,
            problems: Vec::new(),
        };
        document.note_lines(spans.get_ref(), "", text);
        document.overlay(variables);
        Ok(document)
    }

    /// What there is without a file: one source for each provider.
    pub(super) fn for_development(variables: impl Iterator<Item = (String, String)>) -> Result<Self, Vec<Problem>> {
        let text: String = Providers::embedded().iter().map(Kind::development_section).collect();
        Ok(Self { for_development: true, ..Self::parse("the defaults", &text, variables)? })
    }

    fn note_lines(&mut self, table: &DeTable<'_>, prefix: &str, text: &str) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            self.origins.insert(path.clone(), format!("{}:{}", self.name, line_at(text, key.span().start)));
            if let DeValue::Table(inner) = value.get_ref() {
                self.note_lines(inner, &format!("{path}."), text);
            }
        }
    }

    /// `HOOKFAST_INGEST__LISTEN` is `listen` in `[ingest]`.
    fn overlay(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, text) in variables {
            let Some(path) = name.strip_prefix("HOOKFAST_").filter(|_| !FLAGS.contains(&name.as_str())) else {
                continue;
            };
            let path: Vec<String> = path.split("__").map(str::to_lowercase).collect();
            let origin = format!("the variable {name}");
            // The sections above it may be there only because of it.
            for depth in 1..path.len() {
                self.origins.entry(path[..depth].join(".")).or_insert_with(|| origin.clone());
            }
            self.origins.insert(path.join("."), origin);
            if insert(&mut self.root, &path, value_of(&text)).is_none() {
                self.problem(&path.join("."), "is a section above a value that was set already".into());
            }
        }
    }

    /// Every key and its value, before any section is taken.
    pub(super) fn settings(&self) -> Settings {
        Settings::of(&self.root, |key| match self.origin(key) {
            origin if self.for_development && origin.starts_with(&self.name) => "default".into(),
            origin => origin,
        })
    }

    /// The names of the sections within a section.
    pub(super) fn names_in(&self, key: &str) -> Vec<String> {
        self.root.get(key).and_then(Value::as_table).map(|table| table.keys().cloned().collect()).unwrap_or_default()
    }

    /// Takes a section out of the document. What is not a section is a problem.
    pub(super) fn take(&mut self, key: &str) -> Table {
        match self.root.remove(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => {
                self.problem(key, format!("must be a section: write `[{key}]` and its keys below"));
                Table::new()
            }
        }
    }

    /// Puts a section back that was taken.
    pub(super) fn put_back(&mut self, key: &str, section: Table) {
        self.root.insert(key.into(), section.into());
    }

    /// What nobody took is unknown.
    pub(super) fn finish(&mut self) {
        for key in std::mem::take(&mut self.root).keys() {
            self.problem(key, format!("there is no such section; there is: {}", super::SECTIONS.join(", ")));
        }
    }

    /// Notes a problem with a key.
    pub(super) fn problem(&mut self, key: &str, problem: String) {
        let origin = self.origin(key);
        self.problems.push(Problem { origin, key: key.into(), problem });
    }

    /// Where a key stands, or the section it would stand in.
    fn origin(&self, key: &str) -> String {
        let mut key = key;
        loop {
            match (self.origins.get(key), key.rsplit_once('.')) {
                (Some(origin), _) => return origin.clone(),
                (None, Some((parent, _))) => key = parent,
                (None, None) => return self.name.clone(),
            }
        }
    }
}

/// What stands in this line for a second time, and where it stands first.
fn said_twice(text: &str, line: usize) -> String {
    let before: Vec<_> =
        text.lines().take(line).map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    let Some((second, before)) = before.split_last() else { return "a key is set twice".into() };
    let first = |is_same: &dyn Fn(&str) -> bool, from: usize| {
        let found = before.iter().skip(from).position(|line| is_same(line)).map(|place| from + place + 1);
        found.map_or("further up".into(), |line| format!("in line {line}"))
    };
    if second.starts_with('[') {
        let first = first(&|line| line == *second, 0);
        return format!("the section `{second}` stands here a second time; it begins {first}: put its keys there");
    }
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let section = before.iter().rposition(|line| line.starts_with('[')).unwrap_or(0);
    let first = first(&|line| key(line) == key(second), section);
    format!("the key `{}` is set here a second time; it is first set {first}", key(second))
}

fn line_at(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

/// A variable is written as in the file; what is no TOML value there is plain text.
fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| text.into())
}

fn insert(table: &mut Table, path: &[String], value: Value) -> Option<()> {
    match path {
        [] => None,
        [key] => {
            table.insert(key.clone(), value);
            Some(())
        }
        [key, rest @ ..] => {
            let inner = table.entry(key.clone()).or_insert_with(|| Table::new().into()).as_table_mut()?;
            insert(inner, rest, value)
        }
    }
}
