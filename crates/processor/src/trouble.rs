//! Whether the store is in trouble. For a while afterwards a lease that has ended proves nothing: its worker could not renew
//! it. Only verbs about leases count, so that one handler's slow claims do not keep the dead from being noticed.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hookfast_store::StoreError;
use tokio::time::Instant;

/// A verb that takes longer than this counts as trouble, even if it succeeds. So does one that takes half as long as a worker
/// needs to recover: the worker may have lost as much time.
const SLOW: Duration = Duration::from_secs(2);

/// After this many times as long as a worker needs to recover, leases are judged in spite of trouble. A worker that lives may
/// lose a job, and takes back the crash.
const LONGEST: u32 = 20;

pub(crate) struct Trouble {
    /// How long the store must be well before leases are judged again.
    recovery: Duration,
    spell: Mutex<Option<Spell>>,
}

/// A time of trouble: its beginning, and the last sign of it.
#[derive(Clone, Copy)]
struct Spell {
    began: Instant,
    last: Instant,
}

impl Trouble {
    pub(crate) fn new(recovery: Duration) -> Self {
        Self { recovery, spell: Mutex::default() }
    }

    /// Waits for a verb of the store, and notes whether the store was in trouble.
    pub(crate) async fn noting<T>(&self, verb: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let start = Instant::now();
        let done = verb.await;
        if matches!(done, Err(StoreError::Unavailable(_))) || start.elapsed() > SLOW.min(self.recovery / 2) {
            self.note();
        }
        done
    }

    fn note(&self) {
        let now = Instant::now();
        let mut spell = self.spell.lock().unwrap_or_else(PoisonError::into_inner);
        let began = spell.filter(|spell| spell.last.elapsed() < self.recovery).map_or(now, |spell| spell.began);
        *spell = Some(Spell { began, last: now });
    }

    /// Whether leases can be judged: the store has been well for long enough, or in trouble for too long.
    pub(crate) fn is_over(&self) -> bool {
        let spell = *self.spell.lock().unwrap_or_else(PoisonError::into_inner);
        spell.is_none_or(|spell| {
            spell.last.elapsed() >= self.recovery || spell.began.elapsed() >= self.recovery * LONGEST
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const RECOVERY: Duration = Duration::from_secs(15);

    async fn fail(trouble: &Trouble) {
        let failed = async { Err::<(), _>(StoreError::Unavailable("away".into())) };
        trouble.noting(failed).await.expect_err("it fails");
    }

    #[tokio::test(start_paused = true)]
    async fn leases_are_judged_again_when_the_store_has_been_well_for_a_while() {
        let trouble = Trouble::new(RECOVERY);
        assert!(trouble.is_over());
        fail(&trouble).await;
        assert!(!trouble.is_over());
        advance(RECOVERY).await;
        assert!(trouble.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_trouble_and_a_refusal_is_none() {
        let trouble = Trouble::new(RECOVERY);
        let refused = async { Err::<(), _>(StoreError::Rejected("no".into())) };
        trouble.noting(refused).await.expect_err("it fails");
        assert!(trouble.is_over());
        let slow = async {
            tokio::time::sleep(SLOW * 2).await;
            Ok(())
        };
        trouble.noting(slow).await.expect("it succeeds");
        assert!(!trouble.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn with_short_leases_less_is_trouble() {
        let trouble = Trouble::new(SLOW / 4);
        let slow = async {
            tokio::time::sleep(SLOW / 2).await;
            Ok(())
        };
        trouble.noting(slow).await.expect("it succeeds");
        assert!(!trouble.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_without_end_does_not_keep_the_dead_from_being_noticed() {
        let trouble = Trouble::new(RECOVERY);
        for _ in 0..LONGEST * 2 {
            fail(&trouble).await;
            advance(RECOVERY / 2).await;
        }
        assert!(trouble.is_over());
    }
}
