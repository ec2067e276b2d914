//! Refusals: what a caller did wrong or cannot have, as data. `bus/errors.rs` has the one table that gives
//! each its name on the bus.

use crate::core::ids::{RunId, TaskId};
use crate::core::state::Status;

/// A refused request. Nothing was changed. Each text stands alone: busctl prints it without its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such task, or one that the caller may not see.
    #[error("there is no task {0}")]
    NoSuchTask(TaskId),
    /// No such run, or one that the caller may not see.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// No such queue.
    #[error("there is no queue {0:?}; SetQueue makes one")]
    NoSuchQueue(String),
    /// An argument or an option that cannot be.
    #[error("{name}: {problem}")]
    InvalidArgument {
        /// Which.
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The state machine has no such row.
    #[error("task {task} is {from}: it cannot become {to} by this")]
    InvalidTransition {
        /// Which.
        task: TaskId,
        /// From where.
        from: Status,
        /// To where.
        to: &'static str,
    },
    /// The run no longer holds its task.
    #[error("run {run} no longer holds task {task}: {}", holder(*.now))]
    StaleRun {
        /// The run that spoke.
        run: RunId,
        /// Its task.
        task: TaskId,
        /// The run that holds the task now.
        now: Option<RunId>,
    },
    /// ClaimTask found nothing.
    #[error("nothing is ready to be claimed")]
    NothingReady,
    /// Not for this caller.
    #[error("{0}")]
    NotAuthorized(String),
    /// A process that is not wholly the caller's.
    #[error("process {pid} cannot be registered: {why}")]
    NotYourProcess {
        /// Which.
        pid: i64,
        /// Why not.
        why: &'static str,
    },
    /// An edge that would close a circle.
    #[error("task {task} would wait for itself: {}", chain(path))]
    Cycle {
        /// Which.
        task: TaskId,
        /// The circle, from the task to itself.
        path: Vec<TaskId>,
    },
    /// Too much of something.
    #[error("{what} is limited to {limit}, and this would be {asked}")]
    LimitExceeded {
        /// Of what.
        what: &'static str,
        /// How much there may be.
        limit: u64,
        /// How much was asked.
        asked: u64,
    },
    /// Something stands in the way that will go away.
    #[error("{0}")]
    Busy(String),
    /// The disk is full.
    #[error(
        "the disk of the board is full: nothing was lost, ends of runs are still recorded, and new work is refused until space is made"
    )]
    ReadOnly,
}

impl Refusal {
    /// A bad argument.
    pub fn argument(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::InvalidArgument { name: name.into(), problem: problem.into() }
    }
}

fn holder(now: Option<RunId>) -> String {
    now.map_or_else(|| "no run holds it now".to_owned(), |run| format!("run {run} holds it now"))
}

fn chain(tasks: &[TaskId]) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> ")
}
