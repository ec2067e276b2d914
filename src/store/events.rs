//! The event log: one row for each change of a task's life, with a payload in JSON.

use rusqlite::params;
use serde_json::Value;

use crate::core::fault::Error;
use crate::core::happening::{Happening, Weight};
use crate::core::ids::{EventId, RunId, TaskId};
use crate::core::time::WallUsec;
use crate::store::sql::LaxText;
use crate::store::{Tx, comments};

pub(super) use crate::core::happening::Kind;

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

/// Writes one, and tells it after the commit. Members of the payload that are null are left out.
pub(super) fn write(
    tx: &mut Tx<'_>,
    about: impl Into<About>,
    kind: Kind,
    payload: Value,
    at: WallUsec,
) -> Result<EventId, Error> {
    let About { task, run } = about.into();
    let payload = without_nulls(payload);
    let event = tx.insert(
        "writing an event",
        "INSERT INTO events (task, run, kind, payload, at_usec) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![task, run, kind.word(), payload.to_string(), at.0],
    )?;
    // A claim of our own is followed by the start that says all of it.
    let is_own_claim = kind == Kind::Claimed && payload["claimant"] == comments::OURS;
    if kind.weight() != Weight::Silent && !is_own_claim {
        let queue = queue_of(tx, task)?;
        tx.happened(Happening { kind, task, run, queue, payload });
    }
    Ok(EventId::new(event))
}

fn queue_of(tx: &Tx<'_>, task: Option<TaskId>) -> Result<Option<String>, Error> {
    let Some(task) = task else { return Ok(None) };
    let queue =
        tx.one("reading a task's queue", "SELECT queue FROM tasks WHERE task = ?1", [task], |row| {
            Ok(row.get::<_, LaxText>(0)?.0)
        })?;
    Ok(queue.flatten())
}

fn without_nulls(payload: Value) -> Value {
    match payload {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}
