//! Requests as Strava would send them.

use bytes::Bytes;
use hookfast_webhook::signature::{self, Scheme};
use hookfast_webhook::{NoSample, Request, SampleOrder, Secret};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use crate::{Mode, SIGNATURE, Strava};

pub(crate) const KINDS: [&str; 5] =
    ["activity.create", "activity.update", "activity.delete", "athlete.deauthorize", "challenge"];

const SUBSCRIPTION: u64 = 120_475;
const ATHLETE: u64 = 134_815;
const FIRST_ACTIVITY: u64 = 16_200_000_000_000;

pub(crate) fn request(strava: &Strava, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
    let kind = order.kind_of(&KINDS)?;
    if kind == "challenge" {
        return challenge(strava, order);
    }
    let body = event(kind, strava.subscription_id.unwrap_or(SUBSCRIPTION), order);
    let key = match strava.mode {
        Some(Mode::Signed) => Some(order.signing_key()?),
        Some(Mode::Unsigned) => None,
        None => order.key,
    };
    Ok(match key {
        Some(key) => sign(order.url, key, order.now.unix_timestamp(), body),
        None => post(order.url, body.into()),
    })
}

fn event(kind: &str, subscription: u64, SampleOrder { now, serial, .. }: &SampleOrder<'_>) -> String {
    let activity = FIRST_ACTIVITY.wrapping_add(*serial);
    let (object_type, aspect_type, object, owner, updates) = match kind {
        "activity.update" => ("activity", "update", activity, ATHLETE, r#"{"title":"Lunch ride","type":"Ride"}"#),
        "activity.delete" => ("activity", "delete", activity, ATHLETE, "{}"),
        "athlete.deauthorize" => {
            let athlete = ATHLETE.wrapping_add(*serial);
            ("athlete", "update", athlete, athlete, r#"{"authorized":"false"}"#)
        }
        _ => ("activity", "create", activity, ATHLETE, "{}"),
    };
    let time = now.unix_timestamp();
    format!(
        r#"{{"aspect_type":"{aspect_type}","event_time":{time},"object_id":{object},"object_type":"{object_type}","owner_id":{owner},"subscription_id":{subscription},"updates":{updates}}}"#
    )
}

fn challenge(strava: &Strava, order: &SampleOrder<'_>) -> Result<Request, NoSample> {
    let token = strava.verify_token.as_ref().or(order.key);
    let token =
        token.ok_or_else(|| NoSample("there is neither a `verify_token` nor a secret for the handshake".into()))?;
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("hub.verify_token", token.expose())
        .append_pair("hub.challenge", &format!("15f7d1a91c1f40f8{:016x}", order.serial))
        .append_pair("hub.mode", "subscribe")
        .finish();
    let url = format!("{}?{query}", order.url);
    Ok(Request { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() })
}

fn post(url: &str, body: Bytes) -> Request {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    Request { method: Method::POST, url: url.into(), headers, body }
}

/// Signs `body` in the way that Strava was observed to sign. Strava does not document it.
pub fn sign(url: &str, secret: &Secret, timestamp: i64, body: String) -> Request {
    let signed = [timestamp.to_string().as_bytes(), b".", body.as_bytes()].concat();
    let signature = Scheme::HMAC_SHA256.sign(secret, &[&signed]).expect("any text is a key");
    let value = format!("t={timestamp},v1={}", signature::to_hex(&signature));
    let mut request = post(url, body.into());
    request.headers.insert(SIGNATURE.clone(), HeaderValue::try_from(value).expect("digits and hex are legal"));
    request
}
