//! Requests as Stripe would send them.

use hookfast_webhook::signature::{self, Scheme};
use hookfast_webhook::{NoSample, Request, SampleOrder, Secret};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use crate::SIGNATURE;

pub(crate) const KINDS: [&str; 5] =
    ["invoice.paid", "payment_intent.succeeded", "charge.refunded", "customer.subscription.updated", "thin"];

pub(crate) fn request(order: &SampleOrder<'_>) -> Result<Request, NoSample> {
    let kind = order.kind_of(&KINDS)?;
    Ok(sign(order.url, order.signing_key()?, order.now.unix_timestamp(), body(kind, order)))
}

fn body(kind: &str, SampleOrder { now, serial, .. }: &SampleOrder<'_>) -> String {
    let created = now.unix_timestamp();
    let object = match kind {
        "payment_intent.succeeded" => format!(
            r#"{{"id":"pi_{serial}","object":"payment_intent","amount":2599,"amount_received":2599,"currency":"eur","status":"succeeded"}}"#
        ),
        "charge.refunded" => format!(
            r#"{{"id":"ch_{serial}","object":"charge","amount":2599,"amount_refunded":2599,"currency":"eur","payment_intent":"pi_{serial}","refunded":true}}"#
        ),
        "customer.subscription.updated" => {
            format!(r#"{{"id":"sub_{serial}","object":"subscription","customer":"cus_{serial}","status":"active"}}"#)
        }
        "thin" => {
            let created = now.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
            return format!(
                r#"{{"id":"evt_sample_thin_{serial}","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered","created":"{created}","livemode":false,"context":null,"related_object":{{"id":"mtr_{serial}","type":"billing.meter","url":"/v1/billing/meters/mtr_{serial}"}}}}"#
            );
        }
        _ => format!(r#"{{"id":"in_{serial}","object":"invoice","amount_paid":2599,"currency":"eur"}}"#),
    };
    format!(
        r#"{{"id":"evt_sample_{serial}","object":"event","type":"{kind}","created":{created},"livemode":false,"data":{{"object":{object}}}}}"#
    )
}

/// Signs `body` as Stripe does.
pub fn sign(url: &str, secret: &Secret, timestamp: i64, body: String) -> Request {
    let signed = [timestamp.to_string().as_bytes(), b".", body.as_bytes()].concat();
    let signature = Scheme::HMAC_SHA256.sign(secret, &[&signed]).expect("any text is a key");
    let value = format!("t={timestamp},v1={}", signature::to_hex(&signature));
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8")),
        (SIGNATURE.clone(), HeaderValue::try_from(value).expect("digits and hex are legal")),
    ]);
    Request { method: Method::POST, url: url.into(), headers, body: body.into() }
}
