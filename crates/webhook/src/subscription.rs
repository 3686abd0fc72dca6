//! What a handler wants, and in which order.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::event::short_and_printable;
use crate::{Event, HandlerName, Priority, SourceName};

/// The longest ordering key that is stored as it is.
const MAX_KEY_BYTES: usize = 512;

/// A handler and the events it gets.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The handler.
    pub handler: HandlerName,
    /// What it wants; any of these will do.
    pub interests: Vec<Interest>,
    /// Which of its jobs are done one at a time and in the order of arrival.
    pub ordering: Ordering,
    /// How urgent its jobs are, if not as urgent as their events.
    pub priority: Option<Priority>,
}

impl Subscription {
    /// Whether the handler wants an event of this source and type.
    pub fn wants(&self, source: &str, event_type: &str) -> bool {
        self.interests.iter().any(|interest| interest.fits(source, event_type))
    }
}

/// Events of a source, or of every source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    /// The source, or every one.
    pub source: Option<SourceName>,
    /// The type.
    pub types: Pattern,
}

impl Interest {
    fn fits(&self, source: &str, event_type: &str) -> bool {
        self.source.as_ref().is_none_or(|wanted| wanted.as_str() == source) && self.types.matches(event_type)
    }
}

/// Written as `source/type`: `stripe/charge.refunded`, `stripe/charge.*`, `*/*`.
impl FromStr for Interest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (source, types) =
            text.split_once('/').ok_or_else(|| format!("`{text}` is not of the form `source/type`"))?;
        let source = match source {
            "*" => None,
            name => Some(SourceName::new(name).map_err(|error| error.to_string())?),
        };
        Ok(Self { source, types: types.parse()? })
    }
}

/// A type of event, or all that begin alike: `invoice.paid`, `invoice.*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Just this one.
    Exactly(String),
    /// All that begin so.
    Prefix(String),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (start, is_prefix) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        if text.is_empty() || start.contains('*') {
            return Err("write a type such as \"invoice.paid\", or its beginning and `*` such as \"invoice.*\"".into());
        }
        Ok(if is_prefix { Self::Prefix(start.into()) } else { Self::Exactly(start.into()) })
    }
}

impl Pattern {
    fn matches(&self, event_type: &str) -> bool {
        match self {
            Self::Exactly(text) => event_type == text,
            Self::Prefix(start) => event_type.starts_with(start.as_str()),
        }
    }
}

/// A handler's own way to an ordering key.
pub type ComputeKey = Arc<dyn Fn(&Event) -> Option<String> + Send + Sync>;

/// Which jobs of a handler are done one at a time and in the order of arrival.
#[derive(Clone, Default)]
pub enum Ordering {
    /// None: all at once.
    #[default]
    None,
    /// Those of one account.
    PerAccount,
    /// Those of one type of event.
    PerEventType,
    /// Those for which the handler computes the same key.
    Computed(ComputeKey),
}

impl Ordering {
    /// The key of events for which a handler panicked when it computed one. They keep their order among themselves.
    pub const PANICKED: &str = "hookfast:panicked";

    /// What an event has in common with those it must be done in order with.
    pub fn key(&self, event: &Event) -> Option<String> {
        let source = event.delivery().arrival.source.as_str();
        let account = event.account().map(|account| account.as_str());
        let computed = || match self {
            Self::Computed(key) => key(event),
            _ => None,
        };
        self.key_of(source, account, event.event_type().as_str(), computed)
    }

    /// The same for an event of which only this is known. Accounts and types of two sources have nothing to do with each
    /// other. A long key, or one that is not printable, is replaced by its hash, because the store would refuse the event.
    pub fn key_of(
        &self,
        source: &str,
        account: Option<&str>,
        event_type: &str,
        computed: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        let in_source = |text: &str| format!("{source}/{text}");
        let key = match self {
            Self::None => None,
            Self::PerAccount => account.map(in_source),
            Self::PerEventType => Some(in_source(event_type)),
            Self::Computed(_) => computed(),
        };
        key.map(|key| short_and_printable(key, MAX_KEY_BYTES))
    }
}

impl fmt::Debug for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::PerAccount => "per_account",
            Self::PerEventType => "per_event_type",
            Self::Computed(_) => "computed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_type_or_its_beginning() {
        let matches =
            |pattern: &str, event_type: &str| pattern.parse::<Pattern>().expect("a pattern").matches(event_type);
        assert!(matches("*", "anything") && matches("*", ""));
        assert!(matches("invoice.*", "invoice.paid") && !matches("invoice.*", "invoice"));
        assert!(matches("invoice.paid", "invoice.paid") && !matches("invoice.paid", "invoice.paid.twice"));
        for bad in ["", "**", "*.paid", "a*b"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_handler_of_one_source_does_not_get_the_events_of_another() {
        let fits = |text: &str, source| text.parse::<Interest>().expect("an interest").fits(source, "x");
        assert!(fits("stripe/*", "stripe") && !fits("stripe/*", "stripe-eu"));
        assert!(fits("*/x", "stripe-eu") && !fits("*/y", "stripe-eu"));
        for bad in ["stripe", "Stripe/x", "stripe/", "/x"] {
            assert!(bad.parse::<Interest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ordering_key_is_short_and_printable_whatever_its_handler_computes() {
        let computed = Ordering::Computed(Arc::new(|_| None));
        let key = |text: &str| computed.key_of("s", None, "t", || Some(text.into())).expect("a key");
        assert_eq!(key("customer 7"), "customer 7");
        let odd = [key("a\0b"), key("a\nb"), key(&"x".repeat(6400)), key(&"x".repeat(6401))];
        for key in &odd {
            assert!(key.starts_with("sha256:") && key.len() == 71, "{key}");
        }
        assert_ne!(odd[2], odd[3], "long keys that differ at the end stay different");
        let account = "a".repeat(256);
        let per_account = Ordering::PerAccount.key_of("s", Some(&account), "t", || None);
        assert_eq!(per_account, Some(format!("s/{account}")), "an account fits as it is");
    }
}
