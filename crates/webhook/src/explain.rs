//! Finds the probable cause of a refusal, in words that lead to the fix. It undoes common mistakes one by one, until
//! the request verifies.
//!
//! This costs time for a request that is not genuine, so the caller must limit how often it happens.

use http::{HeaderName, header};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::{Proof, Proved, Provider, Refusal, Request, Secrets, json};

/// Larger requests are not explained, because each try computes signatures again.
const REQUEST_MAX_BYTES: usize = 64 * 1024;

/// An endpoint for which a request may have been meant.
pub struct Endpoint<'a> {
    /// The source's name.
    pub source: &'a str,
    /// Its provider.
    pub provider: &'a dyn Provider,
    /// Its secrets.
    pub secrets: &'a Secrets,
}

/// The probable reason why `endpoint` refused a request with `refusal`, if one can be found. `others` are the other
/// sources. `known` are the providers whose headers are recognised.
pub fn explain(
    refusal: &Refusal,
    request: &Request,
    endpoint: &Endpoint<'_>,
    others: &[Endpoint<'_>],
    known: &[&dyn Provider],
    now: OffsetDateTime,
) -> Option<String> {
    let is_short = size_bytes(request) <= REQUEST_MAX_BYTES;
    let others = if is_short { others } else { &[] };
    match refusal {
        Refusal::WrongSignature | Refusal::WrongToken | Refusal::UnprotectedBody(_) if is_short => {
            another_source(request, others, now)
                .or_else(|| another_url(request, endpoint, now))
                .or_else(|| another_body(request, endpoint, now))
        }
        Refusal::MissingHeader(_) | Refusal::MalformedHeader { .. } | Refusal::Missing(_) => {
            another_source(request, others, now).or_else(|| another_provider(request, endpoint, known))
        }
        _ => None,
    }
}

fn size_bytes(request: &Request) -> usize {
    request.url.len() + request.body.len() + request.headers.values().map(|value| value.len()).sum::<usize>()
}

fn another_source(request: &Request, others: &[Endpoint<'_>], now: OffsetDateTime) -> Option<String> {
    let other = others.iter().find(|other| is_proved(request, other, now))?;
    Some(format!(
        "it is signed for the source `{}` and its secret: send it there, or swap the two secrets if they are mixed up",
        other.source
    ))
}

fn another_url(request: &Request, endpoint: &Endpoint<'_>, now: OffsetDateTime) -> Option<String> {
    let url = other_urls(request)
        .into_iter()
        .find(|url| is_proved(&Request { url: url.clone(), ..request.clone() }, endpoint, now))?;
    Some(format!(
        "it is signed for the URL {url}, but was checked with the URL {}: set `public_url` to the URL that the provider calls",
        request.url
    ))
}

fn other_urls(request: &Request) -> Vec<String> {
    let Some((scheme, rest)) = request.url.split_once("://") else { return Vec::new() };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (path, query) = path.split_once('?').map_or((path, String::new()), |(path, query)| (path, format!("?{query}")));
    let slash = if path.ends_with('/') { path.trim_end_matches('/').to_owned() } else { format!("{path}/") };
    let mut urls = Vec::new();
    for host in hosts(request, host) {
        for scheme in ["https", "http", scheme] {
            for path in [path, &slash] {
                for url in [format!("{scheme}://{host}/{path}{query}"), format!("{scheme}://{host}/{path}")] {
                    if url != request.url && !urls.contains(&url) {
                        urls.push(url);
                    }
                }
            }
        }
    }
    urls
}

/// The configured host, and the hosts that the request's headers name.
fn hosts<'a>(request: &'a Request, configured: &'a str) -> Vec<&'a str> {
    let forwarded = HeaderName::from_static("x-forwarded-host");
    let said = [header::HOST, forwarded].into_iter().filter_map(|name| request.headers.get(name)?.to_str().ok());
    let mut hosts: Vec<_> = [configured].into_iter().chain(said).collect();
    hosts.dedup();
    hosts
}

fn another_body(request: &Request, endpoint: &Endpoint<'_>, now: OffsetDateTime) -> Option<String> {
    let (_, what) = other_bodies(&request.body)
        .into_iter()
        .find(|(body, _)| is_proved(&Request { body: body.clone().into(), ..request.clone() }, endpoint, now))?;
    Some(format!(
        "the body was re-encoded on the way ({what}): configure the proxy in front of Hookfast to pass the body unchanged"
    ))
}

fn other_bodies(body: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let mut bodies = vec![
        (body.trim_ascii_end().to_vec(), "blanks or a line break were added at its end"),
        ([body, b"\n"].concat(), "the line break at its end was removed"),
        ([body, b"\r\n"].concat(), "the line break at its end was removed"),
    ];
    if let Ok(parsed) = json::parse(body) {
        for spaced in [false, true] {
            for slashes in [false, true] {
                for ascii in [false, true] {
                    bodies.push((reprint(parsed, spaced, slashes, ascii), "it was parsed and printed again as JSON"));
                }
            }
        }
    }
    bodies.retain(|(other, _)| other != body);
    bodies
}

/// The same JSON in the form that other programs print: with a blank after `,` and `:`, with `\/`, with `\uXXXX`.
fn reprint(parsed: &RawValue, spaced: bool, slashes: bool, ascii: bool) -> Vec<u8> {
    let text = parsed.get();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        match character {
            '"' => {
                let end = end_of_string(rest);
                let (string, after) = rest.split_at(end);
                print_string(string, slashes, ascii, &mut out);
                rest = after;
                continue;
            }
            ' ' | '\t' | '\n' | '\r' => {}
            ',' | ':' if spaced => out.extend([character, ' ']),
            _ => out.push(character),
        }
        rest = &rest[character.len_utf8()..];
    }
    out.into_bytes()
}

fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

fn print_string(string: &str, slashes: bool, ascii: bool, out: &mut String) {
    let Ok(plain) = serde_json::from_str::<String>(string) else {
        out.push_str(string);
        return;
    };
    let printed = serde_json::to_string(&plain).unwrap_or_default();
    for character in printed.chars() {
        match character {
            '/' if slashes => out.push_str("\\/"),
            character if ascii && !character.is_ascii() => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            character => out.push(character),
        }
    }
}

fn another_provider(request: &Request, endpoint: &Endpoint<'_>, known: &[&dyn Provider]) -> Option<String> {
    // Some providers have two sets of proof headers, so a request need not have all of them.
    let recognised = |provider: &dyn Provider| {
        let headers = provider.proof_headers().iter().filter(|name| **name != header::AUTHORIZATION);
        headers.filter(|name| request.headers.contains_key(*name)).count()
    };
    let others = known.iter().filter(|provider| provider.name() != endpoint.provider.name());
    // The provider with the most matching headers. The first one, if several have the same number.
    let provider = others.rev().max_by_key(|provider| recognised(**provider))?;
    if recognised(*provider) == 0 {
        return None;
    }
    Some(format!(
        "it has the headers of `{}`, but this source is of `{}`: change `provider` in the configuration, or the URL at the \
         provider",
        provider.name(),
        endpoint.provider.name()
    ))
}

/// Whether a secret of the endpoint proves the request, whatever its age.
fn is_proved(request: &Request, endpoint: &Endpoint<'_>, now: OffsetDateTime) -> bool {
    match endpoint.provider.prove(request, endpoint.secrets, now) {
        Ok(Proved::Genuine(proof)) => proof != Proof::unsigned(),
        Err(Refusal::Stale { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, spaced: bool, slashes: bool, ascii: bool) -> String {
        String::from_utf8(reprint(json::parse(text.as_bytes()).expect("JSON"), spaced, slashes, ascii)).expect("text")
    }

    #[test]
    fn json_is_printed_as_others_print_it() {
        let text = r#" { "a" : [ 1 , "é\/x \" y" ] } "#;
        assert_eq!(printed(text, false, false, false), r#"{"a":[1,"é/x \" y"]}"#);
        assert_eq!(printed(text, true, false, true), r#"{"a": [1, "\u00e9/x \" y"]}"#);
        assert_eq!(printed(text, false, true, false), r#"{"a":[1,"é\/x \" y"]}"#);
        assert_eq!(printed("\"\u{1f33f}\"", false, false, true), r#""\ud83c\udf3f""#);
    }
}
