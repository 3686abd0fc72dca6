//! What operators do, and the audit of it.

use hookfast_webhook::{EventId, enum_of_words};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Resolution;
use crate::{JobId, NewJob};

/// What an act of an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Finished jobs run again, or events get jobs of another handler.
    Replay,
    /// Jobs end without a run.
    Resolve,
    /// Unfinished jobs become another handler's.
    Move,
    /// Resolved jobs become dead letters again.
    Reopen,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Replay, Self::Resolve, Self::Move, Self::Reopen];

    /// The word for it, as in the audit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Resolve => "resolve",
            Self::Move => "move",
            Self::Reopen => "reopen",
        }
    }
}

enum_of_words!(Action, "an act of an operator");

/// What an operator did, or is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Its id.
    pub id: Uuid,
    /// When it began.
    pub at: OffsetDateTime,
    /// Who did it.
    pub who: String,
    /// What it does.
    pub action: Action,
    /// Why.
    pub why: Option<String>,
    /// What it is done to, as JSON.
    pub filter: String,
    /// How many jobs it was done to so far.
    pub jobs: u64,
    /// How far it got, if it is not finished.
    pub next_after: Option<EventId>,
    /// Whether it is finished.
    pub is_done: bool,
}

/// A part of an operator's act: it is done, and noted in the audit, in one transaction.
#[derive(Debug, Clone)]
pub struct Step<'a> {
    /// The act.
    pub audit: Uuid,
    /// What is done.
    pub act: Act<'a>,
    /// How far the act has got with this.
    pub next_after: Option<EventId>,
    /// Whether that was all.
    pub is_last: bool,
    /// Finished jobs that ended later than this are left alone.
    pub as_of: Option<OffsetDateTime>,
}

/// What is done to jobs.
#[derive(Debug, Clone)]
pub enum Act<'a> {
    /// Finished jobs become pending and due at once, with attempts from the start; jobs that are not there are made.
    /// Unfinished ones stay as they are.
    Replay {
        /// Which.
        jobs: &'a [(EventId, NewJob)],
        /// Forget that their effects were done.
        force_effects: bool,
    },
    /// Dead letters become resolved, and keep why and when they died. Others stay as they are, but for the next job of a
    /// resolved one's ordering key, which is due at once.
    Resolve {
        /// Which.
        jobs: &'a [JobId],
        /// How.
        resolution: Resolution,
    },
    /// Resolved jobs become dead letters again, but for those that were moved.
    Reopen {
        /// Which.
        jobs: &'a [JobId],
    },
    /// Unfinished jobs that no worker has become resolved, as moved, and their events get jobs of another
    /// handler, unless they have such a job already.
    Move {
        /// Which, and the job that takes its place.
        jobs: &'a [(JobId, NewJob)],
    },
    /// Unfinished jobs that no worker has become resolved.
    Abandon {
        /// Which.
        jobs: &'a [JobId],
        /// How.
        resolution: Resolution,
    },
}
