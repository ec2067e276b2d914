//! What can happen to a task, and how it is told: one kind, one word on the bus, one line in the log.

use serde_json::Value;

use crate::core::ids::{RunId, TaskId};
use crate::core::retry::Outcome;

/// Characters of somebody else's text that a line has room for.
const QUOTED_CHARS: usize = 300;

/// The kinds of events, by their words on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A task is on the board.
    Created,
    /// It waits for nothing any more.
    Promoted,
    /// A run has it.
    Claimed,
    /// The gate of its command is open.
    Started,
    /// The lease was renewed.
    ClaimExtended,
    /// The claim is left alone, for a reason.
    Held,
    /// The worker is to be stopped.
    StopAsked,
    /// A signal went out.
    Signalled,
    /// A blocked task was opened again.
    Unblocked,
    /// Too many failures.
    GaveUp,
    /// A task is to run again.
    Retried,
    /// Put away.
    Archived,
    /// A process is the worker of a run.
    WorkerRegistered,
    /// A worker outlives its claim, or has ended after all.
    Survivor,
    /// A claim was ended by force.
    Forced,
    /// Properties have changed.
    Edited,
    /// A parent more.
    Linked,
    /// A parent less.
    Unlinked,
    /// Parked.
    Blocked,
    /// Called off.
    Cancelled,
    /// A run has ended, under the word of its outcome; an operator's reclaim is a `reclaimed` too.
    Ended(Outcome),
}

/// How much a line matters to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Not told in the log.
    Silent,
    /// The normal course of things.
    Info,
    /// Somebody may want to look.
    Warning,
}

impl Kind {
    const PLAIN: [Self; 20] = [
        Self::Created,
        Self::Promoted,
        Self::Claimed,
        Self::Started,
        Self::ClaimExtended,
        Self::Held,
        Self::StopAsked,
        Self::Signalled,
        Self::Unblocked,
        Self::GaveUp,
        Self::Retried,
        Self::Archived,
        Self::WorkerRegistered,
        Self::Survivor,
        Self::Forced,
        Self::Edited,
        Self::Linked,
        Self::Unlinked,
        Self::Blocked,
        Self::Cancelled,
    ];

    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().chain(Outcome::ALL.into_iter().map(Self::Ended))
    }

    /// The word of the bus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Promoted => "promoted",
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::ClaimExtended => "claim_extended",
            Self::Held => "held",
            Self::StopAsked => "stop_asked",
            Self::Signalled => "signalled",
            Self::Unblocked => "unblocked",
            Self::GaveUp => "gave_up",
            Self::Retried => "retried",
            Self::Archived => "archived",
            Self::WorkerRegistered => "worker_registered",
            Self::Survivor => "survivor",
            Self::Forced => "forced",
            Self::Edited => "edited",
            Self::Linked => "linked",
            Self::Unlinked => "unlinked",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Ended(Outcome::Operator) => "reclaimed",
            Self::Ended(outcome) => outcome.word(),
        }
    }

    /// How much its line matters. What people do to the board by hand, and what happens to thousands of tasks
    /// in good order, is on the board and not in the log.
    pub const fn weight(self) -> Weight {
        match self {
            Self::Created
            | Self::Promoted
            | Self::ClaimExtended
            | Self::Archived
            | Self::Edited
            | Self::Linked
            | Self::Unlinked => Weight::Silent,
            Self::Claimed
            | Self::Started
            | Self::StopAsked
            | Self::Signalled
            | Self::Unblocked
            | Self::Retried
            | Self::WorkerRegistered
            | Self::Blocked
            | Self::Cancelled => Weight::Info,
            Self::Held | Self::GaveUp | Self::Survivor | Self::Forced => Weight::Warning,
            Self::Ended(outcome) => match outcome {
                Outcome::Completed
                | Outcome::Tempfail
                | Outcome::Lost
                | Outcome::Released
                | Outcome::Operator
                | Outcome::Cancelled
                | Outcome::Blocked => Weight::Info,
                Outcome::Failed
                | Outcome::Crashed
                | Outcome::Oom
                | Outcome::TimedOut
                | Outcome::Stalled
                | Outcome::Reclaimed
                | Outcome::Misconfigured
                | Outcome::NotStarted
                | Outcome::Reconciled => Weight::Warning,
            },
        }
    }
}

/// One thing that has happened, and is on the board.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// What.
    pub kind: Kind,
    /// To which task.
    pub task: Option<TaskId>,
    /// To which run.
    pub run: Option<RunId>,
    /// In which queue.
    pub queue: Option<String>,
    /// The event's payload.
    pub payload: Value,
}

impl Happening {
    fn word(&self, member: &str) -> Option<&str> {
        self.payload.get(member)?.as_str()
    }

    fn number(&self, member: &str) -> Option<i64> {
        self.payload.get(member)?.as_i64()
    }

    /// Why, as one word: the outcome, the reason of a hold, the cause of a stop, the code of a block.
    pub fn cause(&self) -> Option<&str> {
        match self.kind {
            Kind::Ended(outcome) => Some(outcome.word()),
            Kind::Held => self.word("reason"),
            Kind::StopAsked | Kind::Signalled => self.word("cause"),
            Kind::Blocked => self.word("code"),
            Kind::GaveUp => Some("failures"),
            Kind::Forced => Some("force"),
            Kind::Cancelled => Some("cancelled"),
            Kind::Created
            | Kind::Promoted
            | Kind::Claimed
            | Kind::Started
            | Kind::ClaimExtended
            | Kind::Unblocked
            | Kind::Retried
            | Kind::Archived
            | Kind::WorkerRegistered
            | Kind::Survivor
            | Kind::Edited
            | Kind::Linked
            | Kind::Unlinked => None,
        }
    }

