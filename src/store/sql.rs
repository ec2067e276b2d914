//! Small helpers between SQLite and our types.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::Cell;
use crate::core::ids::{BootId, CommentId, EventId, RunId, TaskId};

/// Says what was being done when SQLite failed.
pub(super) trait Doing<T> {
    /// Makes a fault of a failure.
    fn doing(self, doing: &'static str) -> Result<T, Error>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Error> {
        self.map_err(|source| fault(doing, source))
    }
}

/// A fault of the board.
pub(super) fn fault(
    doing: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Fault::Store { doing, source: source.into() }.into()
}

/// What kind of failure SQLite reported, as far as the writer acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No space is left.
    Full,
    /// Another process holds the write lock.
    Busy,
    /// Anything else.
    Other,
}

/// Sorts a failure.
pub(super) fn trouble(error: &rusqlite::Error) -> Trouble {
    match error.sqlite_error() {
        Some(known) => match known.code {
            rusqlite::ErrorCode::DiskFull => Trouble::Full,
            rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked => Trouble::Busy,
            // Growing the shared-memory index on a full disk reports SQLITE_IOERR_SHMSIZE.
            _ if known.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Trouble::Full,
            _ => Trouble::Other,
        },
        None => Trouble::Other,
    }
}

/// Whether an error means that no space is left.
pub(super) fn is_full(error: &Error) -> bool {
    match error {
        Error::Fault(Fault::Store { source, .. }) => {
            source.downcast_ref::<rusqlite::Error>().is_some_and(|error| trouble(error) == Trouble::Full)
        }
        Error::Refused(_) | Error::Fault(_) => false,
    }
}

macro_rules! column {
    ($($id:ident),+) => {$(
        impl ToSql for $id {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.get().into())
            }
        }

        impl FromSql for $id {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self::new)
            }
        }
    )+};
}

column!(TaskId, RunId, EventId, CommentId, BootId);

/// A number that a hand edit may have turned into something else; such a thing is no number.
pub(super) struct Lax(pub(super) Option<i64>);

impl FromSql for Lax {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Integer(number) => Some(number),
            ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
        }))
    }
}

/// A text that a hand edit may have turned into something else; numbers are read as their digits.
pub(super) struct LaxText(pub(super) Option<String>);

impl FromSql for LaxText {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(match value {
            ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
        }))
    }
}

impl FromSql for Cell {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            // Something is there, and it does not parse: unverified.
            ValueRef::Real(_) | ValueRef::Blob(_) => Self::Text(String::new()),
        })
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Ok(rusqlite::types::Null.into()),
            Self::Integer(number) => Ok((*number).into()),
            Self::Text(text) => Ok(text.as_str().into()),
        }
    }
}
