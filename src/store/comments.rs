//! Comments on tasks.

use rusqlite::params;

use crate::core::fault::Error;
use crate::core::ids::{CommentId, TaskId};
use crate::core::time::WallUsec;
use crate::core::view::Change;
use crate::store::Tx;

/// The author of the daemon's own comments.
pub const OURS: &str = "tenured";

/// Writes one.
///
/// # Errors
/// A fault of the board.
pub fn add(
    tx: &mut Tx<'_>,
    task: TaskId,
    author: &str,
    text: &str,
    at: WallUsec,
) -> Result<CommentId, Error> {
    let comment = tx.insert(
        "writing a comment",
        "INSERT INTO comments (task, author, body, at_usec) VALUES (?1, ?2, ?3, ?4)",
        params![task, author, text, at.0],
    )?;
    tx.change(Change::Task(task));
    Ok(CommentId::new(comment))
}
