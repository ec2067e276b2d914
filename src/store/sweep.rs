//! What a sweep reads and writes.
//!
//! Every write names the row versions that it was decided on; if one has changed since, nothing is written
//! and the answer says so.

use crate::core::fault::Error;
use crate::core::fingerprint::Epoch;
use crate::core::ids::{RunId, TaskId};
use crate::core::plan::Basis;
use crate::core::record::Record;
use crate::core::retry::{Exit, Outcome, Settlement};
use crate::core::row::ClaimRow;
use crate::core::spec::Completion;
use crate::core::time::{MonoMs, WallUsec};
use crate::core::verdict::{Hold, Rung, StopCause, Urgency};
use crate::store::{Snapshot, Tx, When};

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
    /// A comment for the task; `reconciled` always gets one.
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
pub fn rows(_snapshot: &Snapshot<'_>, _selection: &Selection) -> Result<Vec<ClaimRow>, Error> {
    todo!()
}

/// The earliest due times after `after`: what was due before has been looked at, and is looked at again once
/// per interval.
///
/// # Errors
/// A fault of the board.
pub fn next_due(_snapshot: &Snapshot<'_>, _after: MonoMs, _epoch: &Epoch) -> Result<NextDue, Error> {
    todo!()
}

/// What completes a task; the queue's defaults are applied.
///
/// # Errors
/// A fault of the board.
pub fn completion(_snapshot: &Snapshot<'_>, _task: TaskId) -> Result<Completion, Error> {
    todo!()
}

/// Renews the lease for `lease_ms` from now; with `mark_progress` the stall limit begins anew too (the fresh
/// period after a gap). Stamps of another epoch become stamps of this one.
///
/// # Errors
/// A fault of the board.
pub fn extend(
    _tx: &mut Tx<'_>,
    _basis: &Basis,
    _lease_ms: i64,
    _mark_progress: bool,
    _when: &When,
) -> Result<bool, Error> {
    todo!()
}

/// Records why a claim is left alone; an event once per reason.
///
/// # Errors
/// A fault of the board.
pub fn hold(_tx: &mut Tx<'_>, _basis: &Basis, _hold: Hold, _when: &When) -> Result<bool, Error> {
    todo!()
}

/// A hold on record is over.
///
/// # Errors
/// A fault of the board.
pub fn unhold(_tx: &mut Tx<'_>, _basis: &Basis, _when: &When) -> Result<bool, Error> {
    todo!()
}

/// Commits the cause of a stop, before any signal. `None`: the basis is stale; otherwise the basis for what
/// follows. A cause that is on the board already and is stronger stays.
///
/// # Errors
/// A fault of the board.
pub fn ask_stop(
    _tx: &mut Tx<'_>,
    _basis: &Basis,
    _cause: StopCause,
    _urgency: Urgency,
    _when: &When,
) -> Result<Option<Basis>, Error> {
    todo!()
}

/// Records that a signal went out; `proof` says how its target was proven (`pidfd+inode`, `cgroup`, ...).
///
/// # Errors
/// A fault of the board.
pub fn signalled(
    _tx: &mut Tx<'_>,
    _run: RunId,
    _rung: Option<Rung>,
    _signal: i32,
    _pid: i64,
    _proof: &str,
    _when: &When,
) -> Result<(), Error> {
    todo!()
}

/// Ends a claim of any shape, whole or broken, and settles its task. `None`: the basis is stale, nothing was
/// changed. A task with several open runs is settled by the last of them to go.
///
/// # Errors
/// A fault of the board.
pub fn release(
    _tx: &mut Tx<'_>,
    _basis: &Basis,
    _ending: &Ending,
    _when: &When,
) -> Result<Option<Settlement>, Error> {
    todo!()
}

/// A survivor is no more.
///
/// # Errors
/// A fault of the board.
pub fn forget(_tx: &mut Tx<'_>, _basis: &Basis, _when: &When) -> Result<bool, Error> {
    todo!()
}

/// The leader of a launched tree was seen to have ended: the linger time begins, once.
///
/// # Errors
/// A fault of the board.
pub fn leader_gone(_tx: &mut Tx<'_>, _run: RunId, _when: &When) -> Result<(), Error> {
    todo!()
}

/// Computes every open run's due time anew, after the configuration has changed.
///
/// # Errors
/// A fault of the board.
pub fn rearm(_tx: &mut Tx<'_>, _when: &When) -> Result<(), Error> {
    todo!()
}

/// Archives tasks that ended longer ago than the retention, at most `limit` of them; returns how many.
///
/// # Errors
/// A fault of the board.
pub fn retain(_tx: &mut Tx<'_>, _limit: usize, _when: &When) -> Result<usize, Error> {
    todo!()
}
