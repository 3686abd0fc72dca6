//! Requests as Daily sends them.

use hookfast_webhook::signature::Encoding;
use hookfast_webhook::{NoSample, Request, SampleOrder, Secret};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use crate::{SCHEME, SIGNATURE, TIMESTAMP};

pub(crate) const PROBE: &str = "probe";
pub(crate) const KINDS: [&str; 4] = ["recording.ready-to-download", "participant.joined", "meeting.started", PROBE];

pub(crate) fn body(kind: &str, order: &SampleOrder<'_>) -> String {
    let (now, serial) = (order.now.unix_timestamp(), order.serial);
    let (id, payload) = match kind {
        "participant.joined" => (
            "ptcpt-join",
            format!(
                r#"{{"joined_at":{now}.25,"session_id":"session-{serial}","room":"sample-room","user_id":"user-{serial}","user_name":"Zoë","owner":false}}"#
            ),
        ),
        "meeting.started" => {
            ("mtg-start", format!(r#"{{"start_ts":{now}.25,"meeting_id":"meeting-{serial}","room":"sample-room"}}"#))
        }
        _ => (
            "rec-rtd",
            format!(
                r#"{{"type":"cloud","recording_id":"recording-{serial}","room_name":"sample-room","start_ts":{now},"status":"finished","max_participants":2,"duration":590,"s3_key":"sample/sample-room/{now}"}}"#
            ),
        ),
    };
    format!(
        r#"{{"version":"1.0.0","type":"{kind}","id":"{id}-sample-{serial}","payload":{payload},"event_ts":{now}.5}}"#
    )
}

pub(crate) fn probe(url: &str) -> Request {
    request(url, r#"{"test":"test"}"#.into())
}

/// Signs `body` as Daily does.
pub(crate) fn sign(url: &str, secret: &Secret, timestamp: &str, body: String) -> Result<Request, NoSample> {
    let signature = SCHEME.sign(secret, &[timestamp.as_bytes(), b".", body.as_bytes()]);
    let signature = signature.ok_or_else(|| NoSample("the secret is not base64".into()))?;
    let signature = HeaderValue::try_from(Encoding::Base64.encode(&signature)).expect("base64 is legal");
    let timestamp = HeaderValue::try_from(timestamp)
        .map_err(|_| NoSample("the time has characters that a header cannot have".into()))?;
    let mut request = request(url, body);
    request.headers.extend([(TIMESTAMP.clone(), timestamp), (SIGNATURE.clone(), signature)]);
    Ok(request)
}

fn request(url: &str, body: String) -> Request {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    Request { method: Method::POST, url: url.into(), headers, body: body.into() }
}
