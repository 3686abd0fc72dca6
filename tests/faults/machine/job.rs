//! A job as the model knows it.

use std::collections::BTreeMap;

use hookfast_store::{Interruption, Outcome};
use uuid::Uuid;

/// The key of the effect in the database, and of the one elsewhere.
pub(super) const OWN: &str = "own";
pub(super) const OUTSIDE: &str = "outside";

pub(super) fn worker(claim: usize) -> String {
    format!("w{claim}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    /// With the number of the claim that it is held by.
    Processing(usize),
    Failed,
    Succeeded,
    DeadLetter,
    Resolved,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing(_) => "processing",
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::DeadLetter => "dead_letter",
            Self::Resolved => "resolved",
        }
    }

    pub(super) fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::DeadLetter | Self::Resolved)
    }
}

/// The marker of an effect.
pub(super) struct Marker {
    pub(super) id: Uuid,
    pub(super) runs: u32,
    pub(super) is_done: bool,
    pub(super) result: Option<String>,
}

pub(super) struct Job {
    pub(super) state: State,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
    pub(super) interruptions: u32,
    pub(super) is_due: bool,
    /// Why it is dead, or how it was resolved.
    pub(super) reason: &'static str,
    /// Number, failure and claim of each run that ended.
    pub(super) history: Vec<(u32, &'static str, usize)>,
    pub(super) markers: BTreeMap<&'static str, Marker>,
    /// How often the effect in the database was done, in all and before an operator had it forgotten.
    pub(super) done: usize,
    pub(super) done_and_forgotten: usize,
}

impl Job {
    pub(super) fn new() -> Self {
        Self {
            state: State::Pending,
            attempts: 0,
            crashes: 0,
            interruptions: 0,
            is_due: true,
            reason: "-",
            history: Vec::new(),
            markers: BTreeMap::new(),
            done: 0,
            done_and_forgotten: 0,
        }
    }

    pub(super) fn times_done(&self) -> usize {
        self.done - self.done_and_forgotten
    }

    pub(super) fn settle(&mut self, claim: usize, outcome: &Outcome) {
        let (state, failure) = match outcome {
            Outcome::Succeeded => (State::Succeeded, "-"),
            Outcome::Failed { .. } => (State::Failed, "network"),
            Outcome::Dead { .. } => (State::DeadLetter, "refused"),
            Outcome::Snoozed { .. } => (State::Failed, "snoozed"),
            Outcome::Interrupted { by: Interruption::Store, .. } => (State::Failed, "pipeline"),
            Outcome::Interrupted { by: Interruption::Process, .. } => (State::Failed, "interrupted"),
        };
        self.history.push((self.attempts, failure, claim));
        (self.state, self.reason) = (state, failure);
        if let Outcome::Failed { retry_in, .. }
        | Outcome::Snoozed { retry_in, .. }
        | Outcome::Interrupted { retry_in, .. } = outcome
        {
            self.is_due = retry_in.is_zero();
        }
        match outcome {
            Outcome::Snoozed { .. } => self.attempts -= 1,
            Outcome::Interrupted { by, .. } => {
                self.attempts -= 1;
                self.interruptions += u32::from(*by == Interruption::Store);
            }
            _ => (self.crashes, self.interruptions) = (0, 0),
        }
    }

    /// The lease has ended. Says whether that was once too often.
    pub(super) fn crash(&mut self, claim: usize, crash_limit: u32) -> bool {
        self.history.push((self.attempts, "crash", claim));
        self.crashes += 1;
        let is_buried = self.crashes >= crash_limit;
        if is_buried {
            (self.state, self.reason) = (State::DeadLetter, "crash");
        }
        is_buried
    }

    /// The crash that was noted for a run was none, if there is one.
    pub(super) fn pardon(&mut self, claim: usize) {
        let noted = self.history.iter_mut().find(|(_, failure, of)| (*failure, *of) == ("crash", claim));
        let Some((_, failure, _)) = noted else { return };
        *failure = "interrupted";
        let is_dead_of_it = self.state == State::DeadLetter && self.reason == "crash";
        if self.state.is_finished() && !is_dead_of_it {
            return;
        }
        // A replay may have begun to count anew; a run that goes on keeps its attempt.
        let least = u32::from(matches!(self.state, State::Processing(_)));
        self.attempts = self.attempts.saturating_sub(1).max(least);
        self.crashes = self.crashes.saturating_sub(1);
        if is_dead_of_it {
            (self.state, self.is_due) = (State::Pending, true);
        }
    }

    pub(super) fn replay(&mut self, force_effects: bool) {
        (self.state, self.is_due) = (State::Pending, true);
        (self.attempts, self.crashes, self.interruptions) = (0, 0, 0);
        if force_effects {
            self.markers.clear();
            self.done_and_forgotten = self.done;
        }
    }
}
