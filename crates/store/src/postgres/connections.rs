//! Connections for the transactions of effects. sqlx's pool asks each connection for a sign of life when it comes back, which
//! is a fifth round trip for every effect; these show what they are worth when they are used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::BATCH_TIMEOUT;

/// Connections that nobody uses, and places for those that somebody does.
#[derive(Debug)]
pub(crate) struct Connections {
    options: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    places: Arc<Semaphore>,
}

/// An open transaction. Dropped, it is rolled back.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    /// None once it has ended.
    connection: Option<PgConnection>,
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
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        sqlx::query("BEGIN").execute(&mut connection).await?;
        Ok(OpenTransaction { connection: Some(connection), home: Arc::clone(self), place: Some(place) })
    }

    /// Waits for those that are under way, and ends all.
    pub(super) async fn close(&self) {
        self.places.close();
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            let _ = timeout(BATCH_TIMEOUT, connection.close()).await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, connection: PgConnection) {
        if !self.places.is_closed() {
            self.idle().push(connection);
        }
    }
}

impl OpenTransaction {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("it is there until the end")
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        sqlx::query("COMMIT").execute(self.connection()).await?;
        let connection = self.connection.take().expect("it is there until the end");
        self.home.take_back(connection);
        Ok(())
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let (home, place) = (Arc::clone(&self.home), self.place.take());
        // Whatever is still on its way in it has an end to wait for. One that is gone without a word is given up.
        tokio::spawn(async move {
            let rolled_back = timeout(BATCH_TIMEOUT, sqlx::query("ROLLBACK").execute(&mut connection)).await;
            if matches!(rolled_back, Ok(Ok(_))) {
                home.take_back(connection);
            }
            drop(place);
        });
    }
}
