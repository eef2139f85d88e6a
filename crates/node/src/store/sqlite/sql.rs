//! One-line helpers for prepared statements, cached by their text.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::fault::{SqlFault, SqlResult};

pub(super) trait Sql {
    fn on(&self) -> &Connection;

    fn run(&self, sql: &str, values: impl Params) -> SqlResult<()> {
        self.change(sql, values).map(drop)
    }

    /// Returns the number of changed rows.
    fn change(&self, sql: &str, values: impl Params) -> SqlResult<usize> {
        Ok(self.on().prepare_cached(sql)?.execute(values)?)
    }

    fn each(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> SqlResult<()>,
    ) -> SqlResult<()> {
        let mut statement = self.on().prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> SqlResult<T>,
    ) -> SqlResult<Vec<T>> {
        let mut all = Vec::new();
        self.each(sql, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> SqlResult<T>,
    ) -> SqlResult<Option<T>> {
        let mut statement = self.on().prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        rows.next()?.map(read).transpose()
    }

    /// First column of the first row.
    fn find<T: FromSql>(&self, sql: &str, values: impl Params) -> SqlResult<Option<T>> {
        Ok(self.on().prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }

    /// First column of a row that must exist.
    fn get<T: FromSql>(&self, sql: &str, values: impl Params) -> SqlResult<T> {
        self.find(sql, values)?.ok_or(SqlFault::Sqlite(rusqlite::Error::QueryReturnedNoRows))
    }

    fn has(&self, sql: &str, values: impl Params) -> SqlResult<bool> {
        Ok(self.on().prepare_cached(sql)?.exists(values)?)
    }
}

impl Sql for Connection {
    fn on(&self) -> &Connection {
        self
    }
}
