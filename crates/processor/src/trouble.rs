//! When the store was last in trouble. For a while afterwards a lease that has ended proves nothing: its worker could not
//! renew it.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hookfast_store::StoreError;
use tokio::time::Instant;

/// A verb that takes longer than this counts as trouble, even if it succeeds.
const SLOW: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Trouble {
    last: Mutex<Option<Instant>>,
}

impl Trouble {
    /// Waits for a verb of the store, and notes whether the store was in trouble.
    pub(crate) async fn noting<T>(&self, verb: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let start = Instant::now();
        let done = verb.await;
        if matches!(done, Err(StoreError::Unavailable(_))) || start.elapsed() > SLOW {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        done
    }

    /// Whether the store has been well for this long.
    pub(crate) fn is_over_for(&self, time: Duration) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|last| last.elapsed() >= time)
    }
}
