//! Runs: what claims and workers write between the claim and the end.

use rusqlite::{Row, params};
use serde_json::json;

use crate::core::fault::Error;
use crate::core::fingerprint::{Cell, Stored};
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::retry::Outcome;
use crate::core::row::RunStage;
use crate::core::view::Change;
use crate::store::events::{self, Kind};
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, Tx, When, due};

/// What kind of worker a run has, in the word of the bus.
pub(super) const fn kind(launched: bool, worker_pid: Option<i64>) -> &'static str {
    match (launched, worker_pid) {
        (true, _) => "launched",
        (false, Some(_)) => "registered",
        (false, None) => "lease-only",
    }
}

/// What a use case needs to know of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which.
    pub run: RunId,
    /// Of which task.
    pub task: TaskId,
    /// How far it has come.
    pub stage: RunStage,
    /// Whether it has ended.
    pub ended: bool,
    /// How it ended, or will end.
    pub outcome: Option<Outcome>,
    /// The word of its worker.
    pub word: Option<Outcome>,
    /// Whether the daemon launched it.
    pub launched: bool,
    /// The uid that claimed.
    pub claimant_uid: Option<Uid>,
    /// The uid that its command runs as.
    pub worker_uid: Option<Uid>,
    /// Its own lease, milliseconds.
    pub lease_ms: Option<i64>,
    /// The pid of its worker, as written.
    pub worker_pid: Option<i64>,
    /// What proves its worker.
    pub worker: Stored,
    /// Counts the writes.
    pub version: i64,
}

/// Reads one.
///
/// # Errors
/// A fault of the board.
pub fn state(snapshot: &Snapshot<'_>, run: RunId) -> Result<Option<State>, Error> {
    snapshot.one(
        "reading a run",
        "SELECT run, task, stage, ended_usec, outcome, word, launched = 1 OR nonce IS NOT NULL, claimant_uid,
             worker_uid, lease_ms, version, worker_pid, worker_fingerprint FROM runs WHERE run = ?1",
        [run],
        read_state,
    )
}

fn read_state(row: &Row<'_>) -> rusqlite::Result<State> {
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0);
    let uid = |at| lax(at).map(|number| number.and_then(|number| Uid::try_from(number).ok()));
    let stage = RunStage::read(text(2)?.as_deref());
    let worker_pid = lax(11)?;
    Ok(State {
        run: row.get(0)?,
        task: TaskId::new(lax(1)?.unwrap_or(0)),
        stage,
        ended: lax(3)?.is_some() || stage == RunStage::Ended,
        outcome: text(4)?.and_then(|word| Outcome::parse(&word)),
        word: text(5)?.and_then(|word| Outcome::parse(&word)),
        launched: row.get(6)?,
        claimant_uid: uid(7)?,
        worker_uid: uid(8)?,
        lease_ms: lax(9)?,
        worker_pid,
        worker: Stored::read(worker_pid.is_some(), &row.get::<_, Cell>(12)?),
        version: lax(10)?.unwrap_or(0),
    })
}

/// Whether another run of the task began after this one.
///
/// # Errors
/// A fault of the board.
pub fn has_successor(snapshot: &Snapshot<'_>, task: TaskId, run: RunId) -> Result<bool, Error> {
    snapshot.is_any(
        "looking for a later run",
        "SELECT 1 FROM runs WHERE task = ?1 AND run > ?2",
        params![task, run],
    )
}

/// An open run of the task.
///
/// # Errors
/// A fault of the board.
pub fn open_of(snapshot: &Snapshot<'_>, task: TaskId) -> Result<Option<RunId>, Error> {
    snapshot.one(
        "looking for an open run",
        "SELECT run FROM runs WHERE task = ?1 AND ended_usec IS NULL ORDER BY run DESC LIMIT 1",
        [task],
        |row| row.get(0),
    )
}

/// What a worker said of its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// For people.
    pub summary: Option<String>,
    /// JSON.
    pub result: Option<String>,
    /// What went wrong, or why.
    pub error: Option<String>,
    /// Not to be tried again.
    pub final_failure: bool,
}

pub(super) fn said(snapshot: &Snapshot<'_>, run: RunId) -> Result<Said, Error> {
    let said = snapshot.one(
        "reading a worker's word",
        "SELECT summary, result, error, final_failure FROM runs WHERE run = ?1",
        [run],
        |row| {
            Ok(Said {
                summary: row.get::<_, LaxText>(0)?.0,
                result: row.get::<_, LaxText>(1)?.0,
                error: row.get::<_, LaxText>(2)?.0,
                final_failure: row.get::<_, Lax>(3)?.0 == Some(1),
            })
        },
    )?;
    Ok(said.unwrap_or_default())
}

/// Fixes the outcome by the worker's word. With `ending` the fence closes and the run ends when its tree is
/// empty; otherwise the caller ends it in the same transaction.
///
/// # Errors
/// A fault of the board.
pub fn speak(
    tx: &mut Tx<'_>,
    run: &State,
    word: Outcome,
    said: &Said,
    ending: bool,
    when: &When,
) -> Result<(), Error> {
    tx.execute(
        "noting a worker's word",
        "UPDATE runs SET word = ?2, outcome = ?2, summary = ?3, result = ?4, error = ?5, final_failure = ?6,
             stage = iif(?7, 'ending', stage), leader_gone_ms = iif(?7, ifnull(leader_gone_ms, ?8), leader_gone_ms)
         WHERE run = ?1",
        params![
            run.run,
            word.word(),
            said.summary,
            said.result,
            said.error,
            said.final_failure,
            ending,
            when.now.mono.0,
        ],
    )?;
    due::arm(tx, run.run, when)?;
    if ending {
        tx.change(Change::Task(run.task));
        tx.change(Change::Look(run.run));
        tx.change(Change::Due);
    }
    Ok(())
}

