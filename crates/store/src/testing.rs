//! What tests look at a database with.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Row};

/// Runs a statement on an SQLite file, on a connection of its own, and gives its rows with each value as text.
pub async fn rows(file: &Path, statement: &'static str) -> Result<Vec<Vec<String>>, String> {
    let file = file.to_owned();
    // It may wait for a transaction of another task of this thread.
    let read = tokio::task::spawn_blocking(move || read(&file, statement)).await;
    read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

fn read(file: &Path, statement: &str) -> Result<Vec<Vec<String>>, Error> {
    let connection = Connection::open(file)?;
    let mut statement = connection.prepare(statement)?;
    let columns = statement.column_count();
    let texts = |row: &Row<'_>| (0..columns).map(|column| row.get_ref(column).map(text)).collect();
    statement.query_map([], texts)?.collect()
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(_) => "BYTES".into(),
    }
}
