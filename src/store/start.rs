//! From `todo` to an open gate: promotion, the dispatcher's claim, identity, go.

use std::collections::BTreeMap;

use crate::core::fault::Error;
use crate::core::fingerprint::Stored;
use crate::core::ids::{Nonce, RunId, TaskId, Uid};
use crate::core::spec::TaskSpec;
use crate::store::{Snapshot, Tx, When};

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
    /// systemd's InvocationID, hexadecimal.
    pub invocation: String,
    /// Its cgroup below the root of the hierarchy.
    pub cgroup_path: String,
    /// The cgroup's inode.
    pub cgroup_id: u64,
}

/// `todo` to `ready` where parents and time are satisfied, and back-offs that are over.
///
/// # Errors
/// A fault of the board.
pub fn promote(_tx: &mut Tx<'_>, _when: &When) -> Result<Vec<TaskId>, Error> {
    todo!()
}

/// The tasks that [`promote`] would promote, for a preview.
///
/// # Errors
/// A fault of the board.
pub fn promotable(_snapshot: &Snapshot<'_>, _when: &When) -> Result<Vec<TaskId>, Error> {
    todo!()
}

/// The dispatcher: claims at most `room` tasks that have a command. Queues in turn, priority, order of
/// becoming ready; holds to every cap, pause, drain and back-off.
///
/// # Errors
/// A fault of the board.
pub fn claim_for_launch(_tx: &mut Tx<'_>, _room: usize, _when: &When) -> Result<Vec<Start>, Error> {
    todo!()
}

/// The tasks that [`claim_for_launch`] would claim now, for a preview.
///
/// # Errors
/// A fault of the board.
pub fn startable(_snapshot: &Snapshot<'_>, _room: usize, _when: &When) -> Result<Vec<TaskId>, Error> {
    todo!()
}

/// Makes the worker's identity durable. `false`: the run is no longer open, or a stop was asked: the gate
/// must stay shut.
///
/// # Errors
/// A fault of the board.
pub fn identify(_tx: &mut Tx<'_>, _run: RunId, _identity: &Identity, _when: &When) -> Result<bool, Error> {
    todo!()
}

/// The gate is open: the worker runs, and its max runtime counts from now.
///
/// # Errors
/// A fault of the board.
pub fn opened(_tx: &mut Tx<'_>, _run: RunId, _when: &When) -> Result<(), Error> {
    todo!()
}

/// The command never ran and nothing of it is left. With `host_trouble` the task is ready again, uncounted,
/// and nothing is started for a while; otherwise the task itself is at fault and is blocked `config`.
///
/// # Errors
/// A fault of the board.
pub fn not_started(
    _tx: &mut Tx<'_>,
    _run: RunId,
    _why: &str,
    _host_trouble: bool,
    _when: &When,
) -> Result<(), Error> {
    todo!()
}
