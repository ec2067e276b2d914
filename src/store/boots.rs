//! The boots that the board remembers, and the stamp of a shutdown.

use crate::core::boot::{Remembered, Witnesses};
use crate::core::fault::Error;
use crate::core::ids::BootId;
use crate::core::time::{MonoMs, WallUsec};
use crate::store::{Snapshot, Tx, When};

/// Every boot that a row may still belong to.
///
/// # Errors
/// A fault of the board.
pub fn all(_snapshot: &Snapshot<'_>) -> Result<Vec<Remembered>, Error> {
    todo!()
}

/// Remembers this boot: the row of its epoch and nonce, made if there is none.
///
/// # Errors
/// A fault of the board, or witnesses without a nonce.
pub fn remember(_tx: &mut Tx<'_>, _witnesses: &Witnesses, _now: WallUsec) -> Result<BootId, Error> {
    todo!()
}

/// Writes the last CLOCK_BOOTTIME that was read in this boot.
///
/// # Errors
/// A fault of the board.
pub fn touch(_tx: &mut Tx<'_>, _boot: BootId, _boottime_ms: i64) -> Result<(), Error> {
    todo!()
}

/// Stamps this boot: the host has begun to shut down. Nothing is started any more in this boot.
///
/// # Errors
/// A fault of the board.
pub fn begin_shutdown(_tx: &mut Tx<'_>, _when: &When) -> Result<(), Error> {
    todo!()
}

/// Takes the stamp back: the shutdown was called off.
///
/// # Errors
/// A fault of the board.
pub fn call_off_shutdown(_tx: &mut Tx<'_>, _boot: BootId) -> Result<(), Error> {
    todo!()
}

/// When the host began to shut down in this boot.
///
/// # Errors
/// A fault of the board.
pub fn shutdown_of(_snapshot: &Snapshot<'_>, _boot: BootId) -> Result<Option<MonoMs>, Error> {
    todo!()
}
