//! The metrics of this process: their buckets, and their upkeep.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::exit::Exit;
use crate::log_lines;

pub(crate) fn install_metrics() -> Result<PrometheusHandle, Exit> {
    const SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
    const BYTES: [f64; 8] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
    const LAG: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0, 14400.0];
    const ATTEMPT: [f64; 16] =
        [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
    const EVENTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_lag_seconds".into()), &LAG))
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Suffix("_attempt_duration_seconds".into()), &ATTEMPT)
        })
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".into()), &BYTES))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_events".into()), &EVENTS))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Exit::failed)?;
    hookfast_parts::describe_metrics();
    hookfast_ingest::describe_metrics();
    hookfast_processor::describe_metrics();
    log_lines::start_metrics();
    Ok(handle)
}

/// Summarises what histograms have observed. Without this they would grow until the next scrape.
pub(crate) async fn keep_metrics_small(metrics: PrometheusHandle) {
    let mut timer = tokio::time::interval(Duration::from_secs(5));
    loop {
        timer.tick().await;
        metrics.run_upkeep();
    }
}
