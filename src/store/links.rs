//! Parents and children: one edge each, with its own `satisfied` flag, and a count of what is missing on the
//! child, so that completing a task costs its own children and nothing more.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::ids::TaskId;
use crate::core::refusal::Refusal;
use crate::core::state::Status;
use crate::store::events::{self, Kind};
use crate::store::sql::LaxText;
use crate::store::{Snapshot, Tx, When, tasks};

/// Ancestors that a search for a circle visits at most.
const ANCESTORS: usize = 100_000;

/// What an edge from a parent means for its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// It is done: nothing to wait for.
    Satisfied,
    /// It is still to be done.
    Pending,
    /// It was cancelled.
    Cancelled,
}

/// What a task is to a child of it.
///
/// # Errors
/// A fault of the board.
pub fn as_parent(snapshot: &Snapshot<'_>, task: &tasks::State) -> Result<Parent, Error> {
    Ok(match task.status {
        Status::Done => Parent::Satisfied,
        Status::Cancelled => Parent::Cancelled,
        Status::Todo | Status::Ready | Status::Running | Status::Blocked => Parent::Pending,
        Status::Archived => {
            let ended_as = snapshot.one(
                "reading how a task ended",
                "SELECT ended_as FROM tasks WHERE task = ?1",
                [task.task],
                |row| Ok(row.get::<_, LaxText>(0)?.0),
            )?;
            let done = ended_as.flatten().as_deref() == Some(Status::Done.word());
            if done { Parent::Satisfied } else { Parent::Cancelled }
        }
    })
}

/// Writes an edge; the child's count is the caller's to set (a new task) or [`link`]'s.
///
/// # Errors
/// A fault of the board.
pub fn add(tx: &Tx<'_>, parent: TaskId, child: TaskId, kind: Parent) -> Result<(), Error> {
    tx.execute(
        "linking tasks",
        "INSERT INTO edges (parent, child, satisfied) VALUES (?1, ?2, ?3)",
        params![parent, child, kind == Parent::Satisfied],
    )?;
    Ok(())
}

/// Whether there is such an edge, and whether it is satisfied.
///
/// # Errors
/// A fault of the board.
pub fn edge(snapshot: &Snapshot<'_>, parent: TaskId, child: TaskId) -> Result<Option<bool>, Error> {
    snapshot.one(
        "looking for an edge",
        "SELECT satisfied FROM edges WHERE parent = ?1 AND child = ?2",
        [parent, child],
        |row| row.get(0),
    )
}

/// Lets a child wait for a parent.
///
/// # Errors
/// A fault of the board.
pub fn link(tx: &mut Tx<'_>, parent: TaskId, child: TaskId, kind: Parent, when: &When) -> Result<(), Error> {
    add(tx, parent, child, kind)?;
    events::write(tx, child, Kind::Linked, json!({ "parent": parent }), when.now.wall)?;
    if kind != Parent::Satisfied {
        count(tx, child, 1)?;
    }
    tx.change(crate::core::view::Change::Task(child));
    let waits = matches!(tasks::state(tx, child)?, Some(state) if matches!(state.status, Status::Todo | Status::Ready));
    match kind {
        Parent::Cancelled if waits => tasks::park_for_parent(tx, child, parent, when),
        Parent::Satisfied | Parent::Pending | Parent::Cancelled => tasks::reconsider(tx, child, when),
    }
}

/// Lets a child no longer wait for a parent.
///
/// # Errors
/// A fault of the board.
pub fn unlink(
    tx: &mut Tx<'_>,
    parent: TaskId,
    child: TaskId,
    satisfied: bool,
    when: &When,
) -> Result<(), Error> {
    tx.execute("unlinking tasks", "DELETE FROM edges WHERE parent = ?1 AND child = ?2", [parent, child])?;
    events::write(tx, child, Kind::Unlinked, json!({ "parent": parent }), when.now.wall)?;
    if !satisfied {
        count(tx, child, -1)?;
    }
    tx.change(crate::core::view::Change::Task(child));
    tasks::reconsider(tx, child, when)
}

