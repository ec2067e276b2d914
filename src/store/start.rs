//! From `todo` to an open gate: promotion, the dispatcher's claim, identity, go.

use std::collections::BTreeMap;

use rusqlite::params;
use serde_json::json;

use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::Stored;
use crate::core::ids::{Nonce, RunId, TaskId, Uid};
use crate::core::plan::Basis;
use crate::core::retry::Outcome;
use crate::core::row::{Cgroup, ClaimRow, RunStage};
use crate::core::spec::TaskSpec;
use crate::core::view::Change;
use crate::store::back_off::{HostBackOff, back_off_host, end_back_offs, pause_host};
use crate::store::claim::{self, NewClaim};
use crate::store::events::{self, Kind};
use crate::store::sweep::Ending;
use crate::store::{Snapshot, Tx, When, comments, due, query, queues, release, rows, settings, tasks};

/// Tasks that one call of [`promote`] promotes at most, so that callers get their turn between.
pub const PROMOTED_AT_ONCE: usize = 1_000;

/// A claim that the dispatcher made; nothing has run yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub task: TaskId,
    /// Its new run.
    pub run: RunId,
    /// The run's random name.
    pub nonce: Nonce,
    /// The how manieth run of the task.
    pub attempt: i64,
    /// Whose task it is.
    pub owner_uid: Uid,
    /// Its queue.
    pub queue: String,
    /// What to run; the queue's defaults are applied, the configuration's are not.
    pub spec: TaskSpec,
    /// The units of each slot that were given.
    pub slots: BTreeMap<String, Vec<String>>,
}

/// The pause after a start whose way is away, milliseconds.
const NOT_NOW_MS: i64 = 2_000;

/// What is known of a launched worker before its gate opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The command.
    pub worker_pid: i64,
    /// What proves it.
    pub worker: Stored,
    /// `tenured-exec`.
    pub supervisor_pid: i64,
    /// What proves it.
    pub supervisor: Stored,
    /// The uid it runs as: it may speak for the run.
    pub uid: Uid,
    /// The scope; none for a direct launch.
    pub unit: Option<Unit>,
}

/// The scope of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// `tenured-<task>-run-<run>-<nonce>.scope`.
    pub name: String,
    /// Its cgroup.
    pub cgroup: Cgroup,
}

/// `todo` to `ready` where parents and time are satisfied, and back-offs that are over. At most
/// [`PROMOTED_AT_ONCE`]; where that is reached there may be more.
///
/// # Errors
/// A fault of the board.
pub fn promote(tx: &mut Tx<'_>, when: &When) -> Result<Vec<TaskId>, Error> {
    end_back_offs(tx, when)?;
    let due = promotable(tx, when)?;
    for task in &due {
        if let Some(state) = tasks::state(tx, *task)? {
            tasks::promote(tx, &state, when)?;
        }
    }
    Ok(due)
}

/// The tasks that [`promote`] would promote, for a preview.
///
/// # Errors
/// A fault of the board.
pub fn promotable(snapshot: &Snapshot<'_>, when: &When) -> Result<Vec<TaskId>, Error> {
    let mut due = Vec::new();
    snapshot.each(
        "looking for tasks whose time has come",
        "SELECT task, not_before_usec FROM tasks INDEXED BY tasks_todo
         WHERE status = 'todo' AND pending_parents <= 0 ORDER BY not_before_usec",
        [],
        |row| {
            // In the order of their times, those that wait for none first: the rest is later still.
            let is_due = row.get::<_, Option<i64>>(1)?.is_none_or(|moment| moment <= when.now.wall.0);
            if is_due {
                due.push(row.get(0)?);
            }
            Ok(is_due && due.len() < PROMOTED_AT_ONCE)
        },
    )?;
    Ok(due)
}

/// The dispatcher: claims at most `room` tasks that have a command. Queues in turn, priority, order of
/// becoming ready; holds to every cap, pause, drain and back-off.
///
/// # Errors
/// A fault of the board.
pub fn claim_for_launch(tx: &mut Tx<'_>, room: usize, when: &When) -> Result<Vec<Start>, Error> {
    if tx.needs_room().is_err() {
        return Ok(Vec::new());
    }
    end_back_offs(tx, when)?;
    let chosen = choose(tx, room, when)?;
    let mut starts = Vec::with_capacity(chosen.len());
    for (pick, slots) in chosen {
        if let Some(start) = begin(tx, &pick, slots, when)? {
            starts.push(start);
        }
    }
    Ok(starts)
}

