//! A limit on everything, with its unit in its name and its reason beside it.

/// A title fits on a line of a list.
pub const TITLE_BYTES: usize = 1_024;
/// Names of queues, labels, slots, claimants and keys are words, not texts.
pub const NAME_BYTES: usize = 255;
/// Labels of one task.
pub const LABELS: usize = 64;
/// Parents given in one call; LinkTasks adds more.
pub const PARENTS: usize = 1_000;
/// Kinds of slots of one task.
pub const SLOTS: usize = 16;
/// Units of one slot of one task.
pub const SLOT_UNITS: u32 = 1_024;
/// PATH_MAX of the kernel.
pub const PATH_BYTES: usize = 4_096;
/// A longer span of any kind is a mistake; 100 years.
pub const SPAN_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1_000;
/// A lease below this would expire between two looks.
pub const LEASE_MIN_MS: i64 = 1_000;
/// Rows of one page of a list where none is given.
pub const PAGE_ROWS: u32 = 100;
/// Rows of one page of a list at most.
pub const PAGE_ROWS_MAX: u32 = 1_000;
/// A page stays below this whatever its rows hold; the bus ends a service that sends 32 MiB.
pub const PAGE_BYTES: usize = 900 * 1_024;
/// A starting run of this life is given up after this.
pub const START_MS: i64 = 30_000;
/// After KILL, how long until a worker that lives counts as unkillable.
pub const KILL_MS: i64 = 5_000;
/// Looks at a worker that cannot be seen, before a reclaim answers `held`.
pub const RECLAIM_LOOKS: u32 = 3;
/// Between two of them.
pub const RECLAIM_LOOK_MS: u64 = 333;
/// Steps that one transaction of a sweep applies, so that callers get their turn between.
pub const STEPS_PER_COMMIT: usize = 200;
/// `MemoryMax` and `MemoryHigh` at least: the supervisor lives in the scope too.
pub const MEMORY_MIN_BYTES: u64 = 4 * 1_024 * 1_024;
/// `TasksMax` at least, for the same reason.
pub const TASKS_MIN: u64 = 2;
/// Starts under way at once: PID 1 and fork both serialise beyond a few.
pub const STARTS_AT_ONCE: usize = 8;
/// First host-wide back-off after a start that failed on the host's side.
pub const HOST_BACKOFF_MS: i64 = 1_000;
/// Longest host-wide back-off.
pub const HOST_BACKOFF_MAX_MS: i64 = 60_000;
/// One file of a run's output; the one before it is kept beside it.
pub const OUTPUT_FILE_BYTES: u64 = 64 * 1_024 * 1_024;
/// How long ClaimTask may wait for work.
pub const CLAIM_WAIT_MS: i64 = 10 * 60 * 1_000;

/// Limits that the configuration sets (`[limits]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open tasks of one user.
    pub open_tasks_per_user: u32,
    /// Running workers of one user; 0 means no limit.
    pub running_per_user: u32,
    /// Bytes of a command with all its arguments.
    pub command_bytes: usize,
    /// Bytes of a task's own environment.
    pub environment_bytes: usize,
    /// Bytes of a body, a comment, a reason, a result.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_tasks_per_user: 100_000,
            running_per_user: 0,
            command_bytes: 131_072,
            environment_bytes: 131_072,
            text_bytes: 65_536,
        }
    }
}
