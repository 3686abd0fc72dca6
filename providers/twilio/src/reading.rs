//! What a genuine request says.

use bytes::Bytes;
use hookfast_webhook::{Reading, Request, Unreadable, json, moment, signature};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::parameters::Parameters;
use crate::proof::url_candidates;

/// The type of events for which Twilio has no word.
const REQUEST: &str = "request";

/// No time is longer.
const TIME_BYTES_MAX: usize = 64;

/// What a set of parameters is about.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    /// Somebody sent a message.
    Message { sid: &'a str },
    /// A message of ours came further.
    MessageStatus { status: &'a str },
    /// A call, at any of its stages.
    Call { status: &'a str },
    /// Something with a word for it: conversations, conferences, rooms, tasks.
    Named(&'a str),
    /// Something else.
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
            // With a word for it this is about a message in a conversation, which can change and be removed.
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

/// Whether Twilio asks what to do, and does not only tell what happened.
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
    // Only a message that somebody sent is the event itself. Else the Sid is that of the thing it happened to.
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

/// The hash of what is signed. It must not depend on names and values: the same signed text can be cut into others.
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
    // A Sid is that of a thing, to which much can happen.
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

/// Whose event it is and what it is about. The products write their names differently.
fn ids(data: Option<&RawValue>) -> (Option<String>, Option<String>) {
    let names = ["accountSid", "AccountSid", "account_sid", "messageSid", "MessageSid", "callSid", "CallSid"];
    let found = data.and_then(|data| json::members(data.get(), names).ok()).unwrap_or_default();
    let (accounts, objects) = found.split_at(3);
    let first = |values: &[Option<&RawValue>]| values.iter().copied().find_map(json::scalar);
    (first(accounts), first(objects))
}
