//! The few ways in which a task changes its status, each with its event.

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::ids::{EventId, TaskId, Uid};
use crate::core::state::{BlockCode, Status};
use crate::core::view::Change;
use crate::store::events::{self, Kind};
use crate::store::tasks::{State, state};
use crate::store::{Tx, When, due, links};

pub(super) fn cancelled_parent(parent: TaskId) -> String {
    format!("its parent {parent} was cancelled")
}

/// `todo` or `ready`, by what is still missing; a task that becomes ready goes to the end of its line. One that
/// would wait for a parent that was cancelled is parked instead. Returns the new status.
///
/// # Errors
/// A fault of the board.
pub(super) fn open(
    tx: &mut Tx<'_>,
    state: &State,
    line: EventId,
    back_off_ms: Option<i64>,
    when: &When,
) -> Result<Status, Error> {
    let status = state.open_status(when.now.wall);
    let retry_at = back_off_ms.map(|span_ms| when.now.mono.plus(span_ms).0);
    tx.execute(
        "opening a task",
        "UPDATE tasks SET status = ?2, run = NULL, ready_seq = ?3, retry_at_ms = ?4, retry_epoch = ?5,
             block_code = NULL, block_reason = NULL, ended_usec = NULL, ended_as = NULL, version = version + 1
         WHERE task = ?1",
        params![state.task, status.word(), line, retry_at, retry_at.map(|_| when.epoch.to_string())],
    )?;
    tx.change(Change::Task(state.task));
    if status == Status::Todo
        && let Some(parent) = links::cancelled_parent(tx, state.task)?
    {
        park_for_parent(tx, state.task, parent, when)?;
        return Ok(Status::Blocked);
    }
    if status == Status::Ready && retry_at.is_none() {
        tx.change(Change::Ready);
    } else {
        tx.change(Change::Due);
    }
    Ok(status)
}

/// Parks a task, with an event.
///
/// # Errors
/// A fault of the board.
pub fn park(tx: &mut Tx<'_>, task: TaskId, code: BlockCode, reason: &str, when: &When) -> Result<(), Error> {
    let payload = json!({ "code": code.word(), "reason": reason });
    events::write(tx, task, Kind::Blocked, payload, when.now.wall)?;
    park_silently(tx, task, code, reason)
}

/// Parks a task whose event says so already.
pub(super) fn park_silently(
    tx: &mut Tx<'_>,
    task: TaskId,
    code: BlockCode,
    reason: &str,
) -> Result<(), Error> {
    tx.execute(
        "parking a task",
        "UPDATE tasks SET status = 'blocked', run = NULL, block_code = ?2, block_reason = ?3, retry_at_ms = NULL,
             retry_epoch = NULL, version = version + 1
         WHERE task = ?1",
        params![task, code.word(), reason],
    )?;
    tx.change(Change::Task(task));
    Ok(())
}

/// Ends a task as done or cancelled, and tells its children.
pub(super) fn end(tx: &mut Tx<'_>, task: TaskId, status: Status, when: &When) -> Result<(), Error> {
    tx.execute(
        "ending a task",
        "UPDATE tasks SET status = ?2, run = NULL, block_code = NULL, block_reason = NULL, retry_at_ms = NULL,
             retry_epoch = NULL, ended_usec = ?3, ended_as = ?2, version = version + 1
         WHERE task = ?1",
        params![task, status.word(), when.now.wall.0],
    )?;
    tx.change(Change::Task(task));
    match status {
        Status::Done => links::satisfy_children(tx, task, when),
        Status::Cancelled => block_children(tx, task, when),
        Status::Todo | Status::Ready | Status::Running | Status::Blocked | Status::Archived => Ok(()),
    }
}

/// Cancels a task that no run holds.
///
/// # Errors
/// A fault of the board.
pub fn cancel(
    tx: &mut Tx<'_>,
    task: TaskId,
    by: Uid,
    reason: Option<&str>,
    when: &When,
) -> Result<(), Error> {
    events::write(tx, task, Kind::Cancelled, json!({ "by": by, "reason": reason }), when.now.wall)?;
    end(tx, task, Status::Cancelled, when)
}

