//! ClaimTask, Heartbeat, SetWorker: external workers take a task and stay in touch.

use crate::core::fault::Error;
use crate::core::fingerprint::Stored;
use crate::core::ids::{RunId, TaskId};
use crate::core::limits;
use crate::core::policy::Policy;
use crate::core::refusal::Refusal;
use crate::core::row::RunStage;
use crate::core::spec;
use crate::core::state::Status;
use crate::core::view::{Outcome, TaskView};
use crate::service::access;
use crate::service::types::{Caller, ClaimRequest, Claimed};
use crate::service::waiting::Kind;
use crate::store::claim::{self, NewClaim};
use crate::store::{Snapshot, Tx, When, query, queues, runs, tasks};

/// What a claim asks for, without the process.
#[derive(Clone, Debug)]
pub struct Wanted {
    queue: Option<String>,
    task: Option<TaskId>,
    lease_ms: Option<i64>,
    claimant: String,
    claim_key: Option<String>,
}

impl Wanted {
    /// What can be said without the board.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`], [`Refusal::LimitExceeded`].
    pub fn check(caller: &Caller, request: &ClaimRequest) -> Result<Self, Error> {
        spec::span("LeaseUsec", request.lease_ms, limits::LEASE_MIN_MS)?;
        spec::span("WaitUsec", request.wait_ms, 0)?;
        if let Some(claimant) = &request.claimant {
            spec::name("Claimant", claimant)?;
        }
        if let Some(key) = &request.claim_key {
            spec::name("ClaimKey", key)?;
        }
        Ok(Self {
            queue: request.queue.clone(),
            task: request.task,
            lease_ms: request.lease_ms,
            claimant: request.claimant.clone().unwrap_or_else(|| format!("uid:{}", caller.uid)),
            claim_key: request.claim_key.clone(),
        })
    }

    /// What it waits for.
    pub(super) fn kind(&self, caller: &Caller) -> Kind {
        Kind {
            sight: access::sight(caller),
            queue: self.queue.clone(),
            key: self.claim_key.clone().map(|key| (caller.uid, key)),
        }
    }
}

/// Claims; [`Refusal::NothingReady`] where there is nothing.
///
/// # Errors
/// Refusals of what it names; a fault of the board.
pub fn claim(
    tx: &mut Tx<'_>,
    caller: &Caller,
    wanted: &Wanted,
    worker: Option<&(i64, Stored)>,
    when: &When,
) -> Result<Claimed, Error> {
    if let Some(key) = &wanted.claim_key
        && let Some((task, run)) = claim::by_key(tx, caller.uid, key)?
    {
        return claimed(tx, task, run, when);
    }
    tx.needs_room()?;
    if let Some((pid, stored)) = worker {
        refuse_busy(tx, *pid, stored, None)?;
    }
    let task = match wanted.task {
        Some(task) => certain(tx, caller, task, when)?,
        None => next(tx, caller, wanted.queue.as_deref(), when)?,
    };
    let view = query::task(tx, task, when)?.ok_or(Refusal::NoSuchTask(task))?;
    let queue = view.spec.queue.clone().unwrap_or_default();
    let filled = queues::defaults(tx, &queue)?.fill(view.spec, false);
    let new = NewClaim {
        task,
        queue: &queue,
        claimant: &wanted.claimant,
        claimant_uid: caller.uid,
        claim_key: wanted.claim_key.as_deref(),
        worker: worker.map(|(pid, stored)| (*pid, stored)),
        lease_ms: wanted.lease_ms,
        effective_lease_ms: wanted.lease_ms.or(filled.lease_ms).unwrap_or(when.policy.lease_ms),
    };
    let run = claim::external(tx, &new, when)?;
    claimed(tx, task, run, when)
}

/// Whether [`claim()`] would find something, for those who wait.
pub(super) fn may_find(snapshot: &Snapshot<'_>, kind: &Kind, when: &When) -> Result<bool, Error> {
    if let Some((uid, key)) = &kind.key
        && claim::by_key(snapshot, *uid, key)?.is_some()
    {
        return Ok(true);
    }
    claim::has_external(snapshot, kind.sight, kind.queue.as_deref(), when)
}

fn claimed(snapshot: &Snapshot<'_>, task: TaskId, run: RunId, when: &When) -> Result<Claimed, Error> {
    let task: TaskView = query::task(snapshot, task, when)?.ok_or(Refusal::NoSuchTask(task))?;
    Ok(Claimed { run, task })
}

