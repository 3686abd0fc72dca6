//! Side effects: the marker and the handler's own writes in one transaction.

use std::mem;
use std::sync::{Arc, OnceLock};

use hookfast_webhook::HandlerName;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgConnection, PgTypeInfo, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};
use sqlx::{Column as _, Encode, Row as _, Type, TypeInfo as _, ValueRef as _};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::postgres::OpenTransaction;
use crate::sqlite::turns::Writing;
use crate::{JobId, StoreError, Token, postgres, sqlite};

/// Which effect of which run.
#[derive(Debug, Clone, Copy)]
pub struct EffectKey<'a> {
    /// The job.
    pub job: &'a JobId,
    /// What proves that the job is still the worker's.
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

/// What the marker says, in a transaction that holds the job: nobody can take it away until the transaction ends.
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
    /// What proves that the job is still the worker's.
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
    /// The job is somebody else's now.
    LostLease,
}

/// An effect could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The job is somebody else's now, and so is everything about it.
    #[error("the job is no longer this worker's: its lease ended and it was given to another")]
    LostLease,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A transaction on whichever database this is. On SQLite nobody else can write meanwhile: be quick.
#[derive(Debug)]
pub struct EffectTransaction {
    database: Database,
    /// The marker says done already, which becomes true with the commit: it need not be written again.
    ///
    /// Postgres answers the commit of a transaction in which a statement failed with a rollback, and sqlx does not tell.
    /// So this ends with the first statement that we do not know to have succeeded; writing the marker then fails, too.
    is_marked: bool,
    /// A statement was given up or ended by force. SQLite may have undone everything before it, and would commit every further
    /// statement by itself, without the marker.
    is_undone: bool,
}

#[derive(Debug)]
enum Database {
    Postgres(OpenTransaction),
    /// With the store's first I/O error.
    Sqlite(Writing, Arc<OnceLock<String>>),
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
    pub(crate) fn on_postgres(transaction: OpenTransaction, is_marked: bool) -> Self {
        Self { database: Database::Postgres(transaction), is_marked, is_undone: false }
    }

    pub(crate) fn on_sqlite(transaction: Writing, broken: Arc<OnceLock<String>>, is_marked: bool) -> Self {
        Self { database: Database::Sqlite(transaction, broken), is_marked, is_undone: false }
    }

    /// The connection, if this is Postgres.
    pub fn postgres(&mut self) -> Option<&mut PgConnection> {
        match &mut self.database {
            Database::Postgres(transaction) => {
                self.is_marked = false;
                Some(transaction.connection())
            }
            Database::Sqlite(..) => None,
        }
    }

    /// The connection, if this is SQLite.
    pub fn sqlite(&mut self) -> Option<&mut SqliteConnection> {
        match &mut self.database {
            Database::Sqlite(transaction, _) if !self.is_undone => Some(transaction),
            Database::Sqlite(..) | Database::Postgres(_) => None,
        }
    }

    /// Runs a statement that both databases understand, with `$1` and so on for the values, and says how many rows it
    /// changed.
    pub async fn execute(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let is_marked = mem::take(&mut self.is_marked);
        let changed = match &mut self.database {
            Database::Postgres(transaction) => {
                on_postgres(statement, values).execute(transaction.connection()).await?.rows_affected()
            }
            Database::Sqlite(transaction, _) => {
                let (connection, limited) = transaction.for_handler();
                refuse_if(mem::replace(&mut self.is_undone, true))?;
                let done = on_sqlite(statement, values).execute(connection).await;
                limited.end();
                self.is_undone = done.as_ref().is_err_and(ends_the_transaction);
                done?.rows_affected()
            }
        };
        self.is_marked = is_marked;
        Ok(changed)
    }

