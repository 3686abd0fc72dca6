//! Limits repeated log lines, because a refused sender may try again as fast as the network allows.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two lines with the same reason.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the last line was written for each reason, and how many were left out since.
pub(crate) struct LogLimit {
    reasons: Mutex<Vec<Told>>,
}

struct Told {
    reason: &'static str,
    at: Instant,
    left_out: u64,
}

/// A line that may be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The number of lines with the same reason that were left out before this one, if any.
    pub(crate) left_out: Option<u64>,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self { reasons: Mutex::new(Vec::new()) }
    }

    /// Whether a line with this reason may be written now. If not, it is counted as left out.
    pub(crate) fn line(&self, reason: &'static str) -> Option<Due> {
        self.line_at(reason, Instant::now())
    }

    fn line_at(&self, reason: &'static str, now: Instant) -> Option<Due> {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(told) = reasons.iter_mut().find(|told| told.reason == reason) else {
            reasons.push(Told { reason, at: now, left_out: 0 });
            return Some(Due { left_out: None });
        };
        if now.saturating_duration_since(told.at) < INTERVAL {
            told.left_out += 1;
            return None;
        }
        told.at = now;
        let left_out = std::mem::take(&mut told.left_out);
        Some(Due { left_out: (left_out > 0).then_some(left_out) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_line_a_second_which_counts_those_left_out() {
        let (limit, start) = (LogLimit::new(), Instant::now());
        let line = |reason, milliseconds| limit.line_at(reason, start + Duration::from_millis(milliseconds));
        assert_eq!(line("stale", 0), Some(Due { left_out: None }));
        assert_eq!(line("missing", 10), Some(Due { left_out: None }), "another reason");
        assert_eq!((line("stale", 10), line("stale", 999)), (None, None));
        assert_eq!(line("stale", 1_000), Some(Due { left_out: Some(2) }));
        assert_eq!(line("stale", 2_500), Some(Due { left_out: None }));
    }
}
