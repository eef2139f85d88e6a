//! Statements in one line: each is prepared once for a connection, and found again by its text.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::fault::SqliteFault;

/// Runs statements.
pub(super) trait Sql {
    /// Runs a statement; gives the number of rows that it changed.
    fn change(&self, sql: &str, values: impl Params) -> Result<usize, SqliteFault>;

    /// Reads each row.
    fn each(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<(), SqliteFault>,
    ) -> Result<(), SqliteFault>;

    /// Reads the first row, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, SqliteFault>,
    ) -> Result<Option<T>, SqliteFault>;

    /// The first column of the first row, if there is one.
    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<Option<T>, SqliteFault>;

    /// Whether there is a row.
    fn has(&self, sql: &str, values: impl Params) -> Result<bool, SqliteFault>;

    /// Runs a statement.
    fn run(&self, sql: &str, values: impl Params) -> Result<(), SqliteFault> {
        self.change(sql, values).map(drop)
    }

    /// The first column of a row that is there.
    fn get<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<T, SqliteFault> {
        self.find(sql, values)?.ok_or(SqliteFault::Sqlite(rusqlite::Error::QueryReturnedNoRows))
    }

    /// All rows.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, SqliteFault>,
    ) -> Result<Vec<T>, SqliteFault> {
        let mut all = Vec::new();
        self.each(sql, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }
}

impl Sql for Connection {
    fn change(&self, sql: &str, values: impl Params) -> Result<usize, SqliteFault> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    fn each(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<(), SqliteFault>,
    ) -> Result<(), SqliteFault> {
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
        read: impl FnOnce(&Row<'_>) -> Result<T, SqliteFault>,
    ) -> Result<Option<T>, SqliteFault> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        rows.next()?.map(read).transpose()
    }

    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> Result<Option<T>, SqliteFault> {
        Ok(self.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }

    fn has(&self, sql: &str, values: impl Params) -> Result<bool, SqliteFault> {
        Ok(self.prepare_cached(sql)?.exists(values)?)
    }
}
