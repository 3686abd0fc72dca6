//! Times as SQLite has them: microseconds since 1970. The store's clock is this machine's.

use std::time::Duration;

use sqlx::Error;
use time::OffsetDateTime;

pub(super) fn now() -> i64 {
    micros(OffsetDateTime::now_utc())
}

/// When `wait` has passed.
pub(super) fn after(wait: Duration) -> i64 {
    now().saturating_add(length(wait))
}

pub(super) fn length(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn micros(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1000).expect("years up to 9999 fit")
}

pub(super) fn time(micros: i64) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000).map_err(|error| Error::Decode(error.into()))
}
