//! Decides when a failed job is tried again. Policies are data, and the decision is a pure function.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Failure, FailureKind};

/// When to try again, and when to give up.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// How long to wait after each attempt.
    pub delays: Delays,
    /// The largest random change of a delay, as a part of it from 0 to 1. It keeps jobs that failed together from being
    /// tried again together.
    pub jitter: f64,
    /// The shortest delay after failures of some kinds, even if `delays` has a shorter one.
    pub least_wait: LeastWait,
    /// The total number of attempts.
    pub max_attempts: u32,
}

/// The shortest delay after a failure, by its kind. It is no help to ask an overloaded or unreachable service again at
/// once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeastWait(BTreeMap<FailureKind, Duration>);

impl Default for LeastWait {
    fn default() -> Self {
        let seconds = [
            (FailureKind::RateLimited, 60),
            (FailureKind::Dns, 5),
            (FailureKind::Timeout, 2),
            (FailureKind::Network, 2),
            (FailureKind::Pipeline, 2),
        ];
        Self(seconds.into_iter().map(|(kind, seconds)| (kind, Duration::from_secs(seconds))).collect())
    }
}

impl LeastWait {
    /// Sets the shortest delay after failures of this kind.
    pub fn with(mut self, kind: FailureKind, wait: Duration) -> Self {
        self.0.insert(kind, wait);
        self
    }

    /// The shortest delay after a failure of this kind.
    pub fn after(&self, kind: FailureKind) -> Duration {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}

/// How long to wait after each attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Delays {
    /// These delays in order. The last one is repeated.
    List(Vec<Duration>),
    /// Each delay is the one before, multiplied by a factor.
    Exponential {
        /// The first delay.
        base: Duration,
        /// The factor.
        factor: f64,
        /// The longest delay.
        cap: Duration,
    },
}

/// What happens to a job after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The job is tried again after this time.
    RetryIn(Duration),
    /// The job becomes a dead letter.
    GiveUp,
}

const DEFAULT_JITTER: f64 = 0.1;

/// The longest delay, even if the handler or the other side asks for a longer one.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::seconds(&[60, 5 * 60, 30 * 60, 2 * 60 * 60])
    }
}

impl RetryPolicy {
    /// The names of the presets.
    pub const PRESETS: [&str; 3] = ["default", "patient", "quick"];

