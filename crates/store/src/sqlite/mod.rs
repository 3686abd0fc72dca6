//! The embedded store: one file, WAL, `synchronous=FULL`, one writer.

mod act;
pub(crate) mod effects;
mod events;
mod find;
mod moment;
mod open;
mod operate;
mod record;
mod rows;
mod spool;
mod sweep;
pub(crate) mod turns;
mod work;
mod writes;

use std::fmt::Display;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use uuid::Uuid;

use record::Recorder;
pub use spool::Spool;
use turns::{Turns, Writing};

use self::open::WRITER_TIMEOUT;
use crate::faults::{Protection, is_off};
use crate::{
    Attempt, Audit, Backlog, BegunEffect, Claim, Claimed, Cursor, DueJob, DueJobs, Effect, EffectError, EffectKey,
    EffectWrite, EventSummary, Filter, Found, JobId, JobSummary, LostRun, Operate, Record, Recorded, Renewed, Routed,
    Settled, Settlement, Step, Store, StoreError, StoredEvent, Sweep, Swept, Token, Which, Work, Written,
};

pub(crate) struct SqliteStore {
    /// The connection on which events are recorded, until the store is closed.
    recorder: Mutex<Option<Recorder>>,
    /// The one connection on which everything else is written.
    writer: SqlitePool,
    /// Whoever writes on one of the two holds this: SQLite would make the other one wait, too, but only by trying again.
    alone: Arc<tokio::sync::Mutex<()>>,
    /// Who has it next.
    turns: Turns,
    readers: SqlitePool,
    checkpoints: JoinHandle<()>,
    /// The first I/O error. After a failed fsync the next commit may *seem* to work, so from then on nothing is promised.
    broken: Arc<OnceLock<String>>,
    dispatch_grace: Duration,
    /// For flushing it. It must be closed last: with it, the process gives up all its locks on the database, those of the
    /// connections included, and another process could take the WAL for its own.
    _file: Arc<File>,
}

#[async_trait]
impl Record for SqliteStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        self.record_with(|recorder| recorder.record(events, self.dispatch_grace)).await
    }

    fn parallel_records(&self) -> usize {
        1
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.refuse_if_broken()?;
        sqlx::query("SELECT 1 FROM jobs LIMIT 1").execute(&self.readers).await.map_err(|error| self.judge(&error))?;
        Ok(())
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
        work::body(&self.readers, event).await.map_err(|error| self.judge(&error))
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
        let due = sweep::with_due_jobs(&self.readers, sweep).await.map_err(|error| self.judge(&error))?;
        if due.is_empty() {
            return Ok(Swept::default());
        }
        self.write(async |writer| sweep::sweep(writer, &due, sweep).await).await
    }

    async fn due_jobs(&self, due: &DueJobs<'_>) -> Result<Vec<DueJob>, StoreError> {
        sweep::due_jobs(&self.readers, due).await.map_err(|error| self.judge(&error))
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        sweep::backlog(&self.readers).await.map_err(|error| self.judge(&error))
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
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, StoreError> {
        events::latest(&self.readers, limit).await.map_err(|error| self.judge(&error))
    }

    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        events::event(&self.readers, id).await.map_err(|error| self.judge(&error))
    }

    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError> {
        events::jobs_of(&self.readers, id).await.map_err(|error| self.judge(&error))
    }

    async fn find(
        &self,
        which: Which,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Found>, StoreError> {
        find::find(&self.readers, which, filter, after, limit).await.map_err(|error| self.judge(&error))
    }

    async fn count(&self, which: Which, filter: &Filter) -> Result<u64, StoreError> {
        find::count(&self.readers, which, filter).await.map_err(|error| self.judge(&error))
    }

    async fn attempts(&self, job: &JobId) -> Result<Vec<Attempt>, StoreError> {
        operate::attempts(&self.readers, job).await.map_err(|error| self.judge(&error))
    }

    async fn effects(&self, job: &JobId) -> Result<Vec<Effect>, StoreError> {
        operate::effects(&self.readers, job).await.map_err(|error| self.judge(&error))
    }

    async fn begin_act(&self, audit: &Audit) -> Result<(), StoreError> {
        self.write(async |writer| operate::begin_act(writer, audit).await).await
    }

    async fn act(&self, step: &Step<'_>) -> Result<u64, StoreError> {
        let mut writing = self.begin().await?;
        let changed = act::act(&mut writing, step).await.map_err(|error| self.judge(&error))?;
        // Not noted, not done.
        let changed = changed.ok_or_else(|| StoreError::Rejected(format!("there is no act {}", step.audit)))?;
        commit(writing, &self.broken).await?;
        Ok(changed)
    }

    async fn audit(&self, id: Uuid) -> Result<Option<Audit>, StoreError> {
        operate::audit(&self.readers, id).await.map_err(|error| self.judge(&error))
    }

    async fn latest_audits(&self, limit: u32) -> Result<Vec<Audit>, StoreError> {
        operate::latest_audits(&self.readers, limit).await.map_err(|error| self.judge(&error))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn close(&self) {
        // Waits for what is under way; whoever comes later finds the store closed.
        let alone = self.alone.lock().await;
        let _ = self.broken.set("the store is closed".into());
        drop(self.recorder().take());
        drop(alone);
        self.writer.close().await;
        self.checkpoints.abort();
        self.readers.close().await;
    }
}

impl SqliteStore {
    /// One transaction around a verb: it is undone if the verb fails, or if nobody waits for it any more.
    async fn write<T>(
        &self,
        verb: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut writing = self.begin().await?;
        let done = verb(&mut writing).await.map_err(|error| self.judge(&error))?;
        commit(writing, &self.broken).await?;
        Ok(done)
    }

    /// Runs a verb on the connection that records. Those who record go first.
    async fn record_with<T>(&self, verb: impl FnOnce(&mut Recorder) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let _recording = self.turns.record();
        let _alone = timeout(WRITER_TIMEOUT, self.alone.lock()).await.map_err(too_long)?;
        self.refuse_if_broken()?;
        let mut recorder = self.recorder();
        let recorder = recorder.as_mut().ok_or_else(|| StoreError::Unavailable("the store is closed".into()))?;
        waiting_for_the_disk(|| verb(recorder)).map_err(|error| self.judge(&error))
    }

    fn recorder(&self) -> MutexGuard<'_, Option<Recorder>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write, as soon as it is our turn.
    async fn begin(&self) -> Result<Writing, StoreError> {
        let turn = timeout(WRITER_TIMEOUT, self.turns.other()).await.map_err(too_long)?;
        let alone = timeout(WRITER_TIMEOUT, Arc::clone(&self.alone).lock_owned()).await.map_err(too_long)?;
        // IMMEDIATE, because a transaction that begins with reading cannot wait for another process that writes.
        let transaction = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(|error| self.judge(&error))?;
        self.refuse_if_broken()?;
        Ok(Writing::new(transaction, alone, turn))
    }

    fn refuse_if_broken(&self) -> Result<(), StoreError> {
        match self.broken.get() {
            Some(problem) => Err(StoreError::Broken(problem.clone())),
            None => Ok(()),
        }
    }

    fn judge(&self, error: &impl DriverError) -> StoreError {
        judge(error, &self.broken)
    }
}

fn too_long(_: Elapsed) -> StoreError {
    StoreError::Unavailable("others have been writing for too long".into())
}

/// Commits, to the end also if the caller does not wait for it: an I/O error must be noted in any case.
async fn commit(writing: Writing, broken: &Arc<OnceLock<String>>) -> Result<(), StoreError> {
    let noted = Arc::clone(broken);
    let end = tokio::spawn(async move { writing.commit().await.map_err(|error| judge(&error, &noted)) });
    end.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
}

/// Lets the other tasks of this thread go on elsewhere meanwhile. A runtime of one thread has no elsewhere.
fn waiting_for_the_disk<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}

