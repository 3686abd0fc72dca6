//! The events that a handler gets, and the order in which it gets them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

use crate::event::short_and_printable;
use crate::{Event, HandlerName, Label, Priority, SourceName};

/// The longest ordering key that is stored unchanged.
const MAX_KEY_BYTES: usize = 512;

/// A handler and the events that it gets.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The handler.
    pub handler: HandlerName,
    /// The events that it wants: those that match any of these.
    pub interests: Vec<Interest>,
    /// Which of its jobs run one at a time, in the order of arrival.
    pub ordering: Ordering,
    /// The priority of its jobs, if it differs from that of their events.
    pub priority: Option<Priority>,
}

impl Subscription {
    /// Whether the handler wants an event of this source and type.
    pub fn wants(&self, source: &str, event_type: &str) -> bool {
        self.interests.iter().any(|interest| interest.fits(source, event_type))
    }

    /// Whether the handler wants any events of this source.
    pub fn wants_some_of(&self, source: &str) -> bool {
        self.interests.iter().any(|interest| interest.is_about(source))
    }
}

/// Some types of events, of one source or of every source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    /// The source; `None` means every source.
    pub source: Option<SourceName>,
    /// The types of events.
    pub types: Pattern,
}

impl Interest {
    fn fits(&self, source: &str, event_type: &str) -> bool {
        self.is_about(source) && self.types.matches(event_type)
    }

    fn is_about(&self, source: &str) -> bool {
        self.source.as_ref().is_none_or(|wanted| wanted.as_str() == source)
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

/// A type of event, or all types with the same beginning: `invoice.paid`, `invoice.*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Only this type.
    Exactly(String),
    /// All types that begin with this.
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

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(text) => f.write_str(text),
            Self::Prefix(start) => write!(f, "{start}*"),
        }
    }
}

impl Pattern {
    /// Whether an event type matches the pattern.
    pub fn matches(&self, event_type: &str) -> bool {
        match self {
            Self::Exactly(text) => event_type == text,
            Self::Prefix(start) => event_type.starts_with(start.as_str()),
        }
    }

    /// A sort key: of two patterns that match the same type, the more exact one has the greater key.
    pub(crate) fn exactness(&self) -> (bool, usize) {
        match self {
            Self::Exactly(text) => (true, text.len()),
            Self::Prefix(start) => (false, start.len()),
        }
    }
}

/// Computes a handler's own ordering key from the body of an event.
pub type ComputeKey = Arc<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// Which jobs of a handler run one at a time, in the order of arrival.
#[derive(Clone, Default)]
pub enum Ordering {
    /// None: jobs run concurrently.
    #[default]
    None,
    /// The jobs of one account.
    PerAccount,
    /// The jobs of one type of event.
    PerEventType,
    /// The jobs with the same computed key.
    Computed(ComputeKey),
    /// All jobs of the handler.
    Strict,
}

/// The facts from which an ordering key is made. An event has the same facts when it is recorded and when it is
/// replayed.
#[derive(Debug, Clone, Copy)]
pub struct KeyFacts<'a> {
    /// The source of the event.
    pub source: &'a str,
    /// Its account, if the provider names one.
    pub account: Option<&'a str>,
    /// Its type.
    pub event_type: &'a str,
    /// Its bytes. Only [`Ordering::Computed`] needs them.
    pub body: &'a [u8],
}

impl<'a> KeyFacts<'a> {
    /// The facts of an arriving event.
    pub fn of(event: &'a Event) -> Self {
        Self {
            source: event.delivery().arrival.source.as_str(),
            account: event.account().map(Label::as_str),
            event_type: event.event_type().as_str(),
            body: event.body(),
        }
    }
}

impl Ordering {
    /// The key of events for which the handler's function panicked. They keep their order among themselves.
    pub const PANICKED: &str = "hookfast:panicked";

    /// The key of all jobs of a handler with a strict order.
    pub const STRICT: &str = "hookfast:strict";

