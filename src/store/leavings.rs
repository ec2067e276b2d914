//! Which files of the state directory still have a run that they are for.

use rusqlite::params;

use crate::core::fault::Error;
use crate::core::ids::{Nonce, RunId, TaskId};
use crate::store::Snapshot;

/// Of these records, those that nobody will read: of runs that have ended and left no survivor, and of runs
/// that the board does not know. The records must have been listed before the snapshot was taken.
///
/// # Errors
/// A fault of the board.
pub fn records(snapshot: &Snapshot<'_>, found: Vec<(RunId, Nonce)>) -> Result<Vec<(RunId, Nonce)>, Error> {
    let mut over = Vec::new();
    for (run, nonce) in found {
        let is_wanted = snapshot.is_any(
            "looking for the run of a record",
            "SELECT 1 FROM runs WHERE run = ?1 AND nonce = ?2 AND (ended_usec IS NULL OR survivor = 1)",
            params![run, nonce.as_str()],
        )?;
        if !is_wanted {
            over.push((run, nonce));
        }
    }
    Ok(over)
}

/// Of the runs with output, those whose output nobody is to find any more: their task is archived and nothing
/// of them writes, or the board does not know them. They must have been listed before the snapshot was taken.
///
/// # Errors
/// A fault of the board.
pub fn outputs(snapshot: &Snapshot<'_>, found: Vec<RunId>) -> Result<Vec<RunId>, Error> {
    let mut over = Vec::new();
    for run in found {
        let is_wanted = snapshot.is_any(
            "looking for the run of an output",
            "SELECT 1 FROM runs r LEFT JOIN tasks t ON t.task = r.task
             WHERE r.run = ?1 AND (r.ended_usec IS NULL OR r.survivor = 1 OR t.status IS NOT 'archived')",
            [run],
        )?;
        if !is_wanted {
            over.push(run);
        }
    }
    Ok(over)
}

/// The runs of these tasks.
///
/// # Errors
/// A fault of the board.
pub fn runs_of(snapshot: &Snapshot<'_>, tasks: &[TaskId]) -> Result<Vec<RunId>, Error> {
    let mut runs = Vec::new();
    for task in tasks {
        let own: Vec<RunId> = snapshot.all(
            "looking for the runs of an old task",
            "SELECT run FROM runs WHERE task = ?1 AND launched = 1",
            [task],
            |row| row.get(0),
        )?;
        runs.extend(own);
    }
    Ok(runs)
}
