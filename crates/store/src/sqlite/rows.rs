//! Many rows in one statement.
//!
//! SQLite has no arrays to unnest, and sqlx hands every statement to another thread, so a statement for each row would be
//! slow. Instead each statement exists for a few numbers of rows, written once and prepared once; a batch takes the next
//! larger one, and rows that stay unbound are NULL and skipped.
//!
//! SQLite takes such rows for many, and a table for small: it would go through all jobs and look for each among the rows. A
//! CROSS JOIN makes it begin with the rows. An UPDATE knows no such thing; there, a `+` before the column keeps SQLite from
//! looking among the rows.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{LazyLock, Mutex, PoisonError};

use hookfast_webhook::EventId;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, Encode, Error, Sqlite, Type};
use uuid::Uuid;

/// For how many rows there are statements.
const SIZES: [usize; 14] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256];

/// The most rows of one statement.
pub(super) const ROWS_MAX: usize = SIZES[SIZES.len() - 1];

/// A statement about rows, in every size.
pub(super) struct ManyRows {
    columns: usize,
    statements: [&'static str; SIZES.len()],
}

/// Several statements that go to SQLite's thread as one text with one list of values.
#[derive(Default)]
pub(super) struct Together {
    statements: Vec<&'static str>,
    values: Values,
}

/// The texts by the addresses of their statements. They live as long as the program: there are as many as there are
/// combinations of sizes.
static TEXTS: LazyLock<Mutex<HashMap<Vec<usize>, &'static str>>> = LazyLock::new(Mutex::default);

impl Together {
    /// Adds a statement without values.
    pub(super) fn then(mut self, statement: &'static str) -> Self {
        self.statements.push(statement);
        self
    }

    /// Adds a statement about rows, of which there are at most [`ROWS_MAX`].
    pub(super) fn then_rows<T>(self, statement: &ManyRows, rows: &[T], bind: impl Fn(&T, &mut Values)) -> Self {
        if rows.is_empty() {
            return self;
        }
        let (text, size) = statement.of_size(rows.len());
        let mut together = self.then(text);
        together.values.arguments.reserve(size * statement.columns, 0);
        rows.iter().for_each(|row| bind(row, &mut together.values));
        // The values of the next statement follow, so that these must be complete.
        for _ in 0..(size - rows.len()) * statement.columns {
            together.values.add(None::<i64>);
        }
        together
    }

    /// Runs all of them and gives what they return; the first that fails is the last that is tried.
    pub(super) async fn fetch(self, connection: &mut SqliteConnection) -> Result<Vec<SqliteRow>, Error> {
        let text = self.text();
        sqlx::query_with(text, self.values.into_arguments()?).fetch_all(connection).await
    }

    fn text(&self) -> &'static str {
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = self.statements.iter().map(|statement| statement.as_ptr().addr()).collect();
        texts.entry(addresses).or_insert_with(|| self.statements.join(";\n").leak())
    }
}

impl ManyRows {
    /// `{rows}` in the template becomes the rows, with columns `column1` and so on, of which the first is never null. The
    /// texts live as long as the program.
    pub(super) fn new(template: &str, columns: usize) -> Self {
        // Not `$1`, `$2`: sqlx asks for the name of every place, and SQLite looks through all names each time.
        let row = format!("({})", vec!["?"; columns].join(", "));
        let statement = |count: usize| {
            let rows = vec![row.as_str(); count].join(", ");
            let rows = format!("(SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL)");
            &*template.replace("{rows}", &rows).leak()
        };
        Self { columns, statements: SIZES.map(statement) }
    }

    /// Runs the statement for all rows and says how many rows of the table it changed.
    pub(super) async fn execute<T>(
        &self,
        connection: &mut SqliteConnection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values),
    ) -> Result<u64, Error> {
        let mut changed = 0;
        for chunk in rows.chunks(ROWS_MAX) {
            let (statement, values) = self.prepare(chunk, &bind)?;
            changed += sqlx::query_with(statement, values).execute(&mut *connection).await?.rows_affected();
        }
        Ok(changed)
    }

    /// Runs the statement for all rows and gives what it returns.
    pub(super) async fn fetch<T>(
        &self,
        connection: &mut SqliteConnection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values),
    ) -> Result<Vec<SqliteRow>, Error> {
        let mut returned = Vec::new();
        for chunk in rows.chunks(ROWS_MAX) {
            let (statement, values) = self.prepare(chunk, &bind)?;
            returned.extend(sqlx::query_with(statement, values).fetch_all(&mut *connection).await?);
        }
        Ok(returned)
    }

    fn prepare<T>(
        &self,
        rows: &[T],
        bind: &impl Fn(&T, &mut Values),
    ) -> Result<(&'static str, SqliteArguments), Error> {
        let mut values = Values::default();
        values.arguments.reserve(rows.len() * self.columns, 0);
        rows.iter().for_each(|row| bind(row, &mut values));
        Ok((self.of_size(rows.len()).0, values.into_arguments()?))
    }

    /// The smallest statement that takes this number of rows, and the number of rows that it takes.
    pub(super) fn of_size(&self, rows: usize) -> (&'static str, usize) {
        let fitting = SIZES.iter().position(|size| *size >= rows).expect("there are no more rows than the most");
        (self.statements[fitting], SIZES[fitting])
    }
}

/// The values of rows, one after the other.
#[derive(Default)]
pub(super) struct Values {
    arguments: SqliteArguments,
    error: Option<Error>,
}

impl Values {
    fn into_arguments(self) -> Result<SqliteArguments, Error> {
        match self.error {
            None => Ok(self.arguments),
            Some(error) => Err(error),
        }
    }

    /// Adds the value of the next column.
    pub(super) fn add<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.arguments.add(value) {
            self.error.get_or_insert(Error::Encode(error));
        }
        self
    }
}

/// Ids for `SELECT unhex(value) FROM json_each(…)`.
pub(super) fn id_list(ids: &[EventId]) -> String {
    uuid_list(ids.iter().map(|id| id.0))
}

/// The same of ids that are not those of events.
pub(super) fn uuid_list(ids: impl IntoIterator<Item = Uuid>) -> String {
    list(ids.into_iter().map(Uuid::simple))
}

/// JSON of what needs no escapes.
fn list(items: impl IntoIterator<Item: Display>) -> String {
    let quoted: Vec<_> = items.into_iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", quoted.join(","))
}
