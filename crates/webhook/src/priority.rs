//! Priorities by type of event, as a source's section or a provider's description sets them.

use crate::{Pattern, Priority};

/// Rules such as `order.*` = high. The most exact rule decides: a whole type before a pattern, and a longer pattern
/// before a shorter one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriorityRules(Vec<(Pattern, Priority)>);

impl PriorityRules {
    /// Takes rules in any order.
    pub fn new(rules: impl IntoIterator<Item = (Pattern, Priority)>) -> Self {
        let mut rules: Vec<_> = rules.into_iter().collect();
        rules.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.exactness()));
        Self(rules)
    }

    /// All rules, the most exact first.
    pub fn iter(&self) -> impl Iterator<Item = &(Pattern, Priority)> {
        self.0.iter()
    }

    /// The priority of events of this type, if a rule matches.
    pub fn of(&self, event_type: &str) -> Option<Priority> {
        self.0.iter().find(|(pattern, _)| pattern.matches(event_type)).map(|(_, priority)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_rule_decides() {
        let written = [("*", Priority::Low), ("order.*", Priority::High), ("order.viewed", Priority::Normal)];
        let rule = |(pattern, priority): (&str, Priority)| (pattern.parse().expect("a pattern"), priority);
        for written in [written.to_vec(), written.into_iter().rev().collect()] {
            let rules = PriorityRules::new(written.into_iter().map(rule));
            let of = |event_type| rules.of(event_type).expect("`*` fits all");
            assert_eq!((of("order.created"), of("order.viewed")), (Priority::High, Priority::Normal));
            assert_eq!(of("customer.created"), Priority::Low);
        }
        assert_eq!(PriorityRules::default().of("order.created"), None);
    }
}
