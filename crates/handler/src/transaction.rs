//! The transaction of an effect.

use hookfast_store::{EffectTransaction, StatementError, Value};
use hookfast_webhook::Failure;
use time::OffsetDateTime;

use crate::Effects;
#[cfg(feature = "driver")]
use crate::driver::{PostgresConnection, SqliteConnection};

/// The transaction of an effect, for the handler's own writes into the gateway's database.
pub struct Transaction<'a> {
    pub(crate) inner: &'a mut EffectTransaction,
    pub(crate) effects: &'a Effects,
}

impl Transaction<'_> {
    /// Runs a statement that both databases understand, with `$1` and so on for the [`values!`](crate::values), and says
    /// how many rows it changed.
    pub async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, Failure> {
        let done = self.inner.execute(statement, values).await;
        self.or_failure(done).await
    }

    /// The first value that a query gives, if any.
    pub async fn fetch(&mut self, statement: &'static str, values: Vec<Value>) -> Result<Option<Value>, Failure> {
        let found = self.inner.fetch(statement, values).await;
        self.or_failure(found).await
    }

    /// Whether nothing newer was handled about `object`. Events may come late: with this an older `updated` never
    /// overwrites a newer `deleted`.
    pub async fn is_newest(&mut self, object: &str, occurred_at: OffsetDateTime) -> Result<bool, Failure> {
        let newest = self.inner.is_newest(self.effects.handler_name(), object, occurred_at).await;
        self.or_failure(newest).await
    }

    /// The driver's own connection, if the gateway runs on Postgres. What is written on it is committed with the effect.
    ///
    /// ```
    /// use hookfast_handler::driver::sqlx;
    /// use hookfast_handler::Transaction;
    /// use hookfast_webhook::Failure;
    ///
    /// async fn lock(tx: &mut Transaction<'_>, order: &str) -> Result<(), Failure> {
    ///     if let Some(connection) = tx.postgres() {
    ///         sqlx::query("SELECT 1 FROM orders WHERE id = $1 FOR UPDATE").bind(order).execute(connection).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "driver")]
    pub fn postgres(&mut self) -> Option<&mut PostgresConnection> {
        self.inner.postgres()
    }

    /// The driver's own connection, if the gateway runs on SQLite. What is written on it is committed with the effect.
    #[cfg(feature = "driver")]
    pub fn sqlite(&mut self) -> Option<&mut SqliteConnection> {
        self.inner.sqlite()
    }

    async fn or_failure<T>(&self, result: Result<T, StatementError>) -> Result<T, Failure> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.effects.failure_of_statement(error).await),
        }
    }
}

/// The values of a statement: `values![order.id, order.total]`.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::Value::from($value)),*] };
}
