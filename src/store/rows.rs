//! From SQL rows to [`ClaimRow`]: what a sweep looks at. Whatever a hand edit left in a column is read as
//! something, never as an error: one odd row must not blind the sweep to all the others.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use rusqlite::types::ValueRef;
use rusqlite::{Params, Row};

use crate::core::fault::Error;
use crate::core::fingerprint::{Cell, Epoch, Stored};
use crate::core::ids::{BootId, Nonce, RunId, TaskId, Uid};
use crate::core::retry::Outcome;
use crate::core::row::{Cgroup, ClaimRow, RunPart, RunStage, TaskPart};
use crate::core::spec::Patch;
use crate::core::state::Status;
use crate::core::time::MonoMs;
use crate::core::verdict::{StopCause, Urgency};
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, queues};

/// The columns of both halves; `t` is the task, `r` the run. The last one is how many open runs the task has.
macro_rules! columns {
    () => {
        columns!("(SELECT count(*) FROM runs o WHERE o.task = ifnull(t.task, r.task) AND o.ended_usec IS NULL)")
    };
    ($open_runs:literal) => {
        concat!(
        "t.task, t.status, t.run, t.owner_uid, t.max_runtime_ms, t.stall_ms, t.lease_ms, t.stop_grace_ms,
         t.stop_signal, t.version, t.queue,
         r.run, r.task, r.claimant, ifnull(r.registered_uid, r.claimant_uid), r.lease_expires_ms, r.epoch, r.boot, r.worker_pid,
         r.worker_fingerprint, r.supervisor_pid, r.supervisor_fingerprint, r.nonce, r.launched, r.unit, r.stage,
         r.stop_cause, r.stop_urgency, r.started_ms, r.claimed_ms, r.progress_ms, r.term_ms, r.kill_ms,
         r.leader_gone_ms, r.ended_usec, r.outcome, r.survivor, r.held, r.version, r.lease_ms,
         r.cgroup_path, r.cgroup_id, r.invocation, ",
        $open_runs)
    };
}

/// The run that a task names, but for one that holds another task in good order: that one is not its own.
macro_rules! named_run {
    () => {
        " LEFT JOIN runs r ON r.run = t.run AND (r.task = t.task OR NOT EXISTS (
              SELECT 1 FROM tasks o WHERE o.task = r.task AND o.task <> t.task AND o.status = 'running'
                  AND o.run = r.run))"
    };
}

/// Running tasks with the run that they say holds them; how many open runs each has is for [`all`] to say.
pub(super) const RUNNING: &str = concat!(
    "SELECT ",
    columns!("0"),
    " FROM tasks t INDEXED BY tasks_running",
    named_run!(),
    " WHERE t.status = 'running'"
);

/// Every open run, from the index alone.
pub(super) const OPEN: &str = "SELECT task, run FROM runs INDEXED BY runs_open WHERE ended_usec IS NULL";

/// Ended runs whose worker may live on.
pub(super) const SURVIVORS: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM runs r INDEXED BY runs_survivor LEFT JOIN tasks t ON t.task = r.task WHERE r.survivor = 1"
);

/// Open runs and survivors with something due, and open runs whose due time nobody has computed.
pub(super) const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM runs r INDEXED BY runs_due LEFT JOIN tasks t ON t.task = r.task
      WHERE r.due_ms IS NOT NULL AND r.epoch = ?1 AND r.due_ms <= ?2
      UNION ALL SELECT ",
    columns!(),
    " FROM runs r INDEXED BY runs_unarmed LEFT JOIN tasks t ON t.task = r.task
      WHERE r.ended_usec IS NULL AND r.due_ms IS NULL AND r.epoch = ?1"
);

/// One run that is open or has a survivor.
pub(super) const ONE_RUN: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM runs r LEFT JOIN tasks t ON t.task = r.task
      WHERE r.run = ?1 AND (r.ended_usec IS NULL OR r.survivor = 1 OR t.status = 'running' AND t.run = r.run)"
);

/// What [`all`] would show of one task.
pub(super) const ONE_TASK: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM tasks t",
    named_run!(),
    " WHERE t.task = ?1 AND t.status = 'running'
      AND (r.task IS t.task AND r.ended_usec IS NULL
           OR NOT EXISTS (SELECT 1 FROM runs o WHERE o.task = t.task AND o.ended_usec IS NULL))
      UNION ALL SELECT ",
    columns!(),
    " FROM runs r LEFT JOIN tasks t ON t.task = r.task
      WHERE r.task = ?1 AND r.ended_usec IS NULL AND (t.status = 'running' AND t.run = r.run) IS NOT TRUE"
);

