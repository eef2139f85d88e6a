//! One-line helpers for prepared statements, cached by their text.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::fault::{SqliteFault, SqliteResult};

pub(super) trait Sql {
    fn change(&self, sql: &str, values: impl Params) -> SqliteResult<usize>;

    fn each(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> SqliteResult<()>,
    ) -> SqliteResult<()>;

    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> SqliteResult<T>,
    ) -> SqliteResult<Option<T>>;

    /// First column of the first row.
    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> SqliteResult<Option<T>>;

    fn has(&self, sql: &str, values: impl Params) -> SqliteResult<bool>;

    fn run(&self, sql: &str, values: impl Params) -> SqliteResult<()> {
        self.change(sql, values).map(drop)
    }

    /// First column of a row that must exist.
    fn get<T: FromSql>(&self, sql: &str, values: impl Params) -> SqliteResult<T> {
        self.find(sql, values)?.ok_or(SqliteFault::Sqlite(rusqlite::Error::QueryReturnedNoRows))
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> SqliteResult<T>,
    ) -> SqliteResult<Vec<T>> {
        let mut all = Vec::new();
        self.each(sql, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }
}

impl Sql for Connection {
    fn change(&self, sql: &str, values: impl Params) -> SqliteResult<usize> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    fn each(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> SqliteResult<()>,
    ) -> SqliteResult<()> {
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
        read: impl FnOnce(&Row<'_>) -> SqliteResult<T>,
    ) -> SqliteResult<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        rows.next()?.map(read).transpose()
    }

    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> SqliteResult<Option<T>> {
        Ok(self.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }

    fn has(&self, sql: &str, values: impl Params) -> SqliteResult<bool> {
        Ok(self.prepare_cached(sql)?.exists(values)?)
    }
}
