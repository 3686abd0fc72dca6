//! Templates: text with places in braces, such as `v0:{header:x-slack-request-timestamp}:{body}`. A place is replaced
//! by the value that the request has there.

use std::fmt;

use http::{HeaderName, Method};
use serde::Deserialize;

/// The places, as error messages name them.
const PLACES: &str = "header:NAME, query:NAME, form:NAME, json:PATH.TO.MEMBER, entry:NAME";

/// Text with places.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    /// The body, or the event's own bytes.
    Body,
    /// The URL that the sender used.
    Url,
    Method,
    /// The SHA-256 of the body, or of the event's own bytes, as hex digits.
    Hash,
    /// A value that is new each time, for events that cannot be told apart.
    Unique,
    /// The value at the first of these places that exists. If `signed`, it is signed with the secret that matched.
    Place {
        places: Vec<Place>,
        signed: bool,
    },
}

/// Where a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Header(HeaderName),
    Query(String),
    Form(String),
    Json(Vec<String>),
    /// An entry of the signature header, such as `ts` in `ts=1;h1=x`.
    Entry(String),
}

/// What braces may contain besides places.
const OTHERS: &str = "body, url, method, hash, unique";

/// The suffix of a place whose value is signed.
const SIGNED: &str = "|hmac-sha256-hex";

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some(start) = rest.find('{') {
            let end = rest[start..].find('}').ok_or("a `{` has no `}`")? + start;
            if start > 0 {
                parts.push(Part::Literal(rest[..start].into()));
            }
            parts.push(part(&rest[start + 1..end])?);
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.into()));
        }
        Ok(Self { parts })
    }
}

fn part(text: &str) -> Result<Part, String> {
    Ok(match text {
        "body" => Part::Body,
        "url" => Part::Url,
        "method" => Part::Method,
        "hash" => Part::Hash,
        "unique" => Part::Unique,
        _ => {
            let (text, signed) = text.strip_suffix(SIGNED).map_or((text, false), |text| (text, true));
            let places = Places::try_from(text.to_owned());
            let Places(places) = places.map_err(|problem| format!("{problem}, and in braces also {OTHERS}"))?;
            Part::Place { places, signed }
        }
    })
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is not a place; allowed: {PLACES}");
        let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(unknown)?;
        match kind {
            "header" => name.parse().map(Self::Header).map_err(|_| format!("`{name}` is not the name of a header")),
            "query" => Ok(Self::Query(name.into())),
            "form" => Ok(Self::Form(name.into())),
            "json" if name.split('.').all(|step| !step.is_empty()) => {
                Ok(Self::Json(name.split('.').map(str::to_owned).collect()))
            }
            "entry" => Ok(Self::Entry(name.into())),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Form(name) => write!(f, "form:{name}"),
            Self::Json(path) => write!(f, "json:{}", path.join(".")),
            Self::Entry(name) => write!(f, "entry:{name}"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => f.write_str(text),
            Self::Body => f.write_str("{body}"),
            Self::Url => f.write_str("{url}"),
            Self::Method => f.write_str("{method}"),
            Self::Hash => f.write_str("{hash}"),
            Self::Unique => f.write_str("{unique}"),
            Self::Place { places, signed } => {
                let places: Vec<_> = places.iter().map(ToString::to_string).collect();
                write!(f, "{{{}{}}}", places.join(" or "), if *signed { SIGNED } else { "" })
            }
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| part.fmt(f))
    }
}

impl Template {
    /// Every place in it.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.parts.iter().flat_map(|part| match part {
            Part::Place { places, .. } => places.as_slice(),
            _ => &[],
        })
    }
}

/// JSON whose strings are templates.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum Json {
    Text(Template),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
    Other(serde_json::Value),
}

impl TryFrom<toml::Value> for Json {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        Ok(match value {
            toml::Value::String(text) => Self::Text(text.try_into()?),
            toml::Value::Array(values) => {
                Self::Array(values.into_iter().map(Self::try_from).collect::<Result<_, _>>()?)
            }
            toml::Value::Table(table) => {
                let members = table.into_iter().map(|(name, value)| Ok((name, Self::try_from(value)?)));
                Self::Object(members.collect::<Result<_, String>>()?)
            }
            toml::Value::Datetime(time) => return Err(format!("`{time}` is not JSON; write it in quotes")),
            other => Self::Other(serde_json::to_value(other).map_err(|error| error.to_string())?),
        })
    }
}

impl Json {
    /// Every template in it.
    pub(crate) fn templates(&self) -> Vec<&Template> {
        match self {
            Self::Text(template) => vec![template],
            Self::Array(values) => values.iter().flat_map(Self::templates).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.templates()).collect(),
            Self::Other(_) => Vec::new(),
        }
    }

    /// The JSON with its strings filled in, if all can be. serde escapes the values.
    pub(crate) fn fill(&self, fill: &dyn Fn(&Template) -> Option<String>) -> Option<serde_json::Value> {
        Some(match self {
            Self::Text(template) => fill(template)?.into(),
            Self::Array(values) => values.iter().map(|value| value.fill(fill)).collect::<Option<Vec<_>>>()?.into(),
            Self::Object(members) => {
                let members = members.iter().map(|(name, value)| Some((name.clone(), value.fill(fill)?)));
                serde_json::Value::Object(members.collect::<Option<_>>()?)
            }
            Self::Other(value) => value.clone(),
        })
    }
}

/// A place with its alternatives, written without braces: `header:a or header:b`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Places(pub(crate) Vec<Place>);

impl TryFrom<String> for Places {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.split(" or ").map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&places.join(" or "))
    }
}

/// A method, written as text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct MethodName(pub(crate) Method);

impl TryFrom<String> for MethodName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "GET" => Ok(Self(Method::GET)),
            "POST" => Ok(Self(Method::POST)),
            "HEAD" => Ok(Self(Method::HEAD)),
            _ => Err(format!("`{text}` is not used for webhooks; allowed: GET, HEAD, POST")),
        }
    }
}

/// A path to an array.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ArrayPlace(pub(crate) Vec<String>);

impl TryFrom<String> for ArrayPlace {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_prefix("json:") {
            Some("") => Ok(Self(Vec::new())),
            Some(path) => Ok(Self(path.split('.').map(str::to_owned).collect())),
            None => Err(format!("`{text}` is not an array; write json: for the whole body, or json:PATH")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_what_was_written() {
        for text in [
            "{body}",
            "v0:{header:x-a}:{body}",
            "{header:svix-id or header:webhook-id}.{body}",
            "{json:a.b}{form:c}{query:d}{entry:e}{url}{method}{hash}",
            "{json:payload.plainToken|hmac-sha256-hex}",
            "literal",
            "",
        ] {
            assert_eq!(Template::try_from(text.to_owned()).expect("a template").to_string(), text);
        }
    }

    #[test]
    fn an_unknown_place_is_an_error_that_says_what_is_allowed() {
        for text in ["{boddy}", "{json:}", "{json:a..b}", "{cookie:a}", "{", "{}", "{header:a b}", "{body or json:a}"] {
            assert!(Template::try_from(text.to_owned()).is_err(), "{text}");
        }
        let error = Template::try_from("{boddy}".to_owned()).expect_err("no place");
        assert!(error.contains("`boddy`") && error.contains("json:PATH") && error.contains("body,"), "{error}");
    }
}