    fn about(&self) -> String {
        match (self.run, self.task) {
            (Some(run), Some(task)) => format!("run {run} of task {task}"),
            (Some(run), None) => format!("run {run}"),
            (None, Some(task)) => format!("task {task}"),
            (None, None) => "a task".to_owned(),
        }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let about = self.about();
        let pid = self.number("pid").map(|pid| format!("process {pid}"));
        let pid = pid.as_deref();
        match self.kind {
            Kind::Started => match pid {
                Some(pid) => format!("{about} has started: {pid}"),
                None => format!("{about} has started"),
            },
            Kind::Claimed => format!("{about} is a claim of {}", self.word("claimant").unwrap_or("somebody")),
            Kind::WorkerRegistered => format!("{} is the worker of {about}", pid.unwrap_or("a process")),
            Kind::Held => {
                format!("leaving {about} alone: {}; will look again", self.cause().unwrap_or("unknown"))
            }
            Kind::StopAsked => {
                self.with_text(&format!("{about} is to be stopped: {}", self.cause().unwrap_or("asked")))
            }
            Kind::Signalled => format!(
                "sent signal {} to {} of {about}, proven by {}",
                self.number("signal").unwrap_or(0),
                pid.unwrap_or("a process"),
                self.word("proof").unwrap_or("nothing")
            ),
            Kind::GaveUp => self.with_text(&format!(
                "{about} is blocked after {} failures",
                self.number("failures").unwrap_or(0)
            )),
            Kind::Blocked => {
                self.with_text(&format!("{about} is blocked ({})", self.cause().unwrap_or("operator")))
            }
            Kind::Survivor => match pid {
                Some(pid) => format!("{pid} of {about} outlives its claim"),
                None => format!("nothing of {about} is left any more"),
            },
            Kind::Forced => format!("the claim of {about} was ended by force"),
            Kind::Ended(outcome) => {
                let exit = match (self.number("exit_code"), self.number("signal")) {
                    (Some(code), _) => format!(", exit {code}"),
                    (None, Some(signal)) => format!(", signal {signal}"),
                    (None, None) => String::new(),
                };
                self.with_text(&format!("{about} has ended: {}{exit}", outcome.word()))
            }
            Kind::Unblocked => format!("{about} is open again"),
            Kind::Retried => format!("{about} is to run again"),
            Kind::Cancelled => self.with_text(&format!("{about} is cancelled")),
            Kind::Created
            | Kind::Promoted
            | Kind::ClaimExtended
            | Kind::Archived
            | Kind::Edited
            | Kind::Linked
            | Kind::Unlinked => format!("{about}: {}", self.kind.word()),
        }
    }

    /// With what somebody has said of it. It is somebody else's text: of bounded length, and on one line.
    fn with_text(&self, line: &str) -> String {
        let text = self.word("error").or_else(|| self.word("reason"));
        let Some(text) = text.filter(|text| !text.is_empty() && !self.says_it_already(text)) else {
            return line.to_owned();
        };
        let safe = |c: char| if c.is_control() { ' ' } else { c };
        let mut quoted: String = text.chars().take(QUOTED_CHARS).map(safe).collect();
        if text.chars().nth(QUOTED_CHARS).is_some() {
            quoted.push('…');
        }
        format!("{line}: {quoted}")
    }

    /// `exit 3` is the whole error of a command that ended with 3.
    fn says_it_already(&self, text: &str) -> bool {
        self.number("exit_code").is_some_and(|code| text == format!("exit {code}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn happening(kind: Kind, payload: Value) -> Happening {
        Happening { kind, task: Some(TaskId::new(42)), run: Some(RunId::new(57)), queue: None, payload }
    }

    #[test]
    fn a_line_says_who_and_why() {
        for (kind, payload, cause, line) in [
            (Kind::Started, json!({"pid": 9}), None, "run 57 of task 42 has started: process 9"),
            (
                Kind::Held,
                json!({"reason": "unknown"}),
                Some("unknown"),
                "leaving run 57 of task 42 alone: unknown; will look again",
            ),
            (
                Kind::Ended(Outcome::Failed),
                json!({"exit_code": 3, "error": "exit 3"}),
                Some("failed"),
                "run 57 of task 42 has ended: failed, exit 3",
            ),
            (
                Kind::Ended(Outcome::Crashed),
                json!({"signal": 9, "error": "ended by signal 9, sent by process 4"}),
                Some("crashed"),
                "run 57 of task 42 has ended: crashed, signal 9: ended by signal 9, sent by process 4",
            ),
            (
                Kind::Blocked,
                json!({"code": "operator", "reason": "wait\nfor me"}),
                Some("operator"),
                "run 57 of task 42 is blocked (operator): wait for me",
            ),
        ] {
            let happening = happening(kind, payload);
            assert_eq!((happening.cause(), happening.line().as_str()), (cause, line));
        }
    }

    #[test]
    fn somebody_elses_text_has_bounds() {
        let long = happening(Kind::Cancelled, json!({"reason": "x".repeat(5_000)}));
        assert!(long.line().chars().count() < 400);
    }

    #[test]
    fn every_kind_has_a_line_of_its_own() {
        let lines: std::collections::HashSet<String> =
            Kind::all().map(|kind| happening(kind, json!({})).line()).collect();
        assert_eq!(lines.len(), Kind::all().count());
    }
}
