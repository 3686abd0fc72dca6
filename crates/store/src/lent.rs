//! Connections that are lent.

use sqlx::Database;
use sqlx::pool::PoolConnection;

/// A connection that goes back to its pool only when the work on it has ended. Otherwise a transaction may still be open,
/// or an answer may be under way, and the next user would take it for the answer to its own statement, such as a commit.
pub(crate) struct Lent<D: Database>(Option<PoolConnection<D>>);

impl<D: Database> Lent<D> {
    pub(crate) fn new(connection: PoolConnection<D>) -> Self {
        Self(Some(connection))
    }

    pub(crate) fn connection(&mut self) -> &mut D::Connection {
        self.0.as_mut().expect("it is there until it is given back")
    }

    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<D: Database> Drop for Lent<D> {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}
