//! What can be done to a store.

use std::time::Duration;

use hookfast_store::{DeadLetters, Outcome};

/// How long it takes until something is due that is not due yet.
const HOUR: Duration = Duration::from_secs(3600);

/// A job: the numbers of its event and of its handler. Events are numbered in the order of their ids.
pub(super) type Place = (usize, usize);

/// A worker that says that a job became its own with this claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) job: Place,
    pub(super) claim: usize,
}

/// When something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    None,
    Hour,
}

impl Wait {
    pub(super) fn length(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Hour => HOUR,
        }
    }

    pub(super) fn is_over(self) -> bool {
        self == Self::None
    }
}

#[derive(Debug)]
pub(super) enum Step {
    Record(Vec<usize>),
    Claim { handler: usize, events: Vec<usize>, lease: Wait, dead_letters: DeadLetters, crashes_below: Option<u32> },
    Settle(Vec<(Run, Outcome)>),
    Renew(Vec<Run>, Wait),
    HandBack(Vec<Run>),
    Pardon(Vec<Run>),
    Sweep { handlers: Vec<usize>, crash_limit: u32, judges_leases: bool },
    DueJobs { handler: usize, dead_letters: DeadLetters, page: u32 },
    OwnEffect { run: Run, commits: bool },
    BeginOutside { run: Run, commits: bool },
    FinishOutside(Run),
    Replay { jobs: Vec<Place>, force_effects: bool },
    Resolve(Vec<Place>),
    HoursPass,
}

impl Step {
    /// Those who want to write about a job.
    pub(super) fn runs(&self) -> Vec<Run> {
        match self {
            Self::Settle(runs) => runs.iter().map(|(run, _)| *run).collect(),
            Self::Renew(runs, _) | Self::HandBack(runs) => runs.clone(),
            Self::OwnEffect { run, .. } | Self::BeginOutside { run, .. } | Self::FinishOutside(run) => vec![*run],
            _ => Vec::new(),
        }
    }
}
