//! Queues: limits, pauses, defaults.

use std::collections::HashMap;

use rusqlite::params;

use crate::core::fault::{Error, Fault};
use crate::core::ids::RunId;
use crate::core::policy::QueuePolicy;
use crate::core::spec::Patch;
use crate::core::view::{Change, QueueChange};
use crate::store::{Snapshot, Tx, When, due};

/// The queue of tasks that name none.
pub const DEFAULT: &str = "default";

/// Whether there is such a queue.
///
/// # Errors
/// A fault of the board.
pub fn exists(snapshot: &Snapshot<'_>, queue: &str) -> Result<bool, Error> {
    snapshot.is_any("looking for a queue", "SELECT 1 FROM queues WHERE queue = ?1", [queue])
}

/// The defaults of every queue that has some. Defaults that do not parse are none: a hand edit must not stop
/// the sweep.
pub(super) fn all_defaults(snapshot: &Snapshot<'_>) -> Result<HashMap<String, Patch>, Error> {
    let rows = snapshot.all(
        "reading the defaults of queues",
        "SELECT queue, launch_defaults FROM queues
         WHERE launch_defaults <> '{}' AND typeof(launch_defaults) = 'text' AND typeof(queue) = 'text'",
        [],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
    )?;
    Ok(rows.into_iter().map(|(queue, json)| (queue, read(&json))).collect())
}

/// The defaults of one queue.
///
/// # Errors
/// A fault of the board.
pub fn defaults(snapshot: &Snapshot<'_>, queue: &str) -> Result<Patch, Error> {
    let json = snapshot.one(
        "reading the defaults of a queue",
        "SELECT launch_defaults FROM queues
         WHERE queue = ?1 AND launch_defaults <> '{}' AND typeof(launch_defaults) = 'text'",
        [queue],
        |row| row.get::<_, String>(0),
    )?;
    Ok(json.map(|json| read(&json)).unwrap_or_default())
}

fn read(json: &str) -> Patch {
    serde_json::from_str(json).unwrap_or_default()
}

fn json(patch: &Patch) -> Result<String, Error> {
    let value = serde_json::to_value(patch).map_err(|_| Fault::Corrupt("defaults that are no JSON"))?;
    let said = match value {
        serde_json::Value::Object(members) => members
            .into_iter()
            .filter(|(_, value)| !value.is_null() && value.as_object().is_none_or(|inner| !inner.is_empty()))
            .collect(),
        _ => serde_json::Map::new(),
    };
    Ok(serde_json::Value::Object(said).to_string())
}

/// Makes or changes a queue; returns whether that changed anything.
///
/// # Errors
/// A fault of the board.
pub fn set(tx: &mut Tx<'_>, queue: &str, change: &QueueChange) -> Result<bool, Error> {
    const DOING: &str = "changing a queue";
    let made = tx.execute(DOING, "INSERT INTO queues (queue) VALUES (?1) ON CONFLICT DO NOTHING", [queue])?;
    let defaults = change.launch_defaults.as_ref().map(json).transpose()?;
    let changed = tx.execute(
        DOING,
        "UPDATE queues SET max_running = ifnull(?2, max_running), paused = ifnull(?3, paused),
             launch_defaults = ifnull(?4, launch_defaults)
         WHERE queue = ?1 AND (max_running IS NOT ifnull(?2, max_running) OR paused IS NOT ifnull(?3, paused)
             OR launch_defaults IS NOT ifnull(?4, launch_defaults))",
        params![queue, change.max_running, change.paused, defaults],
    )?;
    if made + changed > 0 {
        // More may run now, and spans of running tasks may have changed (see [`respan`]).
        tx.change(Change::Ready);
        tx.change(Change::Due);
    }
    Ok(made + changed > 0)
}

/// Computes the due times of a queue's runs anew, after its spans have changed.
///
/// # Errors
/// A fault of the board.
pub fn respan(tx: &mut Tx<'_>, queue: &str, when: &When) -> Result<(), Error> {
    let runs: Vec<RunId> = tx.all(
        "looking for the runs of a queue",
        "SELECT r.run FROM runs r JOIN tasks t ON t.task = r.task WHERE r.ended_usec IS NULL AND t.queue = ?1
         UNION ALL
         SELECT r.run FROM runs r JOIN tasks t ON t.task = r.task WHERE r.survivor = 1 AND t.queue = ?1",
        [queue],
        |row| row.get(0),
    )?;
    runs.into_iter().try_for_each(|run| due::arm(tx, run, when))
}

/// Makes a queue of the configuration where it is missing.
///
/// # Errors
/// A fault of the board.
pub fn make_missing(tx: &mut Tx<'_>, queue: &str, policy: &QueuePolicy) -> Result<(), Error> {
    if exists(tx, queue)? {
        return Ok(());
    }
    let change = QueueChange {
        max_running: Some(policy.max_running),
        paused: Some(policy.paused),
        launch_defaults: Some(policy.launch_defaults.clone()),
    };
    set(tx, queue, &change).map(|_| ())
}

/// Tasks of a queue that are still to be done.
///
/// # Errors
/// A fault of the board.
pub fn open_tasks(snapshot: &Snapshot<'_>, queue: &str) -> Result<i64, Error> {
    snapshot.number(
        "counting the tasks of a queue",
        "SELECT sum(tasks) FROM tallies
         WHERE queue = ?1 AND status IN ('todo', 'ready', 'running', 'blocked')",
        [queue],
    )
}

/// Removes a queue.
///
/// # Errors
/// A fault of the board.
pub fn remove(tx: &mut Tx<'_>, queue: &str) -> Result<(), Error> {
    tx.execute("removing a queue", "DELETE FROM queues WHERE queue = ?1", [queue])?;
    Ok(())
}
