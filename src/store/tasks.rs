//! Tasks: what the use cases read before they act; making and rewriting them.

use rusqlite::params;
use serde_json::json;

use crate::core::fault::{Error, Fault};
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::spec::{Program, TaskSpec};
use crate::core::state::{BlockCode, Status, open_status};
use crate::core::time::WallUsec;
use crate::core::view::Change;
use crate::store::events::{self, Kind};
use crate::store::moves::cancelled_parent;
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, Tx, When, queues};

pub use crate::store::moves::{archive, cancel, make_due, park, park_for_parent, reconsider, reopen, respan};
pub(super) use crate::store::moves::{end, open, park_silently, promote};

/// What an act needs to know of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which.
    pub task: TaskId,
    /// Where it stands.
    pub status: Status,
    /// Whose it is.
    pub owner_uid: Uid,
    /// Its lane.
    pub queue: String,
    /// The run that it says holds it.
    pub run: Option<RunId>,
    /// Edges that are not satisfied.
    pub pending_parents: i64,
    /// Not before this moment.
    pub not_before_usec: Option<i64>,
    /// Counted failures.
    pub failures: i64,
    /// Whether a back-off is running.
    pub backs_off: bool,
    /// Whether it has a command.
    pub launchable: bool,
    /// Counts the writes.
    pub version: i64,
}

impl State {
    /// `ready`, or `todo` while something is missing.
    pub fn open_status(&self, now: WallUsec) -> Status {
        open_status(self.pending_parents, self.not_before_usec.is_none_or(|moment| moment <= now.0))
    }
}

/// Reads one.
///
/// # Errors
/// A fault of the board.
pub fn state(snapshot: &Snapshot<'_>, task: TaskId) -> Result<Option<State>, Error> {
    snapshot.one(
        "reading a task",
        "SELECT task, status, owner_uid, queue, run, pending_parents, not_before_usec, failures,
             retry_at_ms IS NOT NULL, launchable, version FROM tasks WHERE task = ?1",
        [task],
        |row| {
            let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
            let status = row.get::<_, LaxText>(1)?.0;
            Ok(State {
                task: row.get(0)?,
                status: status.and_then(|word| Status::parse(&word)).unwrap_or(Status::Blocked),
                owner_uid: lax(2)?.and_then(|uid| Uid::try_from(uid).ok()).unwrap_or(0),
                queue: row.get::<_, LaxText>(3)?.0.unwrap_or_default(),
                run: lax(4)?.map(RunId::new),
                pending_parents: lax(5)?.unwrap_or(0),
                not_before_usec: lax(6)?,
                failures: lax(7)?.unwrap_or(0),
                backs_off: row.get(8)?,
                launchable: lax(9)? == Some(1),
                version: lax(10)?.unwrap_or(0),
            })
        },
    )
}

/// The task of this owner with this key, unless it is archived.
///
/// # Errors
/// A fault of the board.
pub fn by_key(snapshot: &Snapshot<'_>, owner: Uid, key: &str) -> Result<Option<TaskId>, Error> {
    snapshot.one(
        "looking for an idempotency key",
        "SELECT task FROM tasks
         WHERE owner_uid = ?1 AND idempotency_key = ?2 AND idempotency_key IS NOT NULL AND status <> 'archived'",
        params![owner, key],
        |row| row.get(0),
    )
}

/// Tasks of an owner that are still to be done.
///
/// # Errors
/// A fault of the board.
pub fn open_of_owner(snapshot: &Snapshot<'_>, owner: Uid) -> Result<u64, Error> {
    let open = snapshot.number(
        "counting the tasks of a user",
        "SELECT sum(tasks) FROM tallies
         WHERE owner_uid = ?1 AND status IN ('todo', 'ready', 'running', 'blocked')",
        [owner],
    )?;
    Ok(u64::try_from(open).unwrap_or(0))
}

/// The task's own lease, or its queue's, milliseconds.
///
/// # Errors
/// A fault of the board.
pub fn lease_ms(snapshot: &Snapshot<'_>, task: TaskId) -> Result<Option<i64>, Error> {
    let found = snapshot.one(
        "reading a task's lease",
        "SELECT lease_ms, queue FROM tasks WHERE task = ?1",
        [task],
        |row| Ok((row.get::<_, Lax>(0)?.0, row.get::<_, LaxText>(1)?.0)),
    )?;
    match found {
        Some((Some(lease_ms), _)) => Ok(Some(lease_ms)),
        Some((None, Some(queue))) => Ok(queues::defaults(snapshot, &queue)?.lease_ms),
        Some((None, None)) | None => Ok(None),
    }
}

/// Where a new task stands, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `todo`, `ready` or `blocked`.
    pub status: Status,
    /// Why it is blocked: the parent that was cancelled.
    pub cancelled_parent: Option<TaskId>,
    /// Edges that are not satisfied.
    pub pending_parents: i64,
}

