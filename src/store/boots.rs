//! The boots that the board remembers, and the stamp of a shutdown.

use rusqlite::params;

use crate::core::boot::{Remembered, Witnesses};
use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;
use crate::core::time::{MonoMs, WallUsec};
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, Tx, When};

/// Every boot that is remembered, oldest first. One whose text does not parse speaks for no row.
///
/// # Errors
/// A fault of the board.
pub fn all(snapshot: &Snapshot<'_>) -> Result<Vec<Remembered>, Error> {
    let rows = snapshot.all(
        "reading the boots",
        "SELECT boot, epoch, nonce, boottime_ms FROM boots ORDER BY boot",
        [],
        |row| {
            let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0.unwrap_or_default());
            Ok((row.get(0)?, text(1)?, text(2)?, row.get::<_, Lax>(3)?.0))
        },
    )?;
    let read = rows.into_iter().filter_map(|(boot, epoch, nonce, boottime_ms)| {
        let epoch = Epoch::parse(&epoch)?;
        // A clock that nobody can read has never gone back.
        Some(Remembered { boot, epoch, nonce, boottime_ms: boottime_ms.unwrap_or(i64::MIN) })
    });
    Ok(read.collect())
}

/// Remembers this boot: the row of its epoch and nonce, made if there is none.
///
/// # Errors
/// A fault of the board, or witnesses without a nonce.
pub fn remember(tx: &mut Tx<'_>, witnesses: &Witnesses, now: WallUsec) -> Result<BootId, Error> {
    let nonce = witnesses.nonce.as_deref().ok_or(Fault::Corrupt("no nonce for this boot"))?;
    let epoch = witnesses.epoch.to_string();
    let known = tx.one(
        "looking for this boot",
        "SELECT boot FROM boots WHERE epoch = ?1 AND nonce = ?2 ORDER BY boot DESC LIMIT 1",
        params![epoch, nonce],
        |row| row.get(0),
    )?;
    if let Some(boot) = known {
        touch(tx, boot, witnesses.boottime_ms)?;
        return Ok(boot);
    }
    let boot = tx.insert(
        "remembering this boot",
        "INSERT INTO boots (epoch, nonce, boottime_ms, seen_usec) VALUES (?1, ?2, ?3, ?4)",
        params![epoch, nonce, witnesses.boottime_ms, now.0],
    )?;
    Ok(BootId::new(boot))
}

/// Writes the last CLOCK_BOOTTIME that was read in this boot; it never goes back.
///
/// # Errors
/// A fault of the board.
pub fn touch(tx: &mut Tx<'_>, boot: BootId, boottime_ms: i64) -> Result<(), Error> {
    tx.execute(
        "noting the boot's clock",
        "UPDATE boots SET boottime_ms = ?2 WHERE boot = ?1 AND boottime_ms < ?2",
        params![boot, boottime_ms],
    )?;
    Ok(())
}

/// Stamps this boot: the host has begun to shut down. Nothing is started any more in this boot.
///
/// # Errors
/// A fault of the board.
pub fn begin_shutdown(tx: &mut Tx<'_>, when: &When) -> Result<(), Error> {
    tx.execute(
        "stamping a shutdown",
        "UPDATE boots SET shutdown_ms = ?2 WHERE boot = ?1 AND shutdown_ms IS NULL",
        params![when.boot, when.now.mono.0],
    )?;
    Ok(())
}

/// Takes the stamp back: the shutdown was called off.
///
/// # Errors
/// A fault of the board.
pub fn call_off_shutdown(tx: &mut Tx<'_>, boot: BootId) -> Result<(), Error> {
    tx.execute("taking a stamp back", "UPDATE boots SET shutdown_ms = NULL WHERE boot = ?1", [boot])?;
    tx.change(crate::core::view::Change::Ready);
    Ok(())
}

/// When the host began to shut down in this boot.
///
/// # Errors
/// A fault of the board.
pub fn shutdown_of(snapshot: &Snapshot<'_>, boot: BootId) -> Result<Option<MonoMs>, Error> {
    let stamp = snapshot.one(
        "reading the stamp of a shutdown",
        "SELECT shutdown_ms FROM boots WHERE boot = ?1",
        [boot],
        |row| Ok(row.get::<_, Lax>(0)?.0),
    )?;
    Ok(stamp.flatten().map(MonoMs))
}

/// Every stamp of a shutdown that is remembered.
///
/// # Errors
/// A fault of the board.
pub fn shutdowns(snapshot: &Snapshot<'_>) -> Result<Vec<(BootId, MonoMs)>, Error> {
    let rows = snapshot.all(
        "reading the stamps of shutdowns",
        "SELECT boot, shutdown_ms FROM boots WHERE shutdown_ms IS NOT NULL",
        [],
        |row| Ok((row.get(0)?, row.get::<_, Lax>(1)?.0)),
    )?;
    Ok(rows.into_iter().filter_map(|(boot, stamp)| Some((boot, MonoMs(stamp?)))).collect())
}

/// The newest boot of an epoch; rows written by hand carry a text only.
pub(super) fn newest_of(snapshot: &Snapshot<'_>, epoch: &Epoch) -> Result<Option<BootId>, Error> {
    snapshot.one(
        "looking for a boot",
        "SELECT boot FROM boots WHERE epoch = ?1 ORDER BY boot DESC LIMIT 1",
        [epoch.to_string()],
        |row| row.get(0),
    )
}