/// The children of a cancelled task wait for something that will not come: they are parked, and say for whom.
fn block_children(tx: &mut Tx<'_>, parent: TaskId, when: &When) -> Result<(), Error> {
    for child in links::waiting_children(tx, parent)? {
        park(tx, child, BlockCode::Parent, &cancelled_parent(parent), when)?;
    }
    Ok(())
}

/// Parks a task because a parent of it was cancelled.
///
/// # Errors
/// A fault of the board.
pub fn park_for_parent(tx: &mut Tx<'_>, task: TaskId, parent: TaskId, when: &When) -> Result<(), Error> {
    park(tx, task, BlockCode::Parent, &cancelled_parent(parent), when)
}

/// Opens a task that was parked or had ended; with `retried`, its history says so, else it was unblocked.
/// The failure count begins anew.
///
/// # Errors
/// A fault of the board.
pub fn reopen(tx: &mut Tx<'_>, state: &State, retried: bool, by: Uid, when: &When) -> Result<(), Error> {
    let kind = if retried { Kind::Retried } else { Kind::Unblocked };
    let event = events::write(tx, state.task, kind, json!({ "by": by }), when.now.wall)?;
    tx.execute("forgetting failures", "UPDATE tasks SET failures = 0 WHERE task = ?1", [state.task])?;
    open(tx, state, event, None, when).map(|_| ())
}

/// `todo` becomes `ready`, or the other way round after an edit of what it waits for.
///
/// # Errors
/// A fault of the board.
pub fn reconsider(tx: &mut Tx<'_>, task: TaskId, when: &When) -> Result<(), Error> {
    let Some(state) = state(tx, task)? else { return Ok(()) };
    let right = state.open_status(when.now.wall);
    match (state.status, right) {
        (Status::Todo, Status::Ready) => promote(tx, &state, when),
        (Status::Ready, Status::Todo) => {
            tx.execute(
                "putting a task back",
                "UPDATE tasks SET status = 'todo', retry_at_ms = NULL, retry_epoch = NULL, version = version + 1
                 WHERE task = ?1",
                [task],
            )?;
            tx.change(Change::Task(task));
            tx.change(Change::Due);
            Ok(())
        }
        _ => {
            tx.change(Change::Due);
            Ok(())
        }
    }
}

/// Ends a back-off by an operator's word.
///
/// # Errors
/// A fault of the board.
pub fn make_due(tx: &mut Tx<'_>, task: TaskId, by: Uid, when: &When) -> Result<(), Error> {
    events::write(tx, task, Kind::Retried, json!({ "by": by }), when.now.wall)?;
    tx.execute(
        "ending a back-off",
        "UPDATE tasks SET retry_at_ms = NULL, retry_epoch = NULL, failures = 0, version = version + 1 WHERE task = ?1",
        [task],
    )?;
    tx.change(Change::Task(task));
    tx.change(Change::Ready);
    Ok(())
}

/// Computes the due time of a task's open run anew, after its spans have changed.
///
/// # Errors
/// A fault of the board.
pub fn respan(tx: &mut Tx<'_>, task: TaskId, when: &When) -> Result<(), Error> {
    due::arm_task(tx, task, when)
}

/// Nothing is missing any more.
pub(super) fn promote(tx: &mut Tx<'_>, state: &State, when: &When) -> Result<(), Error> {
    let event = events::write(tx, state.task, Kind::Promoted, json!({}), when.now.wall)?;
    open(tx, state, event, None, when).map(|_| ())
}

/// Puts a task away.
///
/// # Errors
/// A fault of the board.
pub fn archive(tx: &mut Tx<'_>, task: TaskId, by: Option<Uid>, when: &When) -> Result<(), Error> {
    let by = by.map_or_else(|| json!("retention"), |uid| json!(uid));
    events::write(tx, task, Kind::Archived, json!({ "by": by }), when.now.wall)?;
    tx.execute(
        "archiving a task",
        "UPDATE tasks SET status = 'archived', ended_as = ifnull(ended_as, status), version = version + 1
         WHERE task = ?1",
        [task],
    )?;
    tx.change(Change::Task(task));
    Ok(())
}
