//! Makes samples: signs requests as the provider does.

use hookfast_webhook::{NoSample, Request, SampleOrder};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use time::format_description::well_known::Rfc3339;

use crate::CatalogProvider;
use crate::description::{EntryList, SampleRule, SignatureRule};
use crate::provider::signed_parts;
use crate::template::Place;
use crate::view::View;

/// Where the signature goes in a body or a header.
const SIGNATURE: &str = "{signature}";

pub(crate) fn make(provider: &CatalogProvider, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
    let description = &provider.description;
    let kinds: Vec<&str> = description.sample.iter().map(|sample| sample.kind.as_str()).collect();
    let kind = order.clone().kind_of(&kinds)?;
    let sample = description.sample.iter().find(|sample| sample.kind == kind);
    let mut request = unsigned(sample.ok_or_else(|| NoSample("there are no samples".into()))?, order)?;
    // An unsigned handshake comes before the provider has the secret.
    if let Ok(Some(_)) = provider.handshake(&provider.view(&request, &request.body), None) {
        return Ok(request);
    }
    match (&description.token, description.signature.first()) {
        (Some(token), _) => put(&mut request.headers, &token.from.0, order.signing_key()?.expose())?,
        (None, Some(rule)) => sign(provider, rule, &mut request, order)?,
        (None, None) => {}
    }
    Ok(request)
}

fn unsigned(sample: &SampleRule, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
    let mut headers = HeaderMap::new();
    if !sample.body.is_empty() {
        put(&mut headers, &CONTENT_TYPE, &sample.content_type)?;
    }
    for (name, value) in &sample.headers.0 {
        put(&mut headers, name, &filled(value, order))?;
    }
    let query = if sample.query.is_empty() { String::new() } else { format!("?{}", filled(&sample.query, order)) };
    Ok(Request {
        method: sample.method.0.clone(),
        url: format!("{}{query}", order.url),
        headers,
        body: filled(&sample.body, order).into(),
    })
}

fn sign(
    provider: &CatalogProvider,
    rule: &SignatureRule,
    request: &mut Request,
    order: &SampleOrder<'_>,
) -> Result<(), NoSample> {
    let entries = entries(rule, order);
    let signature = {
        let mut view = provider.view(request, &request.body);
        view.entries.clone_from(&entries);
        rule.encoding.encode(&signature(rule, &view, order)?)
    };
    // A sample can say where its signature goes. Otherwise it goes to the first place where it would be looked for.
    let body = std::str::from_utf8(&request.body).unwrap_or_default();
    if body.contains(SIGNATURE) {
        request.body = body.replace(SIGNATURE, &signature).into();
        return Ok(());
    }
    let placed = request.headers.iter().find_map(|(name, value)| {
        let value = value.to_str().ok().filter(|value| value.contains(SIGNATURE))?;
        Some((name.clone(), value.replace(SIGNATURE, &signature)))
    });
    match (placed, rule.from.0.first()) {
        (Some((name, value)), _) => put(&mut request.headers, &name, &value),
        (None, Some(Place::Header(name))) => put(&mut request.headers, name, &written(rule, entries, signature)),
        _ => Err(NoSample(format!("the sample has no {SIGNATURE} in its body"))),
    }
}

/// The other entries of the signature header. All are times, because no known provider signs anything else there.
fn entries(rule: &SignatureRule, order: &SampleOrder<'_>) -> Vec<(String, String)> {
    let now = order.now.unix_timestamp().to_string();
    let name = |place: &Place| if let Place::Entry(name) = place { Some((name.clone(), now.clone())) } else { None };
    rule.signed.places().filter_map(name).collect()
}

fn signature(rule: &SignatureRule, view: &View<'_>, order: &SampleOrder<'_>) -> Result<Vec<u8>, NoSample> {
    let failed = |problem: &str| NoSample(format!("this provider's sample cannot be signed: {problem}"));
    let parts = signed_parts(&rule.signed, view).map_err(|refusal| failed(&refusal.to_string()))?;
    let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
    let mut scheme = rule.scheme();
    // A private key may come without the prefix that its public key must have.
    scheme.key.prefix_needed &= !scheme.algorithm.is_asymmetric();
    scheme.sign(order.signing_key()?, &parts).ok_or_else(|| failed("the secret is not a key of this provider"))
}

/// The text of the signature header.
fn written(rule: &SignatureRule, entries: Vec<(String, String)>, signature: String) -> String {
    let Some(EntryList { separator, assign, name }) = &rule.list else { return format!("{}{signature}", rule.prefix) };
    let all = entries.into_iter().chain([(name.clone(), signature)]);
    let all: Vec<_> = all.map(|(name, value)| format!("{name}{assign}{value}")).collect();
    all.join(&separator.to_string())
}

fn filled(text: &str, order: &SampleOrder<'_>) -> String {
    let seconds = order.now.unix_timestamp();
    text.replace("{serial}", &order.serial.to_string())
        .replace("{now}", &seconds.to_string())
        .replace("{now_ms}", &(seconds * 1000).to_string())
        .replace("{now_rfc3339}", &order.now.format(&Rfc3339).unwrap_or_default())
}

fn put(headers: &mut HeaderMap, name: &HeaderName, value: &str) -> Result<(), NoSample> {
    let value = HeaderValue::try_from(value).map_err(|_| NoSample(format!("`{name}` cannot have this value")))?;
    headers.insert(name, value);
    Ok(())
}