/// A task that was named: a back-off does not stand in the way, everything else does.
fn certain(tx: &Tx<'_>, caller: &Caller, task: TaskId, when: &When) -> Result<TaskId, Error> {
    let state = access::task(tx, caller, task)?;
    if state.status != Status::Ready {
        let to = Status::Running.word();
        return Err(Refusal::InvalidTransition { task, from: state.status, to }.into());
    }
    match claim::obstacle(tx, &state, when)? {
        Some(why) => Err(Refusal::Busy(why).into()),
        None => Ok(task),
    }
}

fn next(tx: &mut Tx<'_>, caller: &Caller, queue: Option<&str>, when: &When) -> Result<TaskId, Error> {
    if let Some(queue) = queue
        && !queues::exists(tx, queue)?
    {
        return Err(Refusal::NoSuchQueue(queue.to_owned()).into());
    }
    let pick = claim::next_external(tx, access::sight(caller), queue, when)?;
    Ok(pick.ok_or(Refusal::NothingReady)?.task)
}

/// One process, one claim: stopping one would end the other.
fn refuse_busy(tx: &Tx<'_>, pid: i64, worker: &Stored, but: Option<RunId>) -> Result<(), Error> {
    match runs::claimed_by(tx, pid, worker, but)? {
        Some(run) => {
            let text =
                format!("process {pid} holds run {run} already; a pool claims without naming a process");
            Err(Refusal::Busy(text).into())
        }
        None => Ok(()),
    }
}

/// The run of a word or a sign of life, if it still holds its task.
///
/// # Errors
/// [`Refusal::NoSuchRun`], [`Refusal::StaleRun`], or a fault of the board.
pub(super) fn holding(tx: &Tx<'_>, caller: &Caller, run: RunId) -> Result<runs::State, Error> {
    let (state, task) = access::run(tx, caller, run)?;
    let holder = task.and_then(|task| task.run.filter(|_| task.status == Status::Running));
    if holder == Some(run) && !state.ended && state.stage != RunStage::Ending {
        return Ok(state);
    }
    Err(Refusal::StaleRun { run, task: state.task, now: holder }.into())
}

/// A sign of life; returns what is left of the lease, milliseconds.
///
/// # Errors
/// [`Refusal::NoSuchRun`], [`Refusal::StaleRun`], or a fault of the board.
pub fn heartbeat(
    tx: &mut Tx<'_>,
    caller: &Caller,
    run: RunId,
    note: Option<&str>,
    when: &When,
) -> Result<i64, Error> {
    let state = holding(tx, caller, run)?;
    let lease_ms = lease_ms(tx, &state, &when.policy)?;
    runs::beat(tx, run, lease_ms, note, when)?;
    Ok(lease_ms)
}

fn lease_ms(tx: &Tx<'_>, run: &runs::State, policy: &Policy) -> Result<i64, Error> {
    if let Some(lease_ms) = run.lease_ms {
        return Ok(lease_ms);
    }
    let own = tasks::lease_ms(tx, run.task)?;
    Ok(own.unwrap_or(policy.lease_ms))
}

/// The worker that a run has now, for a look at whether it is gone.
///
/// # Errors
/// As [`holding`].
pub fn present_worker(
    snapshot: &Snapshot<'_>,
    caller: &Caller,
    run: RunId,
) -> Result<Option<(i64, Stored)>, Error> {
    let (state, _) = access::run(snapshot, caller, run)?;
    Ok(state.worker_pid.map(|pid| (pid, state.worker)))
}

/// SetWorker: registers a worker, or replaces one that was seen gone (`gone`).
///
/// # Errors
/// [`Refusal::Busy`] where the worker there is not gone, or the new one holds another claim; as [`holding`].
pub fn set_worker(
    tx: &mut Tx<'_>,
    caller: &Caller,
    run: RunId,
    worker: &(i64, Stored),
    gone: Option<&(i64, Stored)>,
    when: &When,
) -> Result<Outcome, Error> {
    let state = holding(tx, caller, run)?;
    if state.launched {
        let text = "the daemon launched this run itself and knows its worker";
        return Err(Refusal::argument("run", text).into());
    }
    let (pid, stored) = worker;
    if let Some(there) = state.worker_pid {
        if there == *pid && runs::may_be_same(&state.worker, stored) {
            return Ok(Outcome::Unchanged);
        }
        if gone != Some(&(there, state.worker.clone())) {
            let text = format!("run {run} has a worker, process {there}, that was not seen gone");
            return Err(Refusal::Busy(text).into());
        }
    }
    refuse_busy(tx, *pid, stored, Some(run))?;
    runs::register(tx, &state, (*pid, stored), caller.uid, when)?;
    Ok(Outcome::Done)
}
