//! What an act of an operator would do, and what it did.

use std::collections::BTreeMap;

use serde::Serialize;

use super::JobView;
use crate::operate::{Outcome, Preview, Progress};

/// What an act would do, as `--dry-run` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreviewView {
    /// Always true: nothing was changed.
    pub dry_run: bool,
    /// The number of selected jobs, or of at least so many if it is not exact.
    pub found: u64,
    /// Whether all of them were counted.
    pub found_is_exact: bool,
    /// The following numbers are about the first jobs of the selection, and this is how many.
    pub looked_at: u64,
    /// Jobs that would be left out.
    pub skipped: u64,
    /// Jobs of each handler.
    pub by_handler: BTreeMap<String, u64>,
    /// Jobs by the reason for which they ended.
    pub by_reason: BTreeMap<String, u64>,
    /// Jobs by the type of their event.
    pub by_type: BTreeMap<String, u64>,
    /// The first jobs that would not be left out.
    pub sample: Vec<JobView>,
}

impl From<&Preview> for PreviewView {
    fn from(seen: &Preview) -> Self {
        Self {
            dry_run: true,
            found: seen.count.at_least(),
            found_is_exact: seen.count.is_exact(),
            looked_at: seen.looked_at,
            skipped: seen.skipped,
            by_handler: seen.by_handler.clone(),
            by_reason: seen.by_reason.clone(),
            by_type: seen.by_type.clone(),
            sample: seen.sample.iter().map(JobView::from).collect(),
        }
    }
}

/// What an act did: a replay, a move, or to resolve or reopen jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeView {
    /// The id of the audit row. There is none if the act found nothing and so did not begin.
    pub audit: Option<String>,
    /// How many selected jobs were processed.
    pub found: u64,
    /// How many jobs were changed or made.
    pub changed: u64,
    /// How many were left out, because no configured handler wants them.
    pub skipped: u64,
    /// Whether the act is finished. If not, it can be resumed.
    pub done: bool,
}

impl OutcomeView {
    /// The view of an act that found nothing and did not begin.
    pub fn nothing_found() -> Self {
        Self { audit: None, found: 0, changed: 0, skipped: 0, done: true }
    }
}

impl From<&Outcome> for OutcomeView {
    fn from(outcome: &Outcome) -> Self {
        let Outcome { audit, progress: Progress { found, changed, skipped }, is_done } = *outcome;
        Self { audit: Some(audit.to_string()), found, changed, skipped, done: is_done }
    }
}
