//! How a run ended, and what that does to its task: failure accounting, back-off, blocking.

use crate::core::state::{BlockCode, Status};
use crate::core::verdict::StopCause;

/// How a run ended. Every run ends exactly once, with one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Done.
    Completed,
    /// Exit other than 0, or the worker's word.
    Failed,
    /// By a signal, unknown, or a worker gone without a word.
    Crashed,
    /// Killed for memory.
    Oom,
    /// Max runtime.
    TimedOut,
    /// Stall limit.
    Stalled,
    /// Taken back by the sweep.
    Reclaimed,
    /// Exit 75 (EX_TEMPFAIL, sysexits(3)).
    Tempfail,
    /// Exit 78 (EX_CONFIG, sysexits(3)).
    Misconfigured,
    /// The host went down with it.
    Lost,
    /// The command never ran.
    NotStarted,
    /// Given back by the worker.
    Released,
    /// A broken claim was repaired.
    Reconciled,
    /// Taken back by an operator.
    Operator,
    /// The task was cancelled.
    Cancelled,
    /// The worker parked the task.
    Blocked,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 16] = [
        Self::Completed,
        Self::Failed,
        Self::Crashed,
        Self::Oom,
        Self::TimedOut,
        Self::Stalled,
        Self::Reclaimed,
        Self::Tempfail,
        Self::Misconfigured,
        Self::Lost,
        Self::NotStarted,
        Self::Released,
        Self::Reconciled,
        Self::Operator,
        Self::Cancelled,
        Self::Blocked,
    ];

    /// The word of the board and the bus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::Reclaimed => "reclaimed",
            Self::Tempfail => "tempfail",
            Self::Misconfigured => "misconfigured",
            Self::Lost => "lost",
            Self::NotStarted => "not_started",
            Self::Released => "released",
            Self::Reconciled => "reconciled",
            Self::Operator => "operator",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }

    /// Whether it counts towards the failure limit.
    pub const fn counts(self) -> bool {
        match self {
            Self::Failed | Self::Crashed | Self::Oom | Self::TimedOut | Self::Stalled | Self::Reclaimed => {
                true
            }
            Self::Completed
            | Self::Tempfail
            | Self::Misconfigured
            | Self::Lost
            | Self::NotStarted
            | Self::Released
            | Self::Reconciled
            | Self::Operator
            | Self::Cancelled
            | Self::Blocked => false,
        }
    }

    /// What a stop makes of its run.
    pub const fn of_stop(cause: StopCause) -> Self {
        match cause {
            StopCause::Cancelled => Self::Cancelled,
            StopCause::Reclaimed => Self::Operator,
            StopCause::TimedOut => Self::TimedOut,
            StopCause::Stalled => Self::Stalled,
            // The run had ended before; that its end is not on record makes it unknown.
            StopCause::Leftover => Self::Crashed,
        }
    }
}

/// EX_TEMPFAIL of sysexits(3).
pub const EXIT_TEMPFAIL: i32 = 75;
/// EX_CONFIG of sysexits(3).
pub const EXIT_CONFIG: i32 = 78;

/// How a command ended, as its parent or the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Makes an outcome of a command's end. `explicit` tasks complete by CompleteRun only.
pub const fn outcome_of_exit(exit: Exit, oom: bool, explicit: bool) -> Outcome {
    match exit {
        // Something of its tree was killed for memory, and it came through all the same.
        Exit::Code(0) if explicit => Outcome::Failed,
        Exit::Code(0) => Outcome::Completed,
        _ if oom => Outcome::Oom,
        Exit::Code(EXIT_TEMPFAIL) => Outcome::Tempfail,
        Exit::Code(EXIT_CONFIG) => Outcome::Misconfigured,
        Exit::Code(_) => Outcome::Failed,
        Exit::Signal(_) => Outcome::Crashed,
    }
}

/// What the accounting needs to know of a task and of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Failures so far.
    pub failures: i64,
    /// Failures at which the task is blocked; 0 means never.
    pub failure_limit: i64,
    /// First back-off, milliseconds.
    pub backoff_ms: i64,
    /// Longest back-off, milliseconds.
    pub backoff_max_ms: i64,
    /// Cool-down after exit 75, milliseconds.
    pub tempfail_cooldown_ms: i64,
    /// `lost` runs of this task to unclean reboots within [`HOST_WINDOW_MS`], this one included.
    pub lost_unclean: i64,
    /// Whether a cancel of the task was acknowledged: it wins over every end.
    pub cancel_asked: bool,
    /// FailRun said not to try again.
    pub final_failure: bool,
    /// Jitter, 0 to 999 thousandths of a quarter of the back-off.
    pub jitter_thousandths: i64,
}

/// `lost` runs to unclean reboots that block a task.
pub const HOST_BUDGET: i64 = 3;
/// The window of [`HOST_BUDGET`]: 24 h.
pub const HOST_WINDOW_MS: i64 = 24 * 60 * 60 * 1_000;

/// What becomes of a task when its run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Its status; `Ready` means `todo` where something is still missing.
    pub status: Status,
    /// Why it is blocked.
    pub block_code: Option<BlockCode>,
    /// Its failure count.
    pub failures: i64,
    /// How long it must not be handed out, milliseconds.
    pub back_off_ms: Option<i64>,
}

