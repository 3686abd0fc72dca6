//! One run of a job, as the processor sees it: the effects that the handler gets, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hookfast_store::{EffectWrite, JobId, StoreError, Token, Work, Written};
use hookfast_webhook::Failure;

use crate::Effects;

/// What a worker adds to the effects of its runs. The default adds nothing.
pub trait Hooks: Send + Sync {
    /// Writes effects of several jobs in one commit. Without it each effect has a commit of its own.
    fn shared_commits(&self) -> Option<&dyn SharedCommits> {
        None
    }

    /// Called before an effect is committed.
    fn before_commit(&self) {}

    /// Called after an effect was committed.
    fn after_commit(&self) {}

    /// Called after an effect was done. A failure breaks the run off.
    fn after_effect(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether an effect is skipped if its marker says that it was done. A test turns this off to show that markers are needed.
    fn trusts_markers(&self) -> bool {
        true
    }
}

/// Writes effects of several jobs in one commit.
#[async_trait]
pub trait SharedCommits: Send + Sync {
    /// Writes an effect. [`StoreError::Rejected`] may be about an effect of another job in the same commit.
    async fn write(&self, effect: EffectWrite) -> Result<Written, StoreError>;
}

/// No hooks: every effect has a commit of its own.
pub struct NoHooks;

impl Hooks for NoHooks {}

/// One run of a job.
pub struct Run {
    effects: Effects,
}

impl Run {
    /// A run of a job that was claimed with this token.
    pub fn new(store: Arc<dyn Work>, job: JobId, token: Token, hooks: Arc<dyn Hooks>) -> Self {
        Self { effects: Effects::new(store, job, token, hooks) }
    }

    /// The effects that the handler gets.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// The error of the store during this run, if there was one. Then the run is interrupted, even if the handler
    /// returned `Ok`.
    pub fn pipeline_fault(&self) -> Option<String> {
        self.effects.pipeline_fault()
    }

    /// The failure of a run that was not done by its deadline.
    pub fn past_deadline(&self, allowed: Duration) -> Failure {
        self.effects.past_deadline(allowed)
    }

    /// Whether other runs may be waiting for a transaction of this one to end.
    pub fn is_in_a_transaction(&self) -> bool {
        self.effects.are_in_a_transaction()
    }
}
