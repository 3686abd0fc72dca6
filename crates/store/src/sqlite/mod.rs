//! The embedded store: one file, WAL, `synchronous=FULL`, one writer.

mod act;
mod blocking;
mod checkpoints;
mod classify;
pub(crate) mod effects;
mod event_row;
mod events;
mod find;
mod large_body;
mod limit;
mod lock;
mod moment;
mod open;
mod operate;
mod record;
mod rows;
mod spool;
#[cfg(test)]
mod steps;
mod sweep;
#[cfg(test)]
mod tests;
mod turns;
mod values;
mod work;
mod writes;

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use blocking::waiting_for_the_disk;
use classify::{DriverError, classify};
use limit::StatementLimit;
use record::Writer;
pub use spool::Spool;
use turns::{Turns, Writing};

use self::open::WRITER_TIMEOUT;
use crate::shared_sql::SOURCES;
use crate::{
    AskError, Attempt, Audit, Backlog, BegunEffect, ByHandler, Check, Claim, Claimed, Cursor, DueJob, DueJobs, Effect,
    EffectError, EffectKey, EffectWrite, EventSummary, Filter, Found, JobId, JobSummary, LostRun, Measure, Moment,
    Operate, Record, Recorded, Renewed, Routed, Settled, Settlement, Step, Store, StoreError, StoredEvent, Sweep,
    Swept, Token, Which, Work, Written,
};

/// For this long, what was recorded proves that more can be.
const PROVES_FOR: Duration = Duration::from_secs(1);

/// How long the check whether the store can be written waits for other writers.
const CHECK_WITHIN: Duration = Duration::from_millis(700);

/// How long closing tries to empty the WAL.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct SqliteStore {
    /// The connection on which events are recorded, until the store is closed.
    recorder: Mutex<Option<Writer>>,
    /// When something was recorded last.
    recorded: Mutex<Option<Instant>>,
    /// The one connection on which everything else is written.
    writer: SqlitePool,
    /// A task holds this lock while it writes on either connection: SQLite would make the other one try again and again.
    alone: Arc<tokio::sync::Mutex<()>>,
    /// Decides who writes next.
    turns: Turns,
    /// How long handlers' statements may take on the writer.
    limit: StatementLimit,
    readers: SqlitePool,
    checkpoints: JoinHandle<()>,
    /// The first I/O error. After a failed fsync the next commit may *seem* to work, so from then on nothing is promised.
    broken: Arc<SetOnce<String>>,
    dispatch_grace: Duration,
    /// Held by the gateway of this file.
    lock: Option<File>,
    /// For flushing it. It must be closed last: with it, the process gives up all its locks on the database, those of the
    /// connections included, and another process could take the WAL for its own.
    _file: Arc<File>,
}

/// How long a part of an operator's act waits for its turn, and how long between two tries.
const ACT_PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

#[async_trait]
impl Record for SqliteStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        let bodies = self.write_large_bodies(events).await?;
        let recorded = self.record_with(|recorder| recorder.record(events, &bodies, self.dispatch_grace)).await?;
        self.clear_bodies(events, &recorded, &bodies).await;
        Ok(recorded)
    }

    async fn first_of(&self, source: &str, dedupe_key: &str) -> Result<Option<EventId>, StoreError> {
        let of_key = "SELECT event_id FROM dedupe_keys WHERE source = ? AND dedupe_key = ?";
        let first = sqlx::query_scalar(of_key).bind(source).bind(dedupe_key).fetch_optional(&self.readers).await;
        Ok(first.map_err(|error| self.classify(&error))?.map(EventId))
    }
}

#[async_trait]
impl Check for SqliteStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.refuse_if_broken()?;
        let read = sqlx::query("SELECT 1 FROM jobs LIMIT 1").execute(&self.readers).await;
        read.map_err(|error| self.classify(&error))?;
        self.check_writing().await
    }
}

#[async_trait]
impl Measure for SqliteStore {
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        sweep::backlog(&self.readers).await.map_err(|error| self.classify(&error))
    }
}

#[async_trait]
impl Work for SqliteStore {
    async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<Claimed>, StoreError> {
        self.write(async |writer| work::claim(writer, claim).await).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.write(async |writer| work::settle(writer, settlements).await).await
    }

    async fn body(&self, event: EventId, _: usize) -> Result<Option<Bytes>, StoreError> {
        large_body::body(&self.readers, event).await.map_err(|error| self.classify(&error))
    }

    async fn renew(&self, jobs: &[(JobId, Token)], lease: Duration) -> Result<Renewed, StoreError> {
        self.write(async |writer| work::renew(writer, jobs, lease).await).await
    }

    async fn hand_back(&self, jobs: &[(JobId, Token)]) -> Result<(), StoreError> {
        self.write(async |writer| work::hand_back(writer, jobs).await).await
    }

    async fn pardon(&self, runs: &[LostRun]) -> Result<(), StoreError> {
        self.write(async |writer| work::pardon(writer, runs).await).await
    }

