//! Connections for the transactions of effects. sqlx's pool asks each connection for a sign of life when it comes back, which
//! is a fifth round trip for every effect; these show what they are worth when they are used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hookfast_webhook::HandlerName;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::BATCH_TIMEOUT;
use super::writes::{self, Prepared};

/// Idle connections, and places for those in use. A quarter of the places is kept for handlers that use none: one handler
/// with slow statements cannot take them all.
#[derive(Debug)]
pub(crate) struct Connections {
    options: PgConnectOptions,
    idle: Mutex<Vec<Link>>,
    places: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    /// How many places each handler has, or waits for.
    used: Mutex<HashMap<HandlerName, usize>>,
}

/// The reserve is this part of all places.
const RESERVED_PART: usize = 4;

/// A place for a connection in use.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    handler: HandlerName,
    home: Arc<Connections>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.home.release(&self.handler);
    }
}

/// A connection, and what was prepared on it.
#[derive(Debug)]
struct Link {
    connection: PgConnection,
    prepared: Prepared,
}

/// An open transaction. Dropped, it is rolled back.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    /// None once it has ended.
    link: Option<Link>,
    home: Arc<Connections>,
    place: Option<Place>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, connections: u32) -> Arc<Self> {
        let all = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS);
        let reserve = (all / RESERVED_PART).clamp(1, all);
        Arc::new(Self {
            options,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new((all - reserve).max(1))),
            reserve: Arc::new(Semaphore::new(reserve)),
            used: Mutex::default(),
        })
    }

    /// Waits for a place: for as long as the handler's other statements take, which is up to the handler.
    pub(super) async fn place(self: &Arc<Self>, handler: &HandlerName) -> Result<Place, Error> {
        let is_first = self.count(handler);
        let mut waiting = Waiting { home: self, handler: Some(handler) };
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => Ok(permit),
            Err(_) if is_first => tokio::select! {
                permit = Arc::clone(&self.reserve).acquire_owned() => permit,
                permit = Arc::clone(&self.places).acquire_owned() => permit,
            },
            Err(_) => Arc::clone(&self.places).acquire_owned().await,
        };
        let permit = permit.map_err(|_| Error::PoolClosed)?;
        waiting.handler = None;
        Ok(Place { _permit: permit, handler: handler.clone(), home: Arc::clone(self) })
    }

    /// Opens a transaction with a text that begins with BEGIN.
    pub(super) async fn begin(self: &Arc<Self>, place: Place, text: &'static str) -> Result<OpenTransaction, Error> {
        let idle = self.idle().pop();
        let mut link = match idle {
            Some(link) => link,
            None => Link { connection: self.options.connect().await?, prepared: Prepared::default() },
        };
        sqlx::raw_sql(text).execute(&mut link.connection).await?;
        Ok(OpenTransaction { link: Some(link), home: Arc::clone(self), place: Some(place) })
    }

    /// Waits for those that are under way, and ends all.
    pub(super) async fn close(&self) {
        self.places.close();
        self.reserve.close();
        let idle = std::mem::take(&mut *self.idle());
        for link in idle {
            let _ = timeout(BATCH_TIMEOUT, link.connection.close()).await;
        }
    }

    /// Counts a place of the handler, and says whether it is its only one.
    fn count(&self, handler: &HandlerName) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = used.entry(handler.clone()).or_default();
        *count += 1;
        *count == 1
    }

    fn release(&self, handler: &HandlerName) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = used.get_mut(handler) {
            *count = count.saturating_sub(1);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, link: Link) {
        if !self.places.is_closed() {
            self.idle().push(link);
        }
    }
}

/// Counts as a place until there is one; a wait that is given up counts no more.
struct Waiting<'a> {
    home: &'a Connections,
    handler: Option<&'a HandlerName>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(handler) = self.handler {
            self.home.release(handler);
        }
    }
}

impl OpenTransaction {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.with_prepared().0
    }

    pub(super) fn with_prepared(&mut self) -> (&mut PgConnection, &mut Prepared) {
        let Link { connection, prepared } = self.link.as_mut().expect("it is there until the end");
        (connection, prepared)
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        self.commit_after(String::new()).await
    }

    /// Runs further statements and commits, in one round trip. When one fails, the rest is not run.
    pub(super) async fn commit_after(mut self, mut statements: String) -> Result<(), Error> {
        statements.push_str("COMMIT");
        writes::run(self.connection(), statements).await?;
        let link = self.link.take().expect("it is there until the end");
        self.home.take_back(link);
        Ok(())
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        let (home, place) = (Arc::clone(&self.home), self.place.take());
        // Waits for the ROLLBACK, because an answer may still be under way. Drops the connection if it does not answer.
        tokio::spawn(async move {
            let rolled_back = timeout(BATCH_TIMEOUT, sqlx::query("ROLLBACK").execute(&mut link.connection)).await;
            if matches!(rolled_back, Ok(Ok(_))) {
                home.take_back(link);
            }
            drop(place);
        });
    }
}
