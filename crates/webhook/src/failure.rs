//! Why a run of a job failed, and what that means for the next run.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The kind of a failure, to count and filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The run took too long.
    Timeout,
    /// The other side asks for fewer requests.
    RateLimited,
    /// The name of the other side could not be looked up.
    Dns,
    /// The other side could not be reached, or the connection broke.
    Network,
    /// The handler does not understand the event.
    BadPayload,
    /// The handler or the other side refused the event for good.
    Refused,
    /// The handler panicked.
    Panic,
    /// Any other error of the handler.
    Internal,
    /// The process died while the job was running, or lost its lease.
    Crash,
    /// The gateway's own store failed during the run. That is not the handler's fault, so the run does not count as an
    /// attempt.
    Pipeline,
    /// The process was shut down, or could not renew the lease. That is not the handler's fault either.
    Interrupted,
    /// The handler postponed the job with [`Failure::snooze`]. This is no failure, and the run does not count as an
    /// attempt.
    Snoozed,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Timeout,
        Self::RateLimited,
        Self::Dns,
        Self::Network,
        Self::BadPayload,
        Self::Refused,
        Self::Panic,
        Self::Internal,
        Self::Crash,
        Self::Pipeline,
        Self::Interrupted,
        Self::Snoozed,
    ];

    /// The kind as a word, for tables, metrics and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Dns => "dns",
            Self::Network => "network",
            Self::BadPayload => "bad_payload",
            Self::Refused => "refused",
            Self::Panic => "panic",
            Self::Internal => "internal",
            Self::Crash => "crash",
            Self::Pipeline => "pipeline",
            Self::Interrupted => "interrupted",
            Self::Snoozed => "snoozed",
        }
    }
}

crate::enum_of_words!(FailureKind, "a kind of failure");

/// Why a handler did not do its job. Every error becomes a `Failure` with `?`, and then the job is tried again later. A
/// handler that wants to give up returns [`Failure::give_up`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// A message for people.
    pub message: String,
    /// Whether trying again cannot help.
    pub is_permanent: bool,
    /// The shortest wait before the next attempt, if the other side asked for one.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// Try again later, according to the retry policy.
    pub fn retry(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), is_permanent: false, retry_after: None }
    }

    /// Try again later, but not before `wait` has passed.
    pub fn retry_after(wait: Duration, message: impl fmt::Display) -> Self {
        Self { retry_after: Some(wait), ..Self::retry(FailureKind::RateLimited, message) }
    }

    /// Run the job again after `wait`. This is no failure, and the run does not count as an attempt. A job can be
    /// postponed without limit; its history shows each time.
    pub fn snooze(wait: Duration, message: impl fmt::Display) -> Self {
        Self { retry_after: Some(wait), ..Self::retry(FailureKind::Snoozed, message) }
    }

    /// Never try again: the job becomes a dead letter at once.
    pub fn give_up(message: impl fmt::Display) -> Self {
        Self { is_permanent: true, ..Self::retry(FailureKind::Refused, message) }
    }

    /// The handler does not understand the event, so trying again cannot help.
    pub fn bad_payload(message: impl fmt::Display) -> Self {
        Self { is_permanent: true, ..Self::retry(FailureKind::BadPayload, message) }
    }

    /// The other side could not be reached. Try again later.
    pub fn network(message: impl fmt::Display) -> Self {
        Self::retry(FailureKind::Network, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

/// Every error of a handler becomes a failure. For that reason `Failure` cannot be a [`std::error::Error`] itself.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: &(dyn std::error::Error + 'static) = &error;
        let kind = error.downcast_ref::<std::io::Error>().map_or(FailureKind::Internal, kind_of_io_error);
        Self::retry(kind, with_causes(error))
    }
}

/// The standard library's message when a name cannot be looked up. Its error has no kind for that.
const LOOKUP_FAILED: &str = "failed to lookup address information";

fn kind_of_io_error(error: &std::io::Error) -> FailureKind {
    match error.kind() {
        std::io::ErrorKind::TimedOut => FailureKind::Timeout,
        _ if error.to_string().starts_with(LOOKUP_FAILED) => FailureKind::Dns,
        _ => FailureKind::Network,
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Many errors repeat their cause in their own message.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_means_try_again_later() {
        fn parse(text: &str) -> Result<i32, Failure> {
            Ok(text.parse::<i32>()?)
        }
        let failure = parse("x").expect_err("no number");
        assert_eq!((failure.kind, failure.is_permanent), (FailureKind::Internal, false));
        assert_eq!(Failure::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)).kind, FailureKind::Network);
        assert!(Failure::give_up("no such customer").is_permanent);
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_is_a_kind_of_its_own() {
        use std::net::ToSocketAddrs;

        let error = "no-such-host.invalid:443".to_socket_addrs().expect_err("`.invalid` has no addresses");
        assert_eq!(Failure::from(error).kind, FailureKind::Dns);
    }
}
