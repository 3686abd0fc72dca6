//! Requests as Twilio would send them.

use hookfast_webhook::signature::{self, Encoding};
use hookfast_webhook::{NoSample, Request, SampleOrder, Secret};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use time::format_description::well_known::Rfc3339;

use crate::Config;
use crate::content::{Content, with_body_hash};
use crate::parameters::Parameters;
use crate::proof::{SETTINGS, SIGNATURE, url_candidates};

pub(crate) const KINDS: [&str; 5] = ["message", "call", "message-status", "whatsapp", "event-streams"];

const ACCOUNT: &str = "AC00000000000000000000000000000001";
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded; charset=UTF-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_TOKEN: HeaderName = HeaderName::from_static("i-twilio-idempotency-token");

pub(crate) fn make(order: &SampleOrder<'_>, config: &Config) -> Result<Request, NoSample> {
    let kind = order.kind_of(&KINDS)?;
    let key = order.signing_key()?;
    let (content_type, body) =
        if kind == "event-streams" { (JSON, batch(order)) } else { (FORM, form(kind, order.serial)) };
    let url = match kind {
        "event-streams" => with_body_hash(order.url, &signature::sha256_hex(body.as_bytes())),
        _ => order.url.to_owned(),
    };
    let token = format!("00000000-0000-4000-8000-{:012x}", order.serial);
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, content_type),
        (IDEMPOTENCY_TOKEN, HeaderValue::try_from(token).expect("hex digits are legal")),
    ]);
    sign(Request { method: Method::POST, url, headers, body: body.into() }, key, config)
}

/// Signs a request as Twilio does.
pub(crate) fn sign(mut request: Request, key: &Secret, config: &Config) -> Result<Request, NoSample> {
    let parameters = match Content::of(&request) {
        Content::Form => {
            let parameters = Parameters::parse(&request.body);
            parameters.ok_or_else(|| NoSample("there are too many parameters".into()))?.signed_text()
        }
        Content::HashedBody | Content::Query => String::new(),
    };
    let [url, _] = url_candidates(&request.url);
    let scheme = config.algorithm.scheme();
    let signature = scheme.sign(key, &[url.as_bytes(), parameters.as_bytes()]).expect("any text is a key");
    let signature = HeaderValue::try_from(Encoding::Base64.encode(&signature)).expect("base64 is legal");
    request.headers.insert(SIGNATURE, signature);
    if *config != (Config { answer: config.answer, ..Config::default() }) {
        let key_id = config.key_id.as_deref().unwrap_or("webhooks_sharedkey_sample");
        let settings = HeaderValue::try_from(format!("key={key_id},algorithm={}", config.algorithm.name()));
        let settings = settings.map_err(|_| NoSample("`key_id` has characters that a header cannot have".into()))?;
        request.headers.insert(SETTINGS, settings);
    }
    Ok(request)
}

fn form(kind: &str, serial: u64) -> String {
    let message = format!("SM{serial:032x}");
    match kind {
        "call" => format!(
            "CallSid=CA{serial:032x}&AccountSid={ACCOUNT}&From=%2B15551230002&To=%2B15551230001&CallStatus=ringing&\
             Direction=inbound&ApiVersion=2010-04-01"
        ),
        "message-status" => format!(
            "SmsSid={message}&SmsStatus=delivered&MessageStatus=delivered&To=%2B15551230002&MessageSid={message}&\
             AccountSid={ACCOUNT}&From=%2B15551230001&ApiVersion=2010-04-01"
        ),
        "whatsapp" => format!(
            "SmsMessageSid={message}&NumMedia=0&ProfileName=Sara&MessageType=text&SmsSid={message}&WaId=966500000001&\
             SmsStatus=received&Body=Where+is+order+{serial}%3F&To=whatsapp%3A%2B15551230001&NumSegments=1&\
             MessageSid={message}&AccountSid={ACCOUNT}&From=whatsapp%3A%2B966500000001&ApiVersion=2010-04-01"
        ),
        _ => format!(
            "ToCountry=US&SmsMessageSid={message}&NumMedia=0&FromCity=&SmsSid={message}&SmsStatus=received&\
             Body=Hello+%26+good+morning+{serial}&To=%2B15551230001&NumSegments=1&MessageSid={message}&\
             AccountSid={ACCOUNT}&From=%2B15551230002&ApiVersion=2010-04-01"
        ),
    }
}

/// Two events in the form of Event Streams.
fn batch(SampleOrder { now, serial, .. }: &SampleOrder<'_>) -> String {
    let time = now.format(&Rfc3339).unwrap_or_default();
    let event = |part: u8, name: &str, status: &str| {
        format!(
            r#"{{"specversion":"1.0","type":"com.twilio.messaging.message.{name}","source":"/2010-04-01/Accounts/{ACCOUNT}/Messages/SM{serial:032x}.json","id":"EZ{serial:031x}{part}","dataschema":"https://events-schemas.twilio.com/Messaging.MessageStatus/3","datacontenttype":"application/json","time":"{time}","data":{{"accountSid":"{ACCOUNT}","messageSid":"SM{serial:032x}","messageStatus":"{status}"}}}}"#
        )
    };
    format!("[{},{}]", event(1, "sent", "SENT"), event(2, "delivered", "DELIVERED"))
}
