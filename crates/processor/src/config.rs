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
    /// So many runs in a row that took the process with them make a dead letter.
    pub crash_limit: u32,
    /// How long a shutdown waits for jobs that are running.
    pub shutdown_timeout: Duration,
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
            shutdown_timeout: Duration::from_secs(20),
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
        Self { retry: RetryPolicy::default(), deadline: Duration::from_secs(30), concurrency: 16, ordering: None }
    }
}
