//! What a sweep reads and writes.
//!
//! Every write names the row versions that it was decided on; if one has changed since, nothing is written
//! and the answer says so.

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::fingerprint::Epoch;
use crate::core::ids::{RunId, TaskId};
use crate::core::plan::Basis;
use crate::core::record::Record;
use crate::core::retry::{Exit, Outcome};
use crate::core::row::{ClaimRow, RunPart};
use crate::core::spec::Completion;
use crate::core::time::{MonoMs, WallUsec};
use crate::core::verdict::Hold;
use crate::core::view::Change;
use crate::store::back_off;
use crate::store::events::{self, About, Kind};
use crate::store::release::current;
use crate::store::sql::LaxText;
use crate::store::{Snapshot, Tx, When, due, queues, rows, runs, tasks};

pub use crate::store::release::release;
pub use crate::store::stops::{Asked, StopOn, ask_stop, signalled, stop_task};

/// Which rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every running task, every open run whose task it does not hold, every survivor.
    All,
    /// Open runs of this epoch that have something due, and those whose due time is not known.
    Due {
        /// Now.
        now: MonoMs,
        /// The epoch of `now`.
        epoch: Epoch,
    },
    /// One run.
    Run(RunId),
    /// One task.
    Task(TaskId),
}

/// When somebody has to look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextDue {
    /// Leases, deadlines, stall limits, grace, kill rechecks, linger, starts, back-offs.
    pub mono: Option<MonoMs>,
    /// `not_before`.
    pub wall: Option<WallUsec>,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// With this outcome.
    pub outcome: Outcome,
    /// How the command ended, where known.
    pub exit: Option<Exit>,
    /// The supervisor's record, where there is one.
    pub record: Option<Record>,
    /// What went wrong, for people; else the run's own.
    pub error: Option<String>,
    /// Whether its worker may live on: it stays with the run for the reaper.
    pub survivor: bool,
    /// Whether an operator's force ended it.
    pub forced: bool,
    /// A comment for the task; the repair of a broken claim always gets one.
    pub note: Option<String>,
}

impl Ending {
    /// With this outcome and nothing else known.
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, exit: None, record: None, error: None, survivor: false, forced: false, note: None }
    }
}

/// Reads rows; `O(running tasks + open runs)`, never `O(board)`.
///
/// # Errors
/// A fault of the board.
pub fn rows(snapshot: &Snapshot<'_>, selection: &Selection) -> Result<Vec<ClaimRow>, Error> {
    let mut found = Vec::new();
    match selection {
        Selection::All => found = rows::all(snapshot)?,
        Selection::Due { now, epoch } => {
            rows::read(snapshot, rows::DUE, params![epoch.to_string(), now.0], &mut found)?;
        }
        Selection::Run(run) => rows::read(snapshot, rows::ONE_RUN, [run], &mut found)?,
        Selection::Task(task) => rows::read(snapshot, rows::ONE_TASK, [task], &mut found)?,
    }
    Ok(found)
}

/// The earliest due times after `after`: what was due before has been looked at, and is looked at again once
/// per interval.
///
/// # Errors
/// A fault of the board.
pub fn next_due(snapshot: &Snapshot<'_>, after: MonoMs, when: &When) -> Result<NextDue, Error> {
    let run = due::next(snapshot, after, when)?;
    let back_off = back_off::next_back_off(snapshot, after, when)?;
    let wall = snapshot.one(
        "looking for the next not_before",
        "SELECT not_before_usec FROM tasks INDEXED BY tasks_todo
         WHERE status = 'todo' AND pending_parents <= 0 AND not_before_usec > ?1
         ORDER BY not_before_usec LIMIT 1",
        [when.now.wall.0],
        |row| row.get(0),
    )?;
    Ok(NextDue { mono: run.into_iter().chain(back_off).min(), wall: wall.map(WallUsec) })
}

/// What completes a task; the queue's defaults are applied.
///
/// # Errors
/// A fault of the board.
pub fn completion(snapshot: &Snapshot<'_>, task: TaskId) -> Result<Completion, Error> {
    let found = snapshot.one(
        "reading what completes a task",
        "SELECT completion, queue FROM tasks WHERE task = ?1",
        [task],
        |row| Ok((row.get::<_, LaxText>(0)?.0, row.get::<_, LaxText>(1)?.0)),
    )?;
    let (own, queue) = found.unwrap_or_default();
    if let Some(own) = own.and_then(|word| Completion::parse(&word)) {
        return Ok(own);
    }
    let default = queues::defaults(snapshot, queue.as_deref().unwrap_or_default())?.completion;
    Ok(default.unwrap_or(Completion::Exit))
}

/// The run of a basis that is not stale.
fn current_run(tx: &Tx<'_>, basis: &Basis) -> Result<Option<RunPart>, Error> {
    Ok(current(tx, basis)?.and_then(|row| row.run))
}

pub(super) fn about(run: &RunPart) -> About {
    About { task: Some(run.task), run: Some(run.run) }
}