/// The tasks that [`claim_for_launch`] would claim now, for a preview.
///
/// # Errors
/// A fault of the board.
pub fn startable(snapshot: &Snapshot<'_>, room: usize, when: &When) -> Result<Vec<TaskId>, Error> {
    Ok(choose(snapshot, room, when)?.into_iter().map(|(pick, _)| pick.task).collect())
}

fn choose(snapshot: &Snapshot<'_>, room: usize, when: &When) -> Result<Vec<claim::Given>, Error> {
    if claim::standstill(snapshot, when)?.is_some() {
        return Ok(Vec::new());
    }
    if HostBackOff::read(snapshot, when)?.is_some_and(|host| host.until > when.now.mono) {
        return Ok(Vec::new());
    }
    let room = match usize::try_from(when.policy.max_running) {
        Ok(max_running @ 1..) => room.min(max_running.saturating_sub(claim::launched(snapshot)?)),
        _ => room,
    };
    if room == 0 {
        return Ok(Vec::new());
    }
    claim::choose(snapshot, true, None, None, room, when)
}

fn begin(
    tx: &mut Tx<'_>,
    pick: &claim::Pick,
    slots: BTreeMap<String, Vec<String>>,
    when: &When,
) -> Result<Option<Start>, Error> {
    let Some(view) = query::task(tx, pick.task, when)? else { return Ok(None) };
    let spec = queues::defaults(tx, &pick.queue)?.fill(view.spec, pick.owner_uid == 0);
    let nonce = nonce()?;
    let new = NewClaim {
        task: pick.task,
        queue: &pick.queue,
        claimant: comments::OURS,
        claimant_uid: pick.owner_uid,
        claim_key: None,
        worker: None,
        lease_ms: None,
        effective_lease_ms: spec.lease_ms.unwrap_or(when.policy.lease_ms),
    };
    let run = claim::make(tx, &new, RunStage::Starting, Some(&nonce), &slots, when)?;
    Ok(Some(Start {
        task: pick.task,
        run,
        nonce,
        attempt: view.attempts + 1,
        owner_uid: pick.owner_uid,
        queue: pick.queue.clone(),
        spec,
        slots,
    }))
}

fn nonce() -> Result<Nonce, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::Host { doing: "making a nonce", source: std::io::Error::other(error) })?;
    Ok(Nonce::from_bytes(bytes))
}

/// Makes the worker's identity durable. `false`: the run is no longer open, or a stop was asked: the gate
/// must stay shut.
///
/// # Errors
/// A fault of the board.
pub fn identify(tx: &mut Tx<'_>, run: RunId, identity: &Identity, when: &When) -> Result<bool, Error> {
    let unit = identity.unit.as_ref();
    let written = tx.execute(
        "making a worker's identity durable",
        "UPDATE runs SET worker_pid = ?2, worker_fingerprint = ?3, supervisor_pid = ?4, supervisor_fingerprint = ?5,
             worker_uid = ?6, unit = ?7, invocation = ?8, cgroup_path = ?9, cgroup_id = ?10
         WHERE run = ?1 AND ended_usec IS NULL AND stage = 'starting' AND stop_cause IS NULL AND word IS NULL
             AND EXISTS (SELECT 1 FROM tasks t WHERE t.task = runs.task AND t.run = ?1 AND t.status = 'running')",
        params![
            run,
            identity.worker_pid,
            identity.worker.cell(),
            identity.supervisor_pid,
            identity.supervisor.cell(),
            identity.uid,
            unit.map(|unit| unit.name.as_str()),
            unit.map(|unit| unit.cgroup.invocation.as_str()),
            unit.map(|unit| unit.cgroup.path.as_str()),
            unit.map(|unit| unit.cgroup.id.to_string()),
        ],
    )?;
    if written == 0 {
        return Ok(false);
    }
    due::arm(tx, run, when)?;
    Ok(true)
}

