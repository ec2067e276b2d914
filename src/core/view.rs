//! What callers ask for and what they are shown: plain data, in the words of the interface.

use std::collections::BTreeMap;

use crate::core::ids::{CommentId, EventId, RunId, TaskId, Uid};
use crate::core::spec::{Patch, TaskSpec};
use crate::core::state::Status;
use crate::core::verdict::{Passes, Urgency};

/// A word that says what became of a request that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was so already.
    Unchanged,
    /// The claim ended.
    Released,
    /// The worker is being stopped.
    Stopping,
    /// The claim is held; the reason is on the task.
    Held,
    /// The word is accepted; the run ends when its tree is empty.
    Ending,
}

impl Outcome {
    /// The word of the bus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Released => "released",
            Self::Stopping => "stopping",
            Self::Held => "held",
            Self::Ending => "ending",
        }
    }
}

/// A worker's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// CompleteRun.
    Complete {
        /// For people.
        summary: Option<String>,
        /// JSON.
        result: Option<String>,
    },
    /// FailRun.
    Fail {
        /// What went wrong.
        error: String,
        /// Whether to try again.
        retry: bool,
    },
    /// BlockRun.
    Block {
        /// Why.
        reason: String,
    },
    /// ReleaseRun.
    Release {
        /// Why.
        reason: String,
    },
}

/// ReclaimTask and CancelTask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// Why, for people.
    pub reason: Option<String>,
    /// How hard.
    pub urgency: Urgency,
    /// Only if this run still holds the task.
    pub run: Option<RunId>,
}

/// ListTasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Any of these; empty: any.
    pub statuses: Vec<Status>,
    /// Of this queue.
    pub queue: Option<String>,
    /// With this label.
    pub label: Option<String>,
    /// Of this owner.
    pub owner: Option<Uid>,
    /// With this text in title or body.
    pub text: Option<String>,
    /// After this one.
    pub after: Option<TaskId>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// ListEvents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this task.
    pub task: Option<TaskId>,
    /// After this one.
    pub after: Option<EventId>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// A page of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// After this number.
    pub after: Option<i64>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// GetTask and ListTasks: what the board says of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Which.
    pub task: TaskId,
    /// Where it stands.
    pub status: Status,
    /// What was asked for.
    pub spec: TaskSpec,
    /// Why it is blocked: the code's word.
    pub block_code: Option<String>,
    /// Why it is blocked, in words.
    pub block_reason: Option<String>,
    /// Whose it is.
    pub owner_uid: Uid,
    /// Wall clock, microseconds.
    pub created_usec: i64,
    /// Runs so far.
    pub attempts: i64,
    /// Counted failures.
    pub failures: i64,
    /// How long until its back-off ends, milliseconds.
    pub retry_in_ms: Option<i64>,
    /// The last error.
    pub last_error: Option<String>,
    /// The result of the run that completed it, JSON.
    pub result: Option<String>,
    /// Workers of ended runs that may still live.
    pub survivors: i64,
    /// The run that holds it.
    pub current: Option<CurrentRun>,
}

/// The run that holds a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentRun {
    /// Which.
    pub run: RunId,
    /// Who claimed.
    pub claimant: Option<String>,
    /// What is left of the lease, milliseconds; none where its stamps are of another boot.
    pub lease_remaining_ms: Option<i64>,
    /// The stage's word.
    pub stage: String,
    /// The stop's word.
    pub stop_cause: Option<String>,
    /// The pid as the board holds it.
    pub worker_pid: Option<i64>,
    /// `launched`, `registered` or `lease-only`.
    pub worker_kind: &'static str,
    /// The fingerprint as the board holds it.
    pub fingerprint: Option<String>,
    /// What it can prove: the kind's word.
    pub fingerprint_kind: &'static str,
    /// The unit.
    pub unit: Option<String>,
    /// The hold's word.
    pub held: Option<String>,
}

/// GetRun and ListRuns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// Which.
    pub run: RunId,
    /// Of which task.
    pub task: TaskId,
    /// The how manieth run of its task.
    pub attempt: i64,
    /// Who claimed.
    pub claimant: Option<String>,
    /// The worker's pid, also after the end.
    pub worker_pid: Option<i64>,
    /// `launched`, `registered` or `lease-only`.
    pub worker_kind: &'static str,
    /// The unit.
    pub unit: Option<String>,
    /// The stage's word.
    pub stage: String,
    /// Wall clock, microseconds.
    pub started_usec: i64,
    /// Wall clock, microseconds.
    pub ended_usec: Option<i64>,
    /// The outcome's word.
    pub outcome: Option<String>,
    /// The exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What went wrong.
    pub error: Option<String>,
}

/// ListEvents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventView {
    /// Which.
    pub event: EventId,
    /// Of which task.
    pub task: Option<TaskId>,
    /// Of which run.
    pub run: Option<RunId>,
    /// The kind's word.
    pub kind: String,
    /// JSON.
    pub payload: String,
    /// Wall clock, microseconds.
    pub at_usec: i64,
}

/// ListComments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommentView {
    /// Which.
    pub comment: CommentId,
    /// `uid:<n>` or the daemon.
    pub author: String,
    /// What it says.
    pub text: String,
    /// Wall clock, microseconds.
    pub at_usec: i64,
}

/// SetQueue; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// Running tasks at once; 0 means no limit.
    pub max_running: Option<u32>,
    /// Whether it gives out nothing.
    pub paused: Option<bool>,
    /// Properties for its tasks that say nothing themselves.
    pub launch_defaults: Option<Patch>,
}

/// ListQueues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Its name.
    pub queue: String,
    /// Running tasks at once; 0 means no limit.
    pub max_running: u32,
    /// Whether it gives out nothing.
    pub paused: bool,
    /// Ready tasks that the caller may see.
    pub ready: u32,
    /// Running tasks that the caller may see.
    pub running: u32,
}

/// GetStats: tasks that the caller may see, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tasks by status.
    pub tasks: BTreeMap<Status, u64>,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Claims on hold.
    pub held: u64,
}

/// Sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepRequest {
    /// `None`: as configured.
    pub passes: Option<Passes>,
    /// Whether ready tasks are started.
    pub dispatch: bool,
    /// Whether to write nothing.
    pub preview: bool,
}

/// What a sweep did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Tasks by the word of the cause that ended their claim.
    pub released: BTreeMap<&'static str, Vec<TaskId>>,
    /// Leases that were renewed.
    pub extended: Vec<TaskId>,
    /// `todo` to `ready`.
    pub promoted: Vec<TaskId>,
    /// Claimed for launching.
    pub started: Vec<TaskId>,
    /// Signals that went out, or would.
    pub signalled: Vec<(TaskId, i32)>,
    /// Claims that are left alone, with the reason's word.
    pub held: Vec<(TaskId, &'static str)>,
    /// Rows looked at.
    pub rows: u32,
    /// How long it took, microseconds.
    pub took_usec: u64,
}

/// What a commit changed, for those who act on it. Told after the commit, never before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Something of this task: a hint for the bus.
    Task(TaskId),
    /// This run has ended: a hint for the bus.
    RunEnded(RunId),
    /// A task may have become ready, or room was made: the dispatcher looks.
    Ready,
    /// This run is to be looked at now: a stop was asked, a word was given, a worker was registered.
    Look(RunId),
    /// Some due time may have become nearer: the timer is set again.
    Due,
}