    async fn sweep(&self, sweep: &Sweep<'_>) -> Result<Swept, StoreError> {
        let due = sweep::with_due_jobs(&self.readers, sweep).await.map_err(|error| self.classify(&error))?;
        if due.is_empty() {
            return Ok(Swept::default());
        }
        let asked_at = Instant::now();
        let mut writing = self.begin().await?;
        let came_late = sweep.judge_leases_within.is_some_and(|within| asked_at.elapsed() > within);
        let judge_leases_within = sweep.judge_leases_within.filter(|_| !came_late);
        let sweep = Sweep { judge_leases_within, ..sweep.clone() };
        let swept = sweep::sweep(&mut writing, &due, &sweep).await.map_err(|error| self.classify(&error))?;
        commit(writing, &self.broken).await?;
        Ok(Swept { came_late, ..swept })
    }

    async fn due_jobs(&self, due: &DueJobs<'_>) -> Result<Vec<DueJob>, StoreError> {
        sweep::due_jobs(&self.readers, due).await.map_err(|error| self.classify(&error))
    }

    async fn begin_effect(&self, effect: &EffectKey<'_>) -> Result<BegunEffect, EffectError> {
        effects::begin(self.begin().await?, &self.broken, effect).await
    }

    async fn finish_effect(&self, effect: &EffectKey<'_>, result: Option<&str>) -> Result<(), EffectError> {
        let is_held = self.write(async |writer| effects::finish(writer, effect, result).await).await?;
        if is_held { Ok(()) } else { Err(EffectError::LostLease) }
    }

    async fn write_effects(&self, writes: &[EffectWrite]) -> Result<Vec<Written>, StoreError> {
        writes::write(self.begin().await?, &self.broken, writes).await
    }

    async fn prepare(&self, statements: &'static str) -> Result<(), StoreError> {
        self.write(async |writer| sqlx::raw_sql(statements).execute(writer).await.map(|_| ())).await
    }
}

