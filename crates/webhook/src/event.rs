//! Events: facts that a provider told us. They are never changed after they are recorded.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Priority, PriorityRules, Proof, Request, SourceName, signature};

/// The type of an event that was genuine but could not be read.
pub const UNREADABLE: &str = "unreadable";

/// The longest dedupe key and label, in bytes. Index entries must stay small whatever a provider sends.
const MAX_TEXT_BYTES: usize = 255;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id. Ids sort by the time at which they were made.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// The id of an event.
    EventId
}

id! {
    /// The id of a request that arrived, accepted or not. Every log line about this one request has it.
    RequestId
}

/// An event on its way to the store. It can only be made by [`crate::Genuine::read`].
#[derive(Debug, Clone)]
pub struct Event {
    pub(crate) id: EventId,
    pub(crate) dedupe_key: DedupeKey,
    pub(crate) event_type: Label,
    pub(crate) account: Option<Label>,
    pub(crate) occurred_at: Option<OffsetDateTime>,
    pub(crate) object_id: Option<Label>,
    pub(crate) priority: Priority,
    pub(crate) provider_event_id: Option<Label>,
    pub(crate) delivery_id: Option<Label>,
    pub(crate) tags: Vec<Label>,
    pub(crate) key_window: Option<Duration>,
    pub(crate) body: Bytes,
    pub(crate) delivery: Arc<Delivery>,
}

impl Event {
    /// Its id, made by the gateway.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The key by which a resend of it is recognised.
    pub fn dedupe_key(&self) -> &DedupeKey {
        &self.dedupe_key
    }

    /// Its type: the provider's word for what happened, or [`UNREADABLE`].
    pub fn event_type(&self) -> &Label {
        &self.event_type
    }

    /// The provider's account that it belongs to.
    pub fn account(&self) -> Option<&Label> {
        self.account.as_ref()
    }

    /// When it happened, according to the provider.
    pub fn occurred_at(&self) -> Option<OffsetDateTime> {
        self.occurred_at
    }

    /// The id of the object that it is about, according to the provider.
    pub fn object_id(&self) -> Option<&Label> {
        self.object_id.as_ref()
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The same event with the priority that its source sets, or else with the one that its provider gave it.
    #[must_use]
    pub fn with_priority_of(mut self, rules: &PriorityRules) -> Self {
        self.priority = rules.of(self.event_type.as_str()).unwrap_or(self.priority);
        self
    }

    /// The provider's own id of it, if it has one.
    pub fn provider_event_id(&self) -> Option<&Label> {
        self.provider_event_id.as_ref()
    }

    /// The provider's id of this delivery, if it differs from the event's id.
    pub fn delivery_id(&self) -> Option<&Label> {
        self.delivery_id.as_ref()
    }

    /// Words by which it can be found.
    pub fn tags(&self) -> &[Label] {
        &self.tags
    }

    /// How long a request with the same dedupe key counts as a resend of it; `None` means for ever.
    pub fn key_window(&self) -> Option<Duration> {
        self.key_window
    }

    /// Its bytes, as they came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The request that it came with.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }
}

/// A genuine request and how it arrived. The events of the request share it.
#[derive(Debug)]
pub struct Delivery {
    /// The request.
    pub request: Arc<Request>,
    /// Where and when it came.
    pub arrival: Arrival,
    /// Why it counts as genuine.
    pub proof: Proof,
    /// The number of events in it.
    pub event_count: usize,
}

/// Where and when a request came.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The request's id.
    pub request_id: RequestId,
    /// The source that it was sent to.
    pub source: SourceName,
    /// The client's address.
    pub remote_address: IpAddr,
    /// When its last byte arrived.
    pub received_at: OffsetDateTime,
    /// The sender's trace id, if it sent one.
    pub trace_id: Option<String>,
}

/// The key by which a resend of an event is recognised within its source. It is short, printable text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupeKey(String);

impl DedupeKey {
    /// Uses the provider's key unchanged, or its hash if the key is too long or not printable.
    pub fn new(text: String) -> Self {
        Self(short_and_printable(text, MAX_TEXT_BYTES))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text of a provider that is only shown, filtered and matched. It is short and printable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    /// Takes the provider's text, cuts it to length and replaces unprintable characters.
    pub fn new(mut text: String) -> Self {
        if text.len() > MAX_TEXT_BYTES {
            text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        }
        if text.chars().any(is_unprintable) {
            text = text.replace(is_unprintable, "\u{fffd}");
            text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        }
        Self(text)
    }

    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The unchanged text, or its hash if it is longer than `max_bytes` or not printable. An index of the store takes
/// neither.
pub(crate) fn short_and_printable(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes && !text.chars().any(is_unprintable) {
        return text;
    }
    format!("sha256:{}", signature::sha256_hex(text.as_bytes()))
}

/// Control characters, line separators, and the characters that Unicode calls format or ignorable characters. They are
/// invisible, and some change the direction of writing. All can make a log or a page show text that is not there, or
/// hide text that is.
pub fn is_unprintable(character: char) -> bool {
    // Most text is ASCII, and every request has some.
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{70f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_key_stays_as_it_is_and_an_odd_one_becomes_its_hash() {
        assert_eq!(DedupeKey::new("evt_1".into()).as_str(), "evt_1");
        let odd = [DedupeKey::new("a\0b".into()), DedupeKey::new("x".repeat(256)), DedupeKey::new("x".repeat(257))];
        for key in &odd {
            assert!(key.as_str().starts_with("sha256:") && key.as_str().len() == 71);
        }
        assert_ne!(odd[1], odd[2], "long keys that differ at the end stay different");
    }

    #[test]
    fn a_label_is_short_and_printable_whatever_came() {
        assert_eq!(Label::new("invoice.paid".into()).as_str(), "invoice.paid");
        assert_eq!(Label::new("a\0\x1b[31m\nb".into()).as_str(), "a\u{fffd}\u{fffd}[31m\u{fffd}b");
        assert_eq!(Label::new("a\u{202e}b\u{2028}".into()).as_str(), "a\u{fffd}b\u{fffd}");
        for hidden in ['\u{9b}', '\u{200b}', '\u{200d}', '\u{feff}', '\u{ad}', '\u{2060}', '\u{e0041}', '\u{fe0f}'] {
            assert_eq!(Label::new(format!("a{hidden}b")).as_str(), "a\u{fffd}b", "{hidden:?}");
            assert!(DedupeKey::new(format!("a{hidden}b")).as_str().starts_with("sha256:"), "{hidden:?}");
        }
        assert_eq!(Label::new("größe 大小 حجم 🚀".into()).as_str(), "größe 大小 حجم 🚀");
        assert!(Label::new("é".repeat(400)).as_str().len() <= MAX_TEXT_BYTES);
        assert!(Label::new("\n".repeat(400)).as_str().len() <= MAX_TEXT_BYTES);
    }
}
