//! The task's state machine: which status may follow which, by which act.

use std::fmt;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Waits for its parents or for its time.
    Todo,
    /// May be claimed.
    Ready,
    /// A run holds it.
    Running,
    /// Parked, with a code and a reason.
    Blocked,
    /// Completed.
    Done,
    /// Given up by an operator.
    Cancelled,
    /// Final.
    Archived,
}

impl Status {
    /// Every status, in the order of a task's life.
    pub const ALL: [Self; 7] =
        [Self::Todo, Self::Ready, Self::Running, Self::Blocked, Self::Done, Self::Cancelled, Self::Archived];

    /// The word of the board, the bus and the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Todo => "todo",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Archived => "archived",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// Whether the task is still to be done: retention never touches it.
    pub const fn is_open(self) -> bool {
        match self {
            Self::Todo | Self::Ready | Self::Running | Self::Blocked => true,
            Self::Done | Self::Cancelled | Self::Archived => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// Why a task is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockCode {
    /// By an operator.
    Operator,
    /// By its worker.
    Worker,
    /// A parent was cancelled.
    Parent,
    /// The failure limit was reached.
    Failures,
    /// Exit 78 (EX_CONFIG, sysexits(3)).
    Config,
    /// FailRun without retry.
    Failed,
    /// It went down with its host too often.
    Host,
}

impl BlockCode {
    /// Every code.
    pub const ALL: [Self; 7] =
        [Self::Operator, Self::Worker, Self::Parent, Self::Failures, Self::Config, Self::Failed, Self::Host];

    /// The word of the board and the bus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Worker => "worker",
            Self::Parent => "parent",
            Self::Failures => "failures",
            Self::Config => "config",
            Self::Failed => "failed",
            Self::Host => "host",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.word() == word)
    }
}

/// What somebody wants to do to a task that no run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Park it.
    Block,
    /// Take it out of the parking place.
    Unblock,
    /// Once more.
    Retry,
    /// Give it up.
    Cancel,
    /// Put it away.
    Archive,
}

impl Act {
    /// Every act.
    pub const ALL: [Self; 5] = [Self::Block, Self::Unblock, Self::Retry, Self::Cancel, Self::Archive];
}

/// What an act leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// This status.
    To(Status),
    /// `ready`, or `todo` while parents or the time are missing.
    Open,
    /// Stays `ready`, and a back-off ends now.
    Due,
    /// A worker has to be stopped first.
    Stop,
    /// It is there already.
    Unchanged,
    /// Not allowed from here.
    Refused,
}

/// The transition table.
pub const fn step(from: Status, act: Act) -> Step {
    use Status::{Archived, Blocked, Cancelled, Done, Ready, Running, Todo};
    match (act, from) {
        (Act::Block, Todo | Ready) => Step::To(Blocked),
        (Act::Block, Blocked) => Step::Unchanged,
        (Act::Block, Running | Done | Cancelled | Archived) => Step::Refused,

        (Act::Unblock, Blocked) => Step::Open,
        (Act::Unblock, Todo | Ready) => Step::Unchanged,
        (Act::Unblock, Running | Done | Cancelled | Archived) => Step::Refused,

        (Act::Retry, Blocked | Done | Cancelled) => Step::Open,
        (Act::Retry, Ready) => Step::Due,
        (Act::Retry, Todo) => Step::Unchanged,
        (Act::Retry, Running | Archived) => Step::Refused,

        (Act::Cancel, Todo | Ready | Blocked) => Step::To(Cancelled),
        (Act::Cancel, Running) => Step::Stop,
        (Act::Cancel, Cancelled) => Step::Unchanged,
        (Act::Cancel, Done | Archived) => Step::Refused,

        (Act::Archive, Done | Cancelled) => Step::To(Archived),
        (Act::Archive, Archived) => Step::Unchanged,
        (Act::Archive, Todo | Ready | Running | Blocked) => Step::Refused,
    }
}

/// The status of an open task that no run holds, by what it still waits for.
pub const fn open_status(pending_parents: i64, time_reached: bool) -> Status {
    if pending_parents <= 0 && time_reached { Status::Ready } else { Status::Todo }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.word()), Some(status));
        }
        for code in BlockCode::ALL {
            assert_eq!(BlockCode::parse(code.word()), Some(code));
        }
        assert_eq!(Status::parse("Running"), None);
    }

    #[test]
    fn archived_is_final() {
        for act in Act::ALL {
            let after = step(Status::Archived, act);
            assert!(matches!(after, Step::Refused | Step::Unchanged), "{act:?} -> {after:?}");
        }
    }

    #[test]
    fn no_act_takes_a_running_task_from_its_worker() {
        for act in Act::ALL {
            assert!(matches!(step(Status::Running, act), Step::Refused | Step::Stop), "{act:?}");
        }
    }

    #[test]
    fn acting_twice_is_a_success_that_changes_nothing() {
        for act in Act::ALL {
            for from in Status::ALL {
                if let Step::To(status) = step(from, act) {
                    assert_eq!(step(status, act), Step::Unchanged, "{act:?} twice from {from}");
                }
            }
        }
    }

    #[test]
    fn a_task_is_ready_when_nothing_is_missing() {
        assert_eq!(open_status(0, true), Status::Ready);
        assert_eq!(open_status(1, true), Status::Todo);
        assert_eq!(open_status(0, false), Status::Todo);
    }
}
