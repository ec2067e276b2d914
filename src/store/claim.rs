//! Claims: makes the run and binds the task to it in one transaction.

use std::collections::BTreeMap;

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::fingerprint::Stored;
use crate::core::ids::{Nonce, RunId, TaskId, Uid};
use crate::core::row::RunStage;
use crate::core::view::Change;
use crate::store::events::{self, Kind};
use crate::store::{Snapshot, Tx, When, due};

pub(super) use crate::store::choose::{Given, choose, launched};
pub use crate::store::choose::{Pick, has_external, next_external, obstacle, standstill};

/// A new claim.
#[derive(Clone, Debug)]
pub struct NewClaim<'a> {
    /// The task.
    pub task: TaskId,
    /// Its lane.
    pub queue: &'a str,
    /// Who claims, for people.
    pub claimant: &'a str,
    /// The uid that claims.
    pub claimant_uid: Uid,
    /// The same key gets the same claim again.
    pub claim_key: Option<&'a str>,
    /// The registered worker.
    pub worker: Option<(i64, &'a Stored)>,
    /// The lease that the claimant asked for, milliseconds.
    pub lease_ms: Option<i64>,
    /// The lease that applies, milliseconds.
    pub effective_lease_ms: i64,
}

/// Claims for an external worker: it runs from now on.
///
/// # Errors
/// A fault of the board.
pub fn external(tx: &mut Tx<'_>, claim: &NewClaim<'_>, when: &When) -> Result<RunId, Error> {
    let run = make(tx, claim, RunStage::Running, None, &BTreeMap::new(), when)?;
    if let Some((pid, worker)) = claim.worker {
        let payload = json!({ "pid": pid, "kind": worker.kind() });
        events::write(tx, (claim.task, run), Kind::WorkerRegistered, payload, when.now.wall)?;
        tx.change(Change::Look(run));
    }
    Ok(run)
}

/// Makes the run and binds the task to it.
pub(super) fn make(
    tx: &mut Tx<'_>,
    claim: &NewClaim<'_>,
    stage: RunStage,
    nonce: Option<&Nonce>,
    slots: &BTreeMap<String, Vec<String>>,
    when: &When,
) -> Result<RunId, Error> {
    let now = when.now;
    let started = (stage == RunStage::Running).then_some(now.mono.0);
    let slots = (!slots.is_empty()).then(|| json!(slots).to_string());
    let run = tx.insert(
        "making a run",
        "INSERT INTO runs (task, claimant, claimant_uid, claim_key, lease_expires_ms, lease_ms, epoch, boot,
             worker_pid, worker_fingerprint, stage, claimed_ms, started_ms, progress_ms, started_usec, attempt,
             launched, nonce, slots, registered_uid)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?12, ?14,
             1 + ifnull((SELECT attempts FROM tasks WHERE task = ?1), 0), ?15, ?16, ?17, ?18)",
        params![
            claim.task,
            claim.claimant,
            claim.claimant_uid,
            claim.claim_key,
            now.mono.plus(claim.effective_lease_ms).0,
            claim.lease_ms,
            when.epoch.to_string(),
            when.boot,
            claim.worker.map(|(pid, _)| pid),
            claim.worker.map(|(_, worker)| worker.cell()),
            stage.word(),
            now.mono.0,
            started,
            now.wall.0,
            nonce.is_some(),
            nonce.map(Nonce::as_str),
            slots,
            claim.worker.map(|_| claim.claimant_uid),
        ],
    )?;
    let run = RunId::new(run);
    tx.execute(
        "binding a task to its run",
        "UPDATE tasks SET status = 'running', run = ?2, attempts = attempts + 1, retry_at_ms = NULL,
             retry_epoch = NULL, version = version + 1
         WHERE task = ?1",
        params![claim.task, run],
    )?;
    tx.execute(
        "noting a queue's turn",
        "UPDATE queues SET served = ?2 WHERE queue = ?1",
        params![claim.queue, run],
    )?;
    let payload = json!({ "claimant": claim.claimant, "uid": claim.claimant_uid, "queue": claim.queue });
    events::write(tx, (claim.task, run), Kind::Claimed, payload, now.wall)?;
    due::arm(tx, run, when)?;
    tx.change(Change::Task(claim.task));
    tx.change(Change::Due);
    Ok(run)
}

/// The open claim of this uid with this key.
///
/// # Errors
/// A fault of the board.
pub fn by_key(snapshot: &Snapshot<'_>, uid: Uid, key: &str) -> Result<Option<(TaskId, RunId)>, Error> {
    snapshot.one(
        "looking for a claim key",
        "SELECT r.task, r.run FROM runs r JOIN tasks t ON t.task = r.task AND t.run = r.run
         WHERE r.claimant_uid = ?1 AND r.claim_key = ?2 AND r.claim_key IS NOT NULL AND r.ended_usec IS NULL
             AND t.status = 'running'",
        params![uid, key],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}
