//! The shared store: any number of gateways and workers on one Postgres.

mod act;
mod connections;
mod drain;
pub(crate) mod effects;
mod event_row;
mod events;
mod find;
mod keys;
mod large_body;
mod open;
mod operate;
mod record;
mod resends;
mod sweep;
mod values;
mod work;
mod writes;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hookfast_webhook::EventId;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool};
use tokio::sync::Mutex;
use tokio::time::timeout;
use uuid::Uuid;

pub(crate) use connections::OpenTransaction;
pub(crate) use open::name;

use connections::Connections;

use crate::error::is_too_slow;
use crate::lent::Lent;
use crate::shared_sql::SOURCES;
use crate::{
    AskError, Attempt, Audit, Backlog, BegunEffect, Behind, ByHandler, Check, Claim, Claimed, Cursor, DueJob, DueJobs,
    Effect, EffectError, EffectKey, EffectWrite, EventSummary, Filter, Found, JobId, JobSummary, LostRun, Measure,
    Moment, NotTaken, Operate, QUESTION_MAX, Record, Recorded, Renewed, Routed, Settled, Settlement, Spooled, Step,
    Store, StoreError, StoredEvent, Sweep, Swept, Token, Which, Work, Written,
};

/// How long a batch may take before its connection is given up. It is far beyond the deadline of any answer: it only
/// frees the committer from a server that does not answer any more.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// All parts of large bodies have the time of a batch, and longer at this rate.
const LEAST_BYTES_WRITTEN_PER_SECOND: usize = 1 << 20;

/// How long counting jobs may take.
const COUNT_TIMEOUT: Duration = Duration::from_secs(30);

/// A body up to this size is fetched past those that take long.
const SHORT_BODY_BYTES: usize = 1 << 20;

/// A link on which a body comes slower than this is as good as none.
const LEAST_BYTES_PER_SECOND: usize = 256 * 1024;

pub(crate) struct PostgresStore {
    /// For recording and for operators.
    pool: PgPool,
    /// For claims and sweepers.
    workers: PgPool,
    /// For renewals and outcomes: a slow claim must not keep a lease from being renewed.
    leases: PgPool,
    /// For bodies that are neither short enough to come with the claim nor long: they must not wait for long ones.
    short_bodies: PgPool,
    /// For what may take long: large bodies and counting. Without a time limit on the server.
    bodies: PgPool,
    /// For the transactions of effects.
    effects: Arc<Connections>,
    parallel_batches: usize,
    dispatch_grace: Duration,
    /// Whether the last batch had new events only.
    only_new: AtomicBool,
    /// Held while bodies that belong to no event are cleared.
    clearing: Arc<Mutex<()>>,
}

#[async_trait]
impl Record for PostgresStore {
    async fn record(&self, events: &[Routed]) -> Result<Vec<Recorded>, StoreError> {
        let bodies = self.write_large_bodies(events).await?;
        let recorded =
            on(&self.pool, async |connection| record::record(self, connection, events, &bodies).await).await?;
        self.clear_bodies_beside(events, &recorded, &bodies);
        Ok(recorded)
    }

    async fn first_of(&self, source: &str, dedupe_key: &str) -> Result<Option<EventId>, StoreError> {
        let of_key = "SELECT event_id FROM dedupe_keys WHERE source = $1 AND dedupe_key = $2";
        let first = sqlx::query_scalar(of_key).bind(source).bind(dedupe_key).fetch_optional(&self.pool).await;
        Ok(first.map_err(|error| classify(&error))?.map(EventId))
    }

    fn parallel_records(&self) -> usize {
        self.parallel_batches
    }
}

#[async_trait]
impl Check for PostgresStore {
    async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM jobs LIMIT 1").execute(&self.pool).await.map_err(|error| classify(&error))?;
        Ok(())
    }
}

#[async_trait]
impl Measure for PostgresStore {
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        within(COUNT_TIMEOUT, &self.bodies, async |connection| sweep::backlog(connection).await).await
    }
}

#[async_trait]
impl Behind for PostgresStore {
    async fn record_spooled(&self, events: &[Spooled], within: Duration) -> Result<Vec<Recorded>, NotTaken> {
        let mut lent = Lent::new(self.pool.acquire().await.map_err(|error| classify(&error))?);
        let record = drain::record(lent.connection(), events, self.dispatch_grace, within);
        let recorded = timeout(within, record).await.map_err(|_| drain::too_slow(within))?;
        lent.give_back();
        recorded.map_err(|error| drain::not_taken(&error))
    }

