//! Many rows in one statement.
//!
//! SQLite has no arrays to unnest, and sqlx hands every statement to another thread, so a statement for each row would be
//! slow. Instead each statement exists for a few numbers of rows, written once and prepared once; a batch takes the next
//! larger one, and rows that stay unbound are NULL and skipped.

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, Encode, Error, Sqlite, Type};

/// For how many rows there are statements.
const SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A statement about rows, in every size.
pub(super) struct ManyRows {
    columns: usize,
    statements: [&'static str; SIZES.len()],
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
        for chunk in rows.chunks(SIZES[SIZES.len() - 1]) {
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
        for chunk in rows.chunks(SIZES[SIZES.len() - 1]) {
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
        let mut values = Values { arguments: SqliteArguments::default(), error: None };
        values.arguments.reserve(rows.len() * self.columns, 0);
        rows.iter().for_each(|row| bind(row, &mut values));
        let fitting = SIZES.iter().position(|size| *size >= rows.len()).expect("chunks are no longer than the largest");
        match values.error {
            None => Ok((self.statements[fitting], values.arguments)),
            Some(error) => Err(error),
        }
    }
}

/// The values of rows, one after the other.
pub(super) struct Values {
    arguments: SqliteArguments,
    error: Option<Error>,
}

impl Values {
    /// Adds the value of the next column.
    pub(super) fn add<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.arguments.add(value) {
            self.error.get_or_insert(Error::Encode(error));
        }
        self
    }
}
