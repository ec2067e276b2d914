//! The event log: one row for each change of a task's life, with a payload in JSON.

use rusqlite::params;
use serde_json::Value;

use crate::core::fault::Error;
use crate::core::ids::{EventId, RunId, TaskId};
use crate::core::retry::Outcome;
use crate::core::time::WallUsec;
use crate::store::Tx;

/// The kinds of events, by their words on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Created,
    Promoted,
    Claimed,
    Started,
    ClaimExtended,
    Held,
    StopAsked,
    Signalled,
    Unblocked,
    GaveUp,
    Retried,
    Archived,
    WorkerRegistered,
    Survivor,
    Forced,
    Edited,
    Linked,
    Unlinked,
    Blocked,
    Cancelled,
    /// A run has ended, under the word of its outcome; an operator's reclaim is a `reclaimed` too.
    Ended(Outcome),
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
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
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) task: Option<TaskId>,
    pub(super) run: Option<RunId>,
}

impl From<TaskId> for About {
    fn from(task: TaskId) -> Self {
        Self { task: Some(task), run: None }
    }
}

impl From<(TaskId, RunId)> for About {
    fn from((task, run): (TaskId, RunId)) -> Self {
        Self { task: Some(task), run: Some(run) }
    }
}

/// Writes one. Members of the payload that are null are left out.
pub(super) fn write(
    tx: &Tx<'_>,
    about: impl Into<About>,
    kind: Kind,
    payload: Value,
    at: WallUsec,
) -> Result<EventId, Error> {
    let About { task, run } = about.into();
    let event = tx.insert(
        "writing an event",
        "INSERT INTO events (task, run, kind, payload, at_usec) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![task, run, kind.word(), without_nulls(payload).to_string(), at.0],
    )?;
    Ok(EventId::new(event))
}

fn without_nulls(payload: Value) -> Value {
    match payload {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}
