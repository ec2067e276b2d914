//! Who asks, what they bring along, and how the daemon's loop is asked.

use std::os::fd::OwnedFd;

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId, Uid};
pub use crate::core::state_dir::StateDir;
use crate::core::view::{Outcome, SweepReport, SweepRequest, TaskView};

/// Who asks, as the bus or the socket proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The uid.
    pub uid: Uid,
    /// Whether it may do everything: root, or the daemon's own user under `--user` and `--embedded`.
    pub is_admin: bool,
}

/// A process that a claimant names as its worker.
#[derive(Debug)]
pub enum WorkerGiven {
    /// None: a lease-only claim.
    None,
    /// A number, perhaps with the start ticks as the claimant read them.
    Pid {
        /// As given.
        pid: u32,
        /// Field 22 of its stat.
        start_ticks: Option<u64>,
    },
    /// A pidfd.
    PidFd(OwnedFd),
}

/// ClaimTask.
#[derive(Debug)]
pub struct ClaimRequest {
    /// `None`: any queue.
    pub queue: Option<String>,
    /// A certain task.
    pub task: Option<TaskId>,
    /// The worker.
    pub worker: WorkerGiven,
    /// The lease, milliseconds.
    pub lease_ms: Option<i64>,
    /// Who claims, for people.
    pub claimant: Option<String>,
    /// The same key gets the same claim again.
    pub claim_key: Option<String>,
    /// How long to wait for work, milliseconds.
    pub wait_ms: Option<i64>,
}

/// What ClaimTask gave.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run: its number is the fencing token.
    pub run: RunId,
    /// The task.
    pub task: TaskView,
}

/// What the use cases ask of the daemon's loop.
#[derive(Debug)]
pub enum Ask {
    /// Sweep, and report.
    Sweep(SweepRequest, Reply<SweepReport>),
    /// Look at a run now, and say what became of its claim; the stop is on the board already.
    Stop(RunId, Reply<Outcome>),
    /// Send a signal to the proven worker of a run.
    Signal(RunId, i32, Reply<Outcome>),
    /// Read the configuration again.
    Reload(Reply<Outcome>),
}

/// Where an answer goes.
pub type Reply<T> = tokio::sync::oneshot::Sender<Result<T, Error>>;
