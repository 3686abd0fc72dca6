//! What more than one consumer asks of a database.

use std::time::Duration;

use async_trait::async_trait;
use hookfast_webhook::JobState;

use crate::StoreError;

/// What receiving and working ask of a database.
#[async_trait]
pub trait Check: Send + Sync {
    /// Fails unless an event could be recorded now: the database answers, has this program's tables, and never had an
    /// I/O error.
    async fn check(&self) -> Result<(), StoreError>;
}

/// What working and operators ask of a database.
#[async_trait]
pub trait Measure: Send + Sync {
    /// How much there is to do.
    async fn backlog(&self) -> Result<Backlog, StoreError>;
}

/// How much there is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Unfinished jobs and dead letters, by handler and state.
    pub jobs: Vec<(String, JobState, u64)>,
    /// For each handler with a due job that no worker has taken, for how long the first of them has been due.
    pub oldest_due: Vec<(String, Duration)>,
    /// How many jobs operators have replayed in all: the sum of `jobs` over the audit's rows with action `replay`.
    pub replayed: u64,
}
