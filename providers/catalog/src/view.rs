//! Finding values in a request.

use std::borrow::Cow;
use std::cell::OnceCell;

use hookfast_webhook::{EventId, Request, Secret, Unreadable, form, json, signature};

use crate::template::{Part, Place, Template};

/// A request, or one event of it, with the places that its provider wants to know.
pub(crate) struct View<'a> {
    pub(crate) request: &'a Request,
    /// The URL that is signed.
    pub(crate) url: &'a str,
    /// The body, or the event's own bytes.
    pub(crate) bytes: &'a [u8],
    /// The entries of the signature header, if it has entries.
    pub(crate) entries: Vec<(String, String)>,
    json_in_form: Option<&'a str>,
    paths: &'a [Vec<String>],
    values: OnceCell<Result<Vec<Option<String>>, Unreadable>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        request: &'a Request,
        url: &'a str,
        bytes: &'a [u8],
        json_in_form: Option<&'a str>,
        paths: &'a [Vec<String>],
    ) -> Self {
        Self { request, url, bytes, entries: Vec::new(), json_in_form, paths, values: OnceCell::new() }
    }

    /// What stands at a place, if it is text or a number, not empty, and stands there once.
    pub(crate) fn find(&self, place: &Place) -> Option<Cow<'_, str>> {
        let value = match place {
            Place::Header(name) => only(self.request.headers.get_all(name).iter())?.to_str().ok()?.into(),
            Place::Query(name) => form::value(form::query(&self.request.url).as_bytes(), name)?,
            // JSON is no form, whatever stands in its texts.
            Place::Form(_) if self.is_json() => return None,
            Place::Form(name) => form::value(self.bytes, name)?,
            Place::Json(path) => {
                let index = self.paths.iter().position(|known| known == path)?;
                self.values().as_ref().ok()?.get(index)?.as_deref()?.into()
            }
            Place::Entry(name) => only(self.entries.iter().filter(|(found, _)| found == name))?.1.as_str().into(),
        };
        Some(value).filter(|value| !value.is_empty())
    }

    /// The first of several places that is there.
    pub(crate) fn first<'p>(&self, places: &'p [Place]) -> Option<(&'p Place, Cow<'_, str>)> {
        places.iter().find_map(|place| Some((place, self.find(place)?)))
    }

    /// The template with its places filled, if all of them are there. `secret` signs what is to be signed.
    pub(crate) fn fill(&self, template: &Template, secret: Option<&Secret>) -> Option<String> {
        let mut text = String::new();
        for part in &template.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Body => text.push_str(&String::from_utf8_lossy(self.bytes)),
                Part::Url => text.push_str(self.url),
                Part::Method => text.push_str(self.request.method.as_str()),
                Part::Hash => text.push_str(&signature::sha256_hex(self.bytes)),
                Part::Unique => text.push_str(&EventId::new().to_string()),
                Part::Place { places, signed: false } => text.push_str(&self.first(places)?.1),
                Part::Place { places, signed: true } => {
                    let value = self.first(places)?.1;
                    let signature = signature::Scheme::HMAC_SHA256.sign(secret?, &[value.as_bytes()])?;
                    text.push_str(&signature::to_hex(&signature));
                }
            }
        }
        Some(text)
    }

    /// The first template of which all places are there.
    pub(crate) fn fill_first(&self, templates: &[Template]) -> Option<String> {
        self.find_first(templates).map(|(_, text)| text)
    }

    /// The same, with its index.
    pub(crate) fn find_first(&self, templates: &[Template]) -> Option<(usize, String)> {
        let filled = |template| self.fill(template, None).filter(|text| !text.is_empty());
        templates.iter().enumerate().find_map(|(index, template)| Some((index, filled(template)?)))
    }

    /// What is wrong with the JSON.
    pub(crate) fn json_problem(&self) -> Option<&Unreadable> {
        self.values().as_ref().err()
    }

    /// All wanted members at once, because each look means going through the whole body.
    fn values(&self) -> &Result<Vec<Option<String>>, Unreadable> {
        self.values.get_or_init(|| {
            let body = self.json();
            let found = json::select(&body, self.paths)?;
            Ok(found.into_iter().map(json::scalar).collect())
        })
    }

    fn json(&self) -> Cow<'a, [u8]> {
        match self.json_in_form {
            Some(field) if !self.is_json() => match form::value(self.bytes, field) {
                Some(Cow::Borrowed(text)) => text.as_bytes().into(),
                Some(Cow::Owned(text)) => text.into_bytes().into(),
                // A form without that field has no JSON, which is not an error.
                None => Cow::Borrowed(b"{}"),
            },
            _ => Cow::Borrowed(self.bytes),
        }
    }

    /// Whether the body begins like JSON, which no form does. Nobody need trust its content type.
    fn is_json(&self) -> bool {
        matches!(self.bytes.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
    }
}

/// The element, if there is exactly one.
fn only<T>(mut elements: impl Iterator<Item = T>) -> Option<T> {
    let element = elements.next()?;
    elements.next().is_none().then_some(element)
}
