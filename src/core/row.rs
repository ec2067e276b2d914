//! One row of a sweep: a running task and its run, or what is left of either.
//!
//! The schema can hold broken claims on purpose, so nearly everything here is optional.

use crate::core::fingerprint::{Epoch, Stored};
use crate::core::ids::{BootId, Nonce, RunId, TaskId, Uid};
use crate::core::retry::Outcome;
use crate::core::state::Status;
use crate::core::time::MonoMs;
use crate::core::verdict::{StopCause, Urgency};

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// The task, if there is one.
    pub task: Option<TaskPart>,
    /// The run, if there is one.
    pub run: Option<RunPart>,
    /// Runs of the task that have not ended; more than one is broken.
    pub open_runs: i64,
}

/// What a sweep needs of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPart {
    /// Which.
    pub task: TaskId,
    /// Where it stands.
    pub status: Status,
    /// The run that it says holds it.
    pub run: Option<RunId>,
    /// The uid it belongs to.
    pub owner_uid: Uid,
    /// Its own max runtime, milliseconds.
    pub max_runtime_ms: Option<i64>,
    /// Its own stall limit, milliseconds.
    pub stall_ms: Option<i64>,
    /// Its own lease, milliseconds.
    pub lease_ms: Option<i64>,
    /// Its own grace, milliseconds.
    pub stop_grace_ms: Option<i64>,
    /// Its own first signal.
    pub stop_signal: Option<i32>,
    /// Counts the writes to the row.
    pub version: i64,
}

/// What a sweep needs of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// Which.
    pub run: RunId,
    /// The task it belongs to.
    pub task: TaskId,
    /// Who claimed.
    pub claimant: Option<String>,
    /// Whom a registered worker must belong to: the uid that registered it, else the one that claimed.
    pub claimant_uid: Option<Uid>,
    /// The lease's end.
    pub lease_expires_ms: Option<MonoMs>,
    /// The epoch that its stamps belong to.
    pub epoch: Option<Epoch>,
    /// The boot that the board remembers for it.
    pub boot: Option<BootId>,
    /// The pid as written; may be no process at all.
    pub worker_pid: Option<i64>,
    /// What proves it.
    pub worker: Stored,
    /// The supervisor's pid.
    pub supervisor_pid: Option<i64>,
    /// What proves it.
    pub supervisor: Stored,
    /// The run's random name.
    pub nonce: Option<Nonce>,
    /// Whether the daemon launched the command (or means to).
    pub launched: bool,
    /// The unit, for scopes.
    pub unit: Option<String>,
    /// The cgroup of that unit; without it nothing is done to a cgroup of this run.
    pub cgroup: Option<Cgroup>,
    /// How far it has come.
    pub stage: RunStage,
    /// Why it is stopped.
    pub stop_cause: Option<StopCause>,
    /// How hard an operator asked.
    pub stop_urgency: Urgency,
    /// The gate's opening, or the claim.
    pub started_ms: Option<MonoMs>,
    /// The claim.
    pub claimed_ms: Option<MonoMs>,
    /// The last progress.
    pub progress_ms: Option<MonoMs>,
    /// When TERM went out.
    pub term_ms: Option<MonoMs>,
    /// When KILL went out.
    pub kill_ms: Option<MonoMs>,
    /// When the leader, or the run, was seen to have ended.
    pub leader_gone_ms: Option<MonoMs>,
    /// Whether it has ended.
    pub ended: bool,
    /// How it ended, or will end once its tree is empty.
    pub outcome: Option<Outcome>,
    /// Whether its worker may have outlived it.
    pub survivor: bool,
    /// The hold that is on record.
    pub held: Option<String>,
    /// Counts the writes to the row: a verdict is applied only to the version it was decided on.
    pub version: i64,
}

/// A scope's cgroup, as it was verified before the gate opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Below the root of the hierarchy, beginning with `/`.
    pub path: String,
    /// Its inode, which is the kernel's own id of it: no other cgroup of this boot ever has it.
    pub id: u64,
    /// systemd's InvocationID of the unit, hexadecimal.
    pub invocation: String,
}

/// The stages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStage {
    /// Claimed; nothing has run.
    Starting,
    /// The gate is open, or the worker is not ours.
    Running,
    /// The outcome is fixed, the tree not yet seen empty.
    Ending,
    /// Over.
    Ended,
}

impl RunStage {
    /// The word of the board.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }

    /// Reads the word. Anything else counts as running: a stage that nobody knows must not make a live
    /// worker look like one that never started.
    pub fn read(word: Option<&str>) -> Self {
        match word {
            Some("starting") => Self::Starting,
            Some("ending") => Self::Ending,
            Some("ended") => Self::Ended,
            _ => Self::Running,
        }
    }
}