    async fn takes_events(&self) -> Result<(), StoreError> {
        on(&self.pool, async |connection| drain::try_out(connection, self.dispatch_grace).await).await
    }

    async fn reach(&self) -> Result<(), StoreError> {
        self.check().await
    }
}

#[async_trait]
impl Work for PostgresStore {
    async fn claim(&self, claim: &Claim<'_>) -> Result<Vec<Claimed>, StoreError> {
        on(&self.workers, async |connection| work::claim(connection, claim).await).await
    }

    async fn body(&self, event: EventId, size_bytes: usize) -> Result<Option<Bytes>, StoreError> {
        if size_bytes <= SHORT_BODY_BYTES
            && let Ok(body) = on(&self.short_bodies, async |connection| large_body::body(connection, event).await).await
        {
            return Ok(body);
        }
        let patience = BATCH_TIMEOUT + Duration::from_secs((size_bytes / LEAST_BYTES_PER_SECOND) as u64);
        within(patience, &self.bodies, async |connection| large_body::body(connection, event).await).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        on(&self.leases, async |connection| work::settle(connection, settlements).await).await
    }

    async fn renew(&self, jobs: &[(JobId, Token)], lease: Duration) -> Result<Renewed, StoreError> {
        on(&self.leases, async |connection| work::renew(connection, jobs, lease).await).await
    }

    async fn hand_back(&self, jobs: &[(JobId, Token)]) -> Result<(), StoreError> {
        on(&self.leases, async |connection| work::hand_back(connection, jobs).await).await
    }

    async fn pardon(&self, runs: &[LostRun]) -> Result<(), StoreError> {
        on(&self.leases, async |connection| work::pardon(connection, runs).await).await
    }

    async fn sweep(&self, sweep: &Sweep<'_>) -> Result<Swept, StoreError> {
        on(&self.workers, async |connection| sweep::sweep(connection, sweep).await).await
    }

    async fn due_jobs(&self, due: &DueJobs<'_>) -> Result<Vec<DueJob>, StoreError> {
        on(&self.workers, async |connection| sweep::due_jobs(connection, due).await).await
    }

    async fn begin_effect(&self, effect: &EffectKey<'_>) -> Result<BegunEffect, EffectError> {
        effects::begin(&self.effects, effect).await
    }

    async fn finish_effect(&self, effect: &EffectKey<'_>, result: Option<&str>) -> Result<(), EffectError> {
        let is_held = on(&self.workers, async |connection| effects::finish(connection, effect, result).await).await?;
        if is_held { Ok(()) } else { Err(EffectError::LostLease) }
    }

    async fn write_effects(&self, writes: &[EffectWrite]) -> Result<Vec<Written>, StoreError> {
        writes::write(&self.effects, writes).await
    }

    async fn prepare(&self, statements: &'static str) -> Result<(), StoreError> {
        effects::prepare(&self.workers, statements).await
    }
}

#[async_trait]
impl Operate for PostgresStore {
    async fn latest_events(&self, limit: u32) -> Result<Vec<EventSummary>, AskError> {
        ask(&self.pool, QUESTION_MAX, async |connection| events::latest(connection, limit).await).await
    }

    async fn event(&self, id: EventId) -> Result<Option<StoredEvent>, StoreError> {
        on(&self.pool, async |connection| events::event(connection, id).await).await
    }

    async fn jobs_of(&self, id: EventId) -> Result<Vec<JobSummary>, StoreError> {
        events::jobs_of(&self.pool, id).await.map_err(|error| classify(&error))
    }