    /// The ordering key of an event. Jobs with the same key run in order; a job without a key waits for no other.
    ///
    /// The key contains the source, because accounts and types of two sources are not related. A key that is long or
    /// not printable is replaced by its hash, because the store would refuse the event. If the handler's function
    /// panics, the event gets the key [`Ordering::PANICKED`], because a genuine event must be recorded.
    pub fn key(&self, facts: &KeyFacts<'_>) -> Option<String> {
        let in_source = |text: &str| format!("{}/{text}", facts.source);
        let key = match self {
            Self::None => None,
            Self::PerAccount => facts.account.map(in_source),
            Self::PerEventType => Some(in_source(facts.event_type)),
            Self::Computed(compute) => {
                let computed = catch_unwind(AssertUnwindSafe(|| compute(facts.body)));
                computed.unwrap_or_else(|_| Some(Self::PANICKED.into()))
            }
            Self::Strict => Some(Self::STRICT.into()),
        };
        key.map(|key| short_and_printable(key, MAX_KEY_BYTES))
    }

    /// Whether the key is made from the body of the event.
    pub fn needs_body(&self) -> bool {
        matches!(self, Self::Computed(_))
    }
}

impl fmt::Debug for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::PerAccount => "per_account",
            Self::PerEventType => "per_event_type",
            Self::Computed(_) => "computed",
            Self::Strict => "strict",
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
        let is_about = |text: &str, source| text.parse::<Interest>().expect("an interest").is_about(source);
        assert!(is_about("stripe/y", "stripe") && is_about("*/y", "stripe") && !is_about("stripe/*", "salla"));
        for bad in ["stripe", "Stripe/x", "stripe/", "/x"] {
            assert!(bad.parse::<Interest>().is_err(), "{bad}");
        }
    }

    const FACTS: KeyFacts<'static> = KeyFacts { source: "s", account: None, event_type: "t", body: b"" };

    #[test]
    fn an_ordering_key_is_short_and_printable_whatever_its_handler_computes() {
        let computed = Ordering::Computed(Arc::new(|body| String::from_utf8(body.to_vec()).ok()));
        let key = |text: &str| computed.key(&KeyFacts { body: text.as_bytes(), ..FACTS }).expect("a key");
        assert_eq!(key("customer 7"), "customer 7");
        let odd = [key("a\0b"), key("a\nb"), key(&"x".repeat(6400)), key(&"x".repeat(6401))];
        for key in &odd {
            assert!(key.starts_with("sha256:") && key.len() == 71, "{key}");
        }
        assert_ne!(odd[2], odd[3], "long keys that differ at the end stay different");
        let account = "a".repeat(256);
        let per_account = Ordering::PerAccount.key(&KeyFacts { account: Some(&account), ..FACTS });
        assert_eq!(per_account, Some(format!("s/{account}")), "an account fits as it is");
    }

    #[test]
    fn each_ordering_has_its_key() {
        let key = |ordering: Ordering| ordering.key(&KeyFacts { account: Some("a"), body: b"b", ..FACTS });
        assert_eq!(key(Ordering::None), None);
        assert_eq!(key(Ordering::PerAccount).as_deref(), Some("s/a"));
        assert_eq!(Ordering::PerAccount.key(&FACTS), None, "without an account it need not wait");
        assert_eq!(key(Ordering::PerEventType).as_deref(), Some("s/t"));
        assert_eq!(key(Ordering::Computed(Arc::new(|body| Some(format!("{body:?}"))))).as_deref(), Some("[98]"));
        assert_eq!(key(Ordering::Computed(Arc::new(|_| None))), None);
    }

    #[test]
    fn a_strict_order_has_one_key_for_all_events() {
        let other = KeyFacts { source: "x", account: Some("y"), event_type: "z", body: b"{}" };
        assert_eq!(Ordering::Strict.key(&FACTS).as_deref(), Some(Ordering::STRICT));
        assert_eq!(Ordering::Strict.key(&other), Ordering::Strict.key(&FACTS));
    }

    #[test]
    fn a_handler_that_panics_costs_an_event_its_own_key_and_nothing_else() {
        let panics = Ordering::Computed(Arc::new(|_| panic!("on purpose")));
        assert_eq!(panics.key(&FACTS).as_deref(), Some(Ordering::PANICKED));
    }
}
