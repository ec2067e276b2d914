//! Schemas: each step is a file that is never changed once it was released.

use rusqlite::{Connection, TransactionBehavior};

/// "ten1": tells a board from every other SQLite file. Source: sqlite.org/fileformat.html, offset 68.
pub(super) const APPLICATION_ID: i32 = 0x7465_6e31;

/// The steps; step `n` makes schema `n + 1`.
pub(super) const STEPS: &[&str] = &[include_str!("schema/0001.sql")];

/// The schema of this version for a list of steps.
pub(super) fn newest(steps: &[&str]) -> i32 {
    i32::try_from(steps.len()).unwrap_or(i32::MAX)
}

/// Brings a board to the newest schema in one transaction: all of it or nothing.
pub(super) fn migrate(board: &mut Connection, from: i32, steps: &[&str]) -> rusqlite::Result<()> {
    let tx = board.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in steps.iter().skip(usize::try_from(from).unwrap_or(0)) {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", newest(steps))?;
    tx.commit()
}
