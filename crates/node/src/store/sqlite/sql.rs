//! Statements in one line: each is prepared once for a connection, and found again by its text.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::fault::Fault;

/// Runs statements.
pub(super) trait Sql {
    /// Runs a statement; gives the number of rows that it changed.
    fn change(&self, sql: &str, values: impl Params) -> Result<usize, Fault>;

    /// Reads each row.
    fn each(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;

    /// Reads the first row, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault>;

    /// The first column of the first row, if there is one.
    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<Option<T>, Fault>;

    /// Whether there is a row.
    fn has(&self, sql: &str, values: impl Params) -> Result<bool, Fault>;

    /// Runs a statement.
    fn run(&self, sql: &str, values: impl Params) -> Result<(), Fault> {
        self.change(sql, values).map(drop)
    }

    /// The first column of a row that is there.
    fn get<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<T, Fault> {
        self.find(sql, values)?.ok_or(Fault::Sqlite(rusqlite::Error::QueryReturnedNoRows))
    }

    /// All rows.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        self.each(sql, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }
}

impl Sql for Connection {
    fn change(&self, sql: &str, values: impl Params) -> Result<usize, Fault> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    fn each(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }

    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        rows.next()?.map(read).transpose()
    }

    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<Option<T>, Fault> {
        Ok(self.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }

    fn has(&self, sql: &str, values: impl Params) -> Result<bool, Fault> {
        Ok(self.prepare_cached(sql)?.exists(values)?)
    }
}
