//! Settings of the board that outlive the daemon.

use rusqlite::params;

use crate::core::fault::Error;
use crate::store::{Snapshot, Tx};

/// Nothing new is started.
pub(super) const DRAINING: &str = "draining";
/// Nothing is started until a moment, because the host could not start the last one.
pub(super) const HOST_BACKOFF: &str = "host_backoff";
/// The board is a backup that may be put back.
pub(super) const BACKUP: &str = "backup";

/// Reads one.
pub(super) fn get(snapshot: &Snapshot<'_>, name: &str) -> Result<Option<String>, Error> {
    let found =
        snapshot.one("reading a setting", "SELECT value FROM settings WHERE name = ?1", [name], |row| {
            row.get(0)
        })?;
    Ok(found.flatten())
}

/// Writes one.
pub(super) fn set(tx: &Tx<'_>, name: &str, value: &str) -> Result<(), Error> {
    tx.execute(
        "writing a setting",
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2",
        params![name, value],
    )?;
    Ok(())
}

/// Removes one; returns whether it was there.
pub(super) fn clear(tx: &Tx<'_>, name: &str) -> Result<bool, Error> {
    Ok(tx.execute("clearing a setting", "DELETE FROM settings WHERE name = ?1", [name])? > 0)
}

/// Whether nothing new is to be started.
///
/// # Errors
/// A fault of the board.
pub fn is_draining(snapshot: &Snapshot<'_>) -> Result<bool, Error> {
    Ok(get(snapshot, DRAINING)?.is_some())
}

/// Starts or ends a drain; returns whether that changed anything.
///
/// # Errors
/// A fault of the board.
pub fn set_draining(tx: &mut Tx<'_>, on: bool) -> Result<bool, Error> {
    if is_draining(tx)? == on {
        return Ok(false);
    }
    if on {
        set(tx, DRAINING, "1")?;
    } else {
        clear(tx, DRAINING)?;
        tx.change(crate::core::view::Change::Ready);
    }
    Ok(true)
}