/// A row by the numbers of its halves, whatever they hold.
pub(super) const PAIR: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM (SELECT 1) LEFT JOIN tasks t ON t.task = ?1 LEFT JOIN runs r ON r.run = ?2"
);

/// A run with its task, whatever they hold.
pub(super) const PAIR_OF_RUN: &str =
    concat!("SELECT ", columns!(), " FROM runs r LEFT JOIN tasks t ON t.task = r.task WHERE r.run = ?1");

/// Reads rows.
pub(super) fn read(
    snapshot: &Snapshot<'_>,
    sql: &str,
    params: impl Params,
    rows: &mut Vec<ClaimRow>,
) -> Result<(), Error> {
    let defaults = queues::all_defaults(snapshot)?;
    // Most rows are of one epoch, and reading its text costs more than all the rest.
    let mut epochs: HashMap<String, Option<Epoch>> = HashMap::new();
    snapshot.each("reading claims", sql, params, |row| {
        rows.push(claim(row, &defaults, &mut epochs)?);
        Ok(true)
    })
}

/// Every running task, every open run that does not hold its task, every survivor.
///
/// A task whose run is not one of its open runs, and which has others, is looked at with each of those. What
/// is counted and compared here would cost a look into the tables for each row otherwise.
pub(super) fn all(snapshot: &Snapshot<'_>) -> Result<Vec<ClaimRow>, Error> {
    let open: Vec<(i64, RunId)> = snapshot
        .all("reading open runs", OPEN, [], |row| Ok((row.get::<_, Lax>(0)?.0.unwrap_or(0), row.get(1)?)))?;
    let mut open_of: HashMap<i64, i64> = HashMap::with_capacity(open.len());
    for (task, _) in &open {
        *open_of.entry(*task).or_default() += 1;
    }
    let mut running = Vec::with_capacity(open.len());
    read(snapshot, RUNNING, [], &mut running)?;
    let mut holding: HashSet<RunId> = HashSet::with_capacity(open.len());
    running.retain_mut(|row| {
        let task = row.task.as_ref().map_or(0, |task| task.task.get());
        row.open_runs = open_of.get(&task).copied().unwrap_or(0);
        let own = row.run.as_ref().filter(|run| run.task.get() == task && !run.ended);
        holding.extend(own.map(|run| run.run));
        own.is_some() || row.open_runs == 0
    });
    for (_, run) in open {
        if !holding.contains(&run) {
            read(snapshot, PAIR_OF_RUN, [run], &mut running)?;
        }
    }
    read(snapshot, SURVIVORS, [], &mut running)?;
    Ok(running)
}

type Epochs = HashMap<String, Option<Epoch>>;

fn claim(
    row: &Row<'_>,
    defaults: &HashMap<String, Patch>,
    epochs: &mut Epochs,
) -> rusqlite::Result<ClaimRow> {
    let claim_lease_ms = row.get::<_, Lax>(39)?.0;
    let mut task = task(row, defaults)?;
    if let (Some(task), Some(lease_ms)) = (&mut task, claim_lease_ms) {
        task.lease_ms = Some(lease_ms);
    }
    Ok(ClaimRow { task, run: run(row, epochs)?, open_runs: row.get(43)? })
}

fn task(row: &Row<'_>, defaults: &HashMap<String, Patch>) -> rusqlite::Result<Option<TaskPart>> {
    let Some(number) = row.get::<_, Option<TaskId>>(0)? else { return Ok(None) };
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let queue =
        if defaults.is_empty() { None } else { word(row, 10)?.and_then(|queue| defaults.get(&*queue)) };
    let or_default = |own: Option<i64>, of: fn(&Patch) -> Option<i64>| own.or_else(|| queue.and_then(of));
    let signal = lax(8)?.and_then(|signal| i32::try_from(signal).ok());
    Ok(Some(TaskPart {
        task: number,
        // A status that nobody knows is no status that anything is done with but by a person.
        status: word(row, 1)?.and_then(|word| Status::parse(&word)).unwrap_or(Status::Blocked),
        run: lax(2)?.map(RunId::new),
        owner_uid: uid(lax(3)?).unwrap_or(0),
        max_runtime_ms: or_default(lax(4)?, |queue| queue.max_runtime_ms),
        stall_ms: or_default(lax(5)?, |queue| queue.stall_ms),
        lease_ms: or_default(lax(6)?, |queue| queue.lease_ms),
        stop_grace_ms: or_default(lax(7)?, |queue| queue.stop_grace_ms),
        stop_signal: signal.or_else(|| queue.and_then(|queue| queue.stop_signal)),
        version: lax(9)?.unwrap_or(0),
    }))
}