    /// The preset with this name.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::default()),
            "patient" => Some(Self::seconds(&[60, 5 * 60, 15 * 60, 60 * 60, 6 * 60 * 60])),
            "quick" => Some(Self::seconds(&[2, 5, 15, 60])),
            _ => None,
        }
    }

    /// One attempt after each of the delays.
    pub fn list(delays: Vec<Duration>) -> Self {
        let max_attempts = u32::try_from(delays.len()).map_or(u32::MAX, |count| count.saturating_add(1));
        Self { delays: Delays::List(delays), jitter: DEFAULT_JITTER, least_wait: LeastWait::default(), max_attempts }
    }

    fn seconds(delays: &[u64]) -> Self {
        Self::list(delays.iter().copied().map(Duration::from_secs).collect())
    }

    /// How long [`Failure::snooze`] postpones a job.
    pub fn snooze(failure: &Failure) -> Duration {
        failure.retry_after.unwrap_or_default().min(LONGEST_DELAY)
    }

    /// What happens to a job after its attempt with this number (counted from 1) failed. `chance` is a random number
    /// from 0 to 1.
    pub fn after(&self, attempt: u32, failure: &Failure, chance: f64) -> Next {
        if failure.is_permanent || attempt >= self.max_attempts {
            return Next::GiveUp;
        }
        let delay = self.jittered(self.delay(attempt), chance);
        let delay = delay.max(self.least_wait.after(failure.kind)).max(failure.retry_after.unwrap_or_default());
        Next::RetryIn(delay.min(LONGEST_DELAY))
    }

    /// Lengthens or shortens a delay at random, but not beyond the cap.
    fn jittered(&self, delay: Duration, chance: f64) -> Duration {
        let jittered = delay.mul_f64(1.0 + self.jitter * (2.0 * chance - 1.0));
        match self.delays {
            Delays::Exponential { cap, .. } => jittered.min(cap),
            Delays::List(_) => jittered,
        }
    }

    fn delay(&self, attempt: u32) -> Duration {
        match &self.delays {
            Delays::List(delays) => {
                let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                delays.get(index).or(delays.last()).copied().unwrap_or_default()
            }
            Delays::Exponential { base, factor, cap } => {
                let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
                let seconds = base.as_secs_f64() * factor.powi(exponent);
                Duration::try_from_secs_f64(seconds).map_or(*cap, |delay| delay.min(*cap))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The random number that leaves a delay unchanged.
    const NO_JITTER: f64 = 0.5;

    fn failure() -> Failure {
        Failure::retry(FailureKind::Internal, "no luck")
    }

    fn delays(policy: &RetryPolicy) -> Vec<u64> {
        let next = |attempt| match policy.after(attempt, &failure(), NO_JITTER) {
            Next::RetryIn(delay) => Some(delay.as_secs()),
            Next::GiveUp => None,
        };
        (1..).map_while(next).collect()
    }

    #[test]
    fn the_presets_are_as_documented() {
        let preset = |name| delays(&RetryPolicy::preset(name).expect("there is one"));
        assert_eq!(preset("patient"), [60, 300, 900, 3600, 21600]);
        assert_eq!(preset("default"), [60, 300, 1800, 7200]);
        assert_eq!(preset("quick"), [2, 5, 15, 60]);
        assert_eq!(RetryPolicy::default().max_attempts, 5);
        assert!(RetryPolicy::PRESETS.iter().all(|name| RetryPolicy::preset(name).is_some()));
    }

    #[test]
    fn the_last_delay_stays_when_there_are_more_attempts_than_delays() {
        let policy = RetryPolicy { max_attempts: 4, ..RetryPolicy::list(vec![Duration::from_secs(7)]) };
        assert_eq!(delays(&policy), [7, 7, 7]);
    }

    #[test]
    fn exponential_delays_grow_up_to_their_cap() {
        let exponential =
            Delays::Exponential { base: Duration::from_secs(1), factor: 3.0, cap: Duration::from_secs(20) };
        let policy = RetryPolicy { delays: exponential, max_attempts: 6, ..RetryPolicy::default() };
        assert_eq!(delays(&policy), [1, 3, 9, 20, 20]);
        assert_eq!(policy.delay(u32::MAX), Duration::from_secs(20));
    }

    #[test]
    fn jitter_lengthens_or_shortens() {
        let policy = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
        for (chance, seconds) in [(0.0, 30), (NO_JITTER, 60), (1.0, 90)] {
            assert_eq!(policy.after(1, &failure(), chance), Next::RetryIn(Duration::from_secs(seconds)));
        }
    }

    #[test]
    fn jitter_never_exceeds_the_cap() {
        let (base, cap) = (Duration::from_secs(8), Duration::from_secs(10));
        let delays = Delays::Exponential { base, factor: 2.0, cap };
        let policy = RetryPolicy { delays, jitter: 1.0, ..RetryPolicy::default() };
        assert_eq!(policy.after(1, &failure(), 1.0), Next::RetryIn(cap));
        assert_eq!(policy.after(3, &failure(), 1.0), Next::RetryIn(cap));
        assert_eq!(policy.after(3, &failure(), 0.75), Next::RetryIn(cap));
    }

    #[test]
    fn the_other_sides_wish_and_the_kind_of_failure_make_it_wait_longer_but_never_shorter() {
        let policy = RetryPolicy::preset("quick").expect("there is one");
        let after = |failure| policy.after(1, &failure, NO_JITTER);
        let wish = |seconds| Failure::retry_after(Duration::from_secs(seconds), "429");
        assert_eq!(after(wish(600)), Next::RetryIn(Duration::from_secs(600)));
        assert_eq!(after(wish(1)), Next::RetryIn(Duration::from_secs(60)));
        assert_eq!(after(Failure::retry(FailureKind::Dns, "")), Next::RetryIn(Duration::from_secs(5)));
        assert_eq!(after(Failure::retry(FailureKind::Timeout, "")), Next::RetryIn(Duration::from_secs(2)));
        assert_eq!(after(wish(u64::MAX)), Next::RetryIn(LONGEST_DELAY));
    }

    #[test]
    fn the_least_wait_of_a_kind_can_be_set() {
        let least_wait = LeastWait::default().with(FailureKind::RateLimited, Duration::from_secs(600));
        let policy = RetryPolicy { least_wait, ..RetryPolicy::default() };
        let limited = Failure::retry(FailureKind::RateLimited, "429");
        assert_eq!(policy.after(1, &limited, NO_JITTER), Next::RetryIn(Duration::from_secs(600)));
    }

    #[test]
    fn a_permanent_failure_is_never_tried_again() {
        assert_eq!(RetryPolicy::default().after(1, &Failure::give_up("no"), 0.0), Next::GiveUp);
    }
}
