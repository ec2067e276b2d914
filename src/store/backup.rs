//! A copy of the board, by SQLite's own backup.

#![expect(clippy::disallowed_methods, reason = "a backup is this adapter's own file")]

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::core::fault::{Error, Fault};
use crate::core::refusal::Refusal;
use crate::store::settings;
use crate::store::sql::Doing;

/// All pages in one step: one snapshot, which a commit meanwhile neither changes nor starts over. In WAL mode
/// nobody waits for it.
const PAGES: i32 = i32::MAX;

/// Writes a copy that knows that it is one: put back, it is older than the lock remembers, and that is right.
pub(super) fn write(board: &Connection, to: &Path) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    match file {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Refusal::Busy(format!("{} is there already; give another name", to.display())).into());
        }
        Err(source) => return Err(Fault::Host { doing: "making the backup's file", source }.into()),
    }
    copy(board, to).inspect_err(|_| {
        // Half a copy helps nobody; that it cannot be removed does not change the answer.
        let _ = std::fs::remove_file(to);
    })
}

fn copy(board: &Connection, to: &Path) -> Result<(), Error> {
    const DOING: &str = "a backup";
    let mut copy = Connection::open(to).doing(DOING)?;
    Backup::new(board, &mut copy)
        .and_then(|backup| backup.run_to_completion(PAGES, Duration::ZERO, None))
        .doing(DOING)?;
    copy.execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?1, '1')", [settings::BACKUP])
        .doing(DOING)?;
    // One file, and all of it on the disk.
    copy.pragma_update(None, "journal_mode", "DELETE").doing(DOING)?;
    copy.close().map_err(|(_, error)| error).doing(DOING)?;
    std::fs::File::open(to)
        .and_then(|file| file.sync_all())
        .map_err(|source| Fault::Host { doing: "writing the backup", source }.into())
}
