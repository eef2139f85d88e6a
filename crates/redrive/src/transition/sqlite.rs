//! Conditional transitions of a row in the caller's SQLite database.
//!
//! ```
//! use redrive::transition::sqlite::{StateColumn, StateText};
//! use redrive::transition::{Applied, Transitions};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Status { Queued, Completed }
//!
//! impl StateText for Status {
//!     fn name(&self) -> &str {
//!         match self { Self::Queued => "queued", Self::Completed => "completed" }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = rusqlite::Connection::open_in_memory()?;
//! database.execute_batch("
//!     CREATE TABLE messages (message_id TEXT PRIMARY KEY, status TEXT NOT NULL);
//!     INSERT INTO messages VALUES ('m-1', 'queued');
//! ")?;
//! let table = Transitions::new(&[(Status::Queued, &[Status::Completed])])?;
//! let status = StateColumn { table: "messages", key: "message_id", state: "status" };
//! assert_eq!(table.apply_at(&database, status, "m-1", Status::Completed)?, Applied::Changed);
//! assert_eq!(table.apply_at(&database, status, "m-2", Status::Completed)?, Applied::Missing);
//! # Ok(()) }
//! ```
//!
//! Invariants: the condition is part of the statement that writes, so of two concurrent callers one changes the row and
//! the other finds it changed; and in a transaction of the caller the transition is part of it.

use rusqlite::{Connection, OptionalExtension, ToSql, params_from_iter};

use super::{Applied, Transitions};

/// The name of a state in a database.
pub trait StateText {
    /// The name.
    fn name(&self) -> &str;
}

/// The location of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateColumn<'a> {
    /// The table.
    pub table: &'a str,
    /// The column that identifies a row; it should be unique.
    pub key: &'a str,
    /// The column of the state, as text.
    pub state: &'a str,
}

/// The transition could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The database failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The row's state is not in the table of transitions.
    #[error("state {name:?} is not in the table of transitions")]
    UnknownState {
        /// The state found.
        name: String,
    },
}

impl<S: Copy + PartialEq + StateText> Transitions<S> {
    /// Changes the state of the row with that key if the table allows it, in the caller's open transaction or
    /// one of its own.
    pub fn apply_at(
        &self,
        connection: &Connection,
        column: StateColumn<'_>,
        key: impl ToSql,
        to: S,
    ) -> Result<Applied<S>, ApplyError> {
        if !connection.is_autocommit() {
            return self.apply_within(connection, column, &key, to);
        }
        // The state that is read afterwards must be the one that prevented the change.
        let transaction = connection.unchecked_transaction()?;
        let applied = self.apply_within(&transaction, column, &key, to)?;
        transaction.commit()?;
        Ok(applied)
    }

    fn apply_within(
        &self,
        connection: &Connection,
        column: StateColumn<'_>,
        key: &dyn ToSql,
        to: S,
    ) -> Result<Applied<S>, ApplyError> {
        let [table, key_column, state] = [column.table, column.key, column.state].map(quoted);
        let expected = self.expected(to);
        let places = vec!["?"; expected.len()].join(", ");
        let sql = format!("UPDATE {table} SET {state} = ? WHERE {key_column} = ? AND {state} IN ({places})");
        let to_name = to.name();
        let names: Vec<&str> = expected.iter().map(StateText::name).collect();
        let given: Vec<&dyn ToSql> = [&to_name as &dyn ToSql, key]
            .into_iter()
            .chain(names.iter().map(|name| name as &dyn ToSql))
            .collect();
        if connection.prepare_cached(&sql)?.execute(params_from_iter(given))? > 0 {
            return Ok(Applied::Changed);
        }
        let sql = format!("SELECT {state} FROM {table} WHERE {key_column} = ?");
        let found = connection.prepare_cached(&sql)?.query_row([key], |row| row.get(0)).optional()?;
        let Some(name): Option<String> = found else { return Ok(Applied::Missing) };
        let actual = self.states().into_iter().find(|state| state.name() == name);
        actual.map(|actual| Applied::NotExpected { actual }).ok_or(ApplyError::UnknownState { name })
    }
}

/// Quotes an SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
