//! Signing what was changed, as the provider would, and knowing what a signature covers. Written apart from the
//! providers' own code, so that a mistake there is not repeated here.

use std::fs;

use hookfast_catalog::{CatalogProvider, Description, EMBEDDED};
use hookfast_webhook::signature::{Algorithm, Encoding, KeyForm, Scheme};
use hookfast_webhook::{Provider, Request, SampleOrder, Secret};
use http::{HeaderName, HeaderValue};
use time::OffsetDateTime;

use crate::corpus::providers;
use crate::target::{Target, settings};

/// The request with a signature of its own, where the provider's scheme allows.
pub(crate) fn sign(target: &Target, request: &Request, now: OffsetDateTime) -> Option<Request> {
    let key = target.key.as_ref()?;
    let url = &request.url;
    let body = || String::from_utf8_lossy(&request.body).into_owned();
    let timestamp = now.unix_timestamp();
    match target.name.as_str() {
        "stripe" => Some(hookfast_stripe::sign(url, key, timestamp, body())),
        "strava" => Some(hookfast_strava::sign(url, key, timestamp, body())),
        "whatsapp" => Some(hookfast_whatsapp::sign(url, key, body())),
        "salla" => {
            let signature = Scheme::HMAC_SHA256.sign(key, &[&request.body])?;
            with_headers(request, [("x-salla-signature", Encoding::Hex.encode(&signature))])
        }
        "daily" => {
            let timestamp = timestamp.to_string();
            let scheme = Scheme { key: KeyForm::BASE64, ..Scheme::HMAC_SHA256 };
            let signature = scheme.sign(key, &[timestamp.as_bytes(), b".", &request.body])?;
            let signature = Encoding::Base64.encode(&signature);
            with_headers(request, [("x-webhook-timestamp", timestamp), ("x-webhook-signature", signature)])
        }
        "twilio" => {
            let is_long = target.config.get("algorithm").is_some_and(|name| name == "HMAC_SHA256");
            let algorithm = if is_long { Algorithm::HmacSha256 } else { Algorithm::HmacSha1 };
            let [text, _] = twilio_texts(request);
            let signature = Scheme { algorithm, key: KeyForm::TEXT }.sign(key, &[text.as_bytes()])?;
            with_headers(request, [("x-twilio-signature", Encoding::Base64.encode(&signature))])
        }
        "garmin" => None,
        _ => sign_described(target, key, request, now),
    }
}

fn with_headers<const N: usize>(request: &Request, headers: [(&'static str, String); N]) -> Option<Request> {
    let mut request = request.clone();
    for (name, value) in headers {
        request.headers.insert(HeaderName::from_static(name), HeaderValue::try_from(value).ok()?);
    }
    Some(request)
}

/// Gives the provider's file a sample with this body, and asks for that.
fn sign_described(target: &Target, key: &Secret, request: &Request, now: OffsetDateTime) -> Option<Request> {
    let file = fs::read_to_string(providers().join("catalog").join(format!("{}.toml", target.name))).ok()?;
    let mut file: toml::Table = file.parse().ok()?;
    let mut sample = file.get("sample")?.as_array()?.first()?.as_table()?.clone();
    sample.insert("body".into(), String::from_utf8_lossy(&request.body).into_owned().into());
    file.insert("sample".into(), vec![sample].into());
    let description = Description::parse(&toml::to_string(&file).ok()?).ok()?;
    let provider = CatalogProvider::new(description.into(), settings(&target.config).ok()?);
    let order = SampleOrder { kind: None, url: &request.url, key: Some(key), now, serial: 1 };
    provider.sample(&order).ok()
}

/// Whether a signature of `signed` is one of `other` too, though they may be written differently.
pub(crate) fn covers(target: &Target, signed: &Request, other: &Request) -> bool {
    if target.name == "twilio" {
        let texts = twilio_texts(signed);
        let is_same = twilio_texts(other).iter().any(|text| texts.contains(text));
        return is_same && (!has_body_hash(other) || signed.body == other.body);
    }
    // Nothing stands between URL and body in what Square and HubSpot sign; a URL that goes on is none of the source's.
    let signs_url =
        EMBEDDED.iter().any(|known| known.name == target.name && known.settings().contains(&"notification_url"));
    let whole = |request: &Request| [request.url.as_bytes(), &request.body].concat();
    signed.body == other.body || (signs_url && whole(signed) == whole(other))
}

/// What Twilio may have signed: the URL without a port and with one, then the sorted parameters.
fn twilio_texts(request: &Request) -> [String; 2] {
    let mut parameters: Vec<_> = form_urlencoded::parse(&request.body).collect();
    parameters.sort();
    parameters.dedup();
    let mut text: String = parameters.iter().flat_map(|(name, value)| [&**name, &**value]).collect();
    if has_body_hash(request) {
        text.clear();
    }
    twilio_urls(&request.url).map(|url| url + &text)
}

fn twilio_urls(url: &str) -> [String; 2] {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let Some((scheme, rest)) = url.split_once("://") else { return [url.to_owned(), url.to_owned()] };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let default = if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = authority.rsplit_once(':').filter(|(_, port)| is_port(port)).unwrap_or((authority, default));
    [format!("{scheme}://{host}{path}"), format!("{scheme}://{host}:{port}{path}")]
}

fn has_body_hash(request: &Request) -> bool {
    let url = request.url.split_once('#').map_or(&*request.url, |(url, _)| url);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "bodySHA256")
}

#[cfg(test)]
mod tests {
    use hookfast_webhook::{Verified, verify};

    use super::*;
    use crate::target;

    #[test]
    fn what_we_sign_is_genuine_unless_only_a_place_in_the_body_could_hold_the_signature() {
        for target in target::all().expect("all providers") {
            let sample = target.samples().expect("samples").remove(0);
            let body = if sample.body.starts_with(b"[") { &b"[ ]"[..] } else { b"{\"a\": 1}" };
            let Some(signed) = sign(&target, &Request { body: body.into(), ..sample }, target::now()) else {
                assert!(["garmin", "mailgun"].contains(&&*target.name), "{}", target.label());
                continue;
            };
            let verified = verify(target.provider.as_ref(), signed, &target.secrets, target::now());
            let needs_more = ["linear"].contains(&&*target.name) || target.config.contains_key("subscription_id");
            assert!(matches!(verified, Ok(Verified::Genuine(_))) || needs_more, "{}: {verified:?}", target.label());
        }
    }
}
