//! What operators did.

use hookfast_store as store;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::serde::rfc3339;

/// An act of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditView {
    /// Its id.
    pub id: String,
    /// When it began.
    #[serde(with = "rfc3339")]
    pub at: OffsetDateTime,
    /// Who did it.
    pub who: String,
    /// What was done: `replay`, `resolve` or `move`.
    pub action: &'static str,
    /// Why.
    pub why: Option<String>,
    /// Which jobs it was about.
    pub filter: Value,
    /// How many jobs it has changed.
    pub jobs: u64,
    /// The last event of the steps that are finished.
    pub next_after: Option<String>,
    /// Whether it got to its end.
    pub done: bool,
}

impl From<&store::Audit> for AuditView {
    fn from(audit: &store::Audit) -> Self {
        Self {
            id: audit.id.to_string(),
            at: audit.at,
            who: audit.who.clone(),
            action: audit.action.as_str(),
            why: audit.why.clone(),
            // What an older version wrote may be no JSON.
            filter: serde_json::from_str(&audit.filter).unwrap_or_else(|_| audit.filter.clone().into()),
            jobs: audit.jobs,
            next_after: audit.next_after.map(|event| event.to_string()),
            done: audit.is_done,
        }
    }
}
