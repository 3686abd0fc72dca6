//! Reads the events of a genuine request.

use bytes::Bytes;
use hookfast_webhook::{Reading, Request, Unreadable, json, moment, signature};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::parameters::Parameters;
use crate::proof::url_candidates;

/// The type of events that Twilio does not name.
const REQUEST: &str = "request";

/// The longest text that is parsed as a time.
const TIME_BYTES_MAX: usize = 64;

/// The subject of a set of parameters.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    /// An incoming message.
    Message { sid: &'a str },
    /// A new status of an outgoing message.
    MessageStatus { status: &'a str },
    /// A call, with its status.
    Call { status: &'a str },
    /// An event that Twilio names: of a conversation, conference, room or task.
    Named(&'a str),
    /// Anything else.
    Other,
}

impl<'a> Subject<'a> {
    fn of(parameters: &'a Parameters) -> Self {
        let get = |name| parameters.get(name);
        let named = get("EventType").or_else(|| get("StatusCallbackEvent"));
        match (message_sid(parameters), get("MessageStatus"), get("SmsStatus")) {
            (Some(_), Some(status), _) => return Self::MessageStatus { status },
            (Some(sid), None, Some("received")) => return Self::Message { sid },
            (Some(_), None, Some(status)) => return Self::MessageStatus { status },
            // With a name, this is about a message in a conversation, which can be changed and removed.
            (Some(sid), None, None) if named.is_none() => return Self::Message { sid },
            _ => {}
        }
        match (get("CallSid"), get("CallStatus"), named) {
            (Some(_), Some(status), _) => Self::Call { status },
            (_, _, Some(name)) => Self::Named(name),
            _ => Self::Other,
        }
    }
}

fn message_sid(parameters: &Parameters) -> Option<&str> {
    ["MessageSid", "SmsSid", "SmsMessageSid"].into_iter().find_map(|name| parameters.get(name))
}

/// Whether Twilio asks for instructions, and does not only report what happened.
pub(crate) fn wants_instructions(parameters: &Parameters) -> bool {
    match Subject::of(parameters) {
        Subject::Message { .. } => true,
        Subject::Call { .. } => parameters.get("SequenceNumber").or_else(|| parameters.get("CallbackSource")).is_none(),
        _ => false,
    }
}

/// Reads the parameters in `form`, which is the body or the query.
pub(crate) fn from_form(request: &Request, form: Bytes) -> Result<Reading, Unreadable> {
    let parameters = Parameters::parse(&form).ok_or_else(|| Unreadable("there are too many parameters".into()))?;
    let get = |name| parameters.get(name);
    let subject = Subject::of(&parameters);
    // The Sid of an incoming message identifies the event. Any other Sid identifies the object that the event is about.
    let (event_id, event_type) = match subject {
        Subject::Message { sid } => (Some(sid.to_owned()), "message.received".to_owned()),
        Subject::MessageStatus { status } => (None, format!("message.{status}")),
        Subject::Call { status } => (None, format!("call.{status}")),
        Subject::Named(name) => (None, name.to_owned()),
        Subject::Other => (None, REQUEST.to_owned()),
    };
    Ok(Reading {
        event_id,
        account: get("AccountSid").map(str::to_owned),
        occurred_at: get("Timestamp").and_then(time_of),
        object_id: message_sid(&parameters).or_else(|| get("CallSid")).map(str::to_owned),
        ..Reading::new(key(request, &parameters), event_type, form)
    })
}

/// The hash of the signed text. It must not depend on single names and values, because the same signed text can be
/// split into other names and values.
fn key(request: &Request, parameters: &Parameters) -> String {
    let [url, _] = url_candidates(&request.url);
    let parameters = if request.body.is_empty() { String::new() } else { parameters.signed_text() };
    format!("signed:{}", signature::sha256_hex([url, parameters].concat().as_bytes()))
}

/// RFC 2822 from calls, RFC 3339 from rooms, unix seconds from tasks.
fn time_of(text: &str) -> Option<OffsetDateTime> {
    if text.len() > TIME_BYTES_MAX {
        return None;
    }
    moment::from_text(text).or_else(|| OffsetDateTime::parse(text, &Rfc2822).ok())
}

/// Reads one CloudEvent, or an array of them.
pub(crate) fn from_json(body: &Bytes) -> Result<Vec<Reading>, Unreadable> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => json::elements(body)?.into_iter().map(|element| from_object(body, element)).collect(),
        _ => Ok(vec![from_object(body, json::parse(body)?)?]),
    }
}

fn from_object(body: &Bytes, object: &RawValue) -> Result<Reading, Unreadable> {
    let names = ["id", "type", "time", "data", "Sid", "EventType", "AccountSid"];
    let [id, event_type, time, data, sid, old_type, account] = json::members(object.get(), names)?;
    let (id, sid) = (json::scalar(id), json::scalar(sid));
    let (account_of_data, object_of_data) = ids(data);
    let event_type = json::scalar(event_type).or_else(|| json::scalar(old_type)).unwrap_or_else(|| REQUEST.into());
    // A Sid identifies an object, and an object can have many events.
    let dedupe_key =
        id.clone().unwrap_or_else(|| format!("{REQUEST}:{}", signature::sha256_hex(object.get().as_bytes())));
    Ok(Reading {
        event_id: id.or_else(|| sid.clone()),
        account: json::scalar(account).or(account_of_data),
        occurred_at: moment::from_json(time),
        object_id: object_of_data.or(sid),
        ..Reading::new(dedupe_key, event_type, json::slice_of(body, object))
    })
}

/// The account of the event and the object that it is about. Twilio's products use different names for these.
fn ids(data: Option<&RawValue>) -> (Option<String>, Option<String>) {
    let names = ["accountSid", "AccountSid", "account_sid", "messageSid", "MessageSid", "callSid", "CallSid"];
    let found = data.and_then(|data| json::members(data.get(), names).ok()).unwrap_or_default();
    let (accounts, objects) = found.split_at(3);
    let first = |values: &[Option<&RawValue>]| values.iter().copied().find_map(json::scalar);
    (first(accounts), first(objects))
}
