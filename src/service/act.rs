//! BlockTask, UnblockTask, RetryTask, ArchiveTask: what is done to a task that no run holds.

use crate::core::fault::Error;
use crate::core::ids::TaskId;
use crate::core::refusal::Refusal;
use crate::core::state::{Act, BlockCode, Status, Step, step};
use crate::core::view::Outcome;
use crate::service::access;
use crate::service::types::Caller;
use crate::store::{Tx, When, tasks};

/// Does it, as the transition table says.
///
/// # Errors
/// [`Refusal::NoSuchTask`], [`Refusal::InvalidTransition`], or a fault of the board.
pub fn act(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    act: Act,
    reason: Option<&str>,
    when: &When,
) -> Result<Outcome, Error> {
    let state = access::task(tx, caller, task)?;
    match step(state.status, act) {
        Step::Unchanged => return Ok(Outcome::Unchanged),
        Step::Due if !state.backs_off => return Ok(Outcome::Unchanged),
        Step::Due => tasks::make_due(tx, task, caller.uid, when)?,
        Step::Open => tasks::reopen(tx, &state, act == Act::Retry, caller.uid, when)?,
        Step::To(Status::Blocked) => {
            tasks::park(tx, task, BlockCode::Operator, reason.unwrap_or_default(), when)?;
        }
        Step::To(Status::Archived) => tasks::archive(tx, task, Some(caller.uid), when)?,
        Step::To(Status::Cancelled) => tasks::cancel(tx, task, caller.uid, reason, when)?,
        Step::To(_) | Step::Stop | Step::Refused => {
            return Err(Refusal::InvalidTransition { task, from: state.status, to: target(act) }.into());
        }
    }
    Ok(Outcome::Done)
}

const fn target(act: Act) -> &'static str {
    match act {
        Act::Block => Status::Blocked.word(),
        Act::Unblock | Act::Retry => Status::Ready.word(),
        Act::Cancel => Status::Cancelled.word(),
        Act::Archive => Status::Archived.word(),
    }
}
