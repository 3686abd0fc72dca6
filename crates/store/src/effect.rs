//! Side effects: the marker and the handler's own writes in one transaction.

use std::mem;

use hookfast_webhook::HandlerName;
use time::OffsetDateTime;
use uuid::Uuid;

#[cfg(feature = "driver")]
use crate::driver::{PostgresConnection, SqliteConnection};
use crate::{JobId, StatementError, StoreError, Token, postgres, sqlite};

/// Which effect of which run.
#[derive(Debug, Clone, Copy)]
pub struct EffectKey<'a> {
    /// The job.
    pub job: &'a JobId,
    /// The token of the claim.
    pub token: Token,
    /// The handler's name for the effect.
    pub key: &'a str,
    /// Where it happens.
    pub kind: EffectKind,
}

/// Where an effect happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKind {
    /// In this database, in the marker's own transaction: it is done when that is committed.
    Own,
    /// Elsewhere, where no transaction reaches: the marker is committed as begun with [`EffectTransaction::commit_begun`],
    /// and as done with [`crate::Work::finish_effect`] after the call.
    Outside,
}

/// What the marker says, in a transaction that holds the job: no other worker can claim it until the transaction ends.
#[derive(Debug)]
pub struct BegunEffect {
    /// The marker's id, the same over attempts and ordinary replays: the idempotency key for the outside.
    pub id: Uuid,
    /// The effect was done before.
    pub is_done: bool,
    /// What came of it then, as JSON.
    pub result: Option<String>,
    /// For the handler's own writes. Dropped, it leaves nothing.
    pub transaction: EffectTransaction,
}

/// An effect that is one statement, known beforehand. Such effects of several jobs can share a commit, because the
/// statement can be repeated if a neighbour's fails.
#[derive(Debug, Clone)]
pub struct EffectWrite {
    /// The job.
    pub job: JobId,
    /// The token of the claim.
    pub token: Token,
    /// The handler's name for the effect.
    pub key: String,
    /// What it does, in words that both databases understand, with `$1` and so on for the values.
    pub statement: &'static str,
    /// The values.
    pub values: Vec<Value>,
}

/// What came of an [`EffectWrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is done.
    Now,
    /// It was done in an earlier run.
    Before,
    /// The job's token has changed: this run no longer has the job.
    LostLease,
}

/// An effect could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The job's token has changed, so this run may write nothing more about it.
    #[error("the job's token has changed: its lease ended, or the job was taken from this run")]
    LostLease,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A transaction on SQLite or Postgres. On SQLite nothing else can be written meanwhile, so it must be short.
#[derive(Debug)]
pub struct EffectTransaction {
    database: Database,
    /// The marker says done already, which becomes true with the commit: it need not be written again.
    ///
    /// Postgres answers the commit of a transaction in which a statement failed with a rollback, and the driver does not tell.
    /// So this ends with the first statement that we do not know to have succeeded; writing the marker then fails, too.
    is_marked: bool,
}

#[derive(Debug)]
enum Database {
    Postgres(postgres::OpenTransaction),
    Sqlite(sqlite::effects::OpenTransaction),
}

/// A value for [`EffectTransaction::execute`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Bytes.
    Bytes(Vec<u8>),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

