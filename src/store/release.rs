//! The end of a claim of any shape: ends the run, settles the task.

use rusqlite::params;
use serde_json::{Value, json};

use crate::core::facts;
use crate::core::fault::Error;
use crate::core::ids::EventId;
use crate::core::plan::Basis;
use crate::core::retry::{self, Exit, Outcome, Settlement};
use crate::core::row::{ClaimRow, RunPart};
use crate::core::state::{BlockCode, Status};
use crate::core::verdict::{Claim, StopCause};
use crate::core::view::Change;
use crate::store::back_off;
use crate::store::events::{self, About, Kind};
use crate::store::settle::{End, account, is_error, settle};
use crate::store::sweep::Ending;
use crate::store::{Snapshot, Tx, When, boots, comments, rows, runs};

/// Ends a claim and settles its task. `None`: the basis is stale, and nothing was changed.
///
/// A task with several open runs is settled by the last of them to go: none of them can be told from the
/// right one, and none may be forgotten.
///
/// # Errors
/// A fault of the board.
pub fn release(
    tx: &mut Tx<'_>,
    basis: &Basis,
    ending: &Ending,
    when: &When,
) -> Result<Option<Settlement>, Error> {
    let Some(row) = current(tx, basis)? else { return Ok(None) };
    let about = About {
        task: row.task.as_ref().map(|task| task.task).or_else(|| row.run.as_ref().map(|run| run.task)),
        run: row.run.as_ref().map(|run| run.run),
    };
    let broken = facts::claim(&row) == Claim::Broken;
    let repaired = broken && !matches!(ending.outcome, Outcome::Operator | Outcome::Cancelled);
    let said = row.run.as_ref().map(|run| runs::said(tx, run.run)).transpose()?.unwrap_or_default();
    let error = ending.error.clone().or_else(|| said.error.clone());
    let event = tell(tx, about, &row, ending, error.as_deref(), repaired, when)?;
    if let Some(run) = row.run.as_ref().filter(|run| !run.ended) {
        end_run(tx, run, ending, error.as_deref(), when)?;
    }
    tx.change(Change::Ready);
    let others = row.run.as_ref().map_or(0, |run| i64::from(!run.ended));
    let is_last = row.open_runs - others <= 0;
    let settlement = match &row.task {
        Some(task) if task.status == Status::Running && is_last => {
            let account = account(tx, &row, ending, said.final_failure, when)?;
            let settlement = retry::settle(ending.outcome, &account);
            let end = End { settlement, ending, error, said: &said, event };
            settle(tx, task.task, &end, when)?;
            settlement
        }
        _ => unsettled(tx, &row)?,
    };
    if repaired && is_last {
        note(tx, about, &row, ending, settlement.status, when)?;
    }
    if let Some(task) = about.task {
        tx.change(Change::Task(task));
    }
    if ending.outcome == Outcome::NotStarted {
        back_off::pause_host(tx, back_off::PAUSE_MS, when)?;
    }
    Ok(Some(settlement))
}

/// The row of a basis, if it is still what it was. A run that holds another task in good order is no part of
/// it, whatever the basis says: a task that names it does not take it from the other.
pub(super) fn current(snapshot: &Snapshot<'_>, basis: &Basis) -> Result<Option<ClaimRow>, Error> {
    let mut found = Vec::new();
    let numbers = params![basis.task.map(|(task, _)| task), basis.run.map(|(run, _)| run)];
    rows::read(snapshot, rows::PAIR, numbers, &mut found)?;
    let Some(mut row) = found.pop() else { return Ok(None) };
    let task_holds = basis.task == row.task.as_ref().map(|task| (task.task, task.version));
    let run_holds = basis.run == row.run.as_ref().map(|run| (run.run, run.version));
    if let (Some(task), Some(run)) = (&row.task, &row.run)
        && run.task != task.task
        && holds_its_task(snapshot, run)?
    {
        row.run = None;
    }
    Ok((task_holds && run_holds).then_some(row))
}

fn holds_its_task(snapshot: &Snapshot<'_>, run: &RunPart) -> Result<bool, Error> {
    snapshot.is_any(
        "looking for the task that a run holds",
        "SELECT 1 FROM tasks WHERE task = ?1 AND run = ?2 AND status = 'running'",
        params![run.task, run.run],
    )
}

/// Writes what happened; returns the event that puts the task in its line.
fn tell(
    tx: &mut Tx<'_>,
    about: About,
    row: &ClaimRow,
    ending: &Ending,
    error: Option<&str>,
    repaired: bool,
    when: &When,
) -> Result<EventId, Error> {
    let payload = payload(row, ending, error);
    let at = when.now.wall;
    let mut event = None;
    if repaired {
        let outcome = (ending.outcome != Outcome::Reconciled).then(|| ending.outcome.word());
        let status = row.task.as_ref().map(|task| task.status.word());
        let why = json!({ "reason": "orphaned_running", "outcome": outcome, "was": status });
        event = Some(events::write(tx, about, Kind::Ended(Outcome::Reconciled), why, at)?);
    }
    let ends_now = row.run.as_ref().is_some_and(|run| !run.ended);
    if !repaired || ending.outcome != Outcome::Reconciled && ends_now {
        event = Some(events::write(tx, about, Kind::Ended(ending.outcome), payload, at)?);
    }
    if ending.forced {
        events::write(tx, about, Kind::Forced, json!({ "survivor": ending.survivor }), at)?;
    }
    if ending.survivor {
        let pid = row.run.as_ref().and_then(|run| run.worker_pid);
        events::write(tx, about, Kind::Survivor, json!({ "pid": pid }), at)?;
    }
    Ok(event.unwrap_or(EventId::new(0)))
}

