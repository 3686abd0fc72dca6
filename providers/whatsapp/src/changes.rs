//! Reads `entry[].changes[]`: an event for each message and each status, and for each change of another kind.
//!
//! An item without an id or of an unknown type is an event like the others. Only a body of another shape becomes one
//! unreadable event.

use bytes::Bytes;
use hookfast_webhook::{Reading, Unreadable, json, moment, signature};
use serde_json::value::RawValue;
use time::OffsetDateTime;

/// The field whose changes hold messages and statuses.
const MESSAGES: &str = "messages";

const ACCOUNT_ID_MAX_BYTES: usize = 255;

pub(crate) fn read(body: &Bytes) -> Result<Vec<Reading>, Unreadable> {
    let [entries] = json::members(body, ["entry"])?;
    let mut readings = Vec::new();
    for entry in filled_list("entry", entries)? {
        let [id, time, changes] = json::members(entry.get(), ["id", "time", "changes"])?;
        let entry = Entry { body, id: account_id(id), occurred_at: moment::from_json(time), hash: hash(id, time) };
        for change in filled_list("changes", changes)? {
            readings.extend(entry.read(change)?);
            if readings.len() > json::EVENTS_MAX {
                return Err(Unreadable("there are too many events in it".into()));
            }
        }
    }
    Ok(readings)
}

/// The elements of a list that must not be empty. If it were, the members next to it would be lost.
fn filled_list<'a>(name: &str, list: Option<&'a RawValue>) -> Result<Vec<&'a RawValue>, Unreadable> {
    let elements = list.map(|list| json::elements(list.get().as_bytes())).transpose()?.unwrap_or_default();
    if elements.is_empty() { Err(Unreadable(format!("`{name}` is missing or empty"))) } else { Ok(elements) }
}

/// The values that all changes of an entry share.
struct Entry<'a> {
    body: &'a Bytes,
    id: Option<String>,
    occurred_at: Option<OffsetDateTime>,
    hash: String,
}

impl Entry<'_> {
    fn read(&self, change: &RawValue) -> Result<Vec<Reading>, Unreadable> {
        let [field, value] = json::members(change.get(), ["field", "value"])?;
        let field = json::scalar(field).ok_or_else(|| Unreadable("the `field` of a change is missing".into()))?;
        let value = value.filter(|value| field == MESSAGES && value.get().starts_with('{'));
        let Some(value) = value else {
            return Ok(vec![self.whole_change(field, change)]);
        };

        let [metadata, messages, statuses] = json::members(value.get(), ["metadata", "messages", "statuses"])?;
        let account = phone_number_id(metadata).or_else(|| self.id.clone());
        let items = items(messages, statuses)?;
        if items.is_empty() {
            return Ok(vec![Reading { account, ..self.whole_change(field, change) }]);
        }
        // See "What a handler gets" in CONTRACT.md.
        let is_alone = items.len() == 1;
        let body_of = |item: &Item<'_>| json::slice_of(self.body, if is_alone { change } else { item.json });
        items.iter().map(|item| Ok(Reading { account: account.clone(), ..self.item(item, body_of(item))? })).collect()
    }

    fn whole_change(&self, field: String, change: &RawValue) -> Reading {
        Reading {
            account: self.id.clone(),
            occurred_at: self.occurred_at,
            ..Reading::new(format!("change:{field}:{}", self.hash_of(change)), field, json::slice_of(self.body, change))
        }
    }

    fn item(&self, item: &Item<'_>, body: Bytes) -> Result<Reading, Unreadable> {
        let Known { id, word, timestamp, key } = match item.list {
            List::Messages => Known::of_message(item.json)?,
            List::Statuses => Known::of_status(item.json)?,
        };
        let list = item.list.name();
        let event_type = word.map_or_else(|| list.to_owned(), |word| format!("{list}.{word}"));
        let key = key.unwrap_or_else(|| format!("{list}:{}", self.hash_of(item.json)));
        let occurred_at = moment::from_json(timestamp);
        Ok(Reading { event_id: id, occurred_at, ..Reading::new(key, event_type, body) })
    }

    /// A key for an item without an id.
    fn hash_of(&self, json: &RawValue) -> String {
        signature::sha256_hex([&self.hash, json.get()].concat().as_bytes())
    }
}

/// A hash that identifies an entry. It includes the time: a phone number that is flagged, cleared and flagged again
/// gives two changes that differ only in their time.
fn hash(id: Option<&RawValue>, time: Option<&RawValue>) -> String {
    let [id, time] = [id, time].map(|value| value.map_or("", RawValue::get));
    signature::sha256_hex([id, "\n", time].concat().as_bytes())
}

fn phone_number_id(metadata: Option<&RawValue>) -> Option<String> {
    let [id] = json::members(metadata?.get(), ["phone_number_id"]).ok()?;
    account_id(id)
}

/// The id of an entry, unless it is too long. It is copied into every event of the entry, so a long one would take more
/// memory than the request.
fn account_id(id: Option<&RawValue>) -> Option<String> {
    json::scalar(id).filter(|id| id.len() <= ACCOUNT_ID_MAX_BYTES)
}

#[derive(Clone, Copy)]
enum List {
    Messages,
    Statuses,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Statuses => "statuses",
        }
    }
}

/// A message or a status.
struct Item<'a> {
    list: List,
    json: &'a RawValue,
}

/// All items, in the order of the body.
fn items<'a>(messages: Option<&'a RawValue>, statuses: Option<&'a RawValue>) -> Result<Vec<Item<'a>>, Unreadable> {
    let mut lists = [(List::Messages, messages), (List::Statuses, statuses)];
    // Both lists point into the same body, so their addresses give their order.
    lists.sort_by_key(|(_, list)| list.map(|list| list.get().as_ptr()));
    let mut items = Vec::new();
    for (list, elements) in lists {
        let elements = elements.filter(|elements| elements.get() != "null");
        let elements = elements.map(|elements| json::elements(elements.get().as_bytes())).transpose()?;
        items.extend(elements.into_iter().flatten().map(|json| Item { list, json }));
    }
    Ok(items)
}

/// The fields of an item. The key is `None` if the item lacks the fields that make it unique.
struct Known<'a> {
    id: Option<String>,
    word: Option<String>,
    timestamp: Option<&'a RawValue>,
    key: Option<String>,
}

impl<'a> Known<'a> {
    fn of_message(message: &'a RawValue) -> Result<Self, Unreadable> {
        let [id, word, timestamp] = json::members(message.get(), ["id", "type", "timestamp"])?;
        let (id, word) = (json::scalar(id), json::scalar(word));
        let key = id.as_ref().map(|id| format!("message:{id}"));
        Ok(Self { id, word, timestamp, key })
    }

    /// A status has the id of its message, and a message to a group has a status for each participant.
    fn of_status(status: &'a RawValue) -> Result<Self, Unreadable> {
        let names = ["id", "status", "timestamp", "recipient_participant_id", "recipient_participant_user_id"];
        let [id, word, timestamp, phone_number, user_id] = json::members(status.get(), names)?;
        let (id, word) = (json::scalar(id), json::scalar(word));
        let participant = json::scalar(phone_number).or_else(|| json::scalar(user_id));
        let participant = participant.map_or_else(String::new, |participant| format!(":{participant}"));
        let key = id.as_ref().zip(word.as_ref()).map(|(id, word)| format!("status:{id}:{word}{participant}"));
        Ok(Self { id, word, timestamp, key })
    }
}
