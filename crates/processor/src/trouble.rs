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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_store_that_answers_is_in_no_trouble() {
        let trouble = Trouble::default();
        assert!(trouble.is_over_for(LONG), "there was none");
        assert_eq!(trouble.noting(async { Ok(7) }).await.ok(), Some(7));
        let rejected = trouble.noting(async { Err::<(), _>(StoreError::Rejected("these rows".into())) }).await;
        assert!(matches!(rejected, Err(StoreError::Rejected(_))), "{rejected:?}");
        assert!(trouble.is_over_for(LONG), "what a store says about rows, it says in good health");
    }

    #[tokio::test]
    async fn a_store_that_was_away_is_in_trouble_for_a_while() {
        let trouble = Trouble::default();
        let away = trouble.noting(async { Err::<(), _>(StoreError::Unavailable("no route".into())) }).await;
        assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
        assert!(!trouble.is_over_for(LONG));
        trouble.noting(async { Ok(()) }).await.expect("it answers again");
        assert!(!trouble.is_over_for(LONG), "that it answers again does not make up for the time before");
        assert!(trouble.is_over_for(Duration::ZERO));
    }

    #[tokio::test]
    async fn a_slow_answer_is_trouble_too() {
        let trouble = Trouble::default();
        let slow = async {
            tokio::time::sleep(SLOW + Duration::from_millis(10)).await;
            Ok(())
        };
        trouble.noting(slow).await.expect("it answers in the end");
        assert!(!trouble.is_over_for(LONG));
    }
}