fn run(row: &Row<'_>, epochs: &mut Epochs) -> rusqlite::Result<Option<RunPart>> {
    let Some(number) = row.get::<_, Option<RunId>>(11)? else { return Ok(None) };
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let mono = |at| lax(at).map(|stamp| stamp.map(MonoMs));
    let worker_pid = lax(18)?;
    let supervisor_pid = lax(20)?;
    let nonce = word(row, 22)?.and_then(|digits| Nonce::parse(&digits));
    let stage = RunStage::read(word(row, 25)?.as_deref());
    let epoch = match word(row, 16)? {
        None => None,
        Some(words) => match epochs.get(&*words) {
            Some(known) => known.clone(),
            None => epochs.entry(words.into_owned()).or_insert_with_key(|words| Epoch::parse(words)).clone(),
        },
    };
    Ok(Some(RunPart {
        run: number,
        task: TaskId::new(lax(12)?.unwrap_or(0)),
        claimant: text(row, 13)?,
        claimant_uid: uid(lax(14)?),
        lease_expires_ms: mono(15)?,
        epoch,
        boot: lax(17)?.map(BootId::new),
        worker_pid,
        worker: Stored::read(worker_pid.is_some(), &row.get::<_, Cell>(19)?),
        supervisor_pid,
        supervisor: Stored::read(supervisor_pid.is_some(), &row.get::<_, Cell>(21)?),
        launched: lax(23)? == Some(1) || nonce.is_some(),
        nonce,
        unit: text(row, 24)?,
        cgroup: cgroup(row)?,
        stage,
        stop_cause: word(row, 26)?.and_then(|word| StopCause::parse(&word)),
        stop_urgency: urgency(lax(27)?),
        started_ms: mono(28)?,
        claimed_ms: mono(29)?,
        progress_ms: mono(30)?,
        term_ms: mono(31)?,
        kill_ms: mono(32)?,
        leader_gone_ms: mono(33)?,
        ended: lax(34)?.is_some() || stage == RunStage::Ended,
        outcome: word(row, 35)?.and_then(|word| Outcome::parse(&word)),
        survivor: lax(36)? == Some(1),
        held: text(row, 37)?,
        version: lax(38)?.unwrap_or(0),
    }))
}

/// All of it or nothing: what was not stored whole cannot be matched.
fn cgroup(row: &Row<'_>) -> rusqlite::Result<Option<Cgroup>> {
    let id = row.get::<_, Lax>(41)?.0.and_then(|id| u64::try_from(id).ok());
    let (path, invocation) = (text(row, 40)?, text(row, 42)?);
    Ok(path.zip(id).zip(invocation).map(|((path, id), invocation)| Cgroup { path, id, invocation }))
}

fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    row.get::<_, LaxText>(at).map(|cell| cell.0)
}

/// As [`text`], for what is compared and not kept.
fn word<'r>(row: &'r Row<'_>, at: usize) -> rusqlite::Result<Option<Cow<'r, str>>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text)),
        ValueRef::Integer(number) => Some(Cow::Owned(number.to_string())),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
    })
}

fn uid(number: Option<i64>) -> Option<Uid> {
    number.and_then(|number| Uid::try_from(number).ok())
}

/// How hard a stop was asked, from its column.
pub(super) const fn urgency(level: Option<i64>) -> Urgency {
    match level {
        Some(1) => Urgency::Kill,
        Some(2) => Urgency::Force,
        _ => Urgency::Normal,
    }
}

/// The column of how hard a stop was asked.
pub(super) const fn urgency_level(urgency: Urgency) -> i64 {
    match urgency {
        Urgency::Normal => 0,
        Urgency::Kill => 1,
        Urgency::Force => 2,
    }
}
