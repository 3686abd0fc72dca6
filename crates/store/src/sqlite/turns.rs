//! Decides who writes next: SQLite has one writer at a time. Recording goes first, because a sender waits for it. While
//! events are recorded, all other writes together get a third of the time.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sqlx::Transaction;
use sqlx::sqlite::{Sqlite, SqliteConnection};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use super::limit::{Limited, StatementLimit};

/// Recording has priority for this multiple of the time that the last other writer used.
const RECORDING: u32 = 2;

/// How long other writers wait at most for recording.
const AT_MOST: Duration = Duration::from_millis(200);

pub(super) struct Turns {
    recording: AtomicUsize,
    idle: Notify,
    /// When the next other writer may write even while events are recorded. The writer whose turn it is holds this lock.
    others: Arc<Mutex<Instant>>,
}

/// Events are being recorded, or are about to be, until this is dropped.
pub(super) struct Recording<'a>(&'a Turns);

/// The turn of a writer that does not record.
#[derive(Debug)]
pub(crate) struct OtherTurn {
    next: OwnedMutexGuard<Instant>,
    began: Instant,
}

/// A transaction in a turn. Both end together.
#[derive(Debug)]
pub(crate) struct Writing {
    transaction: Transaction<'static, Sqlite>,
    _alone: OwnedMutexGuard<()>,
    _turn: OtherTurn,
    limit: StatementLimit,
}

impl Turns {
    pub(super) fn new() -> Self {
        let others = Arc::new(Mutex::new(Instant::now()));
        Self { recording: AtomicUsize::new(0), idle: Notify::new(), others }
    }

    pub(super) fn record(&self) -> Recording<'_> {
        self.recording.fetch_add(1, Relaxed);
        Recording(self)
    }

    /// Waits until a writer that does not record may write.
    pub(super) async fn other(&self) -> OtherTurn {
        let next = Arc::clone(&self.others).lock_owned().await;
        tokio::select! {
            biased;
            () = self.until_idle() => {}
            () = sleep_until(*next) => {}
        }
        OtherTurn { next, began: Instant::now() }
    }

    async fn until_idle(&self) {
        loop {
            let ended = self.idle.notified();
            if self.recording.load(Relaxed) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if self.0.recording.fetch_sub(1, Relaxed) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Drop for OtherTurn {
    fn drop(&mut self) {
        *self.next = Instant::now() + (self.began.elapsed() * RECORDING).min(AT_MOST);
    }
}

impl Writing {
    /// The time that the transaction waited for the writer was not its own.
    pub(super) fn new(
        transaction: Transaction<'static, Sqlite>,
        alone: OwnedMutexGuard<()>,
        mut turn: OtherTurn,
        limit: StatementLimit,
    ) -> Self {
        turn.began = Instant::now();
        limit.clear();
        Self { transaction, _alone: alone, _turn: turn, limit }
    }

    /// The connection for one statement of a handler, which has a limit until it has come to its end.
    pub(crate) fn for_handler(&mut self) -> (&mut SqliteConnection, Limited<'_>) {
        (&mut self.transaction, self.limit.begin())
    }

    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        self.transaction.commit().await
    }
}

impl Deref for Writing {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::time::advance;

    use super::*;

    fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[tokio::test(start_paused = true)]
    async fn others_write_at_once_if_nothing_is_recorded() {
        let turns = Turns::new();
        for _ in 0..3 {
            let turn = turns.other().await;
            advance(Duration::from_millis(50)).await;
            drop(turn);
            assert!(is_ready(&mut Box::pin(turns.other())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_record_go_first_for_twice_as_long_as_another_wrote() {
        let turns = Turns::new();
        let turn = turns.other().await;
        let recording = turns.record();
        advance(Duration::from_millis(10)).await;
        drop(turn);
        let mut next = Box::pin(turns.other());
        assert!(!is_ready(&mut next));
        advance(Duration::from_millis(19)).await;
        assert!(!is_ready(&mut next));
        advance(Duration::from_millis(2)).await;
        assert!(is_ready(&mut next), "events are still recorded, but the others have waited long enough");
        drop(recording);
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_go_on_as_soon_as_recording_ends() {
        let turns = Turns::new();
        let turn = turns.other().await;
        let [first, second] = [turns.record(), turns.record()];
        advance(Duration::from_millis(50)).await;
        drop(turn);
        let mut next = Box::pin(turns.other());
        assert!(!is_ready(&mut next));
        drop(first);
        assert!(!is_ready(&mut next));
        drop(second);
        assert!(is_ready(&mut next));
    }

    #[tokio::test(start_paused = true)]
    async fn one_long_turn_does_not_keep_the_others_away_for_long() {
        let turns = Turns::new();
        let turn = turns.other().await;
        let _recording = turns.record();
        advance(Duration::from_secs(5)).await;
        drop(turn);
        let mut next = Box::pin(turns.other());
        assert!(!is_ready(&mut next));
        advance(AT_MOST + Duration::from_millis(1)).await;
        assert!(is_ready(&mut next));
    }
}
