//! The time as something that is handed in, so that tests can choose it.

use time::OffsetDateTime;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present moment, in UTC.
    fn now(&self) -> OffsetDateTime;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}

/// A clock that stands still.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub OffsetDateTime);

impl Clock for FixedClock {
    fn now(&self) -> OffsetDateTime {
        self.0
    }
}
