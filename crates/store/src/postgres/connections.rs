//! Connections for the transactions of effects. sqlx's pool asks each connection for a sign of life when it comes back, which
//! is a fifth round trip for every effect; these show what they are worth when they are used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::BATCH_TIMEOUT;
use super::writes::Prepared;

/// Connections that nobody uses, and places for those that somebody does.
#[derive(Debug)]
pub(crate) struct Connections {
    options: PgConnectOptions,
    idle: Mutex<Vec<Link>>,
    places: Arc<Semaphore>,
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
    place: Option<OwnedSemaphorePermit>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, connections: u32) -> Arc<Self> {
        let places = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(Self { options, idle: Mutex::default(), places: Arc::new(Semaphore::new(places)) })
    }

    pub(super) async fn begin(self: &Arc<Self>) -> Result<OpenTransaction, Error> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| Error::PoolClosed)?;
        let idle = self.idle().pop();
        let mut link = match idle {
            Some(link) => link,
            None => Link { connection: self.options.connect().await?, prepared: Prepared::default() },
        };
        sqlx::query("BEGIN").execute(&mut link.connection).await?;
        Ok(OpenTransaction { link: Some(link), home: Arc::clone(self), place: Some(place) })
    }

    /// Waits for those that are under way, and ends all.
    pub(super) async fn close(&self) {
        self.places.close();
        let idle = std::mem::take(&mut *self.idle());
        for link in idle {
            let _ = timeout(BATCH_TIMEOUT, link.connection.close()).await;
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
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(self.connection()).await?;
        let link = self.link.take().expect("it is there until the end");
        self.home.take_back(link);
        Ok(())
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        let (home, place) = (Arc::clone(&self.home), self.place.take());
        // Whatever is still on its way in it has an end to wait for. One that is gone without a word is given up.
        tokio::spawn(async move {
            let rolled_back = timeout(BATCH_TIMEOUT, sqlx::query("ROLLBACK").execute(&mut link.connection)).await;
            if matches!(rolled_back, Ok(Ok(_))) {
                home.take_back(link);
            }
            drop(place);
        });
    }
}
