//! UpdateTask, LinkTasks, UnlinkTasks, AddComment.

use crate::core::fault::Error;
use crate::core::ids::{CommentId, TaskId};
use crate::core::refusal::Refusal;
use crate::core::spec::Patch;
use crate::core::state::Status;
use crate::core::view::Outcome;
use crate::service::types::Caller;
use crate::service::{access, create};
use crate::store::links::{self, Parent};
use crate::store::{Tx, When, comments, query, queues, tasks};

/// Changes what the patch names; while a run holds the task, only what that run does not rest on.
///
/// # Errors
/// Refusals of the properties and of the state; a fault of the board.
pub fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    patch: &Patch,
    when: &When,
) -> Result<Outcome, Error> {
    let state = access::task(tx, caller, task)?;
    tx.needs_room()?;
    create::own_means(caller, patch.user.as_deref(), patch.group.as_deref(), patch.nice)?;
    if state.status == Status::Archived {
        return Err(Refusal::InvalidTransition { task, from: state.status, to: "edited" }.into());
    }
    let fixed = patch.fixed_while_running();
    if state.status == Status::Running
        && let Some(property) = fixed.first()
    {
        let problem = format!("cannot change while a run holds task {task}; reclaim it first");
        return Err(Refusal::argument(*property, problem).into());
    }
    let before = query::task(tx, task, when)?.ok_or(Refusal::NoSuchTask(task))?.spec;
    let mut after = patch.clone().apply(before.clone());
    after.labels.sort_unstable();
    after.labels.dedup();
    // A property that was not named is not the caller's matter, whatever a hand edit made of it.
    create::check(&Caller { is_admin: true, ..*caller }, &after, &when.policy)?;
    let queue = after.queue.clone().unwrap_or_else(|| queues::DEFAULT.to_owned());
    if before.queue.as_ref() != Some(&queue) && !queues::exists(tx, &queue)? {
        return Err(Refusal::NoSuchQueue(queue).into());
    }
    if after == before {
        return Ok(Outcome::Unchanged);
    }
    tasks::rewrite(tx, task, &after, &patch.named(), when)?;
    if state.status == Status::Running {
        tasks::respan(tx, task, when)?;
    } else {
        tasks::reconsider(tx, task, when)?;
    }
    Ok(Outcome::Done)
}

/// Lets a child wait for a parent.
///
/// # Errors
/// [`Refusal::Cycle`] with the circle, [`Refusal::NoSuchTask`], [`Refusal::InvalidTransition`] for a child that
/// has ended; a fault of the board.
pub fn link(
    tx: &mut Tx<'_>,
    caller: &Caller,
    parent: TaskId,
    child: TaskId,
    when: &When,
) -> Result<Outcome, Error> {
    let above = access::task(tx, caller, parent)?;
    let below = access::task(tx, caller, child)?;
    tx.needs_room()?;
    if links::edge(tx, parent, child)?.is_some() {
        return Ok(Outcome::Unchanged);
    }
    if !below.status.is_open() {
        return Err(Refusal::InvalidTransition { task: child, from: below.status, to: "a child" }.into());
    }
    links::refuse_circle(tx, parent, child)?;
    let kind: Parent = links::as_parent(tx, &above)?;
    links::link(tx, parent, child, kind, when)?;
    Ok(Outcome::Done)
}

/// Lets a child no longer wait for a parent.
///
/// # Errors
/// [`Refusal::NoSuchTask`], or a fault of the board.
pub fn unlink(
    tx: &mut Tx<'_>,
    caller: &Caller,
    parent: TaskId,
    child: TaskId,
    when: &When,
) -> Result<Outcome, Error> {
    access::task(tx, caller, parent)?;
    access::task(tx, caller, child)?;
    let Some(satisfied) = links::edge(tx, parent, child)? else { return Ok(Outcome::Unchanged) };
    links::unlink(tx, parent, child, satisfied, when)?;
    Ok(Outcome::Done)
}

/// Says something about a task.
///
/// # Errors
/// [`Refusal::NoSuchTask`], or a fault of the board.
pub fn comment(
    tx: &mut Tx<'_>,
    caller: &Caller,
    task: TaskId,
    text: &str,
    when: &When,
) -> Result<CommentId, Error> {
    access::task(tx, caller, task)?;
    tx.needs_room()?;
    comments::add(tx, task, &format!("uid:{}", caller.uid), text, when.now.wall)
}
