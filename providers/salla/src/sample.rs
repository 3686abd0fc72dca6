//! Requests as Salla would send them.

use hookfast_webhook::signature::{self, Scheme};
use hookfast_webhook::{NoSample, Request, SampleOrder};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use time::macros::format_description;

use crate::{Config, RIYADH, SIGNATURE, Strategy};

pub(crate) const KINDS: [&str; 6] = [
    "order.created",
    "order.status.updated",
    "product.updated",
    "customer.created",
    "app.store.authorize",
    "review.added",
];

const STRATEGY: HeaderName = HeaderName::from_static("x-salla-security-strategy");

pub(crate) fn make(order: &SampleOrder<'_>, config: &Config) -> Result<Request, NoSample> {
    let body = body(order.kind_of(&KINDS)?, order);
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    match config.strategy {
        Strategy::Signature => {
            let signature =
                Scheme::HMAC_SHA256.sign(order.signing_key()?, &[body.as_bytes()]).expect("any text is a key");
            let value = HeaderValue::try_from(signature::to_hex(&signature)).expect("hex is legal");
            headers.extend([(STRATEGY, HeaderValue::from_static("Signature")), (SIGNATURE.clone(), value)]);
        }
        Strategy::Token => {
            let value = HeaderValue::try_from(order.signing_key()?.expose());
            let value = value.map_err(|_| NoSample("the secret has characters that a header cannot have".into()))?;
            headers.extend([(STRATEGY, HeaderValue::from_static("Token")), (AUTHORIZATION, value)]);
        }
        Strategy::None => {}
    }
    Ok(Request { method: Method::POST, url: order.url.into(), headers, body: body.into() })
}

fn body(kind: &str, SampleOrder { now, serial, .. }: &SampleOrder<'_>) -> String {
    let data = match kind {
        "order.status.updated" => format!(
            r#"{{"id":{serial},"status":"تم التنفيذ","customized":{{"id":2,"name":"تم التنفيذ"}},"order":{{"id":{serial},"reference_id":48927}}}}"#
        ),
        "product.updated" => format!(
            r#"{{"id":{serial},"name":"قميص","type":"product","status":"sale","price":{{"amount":120.5,"currency":"SAR"}},"url":"https:\/\/store.example\/p{serial}"}}"#
        ),
        "customer.created" => format!(
            r#"{{"id":{serial},"first_name":"سارة","last_name":"محمد","mobile":500000001,"mobile_code":"+966","email":"sara@example.com"}}"#
        ),
        "app.store.authorize" => format!(
            r#"{{"access_token":"sample-access-{serial}","expires":{},"refresh_token":"sample-refresh-{serial}","scope":"settings.read offline_access","token_type":"bearer"}}"#,
            now.unix_timestamp().saturating_add(1_209_600)
        ),
        "review.added" => {
            format!(r#"{{"id":{serial},"type":"rating","rating":5,"content":"ممتاز","order_id":{serial}}}"#)
        }
        _ => format!(
            r#"{{"id":{serial},"reference_id":48927,"status":{{"id":1,"name":"بانتظار الدفع"}},"amounts":{{"total":{{"amount":120.5,"currency":"SAR"}}}}}}"#
        ),
    };
    format!(r#"{{"event":"{kind}","merchant":1029384756,"created_at":"{}","data":{data}}}"#, created_at(*now))
}

/// The time in the form in which store events have it: as JavaScript prints it.
fn created_at(now: time::OffsetDateTime) -> String {
    let format = format_description!(
        "[weekday repr:short] [month repr:short] [day] [year] [hour]:[minute]:[second] GMT[offset_hour sign:mandatory][offset_minute]"
    );
    now.checked_to_offset(RIYADH).unwrap_or(now).format(format).unwrap_or_default()
}