/// A sign of life: a fresh lease, and progress.
///
/// # Errors
/// A fault of the board.
pub fn beat(
    tx: &mut Tx<'_>,
    run: RunId,
    lease_ms: i64,
    note: Option<&str>,
    when: &When,
) -> Result<(), Error> {
    restamp(tx, run, when)?;
    tx.execute(
        "a heartbeat",
        "UPDATE runs SET lease_expires_ms = ?2, progress_ms = ?3, note = ifnull(?4, note) WHERE run = ?1",
        params![run, when.now.mono.plus(lease_ms).0, when.now.mono.0, note],
    )?;
    due::arm(tx, run, when)
}

/// Stamps of another epoch become stamps of this one: what was counted in the other is not known any more,
/// and begins anew. Start ticks alone that had no epoch beside them prove liveness only, and must not gain
/// proof by the epoch that is written here: they are named from now on.
pub(super) fn restamp(tx: &Tx<'_>, run: RunId, when: &When) -> Result<(), Error> {
    tx.execute(
        "naming start ticks that had no epoch",
        "UPDATE runs SET worker_fingerprint = 'named:' || ?2 || '|' || worker_fingerprint || '|-'
         WHERE run = ?1 AND epoch IS NULL AND worker_pid IS NOT NULL
           AND ltrim(worker_fingerprint, '0123456789') = '' AND worker_fingerprint <> ''",
        params![run, when.epoch.to_string()],
    )?;
    tx.execute(
        "taking a run into this boot",
        "UPDATE runs SET epoch = ?2, boot = ?3, claimed_ms = ?4, progress_ms = ?4,
             started_ms = iif(started_ms IS NULL, NULL, ?4), leader_gone_ms = iif(leader_gone_ms IS NULL, NULL, ?4),
             term_ms = iif(term_ms IS NULL, NULL, ?4), kill_ms = iif(kill_ms IS NULL, NULL, ?4)
         WHERE run = ?1 AND epoch IS NOT ?2",
        params![run, when.epoch.to_string(), when.boot, when.now.mono.0],
    )?;
    Ok(())
}

/// The open run that has this process as its worker, if there is one. A process of the same number that is
/// provably another does not count.
///
/// # Errors
/// A fault of the board.
pub fn claimed_by(
    snapshot: &Snapshot<'_>,
    pid: i64,
    worker: &Stored,
    but: Option<RunId>,
) -> Result<Option<RunId>, Error> {
    let rows = snapshot.all(
        "looking for a worker's claim",
        "SELECT run, worker_fingerprint FROM runs
         WHERE worker_pid = ?1 AND worker_pid IS NOT NULL AND ended_usec IS NULL",
        [pid],
        |row| Ok((row.get::<_, RunId>(0)?, Stored::read(true, &row.get::<_, Cell>(1)?))),
    )?;
    let mut others = rows.into_iter().filter(|(run, _)| Some(*run) != but);
    Ok(others.find(|(_, stored)| may_be_same(stored, worker)).map(|(run, _)| run))
}

/// Whether two proofs of one pid may be of the same process: nothing shows that they are not.
pub fn may_be_same(stored: &Stored, worker: &Stored) -> bool {
    let print = |stored: &Stored| match stored {
        Stored::Named(print) | Stored::Proven(print) => Some(print.clone()),
        Stored::None | Stored::Absent | Stored::Unverified | Stored::StartOnly(_) => None,
    };
    match (print(stored), print(worker)) {
        (Some(ours), Some(theirs)) => {
            let inode_differs = matches!((ours.inode, theirs.inode), (Some(a), Some(b)) if a != b);
            ours.epoch == theirs.epoch && ours.start_ticks == theirs.start_ticks && !inode_differs
        }
        (None, Some(theirs)) => !matches!(stored, Stored::StartOnly(ticks) if *ticks != theirs.start_ticks),
        (_, None) => true,
    }
}

/// Registers the worker of an external claim, by the word of `by`; the ladder of the one before it is over.
///
/// # Errors
/// A fault of the board.
pub fn register(
    tx: &mut Tx<'_>,
    run: &State,
    worker: (i64, &Stored),
    by: Uid,
    when: &When,
) -> Result<(), Error> {
    let (pid, stored) = worker;
    restamp(tx, run.run, when)?;
    tx.execute(
        "registering a worker",
        "UPDATE runs SET worker_pid = ?2, worker_fingerprint = ?3, stage = 'running', progress_ms = ?4, registered_uid = ?5,
             stop_cause = iif(stop_cause IN ('cancelled', 'reclaimed'), stop_cause, NULL),
             term_ms = NULL, kill_ms = NULL, leader_gone_ms = NULL, held = NULL
         WHERE run = ?1",
        params![run.run, pid, stored.cell(), when.now.mono.0, by],
    )?;
    let payload = json!({ "pid": pid, "kind": stored.kind() });
    events::write(tx, (run.task, run.run), Kind::WorkerRegistered, payload, when.now.wall)?;
    due::arm(tx, run.run, when)?;
    tx.change(Change::Task(run.task));
    tx.change(Change::Look(run.run));
    tx.change(Change::Due);
    Ok(())
}
