//! How a run can end.

use std::time::Duration;

use hookfast_webhook::{FailureKind, JobState};

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Succeeded,
    /// It is tried again.
    Failed {
        /// Why.
        kind: FailureKind,
        /// Why, for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        kind: FailureKind,
        /// Why, for people.
        message: String,
    },
    /// The handler snoozed it: it is run again later, and the run counts neither as an attempt nor as an interruption.
    Snoozed {
        /// Until when and why, for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
    /// Something of ours went wrong: it is tried again, and the run does not count as an attempt.
    Interrupted {
        /// What: our store ([`Interruption::Store`]), which has a limit, or the end of this process.
        by: Interruption,
        /// The same for people.
        message: String,
        /// After this time.
        retry_in: Duration,
    },
}

/// What cut a run short that is not the handler's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// The gateway's own store failed under the run. Noted as [`FailureKind::Pipeline`].
    Store,
    /// The process was shut down, or the run lost its lease although the process lives. Noted as
    /// [`FailureKind::Interrupted`].
    Process,
}

impl Interruption {
    /// The kind of failure that the history shows.
    pub fn kind(self) -> FailureKind {
        match self {
            Self::Store => FailureKind::Pipeline,
            Self::Process => FailureKind::Interrupted,
        }
    }
}

impl Outcome {
    /// The state that the job gets.
    pub(crate) fn state(&self) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::Failed { .. } | Self::Snoozed { .. } | Self::Interrupted { .. } => JobState::Failed,
            Self::Dead { .. } => JobState::DeadLetter,
        }
    }

    /// Why the attempt failed, if it did.
    pub(crate) fn failure(&self) -> Option<FailureKind> {
        match self {
            Self::Succeeded => None,
            Self::Failed { kind, .. } | Self::Dead { kind, .. } => Some(*kind),
            Self::Snoozed { .. } => Some(FailureKind::Snoozed),
            Self::Interrupted { by, .. } => Some(by.kind()),
        }
    }

    /// Why, for people: as much of it as is stored. A text in Postgres cannot hold a NUL.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Succeeded => None,
            Self::Failed { message, .. }
            | Self::Dead { message, .. }
            | Self::Snoozed { message, .. }
            | Self::Interrupted { message, .. } => {
                Some(message.chars().filter(|character| *character != '\0').take(MESSAGE_CHARS).collect())
            }
        }
    }

    /// When it is tried again, if it is.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        match self {
            Self::Failed { retry_in, .. } | Self::Snoozed { retry_in, .. } | Self::Interrupted { retry_in, .. } => {
                Some(*retry_in)
            }
            Self::Succeeded | Self::Dead { .. } => None,
        }
    }

    /// Whether the run counts as an attempt.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Snoozed { .. } | Self::Interrupted { .. })
    }

    /// Whether a failure of our store interrupted the run.
    pub(crate) fn is_interrupted_by_store(&self) -> bool {
        matches!(self, Self::Interrupted { by: Interruption::Store, .. })
    }
}

/// The longest message that is stored: an attempt is a short row.
const MESSAGE_CHARS: usize = 2_000;

/// What a crashed attempt's message says.
pub(crate) const CRASHED: &str = "the process died or lost its lease";

/// The message of an attempt that was noted as a crash although its process was alive.
pub(crate) const LOST_LEASE: &str = "the run lost its lease, although its process lived";