/// An error of one of the two drivers.
trait DriverError: Display {
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

/// What the caller can do about an error; whatever ends all promises is noted.
fn judge(error: &impl DriverError, broken: &OnceLock<String>) -> StoreError {
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
        // Mostly FULL, BUSY, LOCKED, NOMEM, which pass.
        Some(_) => StoreError::Unavailable(problem),
        None if error.is_crash() => {
            let _ = broken.set(problem.clone());
            StoreError::Broken(problem)
        }
        None => StoreError::Unavailable(problem),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Row;

    use super::{SqliteStore, act, sweep, work};
    use crate::Migrate;

    /// SQLite's plans for the statements of a text.
    async fn plans(store: &SqliteStore, text: &'static str) -> Vec<String> {
        let mut lines = Vec::new();
        for statement in text.split(';') {
            let explain = &*format!("EXPLAIN QUERY PLAN {statement}").leak();
            let rows = sqlx::query(explain).fetch_all(&store.readers).await.expect("the statement is right");
            lines.extend(rows.iter().map(|row| row.get::<String, _>("detail")));
        }
        lines
    }

    /// A statement that goes through a whole table is right, and ever slower.
    #[tokio::test]
    async fn no_verb_goes_through_a_whole_table() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("test.db");
        let store = SqliteStore::open(&path, std::time::Duration::ZERO, Migrate::Run).await.expect("opens");
        let many = [
            &work::INSERT_ATTEMPTS,
            &work::SETTLE_JOBS,
            &work::BEHIND,
            &work::RENEW,
            &work::HAND_BACK,
            &work::PARDON_ATTEMPTS,
            &work::PARDON_JOBS,
            &act::REPLAY,
            &act::FORGET_EFFECTS,
            &act::RESOLVE,
            &act::NEXT_IN_LINE,
        ];
        let mut texts = vec![work::CLAIM, work::CLAIM_IN_ORDER, sweep::SWEEP, sweep::IS_ANY_DUE, sweep::DUE_JOBS];
        texts.extend(many.iter().flat_map(|statement| [1, 256].map(|rows| statement.of_size(rows).0)));
        for text in texts {
            for line in plans(&store, text).await {
                let table = line.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let whole =
                    ["jobs", "held", "earlier", "dead", "behind", "events", "effects", "attempts"].contains(&table);
                assert!(!whole, "{line} in {text}");
            }
        }
    }
}
