//! The states of a job.

use serde::{Deserialize, Serialize};

/// Where a job is on its way: `pending` → `processing` → `succeeded`, or `failed` until its retry is due, or `dead_letter`
/// until an operator replays or resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for a worker.
    Pending,
    /// A worker runs it.
    Processing,
    /// Its last attempt failed; it waits for the next one.
    Failed,
    /// It is done.
    Succeeded,
    /// It gave up.
    DeadLetter,
    /// An operator ended it without a run.
    Resolved,
}

impl JobState {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Processing, Self::Failed, Self::Succeeded, Self::DeadLetter, Self::Resolved];

    /// The word for it, in tables, metrics, JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::DeadLetter => "dead_letter",
            Self::Resolved => "resolved",
        }
    }

    /// Whether a worker still has something to do for it.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Pending | Self::Processing | Self::Failed)
    }
}

crate::enum_of_words!(JobState, "a state of a job");