value_from!(&str => Text, String => Text, i64 => Integer, i32 => Integer, u32 => Integer, bool => Integer, f64 => Real, Vec<u8> => Bytes);

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl EffectTransaction {
    pub(crate) fn on_postgres(transaction: postgres::OpenTransaction, is_marked: bool) -> Self {
        Self { database: Database::Postgres(transaction), is_marked }
    }

    pub(crate) fn on_sqlite(transaction: sqlite::effects::OpenTransaction, is_marked: bool) -> Self {
        Self { database: Database::Sqlite(transaction), is_marked }
    }

    /// The connection, if this is Postgres.
    #[cfg(feature = "driver")]
    pub fn postgres(&mut self) -> Option<&mut PostgresConnection> {
        match &mut self.database {
            Database::Postgres(transaction) => {
                self.is_marked = false;
                Some(transaction.connection())
            }
            Database::Sqlite(_) => None,
        }
    }

    /// The connection, if this is SQLite.
    #[cfg(feature = "driver")]
    pub fn sqlite(&mut self) -> Option<&mut SqliteConnection> {
        match &mut self.database {
            Database::Sqlite(transaction) => transaction.connection(),
            Database::Postgres(_) => None,
        }
    }

    /// Runs a statement that both databases understand, with `$1` and so on for the values, and says how many rows it
    /// changed.
    pub async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, StatementError> {
        let is_marked = mem::take(&mut self.is_marked);
        let changed = match &mut self.database {
            Database::Postgres(transaction) => transaction.execute(statement, values).await?,
            Database::Sqlite(transaction) => transaction.execute(statement, values).await?,
        };
        self.is_marked = is_marked;
        Ok(changed)
    }

    /// The first column of the first row, of a statement that both databases understand.
    pub async fn fetch(
        &mut self,
        statement: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<Value>, StatementError> {
        let is_marked = mem::take(&mut self.is_marked);
        let value = match &mut self.database {
            Database::Postgres(transaction) => transaction.fetch(statement, values).await?,
            Database::Sqlite(transaction) => transaction.fetch(statement, values).await?,
        };
        self.is_marked = is_marked;
        Ok(value)
    }

    /// Notes that something happened to `object` at this time, and says whether that is the newest the handler has seen of
    /// it. If it is not, the handler has already dealt with something newer. The same time again is as new.
    pub async fn is_newest(
        &mut self,
        handler: &HandlerName,
        object: &str,
        occurred_at: OffsetDateTime,
    ) -> Result<bool, StatementError> {
        let is_marked = mem::take(&mut self.is_marked);
        let is_newest = match &mut self.database {
            Database::Postgres(transaction) => transaction.is_newest(handler, object, occurred_at).await?,
            Database::Sqlite(transaction) => transaction.is_newest(handler, object, occurred_at).await?,
        };
        self.is_marked = is_marked;
        Ok(is_newest)
    }

    /// Ends it well: the marker says done, with what came of it, and all that was written is durable.
    pub async fn commit(self, effect: &EffectKey<'_>, result: Option<&str>) -> Result<(), EffectError> {
        let mark = (!self.is_marked || result.is_some()).then_some(Mark { effect, result });
        self.end(mark).await
    }

    /// Makes the marker of an outside effect durable: it is begun, and its id will stay the same.
    pub async fn commit_begun(self) -> Result<(), EffectError> {
        self.end(None).await
    }

    async fn end(self, mark: Option<Mark<'_>>) -> Result<(), EffectError> {
        match self.database {
            Database::Postgres(transaction) => postgres::effects::commit(transaction, mark).await,
            Database::Sqlite(transaction) => transaction.commit(mark).await,
        }
    }
}

/// What a marker says once it was written for an [`EffectWrite`].
#[derive(Clone, Copy)]
pub(crate) struct Marker {
    pub(crate) is_new: bool,
    pub(crate) is_done: bool,
}

impl Marker {
    /// What became of the effect. There is no marker if the job's token has changed.
    pub(crate) fn written(marker: Option<Self>) -> Result<Written, StoreError> {
        match marker {
            None => Ok(Written::LostLease),
            Some(Self { is_new: true, .. }) => Ok(Written::Now),
            Some(Self { is_done: true, .. }) => Ok(Written::Before),
            // Of a call to the outside that had the same key.
            Some(_) => Err(StoreError::Rejected("the effect was begun as one of another kind".into())),
        }
    }
}

/// What a commit must write into the marker.
pub(crate) struct Mark<'a> {
    pub(crate) effect: &'a EffectKey<'a>,
    pub(crate) result: Option<&'a str>,
}