#[async_trait]
impl Operate for SqliteStore {
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, AskError> {
        Ok(events::latest(&self.readers, limit).await.map_err(|error| self.classify(&error))?)
    }

    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        events::event(&self.readers, id).await.map_err(|error| self.classify(&error))
    }

    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError> {
        events::jobs_of(&self.readers, id).await.map_err(|error| self.classify(&error))
    }

    async fn find(
        &self,
        which: Which,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Found>, AskError> {
        Ok(find::find(&self.readers, which, filter, after, limit).await.map_err(|error| self.classify(&error))?)
    }

    async fn count_within(&self, which: Which, filter: &Filter, within: Duration) -> Result<Option<u64>, AskError> {
        Ok(find::count(&self.readers, which, filter, within).await.map_err(|error| self.classify(&error))?)
    }

    async fn find_newest(&self, which: Which, filter: &Filter, limit: u32) -> Result<Vec<Found>, AskError> {
        Ok(find::find_newest(&self.readers, which, filter, limit).await.map_err(|error| self.classify(&error))?)
    }

    async fn sources(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(SOURCES).fetch_all(&self.readers).await.map_err(|error| self.classify(&error))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        operate::moment(&self.readers).await.map_err(|error| self.classify(&error))
    }

    async fn attempts(&self, event: EventId) -> Result<ByHandler<Attempt>, StoreError> {
        operate::attempts(&self.readers, event).await.map_err(|error| self.classify(&error))
    }

    async fn effects(&self, event: EventId) -> Result<ByHandler<Effect>, StoreError> {
        operate::effects(&self.readers, event).await.map_err(|error| self.classify(&error))
    }

    async fn begin_act(&self, audit: &Audit) -> Result<(), StoreError> {
        self.write(async |writer| operate::begin_act(writer, audit).await).await
    }

    async fn act(&self, step: &Step<'_>) -> Result<u64, StoreError> {
        let mut writing = self.begin_patiently().await?;
        let changed = act::act(&mut writing, step).await.map_err(|error| self.classify(&error))?;
        // Not noted, not done.
        let changed = changed.ok_or_else(|| StoreError::Rejected(format!("there is no act {}", step.audit)))?;
        commit(writing, &self.broken).await?;
        Ok(changed)
    }

    async fn audit(&self, id: Uuid) -> Result<Option<Audit>, StoreError> {
        operate::audit(&self.readers, id).await.map_err(|error| self.classify(&error))
    }

    async fn latest_audits(&self, limit: u32) -> Result<Vec<Audit>, StoreError> {
        operate::latest_audits(&self.readers, limit).await.map_err(|error| self.classify(&error))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn broken(&self) -> String {
        self.broken.wait().await.clone()
    }

    async fn close(&self) {
        // Waits for the write under way. Later writes find the store closed.
        let alone = self.alone.lock().await;
        let is_whole = self.broken.set("the store is closed".into()).is_ok();
        self.checkpoints.abort();
        if self.lock.is_some() && is_whole {
            self.empty_the_wal();
        }
        drop(self.recorder().take());
        drop(alone);
        self.writer.close().await;
        self.readers.close().await;
    }
}

impl SqliteStore {
    /// One transaction around a verb. It is undone if the verb fails, or if the caller stops waiting.
    async fn write<T>(
        &self,
        verb: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut writing = self.begin().await?;
        let done = verb(&mut writing).await.map_err(|error| self.classify(&error))?;
        commit(writing, &self.broken).await?;
        Ok(done)
    }

    /// Runs a verb on the connection that records. Recording goes before other writes.
    async fn record_with<T>(&self, verb: impl FnOnce(&mut Writer) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let _recording = self.turns.record();
        self.with_recorder(verb).await
    }

    /// Runs a verb on the connection that records, in turn with other writes and not before them.
    async fn with_recorder<T>(&self, verb: impl FnOnce(&mut Writer) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let _alone = timeout(WRITER_TIMEOUT, self.alone.lock()).await.map_err(too_long)?;
        self.refuse_if_broken()?;
        let mut recorder = self.recorder();
        let recorder = recorder.as_mut().ok_or_else(|| StoreError::Unavailable("the store is closed".into()))?;
        let done = waiting_for_the_disk(|| verb(recorder)).map_err(|error| self.classify(&error))?;
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(done)
    }

    /// Fails if nothing can be written, as while another process holds the write lock. What was recorded a moment ago is proof
    /// enough, so this takes no time from recording.
    async fn check_writing(&self) -> Result<(), StoreError> {
        let recorded = *self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.is_some_and(|recorded| recorded.elapsed() < PROVES_FOR) {
            return Ok(());
        }
        let _alone = timeout(CHECK_WITHIN, self.alone.lock()).await.map_err(too_long)?;
        self.refuse_if_broken()?;
        let recorder = self.recorder();
        let recorder = recorder.as_ref().ok_or_else(|| StoreError::Unavailable("the store is closed".into()))?;
        waiting_for_the_disk(|| recorder.try_out(CHECK_WITHIN)).map_err(|error| self.classify(&error))
    }

    /// Moves everything from the WAL into the database file, so that the file alone is complete. Nothing writes any more, and
    /// what still reads or moves pages soon ends.
    fn empty_the_wal(&self) {
        let recorder = self.recorder();
        let Some(recorder) = recorder.as_ref() else { return };
        let until = Instant::now() + EMPTY_WITHIN;
        let emptied = waiting_for_the_disk(|| {
            loop {
                match recorder.empty_the_wal() {
                    Ok(false) if Instant::now() < until => std::thread::sleep(EMPTY_WITHIN / 100),
                    ended => return ended,
                }
            }
        });
        let problem = match emptied {
            Ok(true) => return,
            Ok(false) => "another process is reading it".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            problem,
            "the newest events are in the file `-wal` beside the database, and not in the database file alone: copy both"
        );
    }

    fn recorder(&self) -> MutexGuard<'_, Option<Writer>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operator's command is another process than the gateway, and SQLite lets them wait for each other without an order. A
    /// command can wait for longer than a webhook.
    async fn begin_patiently(&self) -> Result<Writing, StoreError> {
        let until = Instant::now() + ACT_PATIENCE;
        loop {
            match self.begin().await {
                Err(StoreError::Unavailable(_)) if Instant::now() < until => sleep(BETWEEN_TRIES).await,
                begun => return begun,
            }
        }
    }

    /// Begins to write, as soon as it is our turn.
    async fn begin(&self) -> Result<Writing, StoreError> {
        let turn = timeout(WRITER_TIMEOUT, self.turns.other()).await.map_err(too_long)?;
        let alone = timeout(WRITER_TIMEOUT, Arc::clone(&self.alone).lock_owned()).await.map_err(too_long)?;
        // IMMEDIATE, because a transaction that begins with reading cannot wait for another process that writes.
        let transaction = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(|error| self.classify(&error))?;
        self.refuse_if_broken()?;
        Ok(Writing::new(transaction, alone, turn, self.limit.clone()))
    }

    fn refuse_if_broken(&self) -> Result<(), StoreError> {
        match self.broken.get() {
            Some(problem) => Err(StoreError::Broken(problem.clone())),
            None => Ok(()),
        }
    }

    fn classify(&self, error: &impl DriverError) -> StoreError {
        classify(error, &self.broken)
    }
}

fn too_long(_: Elapsed) -> StoreError {
    StoreError::Unavailable("others have been writing for too long".into())
}

/// Commits, to the end also if the caller does not wait for it: an I/O error must be noted in any case.
async fn commit(writing: Writing, broken: &Arc<SetOnce<String>>) -> Result<(), StoreError> {
    let noted = Arc::clone(broken);
    let end = tokio::spawn(async move { writing.commit().await.map_err(|error| classify(&error, &noted)) });
    end.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
}
