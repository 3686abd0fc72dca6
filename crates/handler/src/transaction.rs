//! The transaction of an effect.

use hookfast_store::{EffectTransaction, Value, sqlx};
use hookfast_webhook::{Failure, FailureKind};
use time::OffsetDateTime;

use crate::Effects;

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

    /// The driver's own connection, if the gateway runs on Postgres.
    pub fn postgres(&mut self) -> Option<&mut sqlx::PgConnection> {
        self.inner.postgres()
    }

    /// The driver's own connection, if the gateway runs on SQLite.
    pub fn sqlite(&mut self) -> Option<&mut sqlx::SqliteConnection> {
        self.inner.sqlite()
    }

    /// A statement that the database disliked is the handler's failure. So is one that it could not carry out although it
    /// answers everything else.
    async fn or_failure<T>(&self, result: Result<T, sqlx::Error>) -> Result<T, Failure> {
        let Err(error) = result else { return result.map_err(Failure::from) };
        if hookfast_store::is_too_slow(&error) {
            let problem = format!("a statement took longer than the store allows: {error}");
            return Err(Failure::retry(FailureKind::Timeout, problem));
        }
        if hookfast_store::is_outage(&error) {
            let is_statements = hookfast_store::is_about_statement(&error) && self.effects.is_store_well().await;
            if !is_statements {
                return Err(self.effects.note_fault(&error.to_string()));
            }
        }
        Err(Failure::from(error))
    }
}

/// The values of a statement: `values![order.id, order.total]`.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::Value::from($value)),*] };
}
