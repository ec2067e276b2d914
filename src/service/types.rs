//! Who asks, what they bring along, and how the daemon's loop is asked.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId, Uid};
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

/// Where the pieces of the state directory are.
#[derive(Clone, Debug)]
pub struct StateDir(pub PathBuf);

impl StateDir {
    /// The board.
    pub fn board(&self) -> PathBuf {
        self.0.join("board.db")
    }

    /// The lock that one daemon holds.
    pub fn lock(&self) -> PathBuf {
        self.0.join("board.lock")
    }

    /// The exit record of a run.
    pub fn record(&self, run: RunId, nonce: &crate::core::ids::Nonce) -> PathBuf {
        self.0.join("exits").join(format!("{run}-{nonce}"))
    }

    /// The output file of a run; the older part is beside it with `.1`.
    pub fn output(&self, run: RunId) -> PathBuf {
        self.0.join("output").join(format!("{run}.log"))
    }
}
