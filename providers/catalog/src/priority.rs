//! Reads the priorities in a file of the catalog.

use hookfast_webhook::{Pattern, Priority, PriorityRules};
use serde::Deserialize;

/// The priority of events: `"high"` for all types, or a table such as `{ "order.*" = "high" }`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct PriorityRule(pub(crate) PriorityRules);

impl TryFrom<toml::Value> for PriorityRule {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let rule = |types: &str, priority: &toml::Value| {
            let priority = priority.as_str().ok_or("write a priority in quotes, such as \"high\"")?;
            Ok::<_, String>((types.parse::<Pattern>()?, priority.parse::<Priority>()?))
        };
        let rules = match &value {
            toml::Value::Table(rules) => rules.iter().map(|(types, priority)| rule(types, priority)).collect(),
            priority => rule("*", priority).map(|rule| vec![rule]),
        };
        rules.map(PriorityRules::new).map(Self)
    }
}