/// Makes a task; its edges are written by [`crate::store::links::add`].
///
/// # Errors
/// A fault of the board.
pub fn insert(
    tx: &mut Tx<'_>,
    owner: Uid,
    spec: &TaskSpec,
    place: &Place,
    when: &When,
) -> Result<TaskId, Error> {
    let block = place.cancelled_parent.map(|parent| (BlockCode::Parent.word(), cancelled_parent(parent)));
    let task = tx.insert(
        "making a task",
        "INSERT INTO tasks (status, queue, title, body, priority, owner_uid, idempotency_key, not_before_usec,
             program, launchable, slots, stop_signal, max_runtime_ms, stall_ms, lease_ms, stop_grace_ms,
             failure_limit, backoff_ms, backoff_max_ms, completion, pending_parents, block_code, block_reason,
             created_usec, ready_seq)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
             ?22, ?23, ?24, 1 + ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))",
        params![
            place.status.word(),
            spec.queue.as_deref().unwrap_or(queues::DEFAULT),
            spec.title,
            spec.body,
            spec.priority,
            owner,
            spec.idempotency_key,
            spec.not_before_usec,
            program(&spec.program)?,
            !spec.program.command.is_empty(),
            slots(spec)?,
            spec.program.stop_signal,
            spec.max_runtime_ms,
            spec.stall_ms,
            spec.lease_ms,
            spec.stop_grace_ms,
            spec.failure_limit,
            spec.backoff_ms,
            spec.backoff_max_ms,
            spec.completion.map(crate::core::spec::Completion::word),
            place.pending_parents,
            block.as_ref().map(|(code, _)| *code),
            block.as_ref().map(|(_, reason)| reason),
            when.now.wall.0,
        ],
    )?;
    let task = TaskId::new(task);
    label(tx, task, &spec.labels)?;
    let payload = json!({ "status": place.status.word(), "queue": spec.queue, "owner_uid": owner });
    events::write(tx, task, Kind::Created, payload, when.now.wall)?;
    if let Some((code, reason)) = block {
        let payload = json!({ "code": code, "reason": reason });
        events::write(tx, task, Kind::Blocked, payload, when.now.wall)?;
    }
    tx.change(Change::Task(task));
    if place.status == Status::Ready {
        tx.change(Change::Ready);
    } else if spec.not_before_usec.is_some() {
        tx.change(Change::Due);
    }
    Ok(task)
}

/// Writes every property of a spec but its parents and its key.
///
/// # Errors
/// A fault of the board.
pub fn rewrite(
    tx: &mut Tx<'_>,
    task: TaskId,
    spec: &TaskSpec,
    named: &[&str],
    when: &When,
) -> Result<(), Error> {
    tx.execute(
        "changing a task",
        "UPDATE tasks SET queue = ?2, title = ?3, body = ?4, priority = ?5, not_before_usec = ?6, program = ?7,
             launchable = ?8, slots = ?9, stop_signal = ?10, max_runtime_ms = ?11, stall_ms = ?12, lease_ms = ?13,
             stop_grace_ms = ?14, failure_limit = ?15, backoff_ms = ?16, backoff_max_ms = ?17, completion = ?18,
             version = version + 1
         WHERE task = ?1",
        params![
            task,
            spec.queue.as_deref().unwrap_or(queues::DEFAULT),
            spec.title,
            spec.body,
            spec.priority,
            spec.not_before_usec,
            program(&spec.program)?,
            !spec.program.command.is_empty(),
            slots(spec)?,
            spec.program.stop_signal,
            spec.max_runtime_ms,
            spec.stall_ms,
            spec.lease_ms,
            spec.stop_grace_ms,
            spec.failure_limit,
            spec.backoff_ms,
            spec.backoff_max_ms,
            spec.completion.map(crate::core::spec::Completion::word),
        ],
    )?;
    tx.execute("changing labels", "DELETE FROM labels WHERE task = ?1", [task])?;
    label(tx, task, &spec.labels)?;
    events::write(tx, task, Kind::Edited, json!({ "properties": named }), when.now.wall)?;
    tx.change(Change::Task(task));
    // Its lane or its rank may let it start now.
    tx.change(Change::Ready);
    Ok(())
}

fn label(tx: &Tx<'_>, task: TaskId, labels: &[String]) -> Result<(), Error> {
    for label in labels {
        tx.execute("labelling a task", "INSERT OR IGNORE INTO labels VALUES (?1, ?2)", params![task, label])?;
    }
    Ok(())
}

fn program(program: &Program) -> Result<String, Error> {
    serde_json::to_string(program).map_err(|_| Fault::Corrupt("a program that is no JSON").into())
}

fn slots(spec: &TaskSpec) -> Result<Option<String>, Error> {
    if spec.slots.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_string(&spec.slots).map_err(|_| Fault::Corrupt("slots that are no JSON"))?;
    Ok(Some(text))
}