/// Settles an ended run with its task.
pub fn settle(outcome: Outcome, account: &Account) -> Settlement {
    let failures = failures_after(outcome, account);
    let to = |status| Settlement { status, block_code: None, failures, back_off_ms: None };
    let blocked = |code| Settlement { block_code: Some(code), ..to(Status::Blocked) };
    if account.cancel_asked {
        return to(Status::Cancelled);
    }
    match outcome {
        Outcome::Completed => to(Status::Done),
        Outcome::Cancelled => to(Status::Cancelled),
        Outcome::Blocked => blocked(BlockCode::Worker),
        Outcome::Misconfigured => blocked(BlockCode::Config),
        Outcome::Failed if account.final_failure => blocked(BlockCode::Failed),
        Outcome::Failed
        | Outcome::Crashed
        | Outcome::Oom
        | Outcome::TimedOut
        | Outcome::Stalled
        | Outcome::Reclaimed => {
            if account.failure_limit > 0 && failures >= account.failure_limit {
                return blocked(BlockCode::Failures);
            }
            Settlement { back_off_ms: back_off(failures, account), ..to(Status::Ready) }
        }
        Outcome::Tempfail => Settlement {
            back_off_ms: Some(account.tempfail_cooldown_ms).filter(|span| *span > 0),
            ..to(Status::Ready)
        },
        Outcome::Lost if account.lost_unclean >= HOST_BUDGET => blocked(BlockCode::Host),
        Outcome::Lost | Outcome::NotStarted | Outcome::Released | Outcome::Reconciled | Outcome::Operator => {
            to(Status::Ready)
        }
    }
}

fn failures_after(outcome: Outcome, account: &Account) -> i64 {
    match outcome {
        Outcome::Completed | Outcome::Operator => 0,
        counted if counted.counts() => account.failures.saturating_add(1),
        _ => account.failures,
    }
}

/// `min(base * 2^(n-1), max)`, and up to a quarter more, so that tasks that failed together do not come
/// back together.
fn back_off(failures: i64, account: &Account) -> Option<i64> {
    if account.backoff_ms <= 0 {
        return None;
    }
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(0).min(62);
    let span = account
        .backoff_ms
        .saturating_mul(1_i64 << doublings)
        .min(account.backoff_max_ms.max(account.backoff_ms));
    let jitter = (span / 4).saturating_mul(account.jitter_thousandths.clamp(0, 999)) / 1_000;
    Some(span.saturating_add(jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account {
            failures: 0,
            failure_limit: 3,
            backoff_ms: 10_000,
            backoff_max_ms: 300_000,
            tempfail_cooldown_ms: 300_000,
            lost_unclean: 0,
            cancel_asked: false,
            final_failure: false,
            jitter_thousandths: 0,
        }
    }

    #[test]
    fn words_come_back() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.word()), Some(outcome));
        }
    }

    #[test]
    fn c37_failures_back_off_and_then_block() {
        let first = settle(Outcome::Failed, &account());
        assert_eq!((first.status, first.failures, first.back_off_ms), (Status::Ready, 1, Some(10_000)));
        let second = settle(Outcome::Crashed, &Account { failures: 1, ..account() });
        assert_eq!((second.failures, second.back_off_ms), (2, Some(20_000)));
        let third = settle(Outcome::TimedOut, &Account { failures: 2, ..account() });
        assert_eq!((third.status, third.block_code), (Status::Blocked, Some(BlockCode::Failures)));
    }

    #[test]
    fn the_back_off_has_a_ceiling_and_a_little_jitter() {
        let tired = Account { failures: 200, failure_limit: 0, ..account() };
        assert_eq!(settle(Outcome::Failed, &tired).back_off_ms, Some(300_000));
        let jittered = Account { jitter_thousandths: 999, ..tired };
        assert_eq!(settle(Outcome::Failed, &jittered).back_off_ms, Some(374_925));
        let none = Account { backoff_ms: 0, ..tired };
        assert_eq!(settle(Outcome::Failed, &none).back_off_ms, None);
    }

    #[test]
    fn what_is_nobodys_fault_is_not_counted() {
        for outcome in [Outcome::Lost, Outcome::NotStarted, Outcome::Released, Outcome::Reconciled] {
            let settled = settle(outcome, &Account { failures: 2, ..account() });
            assert_eq!((settled.status, settled.failures), (Status::Ready, 2), "{outcome:?}");
        }
        assert_eq!(settle(Outcome::Operator, &Account { failures: 2, ..account() }).failures, 0);
    }

    #[test]
    fn c36_a_task_that_takes_its_host_down_is_blocked() {
        let settled = settle(Outcome::Lost, &Account { lost_unclean: 3, ..account() });
        assert_eq!((settled.status, settled.block_code), (Status::Blocked, Some(BlockCode::Host)));
    }

    #[test]
    fn an_acknowledged_cancel_wins_over_every_end() {
        for outcome in Outcome::ALL {
            let settled = settle(outcome, &Account { cancel_asked: true, ..account() });
            assert_eq!(settled.status, Status::Cancelled, "{outcome:?}");
        }
    }

    #[test]
    fn exit_codes_have_their_meaning() {
        assert_eq!(outcome_of_exit(Exit::Code(0), false, false), Outcome::Completed);
        assert_eq!(outcome_of_exit(Exit::Code(0), false, true), Outcome::Failed);
        assert_eq!(outcome_of_exit(Exit::Code(75), false, false), Outcome::Tempfail);
        assert_eq!(outcome_of_exit(Exit::Code(78), false, false), Outcome::Misconfigured);
        assert_eq!(outcome_of_exit(Exit::Signal(9), true, false), Outcome::Oom);
        assert_eq!(outcome_of_exit(Exit::Signal(9), false, false), Outcome::Crashed);
    }
}
