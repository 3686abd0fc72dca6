//! Which handlers want which event: a table built at start.

use std::str::FromStr;

use hookfast_store::Routed;
use hookfast_webhook::{Event, HandlerName, SourceName};

/// What a handler wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The handler.
    pub handler: HandlerName,
    /// The source it listens to, or every source.
    pub source: Option<SourceName>,
    /// The types of events it takes.
    pub types: Vec<Pattern>,
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

impl Subscription {
    fn wants(&self, source: &SourceName, event_type: &str) -> bool {
        self.source.as_ref().is_none_or(|wanted| wanted == source)
            && self.types.iter().any(|pattern| pattern.matches(event_type))
    }
}

/// Gives each event its handlers.
pub(crate) fn route(subscriptions: &[Subscription], events: Vec<Event>) -> Vec<Routed> {
    let handlers = |event: &Event| {
        let (source, event_type) = (&event.delivery().arrival.source, event.event_type().as_str());
        let wanting = subscriptions.iter().filter(|subscription| subscription.wants(source, event_type));
        wanting.map(|subscription| subscription.handler.clone()).collect()
    };
    events.into_iter().map(|event| Routed { handlers: handlers(&event), event }).collect()
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
        let name = |text| SourceName::new(text).expect("a name");
        let subscription = Subscription {
            handler: HandlerName::new("ledger").expect("a name"),
            source: Some(name("stripe")),
            types: vec!["*".parse().expect("a pattern")],
        };
        assert!(subscription.wants(&name("stripe"), "x") && !subscription.wants(&name("stripe-eu"), "x"));
        assert!(Subscription { source: None, ..subscription }.wants(&name("stripe-eu"), "x"));
    }
}