    async fn find(
        &self,
        which: Which,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Found>, AskError> {
        ask(&self.pool, QUESTION_MAX, async |connection| find::find(connection, which, filter, after, limit).await)
            .await
    }

    async fn count_within(&self, which: Which, filter: &Filter, within: Duration) -> Result<Option<u64>, AskError> {
        match ask(&self.pool, within, async |connection| find::count(connection, which, filter).await).await {
            Err(AskError::TooBroad(_)) => Ok(None),
            counted => counted.map(Some),
        }
    }

    async fn find_newest(&self, which: Which, filter: &Filter, limit: u32) -> Result<Vec<Found>, AskError> {
        ask(&self.pool, QUESTION_MAX, async |connection| find::find_newest(connection, which, filter, limit).await)
            .await
    }

    async fn sources(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(SOURCES).fetch_all(&self.pool).await.map_err(|error| classify(&error))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        operate::moment(&self.pool).await.map_err(|error| classify(&error))
    }

    async fn attempts(&self, event: EventId) -> Result<ByHandler<Attempt>, StoreError> {
        operate::attempts(&self.pool, event).await.map_err(|error| classify(&error))
    }

    async fn effects(&self, event: EventId) -> Result<ByHandler<Effect>, StoreError> {
        operate::effects(&self.pool, event).await.map_err(|error| classify(&error))
    }

    async fn begin_act(&self, audit: &Audit) -> Result<(), StoreError> {
        operate::begin_act(&self.pool, audit).await.map_err(|error| classify(&error))
    }

    async fn act(&self, step: &Step<'_>) -> Result<u64, StoreError> {
        let changed = on(&self.pool, async |connection| act::act(connection, step).await).await?;
        changed.ok_or_else(|| StoreError::Rejected(format!("there is no act {} of an operator", step.audit)))
    }

    async fn audit(&self, id: Uuid) -> Result<Option<Audit>, StoreError> {
        operate::audit(&self.pool, id).await.map_err(|error| classify(&error))
    }

    async fn latest_audits(&self, limit: u32) -> Result<Vec<Audit>, StoreError> {
        operate::latest_audits(&self.pool, limit).await.map_err(|error| classify(&error))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn close(&self) {
        tokio::join!(
            self.pool.close(),
            self.workers.close(),
            self.leases.close(),
            self.short_bodies.close(),
            self.bodies.close(),
            self.effects.close()
        );
    }
}

/// Runs `verb` on a connection. Gives up the connection if that takes too long, or if the caller stops waiting.
async fn on<T>(
    pool: &PgPool,
    verb: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    within(BATCH_TIMEOUT, pool, verb).await
}

async fn within<T>(
    patience: Duration,
    pool: &PgPool,
    verb: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    let mut lent = Lent::new(pool.acquire().await.map_err(|error| classify(&error))?);
    let done = timeout(patience, verb(lent.connection())).await.map_err(|_| too_slow(patience))?;
    lent.give_back();
    done.map_err(|error| classify(&error))
}

/// Asks something for an operator, who may wait longer than a batch: the database has as long as `at_most`.
async fn ask<T>(
    pool: &PgPool,
    at_most: Duration,
    question: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
) -> Result<T, AskError> {
    let mut lent = Lent::new(pool.acquire().await.map_err(|error| classify(&error))?);
    let asked = async |connection: &mut PgConnection| {
        let mut transaction = connection.begin_with(find::BEGIN).await?;
        find::limit(&mut transaction, at_most).await?;
        let answer = question(&mut transaction).await?;
        transaction.commit().await?;
        Ok(answer)
    };
    // The database ends the statement by itself. This limit is for a server that does not answer any more.
    let answer = timeout(at_most + BATCH_TIMEOUT, asked(lent.connection())).await.map_err(|_| too_slow(at_most))?;
    lent.give_back();
    answer.map_err(|error: sqlx::Error| match is_too_slow(&error) {
        true => AskError::TooBroad(at_most),
        false => classify(&error).into(),
    })
}

fn too_slow(patience: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {} s", patience.as_secs()))
}

/// An error in words for people: without the line of the server's own source, which the driver adds.
fn say(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::PoolTimedOut => "no connection could be made, or was free, in time".to_owned(),
        other => other.to_string(),
    }
}

/// The first two characters of a code are its class.
fn classify(error: &sqlx::Error) -> StoreError {
    let problem = say(error);
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref().map(|code| &code[..2.min(code.len())]) {
        // Data exception, constraint violation, raised by a trigger, limit exceeded: it is about these rows.
        Some("22" | "23" | "P0" | "54") => StoreError::Rejected(problem),
        // Everything else is the server or the way to it. A server with an I/O error restarts itself and recovers.
        _ => StoreError::Unavailable(problem),
    }
}
