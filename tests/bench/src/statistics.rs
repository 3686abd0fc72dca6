//! From what was seen to a few numbers.

use std::time::Duration;

use serde::Serialize;

/// The value in the middle, or between the two in the middle. There must be one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// How long things took, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
}

impl Percentiles {
    /// Of times in microseconds; nothing of none.
    pub(crate) fn of(mut micros: Vec<u32>) -> Option<Self> {
        micros.sort_unstable();
        let of = |share: f64| Some(f64::from(*micros.get(rank(micros.len(), share)?)?) / 1000.0);
        Some(Self { p50_ms: of(0.5)?, p99_ms: of(0.99)?, p999_ms: of(0.999)? })
    }
}

/// The place of the smallest value that is not exceeded by more than the rest of the share.
fn rank(count: usize, share: f64) -> Option<usize> {
    ((count as f64 * share).ceil() as usize).max(1).checked_sub(1)
}

/// Microseconds as they are collected. What takes longer than an hour is an hour.
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(3_600_000_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0, 9.0, 2.0]), 3.0);
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let seen = Percentiles::of((1..=1000).rev().map(|millis| millis * 1000).collect()).unwrap();
        assert_eq!(seen, Percentiles { p50_ms: 500.0, p99_ms: 990.0, p999_ms: 999.0 });
    }

    #[test]
    fn one_stall_among_few_is_seen_at_the_top() {
        let seen = Percentiles::of(vec![1000, 1000, 1000, 250_000]).unwrap();
        assert_eq!(seen, Percentiles { p50_ms: 1.0, p99_ms: 250.0, p999_ms: 250.0 });
    }
}
