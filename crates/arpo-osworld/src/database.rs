//! Queries on `SQLite` files that are given as bytes.

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::Value;
use std::io::Write;

/// A row that takes more steps is an error: a hostile query or file must not block a run.
const STEPS_LIMIT: u64 = 200_000_000;
const STEPS_PER_CHECK: i32 = 100_000;

/// The rows of a query. Blobs are null.
pub fn rows(database: &[u8], query: &str) -> Result<Vec<Vec<Value>>, String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.write_all(database).and_then(|()| file.flush()).map_err(|error| error.to_string())?;
    read(&file, query).map_err(|error| format!("sqlite: {error}"))
}

/// Applies changes to a database; returns its new bytes.
pub fn changed(
    database: &[u8],
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<Vec<u8>, String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.write_all(database).and_then(|()| file.flush()).map_err(|error| error.to_string())?;
    let connection = Connection::open(file.path()).map_err(|error| error.to_string())?;
    change(&connection).map_err(|error| error.to_string())?;
    connection.close().map_err(|(_, error)| error.to_string())?;
    std::fs::read(file.path()).map_err(|error| error.to_string())
}

fn read(file: &tempfile::NamedTempFile, query: &str) -> rusqlite::Result<Vec<Vec<Value>>> {
    let mut connection = Connection::open(file.path())?;
    let mut checks = 0;
    connection.progress_handler(
        STEPS_PER_CHECK,
        Some(move || {
            checks += 1;
            checks * STEPS_PER_CHECK as u64 > STEPS_LIMIT
        }),
    )?;
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let mut found = statement.query([])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let value = |at: usize| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null | ValueRef::Blob(_) => Value::Null,
                ValueRef::Integer(number) => number.into(),
                ValueRef::Real(number) => number.into(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
            })
        };
        rows.push((0..columns).map(value).collect::<rusqlite::Result<Vec<Value>>>()?);
    }
    Ok(rows)
}