    /// The first column of the first row, of a statement that both databases understand.
    pub async fn fetch(&mut self, statement: &'static str, values: Vec<Value>) -> Result<Option<Value>, sqlx::Error> {
        let is_marked = mem::take(&mut self.is_marked);
        let value = match &mut self.database {
            Database::Postgres(transaction) => {
                let row = on_postgres(statement, values).fetch_optional(transaction.connection()).await?;
                row.map(|row| postgres_value(&row)).transpose()?
            }
            Database::Sqlite(transaction, _) => {
                let (connection, limited) = transaction.for_handler();
                refuse_if(mem::replace(&mut self.is_undone, true))?;
                let row = on_sqlite(statement, values).fetch_optional(connection).await;
                limited.end();
                self.is_undone = row.as_ref().is_err_and(ends_the_transaction);
                row?.map(|row| sqlite_value(&row)).transpose()?
            }
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
    ) -> Result<bool, sqlx::Error> {
        let is_marked = mem::take(&mut self.is_marked);
        let is_newest = match &mut self.database {
            Database::Postgres(transaction) => {
                postgres::effects::is_newest(transaction.connection(), handler, object, occurred_at).await?
            }
            Database::Sqlite(transaction, _) => {
                refuse_if(self.is_undone)?;
                sqlite::effects::is_newest(transaction, handler, object, occurred_at).await?
            }
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
        if self.is_undone {
            return Err(StoreError::Rejected(UNDONE.into()).into());
        }
        match self.database {
            Database::Postgres(transaction) => postgres::effects::commit(transaction, mark).await,
            Database::Sqlite(transaction, broken) => sqlite::effects::commit(transaction, &broken, mark).await,
        }
    }
}

const UNDONE: &str = "a statement of the effect was given up or ended by force, so that nothing of the effect is there";

fn refuse_if(is_undone: bool) -> Result<(), sqlx::Error> {
    if is_undone { Err(sqlx::Error::InvalidArgument(UNDONE.into())) } else { Ok(()) }
}

/// Whether SQLite undoes the whole transaction with such an error: NOMEM, INTERRUPT, IOERR, FULL, and whatever is not an error
/// of the database.
fn ends_the_transaction(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_none_or(|code| code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 7 | 9 | 10 | 13)))
}

/// What a marker says once it was written for an [`EffectWrite`].
#[derive(Clone, Copy)]
pub(crate) struct Marker {
    pub(crate) is_new: bool,
    pub(crate) is_done: bool,
}

impl Marker {
    /// What this makes of the effect. There is no marker if the job is somebody else's.
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

fn on_postgres(statement: &'static str, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    // With a null the statement is prepared for whatever type its place has, which need not be that of the next value.
    let has_null = values.contains(&Value::Null);
    let bind = |query: Query<'static, Postgres, PgArguments>, value| match value {
        Value::Null => query.bind(UntypedNull),
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    };
    values.into_iter().fold(sqlx::query(statement), bind).persistent(!has_null)
}

pub(crate) fn on_sqlite(statement: &'static str, values: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    let bind = |query: Query<'static, Sqlite, SqliteArguments>, value| match value {
        Value::Null => query.bind(None::<String>),
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Real(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    };
    values.into_iter().fold(sqlx::query(statement), bind)
}

/// A null that Postgres gives the type of its place; it refuses a null text where a number belongs.
struct UntypedNull;

impl Type<Postgres> for UntypedNull {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for UntypedNull {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(IsNull::Yes)
    }
}

fn postgres_value(row: &sqlx::postgres::PgRow) -> Result<Value, sqlx::Error> {
    if row.try_get_raw(0)?.is_null() {
        return Ok(Value::Null);
    }
    Ok(match row.column(0).type_info().name() {
        "INT2" => Value::Integer(row.try_get::<i16, _>(0)?.into()),
        "INT4" => Value::Integer(row.try_get::<i32, _>(0)?.into()),
        "INT8" => Value::Integer(row.try_get(0)?),
        "FLOAT4" => Value::Real(row.try_get::<f32, _>(0)?.into()),
        "FLOAT8" => Value::Real(row.try_get(0)?),
        "BYTEA" => Value::Bytes(row.try_get(0)?),
        _ => Value::Text(row.try_get(0)?),
    })
}

fn sqlite_value(row: &sqlx::sqlite::SqliteRow) -> Result<Value, sqlx::Error> {
    let value = row.try_get_raw(0)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match value.type_info().name() {
        "INTEGER" => Value::Integer(row.try_get(0)?),
        "REAL" => Value::Real(row.try_get(0)?),
        "BLOB" => Value::Bytes(row.try_get(0)?),
        _ => Value::Text(row.try_get(0)?),
    })
}
