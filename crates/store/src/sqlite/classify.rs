//! What the caller can do about an error of one of the two drivers.

use std::fmt::Display;

use tokio::sync::SetOnce;

use crate::StoreError;
use crate::faults::{Protection, is_off};

/// An error of one of the two drivers.
pub(super) trait DriverError: Display {
    /// SQLite's own code for it.
    fn code(&self) -> Option<i32>;
    /// Whether the driver itself cannot be used any more.
    fn is_crash(&self) -> bool;
}

impl DriverError for sqlx::Error {
    fn code(&self) -> Option<i32> {
        self.as_database_error()?.code()?.parse().ok()
    }

    fn is_crash(&self) -> bool {
        matches!(self, Self::WorkerCrashed)
    }
}

impl DriverError for rusqlite::Error {
    fn code(&self) -> Option<i32> {
        self.sqlite_error().map(|error| error.extended_code)
    }

    fn is_crash(&self) -> bool {
        false
    }
}

/// What the caller can do about an error. Notes an error after which the store promises nothing more.
pub(super) fn classify(error: &impl DriverError, broken: &SetOnce<String>) -> StoreError {
    let problem = error.to_string();
    // Without what the extended code adds.
    match error.code().map(|code| code & 0xff) {
        // IOERR, CORRUPT, NOTADB, READONLY, CANTOPEN
        Some(10 | 11 | 26 | 8 | 14) if !is_off(Protection::Distrust) => {
            let _ = broken.set(problem.clone());
            StoreError::Broken(problem)
        }
        // ERROR, TOOBIG, CONSTRAINT, MISMATCH
        Some(1 | 18 | 19 | 20) => StoreError::Rejected(problem),
        Some(5) => StoreError::Unavailable(format!(
            "another process holds the write lock of the database, a command or a shell on the file say: {problem}"
        )),
        // Mostly FULL, LOCKED, NOMEM, which pass.
        Some(_) => StoreError::Unavailable(problem),
        None if error.is_crash() => {
            let _ = broken.set(problem.clone());
            StoreError::Broken(problem)
        }
        None => StoreError::Unavailable(problem),
    }
}
