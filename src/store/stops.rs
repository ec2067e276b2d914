//! Stops: the cause is on the board before the signal, the time of sending after it.

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::plan::Basis;
use crate::core::retry::Outcome;
use crate::core::row::RunPart;
use crate::core::verdict::{Rung, StopCause, Urgency};
use crate::core::view::Change;
use crate::store::events::{self, Kind};
use crate::store::release::current;
use crate::store::sql::LaxText;
use crate::store::sweep::{self, Ending, Selection, about};
use crate::store::{Tx, When, due, rows, runs};

/// Commits the cause of a stop, before any signal. `None`: the basis is stale; otherwise the basis for what
/// follows. A cause that is on the board already and is stronger stays.
///
/// # Errors
/// A fault of the board.
pub fn ask_stop(
    tx: &mut Tx<'_>,
    basis: &Basis,
    cause: StopCause,
    urgency: Urgency,
    when: &When,
) -> Result<Option<Basis>, Error> {
    let Some(row) = current(tx, basis)? else { return Ok(None) };
    let Some(run) = &row.run else { return Ok(None) };
    stop(tx, run, cause, urgency, Asked { by: None, reason: None }, when)?;
    let version = tx.number("reading a version", "SELECT version FROM runs WHERE run = ?1", [run.run])?;
    Ok(Some(Basis { task: basis.task, run: Some((run.run, version)) }))
}

/// Who asked for a stop, and why, where it was a person.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The uid.
    pub by: Option<Uid>,
    /// For people.
    pub reason: Option<&'a str>,
}

/// What a person's stop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOn {
    /// It is on the board: this run is to be looked at.
    Run(RunId),
    /// No run held the task: it was settled at once.
    Settled,
}

/// A person's stop of a running task: on the run that holds it, else on an open run of it, else the task is
/// settled at once, since there is nobody to stop.
///
/// # Errors
/// A fault of the board.
pub fn stop_task(
    tx: &mut Tx<'_>,
    task: TaskId,
    cause: StopCause,
    urgency: Urgency,
    asked: Asked<'_>,
    when: &When,
) -> Result<StopOn, Error> {
    let found = sweep::rows(tx, &Selection::Task(task))?;
    let holder = found.iter().find_map(|row| row.run.as_ref().filter(|run| !run.ended));
    if let Some(run) = holder {
        stop(tx, run, cause, urgency, asked, when)?;
        return Ok(StopOn::Run(run.run));
    }
    let outcome = Outcome::of_stop(cause);
    for row in &found {
        let ending = Ending { error: asked.reason.map(str::to_owned), ..Ending::of(outcome) };
        sweep::release(tx, &Basis::of(row), &ending, when)?;
    }
    Ok(StopOn::Settled)
}

/// Writes a stop, if it is stronger than what is there; returns whether it was.
fn stop(
    tx: &mut Tx<'_>,
    run: &RunPart,
    cause: StopCause,
    urgency: Urgency,
    asked: Asked<'_>,
    when: &When,
) -> Result<bool, Error> {
    let cause = run.stop_cause.filter(|there| rank(*there) >= rank(cause)).unwrap_or(cause);
    let urgency = urgency.max(run.stop_urgency);
    if run.stop_cause == Some(cause) && run.stop_urgency == urgency {
        return Ok(false);
    }
    tx.execute(
        "asking for a stop",
        "UPDATE runs SET stop_cause = ?2, stop_urgency = ?3, stop_reason = ifnull(?4, stop_reason) WHERE run = ?1",
        params![run.run, cause.word(), rows::urgency_level(urgency), asked.reason],
    )?;
    let urgent = match urgency {
        Urgency::Normal => None,
        Urgency::Kill => Some("kill"),
        Urgency::Force => Some("force"),
    };
    let payload = json!({ "cause": cause.word(), "by": asked.by, "reason": asked.reason, "urgency": urgent });
    events::write(tx, about(run), Kind::StopAsked, payload, when.now.wall)?;
    due::arm(tx, run.run, when)?;
    tx.change(Change::Task(run.task));
    tx.change(Change::Due);
    Ok(true)
}

/// A cancel wins over a reclaim, and a person over the sweep; among the sweep's own the first stays.
const fn rank(cause: StopCause) -> u8 {
    match cause {
        StopCause::Cancelled => 2,
        StopCause::Reclaimed => 1,
        StopCause::TimedOut | StopCause::Stalled | StopCause::Leftover => 0,
    }
}

/// Records that a signal went out; `proof` says how its target was proven (`pidfd+inode`, `cgroup`, ...). With
/// a rung it is a step of the ladder, and the time of its first sending is kept.
///
/// # Errors
/// A fault of the board.
pub fn signalled(
    tx: &mut Tx<'_>,
    run: RunId,
    rung: Option<Rung>,
    signal: i32,
    pid: i64,
    proof: &str,
    when: &When,
) -> Result<(), Error> {
    let Some(state) = runs::state(tx, run)? else { return Ok(()) };
    let (term, kill) = match rung {
        Some(Rung::Term) => (Some(when.now.mono.0), None),
        Some(Rung::Kill) => (None, Some(when.now.mono.0)),
        None => (None, None),
    };
    tx.execute(
        "noting a signal",
        "UPDATE runs SET term_ms = ifnull(term_ms, ?2), kill_ms = ifnull(kill_ms, ?3) WHERE run = ?1",
        params![run, term, kill],
    )?;
    let cause = tx.one("reading why", "SELECT stop_cause FROM runs WHERE run = ?1", [run], |row| {
        Ok(row.get::<_, LaxText>(0)?.0)
    })?;
    let cause = rung.and(cause.flatten());
    let payload = json!({ "signal": signal, "pid": pid, "proof": proof, "cause": cause });
    events::write(tx, (state.task, run), Kind::Signalled, payload, when.now.wall)?;
    due::arm(tx, run, when)?;
    tx.change(Change::Task(state.task));
    tx.change(Change::Due);
    Ok(())
}
