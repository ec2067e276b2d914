//! Who may see and do what. A task that somebody may not see does not exist for them.

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::refusal::Refusal;
use crate::service::types::Caller;
use crate::store::{Snapshot, runs, tasks};

/// Whose tasks the caller may see: all, or their own.
pub const fn sight(caller: &Caller) -> Option<Uid> {
    if caller.is_admin { None } else { Some(caller.uid) }
}

/// For what only an administrator may do.
///
/// # Errors
/// [`Refusal::NotAuthorized`].
pub fn admin(caller: &Caller, what: &'static str) -> Result<(), Error> {
    if caller.is_admin {
        return Ok(());
    }
    Err(Refusal::NotAuthorized(format!("{what} is for administrators; user {} is none", caller.uid)).into())
}

/// A task that the caller may see and act on.
///
/// # Errors
/// [`Refusal::NoSuchTask`], or a fault of the board.
pub fn task(snapshot: &Snapshot<'_>, caller: &Caller, task: TaskId) -> Result<tasks::State, Error> {
    let state = tasks::state(snapshot, task)?;
    let seen = state.filter(|state| caller.is_admin || state.owner_uid == caller.uid);
    seen.ok_or_else(|| Refusal::NoSuchTask(task).into())
}

/// A run that the caller may speak for: root, the task's owner, the uid it runs as, the uid that claimed.
///
/// # Errors
/// [`Refusal::NoSuchRun`], or a fault of the board.
pub fn run(
    snapshot: &Snapshot<'_>,
    caller: &Caller,
    run: RunId,
) -> Result<(runs::State, Option<tasks::State>), Error> {
    let missing = || Error::from(Refusal::NoSuchRun(run));
    let state = runs::state(snapshot, run)?.ok_or_else(missing)?;
    let task = tasks::state(snapshot, state.task)?;
    let speaks = caller.is_admin
        || task.as_ref().is_some_and(|task| task.owner_uid == caller.uid)
        || state.worker_uid == Some(caller.uid)
        || state.claimant_uid == Some(caller.uid);
    if speaks { Ok((state, task)) } else { Err(missing()) }
}
