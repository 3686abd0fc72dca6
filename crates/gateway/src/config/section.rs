//! One section of the document, while its keys are read.

use toml::{Table, Value};

use super::document::Document;

/// A section whose keys are taken out one by one; what is left in the end is unknown.
pub(super) struct Section<'a> {
    pub(super) document: &'a mut Document,
    name: String,
    pub(super) table: Table,
    pub(super) known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(document: &'a mut Document, name: &str, table: Table) -> Self {
        Self { document, name: name.into(), table, known: Vec::new() }
    }

    pub(super) fn top(document: &'a mut Document, name: &str) -> Self {
        let table = document.take(name);
        Self::new(document, name, table)
    }

    /// The value of a key, if it is there and right.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        parse(&value).map_err(|problem| self.problem(key, problem)).ok()
    }

    /// The same with a default.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
        default: T,
    ) -> T {
        self.optional(key, parse).unwrap_or(default)
    }

    /// The value of a key that must be there, if it is right.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
        what: &str,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.problem(key, format!("is missing: {what}"));
        }
        self.optional(key, parse)
    }

    pub(super) fn problem(&mut self, key: &str, problem: String) {
        let key = if key.is_empty() { self.name.clone() } else { format!("{}.{key}", self.name) };
        self.document.problem(&key, problem);
    }

    pub(super) fn finish(mut self) {
        for key in std::mem::take(&mut self.table).keys() {
            let allowed = self.known.join(", ");
            self.problem(key, format!("there is no such key; allowed here: {allowed}"));
        }
    }
}
