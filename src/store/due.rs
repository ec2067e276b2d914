//! When a run has to be looked at next: the earliest of its moments, kept in its row so that a sweep and the
//! timer read only what is due.

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::limits;
use crate::core::row::{ClaimRow, RunStage};
use crate::core::time::MonoMs;
use crate::core::view::Change;
use crate::store::{Snapshot, Tx, When, rows};

/// What a row holds that has nothing due.
const NEVER: MonoMs = MonoMs(i64::MAX);

/// The moments of a row at which its verdict may change.
pub(super) fn moments(row: &ClaimRow, when: &When) -> Vec<MonoMs> {
    let Some(run) = &row.run else { return Vec::new() };
    let task = row.task.as_ref();
    let policy = &when.policy;
    if let Some(kill) = run.kill_ms {
        return vec![kill.plus(limits::KILL_MS)];
    }
    if let Some(term) = run.term_ms {
        let grace_ms = task.and_then(|task| task.stop_grace_ms).unwrap_or(policy.stop_grace_ms);
        return vec![term.plus(grace_ms)];
    }
    let after = |since: Option<MonoMs>, span_ms: Option<i64>| {
        since.zip(span_ms.filter(|span_ms| *span_ms > 0)).map(|(since, span_ms)| since.plus(span_ms))
    };
    let linger = run.leader_gone_ms.map(|since| since.plus(policy.linger_ms));
    if run.ended {
        return linger.into_iter().collect();
    }
    if run.stage == RunStage::Starting {
        return [after(run.claimed_ms, Some(limits::START_MS)), linger].into_iter().flatten().collect();
    }
    let started = run.started_ms.or(run.claimed_ms);
    let stall_ms = task.and_then(|task| task.stall_ms).or(policy.stall_ms);
    [
        run.lease_expires_ms,
        after(started, task.and_then(|task| task.max_runtime_ms)),
        after(run.progress_ms.max(started), stall_ms),
        linger,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Ends every write to a run: one version more, and its due time computed anew.
pub(super) fn arm(tx: &Tx<'_>, run: RunId, when: &When) -> Result<(), Error> {
    compute(tx, run, 1, when)
}

/// As [`arm`], for a note that makes no verdict wrong: the version stays.
pub(super) fn arm_quietly(tx: &Tx<'_>, run: RunId, when: &When) -> Result<(), Error> {
    compute(tx, run, 0, when)
}

fn compute(tx: &Tx<'_>, run: RunId, versions: i64, when: &When) -> Result<(), Error> {
    let mut found = Vec::new();
    rows::read(tx, rows::PAIR_OF_RUN, [run], &mut found)?;
    let Some(row) = found.first() else { return Ok(()) };
    let due = moments(row, when).into_iter().min().unwrap_or(NEVER);
    tx.execute(
        "noting when a run is due",
        "UPDATE runs SET due_ms = ?2, version = version + ?3 WHERE run = ?1",
        rusqlite::params![run, due.0, versions],
    )?;
    Ok(())
}

/// As [`arm`], for the open run of a task whose spans have changed.
pub(super) fn arm_task(tx: &mut Tx<'_>, task: TaskId, when: &When) -> Result<(), Error> {
    let open = tx.all(
        "looking for the runs of a task",
        "SELECT run FROM runs WHERE task = ?1 AND ended_usec IS NULL",
        [task],
        |row| row.get(0),
    )?;
    for run in open {
        arm(tx, run, when)?;
    }
    tx.change(Change::Due);
    Ok(())
}

/// The earliest moment after `after`, over every open run and survivor of this epoch.
pub(super) fn next(snapshot: &Snapshot<'_>, after: MonoMs, when: &When) -> Result<Option<MonoMs>, Error> {
    let epoch = when.epoch.to_string();
    let ahead = snapshot.one(
        "looking for what is due next",
        "SELECT due_ms FROM runs WHERE due_ms IS NOT NULL AND epoch = ?1 AND due_ms > ?2
         ORDER BY due_ms LIMIT 1",
        rusqlite::params![epoch, after.0],
        |row| row.get::<_, i64>(0),
    )?;
    // What is overdue was looked at and kept, or is held; it may have a later moment still.
    let mut overdue = Vec::new();
    rows::read(snapshot, rows::DUE, rusqlite::params![epoch, after.0], &mut overdue)?;
    let later = overdue.iter().flat_map(|row| moments(row, when)).filter(|moment| *moment > after);
    let ahead = ahead.map(MonoMs).filter(|moment| *moment != NEVER);
    Ok(later.chain(ahead).min())
}
