//! A read transaction, and one work inside a write transaction.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::core::fault::Error;
use crate::core::happening::Happening;
use crate::core::refusal::Refusal;
use crate::core::view::Change;
use crate::store::sql::Doing;

/// A read transaction: one consistent state of the board.
pub struct Snapshot<'c> {
    connection: &'c Connection,
}

impl<'c> Snapshot<'c> {
    pub(super) const fn new(connection: &'c Connection) -> Self {
        Self { connection }
    }

    /// The first row, if there is one.
    pub(super) fn one<T>(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional())
            .doing(doing)
    }

    /// Every row.
    pub(super) fn all<T>(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.connection.prepare_cached(sql).doing(doing)?;
        let rows = statement.query_map(params, read).doing(doing)?;
        rows.collect::<rusqlite::Result<Vec<T>>>().doing(doing)
    }

    /// The rows one by one, until `take` has had enough (`false`).
    pub(super) fn each(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql).doing(doing)?;
        let mut rows = statement.query(params).doing(doing)?;
        while let Some(row) = rows.next().doing(doing)? {
            if !take(row).doing(doing)? {
                break;
            }
        }
        Ok(())
    }

    /// A number; 0 where there is none.
    pub(super) fn number(&self, doing: &'static str, sql: &str, params: impl Params) -> Result<i64, Error> {
        Ok(self.one(doing, sql, params, |row| row.get::<_, Option<i64>>(0))?.flatten().unwrap_or(0))
    }

    /// Whether there is a row.
    pub(super) fn is_any(&self, doing: &'static str, sql: &str, params: impl Params) -> Result<bool, Error> {
        Ok(self.one(doing, sql, params, |_| Ok(()))?.is_some())
    }
}

/// One work inside a write transaction. Reads as a [`Snapshot`] does.
pub struct Tx<'c> {
    snapshot: Snapshot<'c>,
    changes: Vec<Change>,
    happened: Vec<Happening>,
    is_full: bool,
}

impl<'c> std::ops::Deref for Tx<'c> {
    type Target = Snapshot<'c>;

    fn deref(&self) -> &Self::Target {
        &self.snapshot
    }
}

impl<'c> Tx<'c> {
    pub(super) const fn new(connection: &'c Connection, is_full: bool) -> Self {
        Self { snapshot: Snapshot::new(connection), changes: Vec::new(), happened: Vec::new(), is_full }
    }

    pub(super) fn into_told(self) -> (Vec<Change>, Vec<Happening>) {
        (self.changes, self.happened)
    }

    /// A line for the log, after the commit.
    pub(super) fn happened(&mut self, happening: Happening) {
        self.happened.push(happening);
    }

    /// Something to tell after the commit.
    pub fn change(&mut self, change: Change) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// For work that is new: refused while the disk is full, so that the rest is kept for ends.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`].
    pub fn needs_room(&self) -> Result<(), Error> {
        if self.is_full { Err(Refusal::ReadOnly.into()) } else { Ok(()) }
    }

    /// Writes; returns the rows that were touched.
    pub(super) fn execute(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
    ) -> Result<usize, Error> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).doing(doing)
    }

    /// Inserts; returns the new row's number.
    pub(super) fn insert(&self, doing: &'static str, sql: &str, params: impl Params) -> Result<i64, Error> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.insert(params)).doing(doing)
    }
}
