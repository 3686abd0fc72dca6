//! The acts of operators.

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
    /// The operator.
    pub who: String,
    /// What was done, such as `replay`, `resolve` or `move`.
    pub action: &'static str,
    /// The operator's reason.
    pub why: Option<String>,
    /// The jobs that it was about.
    pub filter: Value,
    /// The number of jobs that it has changed.
    pub jobs: u64,
    /// The last event of the finished steps.
    pub next_after: Option<String>,
    /// Whether it is finished.
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
            // Earlier versions may have written something that is not JSON.
            filter: serde_json::from_str(&audit.filter).unwrap_or_else(|_| audit.filter.clone().into()),
            jobs: audit.jobs,
            next_after: audit.next_after.map(|event| event.to_string()),
            done: audit.is_done,
        }
    }
}
