//! Finds values in a request.

use std::borrow::Cow;
use std::cell::OnceCell;

use hookfast_webhook::{EventId, Request, Secret, Unreadable, form, json, signature};

use crate::template::{Part, Place, Template};

/// A request or one event of it, and the places that its provider reads.
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

    /// The value at a place, if it is a text or a number, is not empty, and occurs once.
    pub(crate) fn find(&self, place: &Place) -> Option<Cow<'_, str>> {
        let value = match place {
            Place::Header(name) => only(self.request.headers.get_all(name).iter())?.to_str().ok()?.into(),
            Place::Query(name) => form::value(form::query(&self.request.url).as_bytes(), name)?,
            // JSON is never read as a form, whatever its strings contain.
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

    /// The first of several places that exists, and its value.
    pub(crate) fn first<'p>(&self, places: &'p [Place]) -> Option<(&'p Place, Cow<'_, str>)> {
        places.iter().find_map(|place| Some((place, self.find(place)?)))
    }

    /// The template with its places filled in, if all of them exist. `secret` signs the values that must be signed.
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

    /// The first template whose places all exist, filled in.
    pub(crate) fn fill_first(&self, templates: &[Template]) -> Option<String> {
        self.find_first(templates).map(|(_, text)| text)
    }

    /// Like [`View::fill_first`], with the index of the template.
    pub(crate) fn find_first(&self, templates: &[Template]) -> Option<(usize, String)> {
        let filled = |template| self.fill(template, None).filter(|text| !text.is_empty());
        templates.iter().enumerate().find_map(|(index, template)| Some((index, filled(template)?)))
    }

    /// The problem with the JSON, if it cannot be read.
    pub(crate) fn json_problem(&self) -> Option<&Unreadable> {
        self.values().as_ref().err()
    }

    /// Reads all members that the provider needs at once, because each search goes through the whole body.
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

    /// Whether the body begins like JSON, which no form does. The content type is not used, because it is not signed.
    fn is_json(&self) -> bool {
        matches!(self.bytes.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
    }
}

/// The element, if there is exactly one.
fn only<T>(mut elements: impl Iterator<Item = T>) -> Option<T> {
    let element = elements.next()?;
    elements.next().is_none().then_some(element)
}
