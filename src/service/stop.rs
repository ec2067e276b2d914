//! ReclaimTask, CancelTask, SignalTask: the stop is on the board before anybody is told to act on it.

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::refusal::Refusal;
use crate::core::spec;
use crate::core::state::{Act, Status, Step, step};
use crate::core::verdict::StopCause;
use crate::core::view::{Outcome, StopRequest};
use crate::service::access;
use crate::service::types::Caller;
use crate::store::sweep::{self, Asked, StopOn};
use crate::store::{Snapshot, Tx, When, tasks};

/// What became of a stop in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It is settled.
    Settled(Outcome),
    /// The daemon looks at this run and says what became of it.
    Ask(RunId),
}

/// What can be said without the board.
///
/// # Errors
/// [`Refusal::InvalidArgument`], [`Refusal::LimitExceeded`].
pub fn check(request: &StopRequest, text_bytes: usize) -> Result<(), Error> {
    spec::text("Reason", request.reason.as_deref().unwrap_or_default(), text_bytes)?;
    Ok(())
}

/// Takes a claim back. A task that no run holds has nothing to be taken back.
///
/// # Errors
/// [`Refusal::NoSuchTask`], [`Refusal::StaleRun`], or a fault of the board.
pub fn reclaim(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    request: &StopRequest,
    when: &When,
) -> Result<Stopped, Error> {
    let state = guarded(tx, caller, task, request.run)?;
    if state.status != Status::Running {
        return Ok(Stopped::Settled(Outcome::Unchanged));
    }
    stop(tx, caller, task, StopCause::Reclaimed, request, when)
}

/// Gives a task up; its worker is stopped first.
///
/// # Errors
/// [`Refusal::NoSuchTask`], [`Refusal::StaleRun`], [`Refusal::InvalidTransition`], or a fault of the board.
pub fn cancel(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    request: &StopRequest,
    when: &When,
) -> Result<Stopped, Error> {
    let state = guarded(tx, caller, task, request.run)?;
    match step(state.status, Act::Cancel) {
        Step::Stop => stop(tx, caller, task, StopCause::Cancelled, request, when),
        Step::To(_) => {
            tasks::cancel(tx, task, caller.uid, request.reason.as_deref(), when)?;
            Ok(Stopped::Settled(Outcome::Done))
        }
        Step::Unchanged | Step::Open | Step::Due => Ok(Stopped::Settled(Outcome::Unchanged)),
        Step::Refused => {
            let to = Status::Cancelled.word();
            Err(Refusal::InvalidTransition { task, from: state.status, to }.into())
        }
    }
}

fn stop(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    cause: StopCause,
    request: &StopRequest,
    when: &When,
) -> Result<Stopped, Error> {
    let asked = Asked { by: Some(caller.uid), reason: request.reason.as_deref() };
    Ok(match sweep::stop_task(tx, task, cause, request.urgency, asked, when)? {
        StopOn::Run(run) => Stopped::Ask(run),
        StopOn::Settled => Stopped::Settled(Outcome::Released),
    })
}

/// The task, if the run that the caller means still holds it.
fn guarded(
    snapshot: &Snapshot<'_>,
    caller: &Caller,
    task: TaskId,
    run: Option<RunId>,
) -> Result<tasks::State, Error> {
    let state = access::task(snapshot, caller, task)?;
    let holder = state.run.filter(|_| state.status == Status::Running);
    match run {
        Some(run) if holder != Some(run) => Err(Refusal::StaleRun { run, task, now: holder }.into()),
        Some(_) | None => Ok(state),
    }
}

/// The run whose worker is to get a signal.
///
/// # Errors
/// [`Refusal::InvalidArgument`], [`Refusal::NoSuchTask`], [`Refusal::StaleRun`],
/// [`Refusal::InvalidTransition`], or a fault of the board.
pub fn target(
    snapshot: &Snapshot<'_>,
    caller: &Caller,
    task: TaskId,
    signal: i32,
    run: Option<RunId>,
) -> Result<RunId, Error> {
    if !(1..=64).contains(&signal) {
        return Err(Refusal::argument("signal", format!("{signal} is no signal of this system")).into());
    }
    let state = guarded(snapshot, caller, task, run)?;
    let holder = state.run.filter(|_| state.status == Status::Running);
    holder.ok_or_else(|| Refusal::InvalidTransition { task, from: state.status, to: "signalled" }.into())
}
