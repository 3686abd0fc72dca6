//! The states of a job.

use serde::{Deserialize, Serialize};

/// The state of a job: `pending` → `processing` → `succeeded`. After a failed attempt it is `failed` until its retry is
/// due. After the last attempt it is `dead_letter` until an operator replays or resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits for a worker.
    Pending,
    /// A worker runs the job.
    Processing,
    /// The last attempt failed, and the job waits for the next one.
    Failed,
    /// The job is done.
    Succeeded,
    /// The job gave up.
    DeadLetter,
    /// An operator ended the job without a run.
    Resolved,
}

impl JobState {
    /// All states, in the order of a job's life.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Processing, Self::Failed, Self::Succeeded, Self::DeadLetter, Self::Resolved];

    /// The state as a word, for tables, metrics, JSON and the command line.
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

    /// Whether the job still has to run.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Pending | Self::Processing | Self::Failed)
    }
}

crate::enum_of_words!(JobState, "a state of a job");