/// The gate is open: the worker runs, and its max runtime counts from now.
///
/// # Errors
/// A fault of the board.
pub fn opened(tx: &mut Tx<'_>, run: RunId, when: &When) -> Result<(), Error> {
    let mut found = Vec::new();
    rows::read(tx, rows::PAIR_OF_RUN, [run], &mut found)?;
    let Some((row, part)) = found.first().and_then(|row| row.run.as_ref().map(|part| (row, part))) else {
        return Ok(());
    };
    if part.ended || part.stage != RunStage::Starting {
        return Ok(());
    }
    let lease_ms = row.task.as_ref().and_then(|task| task.lease_ms).unwrap_or(when.policy.lease_ms);
    let now = when.now;
    tx.execute(
        "noting an open gate",
        "UPDATE runs SET stage = 'running', started_ms = ?2, progress_ms = ?2, started_usec = ?3, lease_expires_ms = ?4
         WHERE run = ?1",
        params![run, now.mono.0, now.wall.0, now.mono.plus(lease_ms).0],
    )?;
    let payload = json!({ "pid": part.worker_pid, "unit": part.unit });
    events::write(tx, (part.task, run), Kind::Started, payload, now.wall)?;
    due::arm(tx, run, when)?;
    settings::clear(tx, settings::HOST_BACKOFF)?;
    tx.change(Change::Task(part.task));
    tx.change(Change::Due);
    Ok(())
}

/// The command never ran and nothing of it is left. With `host_trouble` the task is ready again, uncounted,
/// and nothing is started for a while; otherwise the task itself is at fault and is blocked `config`.
///
/// # Errors
/// A fault of the board.
pub fn not_started(
    tx: &mut Tx<'_>,
    run: RunId,
    why: &str,
    host_trouble: bool,
    when: &When,
) -> Result<(), Error> {
    let Some(row) = open_row(tx, run)? else {
        return Ok(());
    };
    let outcome = if host_trouble { Outcome::NotStarted } else { Outcome::Misconfigured };
    end_start(tx, &row, outcome, why, when)?;
    if host_trouble { back_off_host(tx, when) } else { Ok(()) }
}

/// The command never ran and nothing of it is left, because the way to start it is away for now. Nothing is
/// counted. The dispatcher waits until the way is there again; where only this task needs it, the pause that
/// follows every such end keeps it from becoming a storm.
///
/// # Errors
/// A fault of the board.
pub fn not_now(tx: &mut Tx<'_>, run: RunId, why: &str, when: &When) -> Result<(), Error> {
    match open_row(tx, run)? {
        Some(row) => {
            end_start(tx, &row, Outcome::NotStarted, why, when)?;
            pause_host(tx, NOT_NOW_MS, when)
        }
        None => Ok(()),
    }
}

fn open_row(tx: &Tx<'_>, run: RunId) -> Result<Option<ClaimRow>, Error> {
    let mut found = Vec::new();
    rows::read(tx, rows::PAIR_OF_RUN, [run], &mut found)?;
    Ok(found.into_iter().next().filter(|row| row.run.as_ref().is_some_and(|run| !run.ended)))
}

/// Commands may be started at once again, whatever happened before.
///
/// # Errors
/// A fault of the board.
pub fn end_pause(tx: &Tx<'_>) -> Result<(), Error> {
    settings::clear(tx, settings::HOST_BACKOFF).map(drop)
}

/// The command never ran, because something of its own did not answer: a failure that counts and is tried
/// again after the task's back-off. Were it the host's, such tasks would hold up all others for ever.
///
/// # Errors
/// A fault of the board.
pub fn hung(tx: &mut Tx<'_>, run: RunId, why: &str, when: &When) -> Result<(), Error> {
    match open_row(tx, run)? {
        Some(row) => end_start(tx, &row, Outcome::Failed, why, when),
        None => Ok(()),
    }
}

fn end_start(tx: &mut Tx<'_>, row: &ClaimRow, outcome: Outcome, why: &str, when: &When) -> Result<(), Error> {
    let ending = Ending { error: Some(why.to_owned()), ..Ending::of(outcome) };
    release::release(tx, &Basis::of(row), &ending, when).map(|_| ())
}
