//! `[work]`: how jobs are run.

use std::time::Duration;

use toml::Value;

use super::parse;
use super::section::Section;

pub(super) fn read(mut section: Section<'_>) -> hookfast_processor::Config {
    let default = hookfast_processor::Config::default();
    let config = hookfast_processor::Config {
        concurrency: section.value("concurrency", parse::count, default.concurrency),
        threads: section.value("threads", parse::count, default.threads),
        lease: section.value("lease", lease, default.lease),
        sweep_every: section.value("sweep_every", parse::duration, default.sweep_every),
        dispatch_again_after: section.value("dispatch_again_after", parse::duration, default.dispatch_again_after),
        crash_limit: section.value("crash_limit", parse::small_count, default.crash_limit),
        interruption_limit: section.value("interruption_limit", parse::small_count, default.interruption_limit),
        body_memory: section.value("body_memory", parse::size, default.body_memory),
        shutdown_timeout: section.value("shutdown_timeout", parse::duration, default.shutdown_timeout),
    };
    section.finish();
    config
}

/// Shorter than a second is shorter than a busy machine's pauses.
fn lease(value: &Value) -> Result<Duration, String> {
    let lease = parse::duration(value)?;
    if lease >= Duration::from_secs(1) { Ok(lease) } else { Err("write a time of at least \"1s\"".into()) }
}