fn count(tx: &Tx<'_>, child: TaskId, more: i64) -> Result<(), Error> {
    tx.execute(
        "counting parents",
        "UPDATE tasks SET pending_parents = max(pending_parents + ?2, 0), version = version + 1 WHERE task = ?1",
        params![child, more],
    )?;
    Ok(())
}

/// The parent is done: its edges are satisfied for good, and who waits for nothing else becomes ready.
pub(super) fn satisfy_children(tx: &mut Tx<'_>, parent: TaskId, when: &When) -> Result<(), Error> {
    let children: Vec<TaskId> = tx.all(
        "looking for children",
        "SELECT child FROM edges WHERE parent = ?1 AND satisfied = 0",
        [parent],
        |row| row.get(0),
    )?;
    for child in children {
        tx.execute(
            "satisfying an edge",
            "UPDATE edges SET satisfied = 1 WHERE parent = ?1 AND child = ?2",
            [parent, child],
        )?;
        count(tx, child, -1)?;
        tasks::reconsider(tx, child, when)?;
    }
    Ok(())
}

/// Children that wait for this task and that no run holds.
pub(super) fn waiting_children(snapshot: &Snapshot<'_>, parent: TaskId) -> Result<Vec<TaskId>, Error> {
    snapshot.all(
        "looking for children",
        "SELECT e.child FROM edges e JOIN tasks t ON t.task = e.child
         WHERE e.parent = ?1 AND e.satisfied = 0 AND t.status IN ('todo', 'ready')",
        [parent],
        |row| row.get(0),
    )
}

/// A parent that the task waits for in vain, if there is one.
pub(super) fn cancelled_parent(snapshot: &Snapshot<'_>, child: TaskId) -> Result<Option<TaskId>, Error> {
    snapshot.one(
        "looking for a cancelled parent",
        "SELECT e.parent FROM edges e JOIN tasks t ON t.task = e.parent
         WHERE e.child = ?1 AND e.satisfied = 0
             AND (t.status = 'cancelled' OR t.status = 'archived' AND t.ended_as IS NOT 'done')
         ORDER BY e.parent LIMIT 1",
        [child],
        |row| row.get(0),
    )
}

/// Refuses an edge that would close a circle, and shows the circle.
///
/// # Errors
/// [`Refusal::Cycle`], [`Refusal::LimitExceeded`] for a graph too large to search, or a fault of the board.
pub fn refuse_circle(snapshot: &Snapshot<'_>, parent: TaskId, child: TaskId) -> Result<(), Error> {
    let mut below: HashMap<TaskId, TaskId> = HashMap::from([(parent, child)]);
    let mut queue = VecDeque::from([parent]);
    while let Some(task) = queue.pop_front() {
        if task == child {
            return Err(Refusal::Cycle { task: child, path: circle(&below, child) }.into());
        }
        if below.len() > ANCESTORS {
            let limit = ANCESTORS as u64;
            return Err(
                Refusal::LimitExceeded { what: "ancestors of a task", limit, asked: limit + 1 }.into()
            );
        }
        let above: Vec<TaskId> = snapshot.all(
            "looking for parents",
            "SELECT parent FROM edges WHERE child = ?1",
            [task],
            |row| row.get(0),
        )?;
        for next in above {
            if let Entry::Vacant(place) = below.entry(next) {
                place.insert(task);
                queue.push_back(next);
            }
        }
    }
    Ok(())
}

/// From the child down to itself again.
fn circle(below: &HashMap<TaskId, TaskId>, child: TaskId) -> Vec<TaskId> {
    let mut path = vec![child];
    let mut at = child;
    while let Some(next) = below.get(&at) {
        path.push(*next);
        at = *next;
        if at == child {
            break;
        }
    }
    path
}