/// Renews the lease for `lease_ms` from now; with `mark_progress` the stall limit begins anew too (the fresh
/// period after a gap). Stamps of another epoch become stamps of this one.
///
/// # Errors
/// A fault of the board.
pub fn extend(
    tx: &mut Tx<'_>,
    basis: &Basis,
    lease_ms: i64,
    mark_progress: bool,
    when: &When,
) -> Result<bool, Error> {
    let Some(run) = current_run(tx, basis)? else { return Ok(false) };
    runs::restamp(tx, run.run, when)?;
    let progress = mark_progress.then_some(when.now.mono.0);
    tx.execute(
        "extending a lease",
        "UPDATE runs SET lease_expires_ms = ?2, progress_ms = ifnull(?3, progress_ms), held = NULL WHERE run = ?1",
        params![run.run, when.now.mono.plus(lease_ms).0, progress],
    )?;
    let payload = json!({ "lease_ms": lease_ms, "fresh": mark_progress.then_some(true) });
    events::write(tx, about(&run), Kind::ClaimExtended, payload, when.now.wall)?;
    due::arm(tx, run.run, when)?;
    tx.change(Change::Due);
    Ok(true)
}

/// Records why a claim is left alone; an event once per reason.
///
/// # Errors
/// A fault of the board.
pub fn hold(tx: &mut Tx<'_>, basis: &Basis, hold: Hold, when: &When) -> Result<bool, Error> {
    let Some(run) = current_run(tx, basis)? else { return Ok(false) };
    if run.held.as_deref() == Some(hold.word()) {
        return Ok(true);
    }
    tx.execute("holding a claim", "UPDATE runs SET held = ?2 WHERE run = ?1", params![run.run, hold.word()])?;
    events::write(tx, about(&run), Kind::Held, json!({ "reason": hold.word() }), when.now.wall)?;
    due::arm(tx, run.run, when)?;
    tx.change(Change::Task(run.task));
    Ok(true)
}

/// A hold on record is over.
///
/// # Errors
/// A fault of the board.
pub fn unhold(tx: &mut Tx<'_>, basis: &Basis, when: &When) -> Result<bool, Error> {
    let Some(run) = current_run(tx, basis)? else { return Ok(false) };
    if run.held.is_some() {
        tx.execute("ending a hold", "UPDATE runs SET held = NULL WHERE run = ?1", [run.run])?;
        due::arm(tx, run.run, when)?;
        tx.change(Change::Task(run.task));
    }
    Ok(true)
}

/// A survivor is no more.
///
/// # Errors
/// A fault of the board.
pub fn forget(tx: &mut Tx<'_>, basis: &Basis, when: &When) -> Result<bool, Error> {
    let Some(run) = current_run(tx, basis)? else { return Ok(false) };
    tx.execute(
        "forgetting a survivor",
        "UPDATE runs SET survivor = 0, worker_pid = NULL, worker_fingerprint = NULL, supervisor_pid = NULL,
             supervisor_fingerprint = NULL, leader_gone_ms = NULL, due_ms = NULL, held = NULL, version = version + 1
         WHERE run = ?1",
        [run.run],
    )?;
    events::write(tx, about(&run), Kind::Survivor, json!({ "gone": true }), when.now.wall)?;
    tx.change(Change::Task(run.task));
    Ok(true)
}

/// The leader of a launched tree was seen to have ended: the linger time begins, once. What was decided in the
/// same look stays valid: no verdict becomes wrong by this note.
///
/// # Errors
/// A fault of the board.
pub fn leader_gone(tx: &mut Tx<'_>, run: RunId, when: &When) -> Result<(), Error> {
    let noted = tx.execute(
        "noting a leader's end",
        "UPDATE runs SET leader_gone_ms = ?2 WHERE run = ?1 AND leader_gone_ms IS NULL AND epoch = ?3",
        params![run, when.now.mono.0, when.epoch.to_string()],
    )?;
    if noted > 0 {
        due::arm_quietly(tx, run, when)?;
        tx.change(Change::Due);
    }
    Ok(())
}

/// Computes every open run's due time anew, after the configuration has changed.
///
/// # Errors
/// A fault of the board.
pub fn rearm(tx: &mut Tx<'_>, when: &When) -> Result<(), Error> {
    let open: Vec<RunId> =
        tx.all("looking for open runs", "SELECT run FROM runs WHERE ended_usec IS NULL", [], |row| {
            row.get(0)
        })?;
    for run in open {
        due::arm_quietly(tx, run, when)?;
    }
    tx.change(Change::Due);
    Ok(())
}

/// Archives tasks that ended longer ago than the retention, at most `limit` of them; returns which.
///
/// # Errors
/// A fault of the board.
pub fn retain(tx: &mut Tx<'_>, limit: usize, when: &When) -> Result<Vec<TaskId>, Error> {
    let span_usec = when.policy.retention_ms.saturating_mul(1_000);
    if span_usec <= 0 {
        return Ok(Vec::new());
    }
    let old: Vec<TaskId> = tx.all(
        "looking for old tasks",
        "SELECT task FROM tasks INDEXED BY tasks_over
         WHERE status IN ('done', 'cancelled') AND ended_usec < ?1
         ORDER BY ended_usec LIMIT ?2",
        params![when.now.wall.0.saturating_sub(span_usec), i64::try_from(limit).unwrap_or(i64::MAX)],
        |row| row.get(0),
    )?;
    for task in &old {
        tasks::archive(tx, *task, None, when)?;
    }
    Ok(old)
}
