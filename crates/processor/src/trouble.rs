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

/// A sweep that waits longer than this for its turn is in trouble: what was in its way was in the way of renewals, too.
const PROMPTLY: Duration = Duration::from_millis(250);

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

impl Spell {
    fn lasts_too_long(self, recovery: Duration) -> bool {
        self.last.elapsed() < recovery * 2 && self.began.elapsed() >= recovery * LONGEST
    }
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

    /// Notes a sign of trouble. A spell goes on while there is a sign at least every second recovery: a sweep is tried once
    /// a recovery, and may be the only sign.
    pub(crate) fn note(&self) {
        let now = Instant::now();
        let mut spell = self.spell.lock().unwrap_or_else(PoisonError::into_inner);
        let began = spell.filter(|spell| spell.last.elapsed() < self.recovery * 2).map_or(now, |spell| spell.began);
        *spell = Some(Spell { began, last: now });
    }

    /// Whether leases are judged: if the store has been well for long enough, by a sweep that begins promptly; if it has been
    /// in trouble for too long, in any case.
    pub(crate) fn judge_leases_within(&self) -> Option<Duration> {
        match *self.spell.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(spell) if spell.lasts_too_long(self.recovery) => Some(Duration::MAX),
            Some(spell) if spell.last.elapsed() < self.recovery => None,
            _ => Some(PROMPTLY),
        }
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
        assert_eq!(trouble.judge_leases_within(), Some(PROMPTLY));
        fail(&trouble).await;
        assert_eq!(trouble.judge_leases_within(), None);
        advance(RECOVERY).await;
        assert_eq!(trouble.judge_leases_within(), Some(PROMPTLY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_trouble_and_a_refusal_is_none() {
        let trouble = Trouble::new(RECOVERY);
        let refused = async { Err::<(), _>(StoreError::Rejected("no".into())) };
        trouble.noting(refused).await.expect_err("it fails");
        assert_eq!(trouble.judge_leases_within(), Some(PROMPTLY));
        let slow = async {
            tokio::time::sleep(SLOW * 2).await;
            Ok(())
        };
        trouble.noting(slow).await.expect("it succeeds");
        assert_eq!(trouble.judge_leases_within(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn with_short_leases_less_is_trouble() {
        let trouble = Trouble::new(SLOW / 4);
        let slow = async {
            tokio::time::sleep(SLOW / 2).await;
            Ok(())
        };
        trouble.noting(slow).await.expect("it succeeds");
        assert_eq!(trouble.judge_leases_within(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_without_end_does_not_keep_the_dead_from_being_noticed() {
        let trouble = Trouble::new(RECOVERY);
        for _ in 0..LONGEST * 2 {
            fail(&trouble).await;
            advance(RECOVERY / 2).await;
        }
        assert_eq!(trouble.judge_leases_within(), Some(Duration::MAX));
        advance(RECOVERY * 2).await;
        assert_eq!(trouble.judge_leases_within(), Some(PROMPTLY), "it is over");
    }

    /// On a busy SQLite each sweep that would judge leases waits, and is the only sign of trouble.
    #[tokio::test(start_paused = true)]
    async fn sweeps_that_always_come_late_judge_leases_in_the_end() {
        let trouble = Trouble::new(RECOVERY);
        for _ in 0..LONGEST {
            assert_eq!(trouble.judge_leases_within(), Some(PROMPTLY));
            trouble.note();
            assert_eq!(trouble.judge_leases_within(), None);
            advance(RECOVERY).await;
        }
        assert_eq!(trouble.judge_leases_within(), Some(Duration::MAX));
    }
}
