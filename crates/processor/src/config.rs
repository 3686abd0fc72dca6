//! What can be set about working.

use std::time::Duration;

use hookfast_store::DeadLetters;
use hookfast_webhook::RetryPolicy;

/// How this process works.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How many jobs run at once, of all handlers together.
    pub concurrency: usize,
    /// How many threads run handlers.
    pub threads: usize,
    /// How long a job is a worker's without a sign of life.
    pub lease: Duration,
    /// How often the sweeper looks for due jobs.
    pub sweep_every: Duration,
    /// When a job that was dispatched and not claimed is dispatched again.
    pub dispatch_again_after: Duration,
    /// This many runs in a row that took the process with them make a dead letter.
    pub crash_limit: u32,
    /// This many runs in a row that the gateway's own store has spoilt make a dead letter.
    pub interruption_limit: u32,
    /// Memory for the bodies of jobs that run, in bytes, of all handlers together. Bodies that come with the claim are not
    /// counted: they are short.
    pub body_memory: u64,
    /// How long a shutdown waits for jobs that are running.
    pub shutdown_timeout: Duration,
}

impl Config {
    /// A job with this many crashes is a suspect: it is dead if it crashes once more.
    pub(crate) fn suspect_from(&self) -> u32 {
        self.crash_limit.saturating_sub(1).max(1)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 32,
            threads: 4,
            lease: Duration::from_secs(30),
            sweep_every: Duration::from_secs(1),
            dispatch_again_after: Duration::from_secs(60),
            crash_limit: 3,
            interruption_limit: 20,
            body_memory: 256 << 20,
            shutdown_timeout: Duration::from_secs(25),
        }
    }
}

/// How one handler is run.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerConfig {
    /// When to try again.
    pub retry: RetryPolicy,
    /// How long a run may take.
    pub deadline: Duration,
    /// How many of its jobs run at once in this process.
    pub concurrency: usize,
    /// For a handler that keeps an order: what a dead letter means for those behind it.
    pub ordering: Option<DeadLetters>,
}

impl Default for HandlerConfig {
    fn default() -> Self {
        Self { retry: RetryPolicy::default(), deadline: Duration::from_secs(20), concurrency: 16, ordering: None }
    }
}