fn payload(row: &ClaimRow, ending: &Ending, error: Option<&str>) -> Value {
    let run = row.run.as_ref();
    let record = ending.record.as_ref();
    let (code, signal) = exit_columns(ending.exit);
    json!({
        "outcome": (ending.outcome == Outcome::Operator).then(|| ending.outcome.word()),
        "exit_code": code,
        "signal": signal,
        "error": error.filter(|_| is_error(ending.outcome)),
        "reason": error.filter(|_| !is_error(ending.outcome)),
        "code": (ending.outcome == Outcome::Blocked).then(|| BlockCode::Worker.word()),
        "stop_cause": run.and_then(|run| run.stop_cause).map(StopCause::word),
        "pid": run.and_then(|run| run.worker_pid),
        "killed_by": record.and_then(|record| record.killed_by_pid),
        "user_usec": record.map(|record| record.user_usec),
        "system_usec": record.map(|record| record.system_usec),
        "max_rss_kib": record.map(|record| record.max_rss_kib),
    })
}

const fn exit_columns(exit: Option<Exit>) -> (Option<i32>, Option<i32>) {
    match exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    }
}

/// Ends the run's row. Its claim's columns are cleared, unless its worker lives on and is still to be looked
/// after; what people want to know of it later is kept beside. The stop that ended the claim is over for such
/// a worker: the reaper begins its own ladder, after the linger time.
fn end_run(
    tx: &mut Tx<'_>,
    run: &RunPart,
    ending: &Ending,
    error: Option<&str>,
    when: &When,
) -> Result<(), Error> {
    let (code, signal) = exit_columns(ending.exit);
    let unclean = ending.outcome == Outcome::Lost && is_unclean(tx, run, when)?;
    tx.execute(
        "ending a run",
        "UPDATE runs SET stage = 'ended', ended_usec = ?2, outcome = ?3, exit_code = ?4, signal = ?5, error = ?6,
             unclean = ?7, survivor = ?8, last_pid = ifnull(worker_pid, last_pid), last_kind = ?9,
             lease_expires_ms = NULL, held = NULL, due_ms = NULL, claim_key = NULL,
             worker_pid = iif(?8, worker_pid, NULL), worker_fingerprint = iif(?8, worker_fingerprint, NULL),
             supervisor_pid = iif(?8, supervisor_pid, NULL),
             supervisor_fingerprint = iif(?8, supervisor_fingerprint, NULL),
             leader_gone_ms = iif(?8, ifnull(leader_gone_ms, ?10), NULL),
             stop_cause = iif(?8, NULL, stop_cause), stop_reason = iif(?8, NULL, stop_reason),
             stop_urgency = iif(?8, 0, stop_urgency), term_ms = iif(?8, NULL, term_ms),
             kill_ms = iif(?8, NULL, kill_ms), version = version + 1
         WHERE run = ?1",
        params![
            run.run,
            when.now.wall.0,
            ending.outcome.word(),
            code,
            signal,
            error,
            unclean,
            ending.survivor,
            runs::kind(run.launched, run.worker_pid),
            when.now.mono.0,
        ],
    )?;
    if ending.survivor {
        crate::store::due::arm(tx, run.run, when)?;
        tx.change(Change::Due);
    }
    tx.change(Change::RunEnded(run.run));
    Ok(())
}

/// Whether the boot of a lost run ended without a word: no shutdown was stamped.
fn is_unclean(snapshot: &Snapshot<'_>, run: &RunPart, when: &When) -> Result<bool, Error> {
    let boot = match run.boot {
        Some(boot) => Some(boot),
        None => match &run.epoch {
            Some(epoch) => boots::newest_of(snapshot, epoch)?,
            None => None,
        },
    };
    match boot {
        // It ended in this boot, which is going down in good order.
        Some(boot) if boot == when.boot => Ok(false),
        Some(boot) => Ok(boots::shutdown_of(snapshot, boot)?.is_none()),
        None => Ok(true),
    }
}

/// A task that this end does not move; it must not name an ended run either, unless others are still to go.
fn unsettled(tx: &Tx<'_>, row: &ClaimRow) -> Result<Settlement, Error> {
    let run = row.run.as_ref().map(|run| run.run);
    if let Some(task) = &row.task
        && task.status != Status::Running
        && task.run.is_some()
        && task.run == run
    {
        tx.execute(
            "letting a run go",
            "UPDATE tasks SET run = NULL, version = version + 1 WHERE task = ?1",
            [task.task],
        )?;
    }
    let status = row.task.as_ref().map_or(Status::Archived, |task| task.status);
    Ok(Settlement { status, block_code: None, failures: 0, back_off_ms: None })
}

/// The comment of a repair.
fn note(
    tx: &mut Tx<'_>,
    about: About,
    row: &ClaimRow,
    ending: &Ending,
    status: Status,
    when: &When,
) -> Result<(), Error> {
    let Some(task) = row.task.as_ref().map(|task| task.task) else { return Ok(()) };
    let text = ending.note.clone().unwrap_or_else(|| {
        let how = about.run.map_or_else(
            || "no run held it".to_owned(),
            |run| format!("run {run} did not hold it as it should"),
        );
        format!("The claim on this task was broken: {how}. It was repaired; the task is {status} now.")
    });
    comments::add(tx, task, comments::OURS, &text, when.now.wall).map(|_| ())
}
