//! From verdicts to steps: what to write and what to send, in order, each bound to the versions it was
//! decided on.

use crate::core::ids::{RunId, TaskId};
use crate::core::row::ClaimRow;
use crate::core::verdict::{Hold, Release, Rung, StopCause, Verdict};

/// The rows a step was decided on. A step whose rows have changed since does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The task and its version.
    pub task: Option<(TaskId, i64)>,
    /// The run and its version.
    pub run: Option<(RunId, i64)>,
}

impl Basis {
    /// Of a row.
    pub fn of(row: &ClaimRow) -> Self {
        Self {
            task: row.task.as_ref().map(|task| (task.task, task.version)),
            run: row.run.as_ref().map(|run| (run.run, run.version)),
        }
    }

    /// The task, as the row or its run names it.
    pub fn task_id(&self) -> Option<TaskId> {
        self.task.map(|(task, _)| task)
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Renew the lease.
    Extend(Basis),
    /// Record why the claim is left alone, if that is not on record already.
    Hold(Basis, Hold),
    /// A hold on record is over.
    Unhold(Basis),
    /// Commit the cause, send, commit the time.
    Signal(Basis, Rung, StopCause),
    /// End the claim.
    Release(Basis, Release, bool),
    /// Forget a survivor.
    Forget(Basis),
}

/// Orders verdicts into steps, each with the place of its row: ends first, because they free slots and
/// processes; then what only writes; signals last, so that nobody is signalled on a board that this sweep is
/// still changing.
pub fn plan<'a>(judged: impl IntoIterator<Item = (&'a ClaimRow, Verdict)>) -> Vec<(usize, Step)> {
    let mut steps: Vec<(usize, Step)> = judged
        .into_iter()
        .enumerate()
        .filter_map(|(at, (row, verdict))| step(row, verdict).map(|step| (at, step)))
        .collect();
    steps.sort_by_key(|(_, step)| rank(step));
    steps
}

fn step(row: &ClaimRow, verdict: Verdict) -> Option<Step> {
    let basis = Basis::of(row);
    let held = row.run.as_ref().and_then(|run| run.held.as_deref());
    match verdict {
        Verdict::Keep => held.map(|_| Step::Unhold(basis)),
        Verdict::Extend => Some(Step::Extend(basis)),
        Verdict::Hold(hold) => (held != Some(hold.word())).then_some(Step::Hold(basis, hold)),
        Verdict::Signal(rung, cause) => Some(Step::Signal(basis, rung, cause)),
        Verdict::Release { why, survivor } => Some(Step::Release(basis, why, survivor)),
        Verdict::Forget => Some(Step::Forget(basis)),
    }
}

const fn rank(step: &Step) -> u8 {
    match step {
        Step::Release(..) | Step::Forget(_) => 0,
        Step::Extend(_) => 1,
        Step::Hold(..) | Step::Unhold(_) => 2,
        Step::Signal(..) => 3,
    }
}
