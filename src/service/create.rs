//! CreateTask.

use crate::core::fault::Error;
use crate::core::ids::TaskId;
use crate::core::policy::Policy;
use crate::core::refusal::Refusal;
use crate::core::spec::TaskSpec;
use crate::core::state::{Status, open_status};
use crate::service::access;
use crate::service::types::Caller;
use crate::store::links::{self, Parent};
use crate::store::tasks::{self, Place};
use crate::store::{Tx, When, queues};

/// What can be said without the board.
///
/// # Errors
/// What [`TaskSpec::check`] refuses; [`Refusal::NotAuthorized`] for another user's name.
pub fn check(caller: &Caller, spec: &TaskSpec, policy: &Policy) -> Result<(), Error> {
    spec.check(&policy.limits)?;
    let program = &spec.program;
    own_means(caller, program.user.as_deref(), program.group.as_deref(), program.nice)?;
    for (slot, units) in &spec.slots {
        let all = policy.slots.get(slot).map_or(0, Vec::len);
        if u64::from(*units) > all as u64 {
            let problem = format!("this host has {all} of {slot}; see [slots] of the configuration");
            return Err(Refusal::argument("Slots", problem).into());
        }
    }
    Ok(())
}

/// Only an administrator says as whom a command runs, and lets one go before others: anybody else's runs as
/// themselves, and no more urgently than what they start themselves.
pub(super) fn own_means(
    caller: &Caller,
    user: Option<&str>,
    group: Option<&str>,
    nice: Option<i32>,
) -> Result<(), Error> {
    if caller.is_admin {
        return Ok(());
    }
    let text = if user.is_some() || group.is_some() {
        "User and Group are for administrators; without them a command runs as the task's owner"
    } else if nice.is_some_and(|nice| nice < 0) {
        "a negative Nice is for administrators; give 0 to 19"
    } else {
        return Ok(());
    };
    Err(Refusal::NotAuthorized(text.to_owned()).into())
}

/// Makes the task; `false` where the same owner made it before with the same key.
///
/// # Errors
/// Refusals of what it names, of limits and of a full disk; a fault of the board.
pub fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    spec: &mut TaskSpec,
    when: &When,
) -> Result<(TaskId, bool), Error> {
    if let Some(key) = &spec.idempotency_key
        && let Some(task) = tasks::by_key(tx, caller.uid, key)?
    {
        return Ok((task, false));
    }
    tx.needs_room()?;
    let queue = spec.queue.get_or_insert_with(|| queues::DEFAULT.to_owned());
    if !queues::exists(tx, queue)? {
        return Err(Refusal::NoSuchQueue(queue.clone()).into());
    }
    limit(tx, caller, when)?;
    spec.parents.sort_unstable();
    spec.parents.dedup();
    let mut parents = Vec::with_capacity(spec.parents.len());
    for parent in &spec.parents {
        let state = access::task(tx, caller, *parent)?;
        parents.push((*parent, links::as_parent(tx, &state)?));
    }
    let task = tasks::insert(tx, caller.uid, spec, &place(&parents, spec, when), when)?;
    for (parent, kind) in parents {
        links::add(tx, parent, task, kind)?;
    }
    Ok((task, true))
}

fn place(parents: &[(TaskId, Parent)], spec: &TaskSpec, when: &When) -> Place {
    let pending = parents.iter().filter(|(_, kind)| *kind != Parent::Satisfied).count();
    let pending_parents = i64::try_from(pending).unwrap_or(i64::MAX);
    let cancelled_parent =
        parents.iter().find(|(_, kind)| *kind == Parent::Cancelled).map(|(parent, _)| *parent);
    let reached = spec.not_before_usec.is_none_or(|moment| moment <= when.now.wall.0);
    let status =
        if cancelled_parent.is_some() { Status::Blocked } else { open_status(pending_parents, reached) };
    Place { status, cancelled_parent, pending_parents }
}

fn limit(tx: &Tx<'_>, caller: &Caller, when: &When) -> Result<(), Error> {
    let limit = u64::from(when.policy.limits.open_tasks_per_user);
    let asked = tasks::open_of_owner(tx, caller.uid)?.saturating_add(1);
    if limit > 0 && asked > limit {
        return Err(Refusal::LimitExceeded { what: "open tasks of one user", limit, asked }.into());
    }
    Ok(())
}
