//! From a row, what was seen, and the time, to facts: every comparison of the product is here, and only
//! finite enums come out.
//!
//! Pids, ticks and monotonic stamps of another boot are never compared: [`Context::identity`] and
//! [`Context::stamps`] say which boot each belongs to, before anything is looked at.

use crate::core::boot::{Boot, Doubt};
use crate::core::fingerprint::{Seen, Stored};
use crate::core::limits;
use crate::core::record::{self, Record};
use crate::core::row::{ClaimRow, RunPart, RunStage, TaskPart};
use crate::core::state::Status;
use crate::core::time::MonoMs;
use crate::core::verdict::{Claim, End, Facts, Fresh, Ladder, Leftover, Proof, Stage, Stop, Worker};

/// What was seen of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tree {
    /// Something of it lives.
    Populated,
    /// Something lives where it should be, and nothing shows that it is ours.
    Unproven,
    /// Nothing of it lives.
    Empty,
    /// Not known.
    Unknown,
}

/// What was seen of one row's worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The process; `None` where the row has no pid.
    pub process: Option<Seen>,
    /// The tree. A registered worker is its own tree and nothing more: empty.
    pub tree: Tree,
    /// The exit record of this run, whole and with its nonce.
    pub record: Option<Record>,
    /// Whether there may be a record that could not be read: then the end is not known.
    pub unread: bool,
    /// What a look at the process itself added, where a signal is due: it is not wholly the claimant's, or
    /// it holds another open claim.
    pub objection: Option<Objection>,
}

impl Observed {
    /// Where there is nothing to look at, or somebody else has it in hand.
    pub const fn nothing() -> Self {
        Self { process: None, tree: Tree::Empty, record: None, unread: false, objection: None }
    }
}

/// Why a live and proven process must not be signalled all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Objection {
    /// It does not belong wholly to the one who registered it.
    NotYours,
    /// It is the worker of another open claim too.
    Shared,
}

/// What a judgement needs beside the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Now, in this boot.
    pub now: MonoMs,
    /// The boot of the worker's identity: the fingerprint's, else the row's.
    pub identity: Boot,
    /// The boot of the row's stamps: the row's, else the fingerprint's.
    pub stamps: Boot,
    /// Nobody could look for longer than an interval, or this is the first look of the daemon's life.
    pub late: bool,
    /// A starter of this life has the run in hand.
    pub in_hand: bool,
    /// When the host began to shut down, in the boot of the row.
    pub shutdown: Option<MonoMs>,
    /// `[sweep] linger`, milliseconds.
    pub linger_ms: i64,
    /// `[claim] stall`, milliseconds.
    pub stall_ms: Option<i64>,
    /// `[run] stop_grace`, milliseconds.
    pub stop_grace_ms: i64,
}

/// What is true of the worker, in the order of the model.
pub fn worker(identity: Boot, stored: &Stored, launched: bool, process: Option<Seen>, tree: Tree) -> Worker {
    match identity {
        Boot::Other => return Worker::Gone,
        Boot::Unknown(doubt) => {
            // Another namespace's ESRCH says nothing about this pid.
            let gone = process == Some(Seen::Gone) && tree == Tree::Empty && doubt != Doubt::Namespace;
            return if gone { Worker::Gone } else { Worker::Unknown };
        }
        Boot::Same | Boot::Absent => {}
    }
    let process = match process {
        None if !launched => return Worker::LeaseOnly,
        // Launched and no pid yet: the tree alone speaks.
        None => Seen::Gone,
        Some(seen) => seen,
    };
    if process == Seen::Same {
        return Worker::Alive(proof(identity, stored));
    }
    if tree == Tree::Populated {
        return Worker::Alive(Proof::Proven);
    }
    if process == Seen::Present || tree == Tree::Unproven {
        return Worker::Unprovable;
    }
    if process == Seen::Unknown || tree == Tree::Unknown {
        return Worker::Unknown;
    }
    Worker::Gone
}

const fn proof(identity: Boot, stored: &Stored) -> Proof {
    match stored {
        Stored::Proven(_) => Proof::Proven,
        Stored::StartOnly(_) if matches!(identity, Boot::Same) => Proof::Proven,
        Stored::StartOnly(_) | Stored::Named(_) => Proof::Named,
        // These are never seen as the same; the arm keeps the function total.
        Stored::None | Stored::Absent | Stored::Unverified => Proof::Named,
    }
}

/// Whether the claim is whole: a running task and its one open run, with a claimant and a lease.
pub fn claim(row: &ClaimRow) -> Claim {
    let (Some(task), Some(run)) = (&row.task, &row.run) else {
        return Claim::Broken;
    };
    let whole = task.status == Status::Running
        && task.run == Some(run.run)
        && run.task == task.task
        && run.claimant.is_some()
        && run.lease_expires_ms.is_some()
        && !run.ended
        && row.open_runs <= 1;
    if whole { Claim::Whole } else { Claim::Broken }
}

/// All facts of one row.
pub fn facts(row: &ClaimRow, observed: &Observed, context: &Context) -> Facts {
    let Some(run) = &row.run else {
        return broken_without_run();
    };
    let mut worker = worker(context.identity, &run.worker, run.launched, observed.process, observed.tree);
    if run.ended && worker == Worker::LeaseOnly {
        // The end of a run clears its worker; that is no claim that never had one.
        worker = Worker::Gone;
    }
    if worker == Worker::Gone && observed.unread {
        worker = Worker::Unknown;
    }
    if let (Worker::Alive(Proof::Proven), Some(objection)) = (worker, observed.objection) {
        worker = Worker::Alive(match objection {
            Objection::NotYours => Proof::NotYours,
            Objection::Shared => Proof::Shared,
        });
    }
    let survivor = run.ended && run.survivor;
    let times = Times::of(row.task.as_ref(), run, context);
    let record = observed.record.as_ref();
    Facts {
        worker,
        claim: if survivor { Claim::Whole } else { claim(row) },
        end: end(run, record),
        stage: stage(run, survivor, context),
        stop: stop(row.task.as_ref(), run, context),
        leftover: leftover(run, observed, context),
        max_runtime_passed: times.max_runtime_passed,
        stalled: times.stalled && !context.late,
        lease_expired: times.lease_expired,
        lost: lost(record, run, context),
        ended_before_term: ended_before_term(run, record),
        fresh: fresh(&times, context),
    }
}

/// A running task that no run holds at all.
const fn broken_without_run() -> Facts {
    Facts {
        worker: Worker::LeaseOnly,
        claim: Claim::Broken,
        end: End::None,
        stage: Stage::Running,
        stop: None,
        leftover: Leftover::None,
        max_runtime_passed: false,
        stalled: false,
        lease_expired: false,
        lost: false,
        ended_before_term: true,
        fresh: Fresh::No,
    }
}

fn end(run: &RunPart, record: Option<&Record>) -> End {
    if run.stage == RunStage::Ending && run.outcome.is_some() {
        End::Word
    } else if record.is_some() || run.ended {
        End::Record
    } else {
        End::None
    }
}

fn stage(run: &RunPart, survivor: bool, context: &Context) -> Stage {
    if survivor {
        return Stage::Survivor;
    }
    let starting = run.stage == RunStage::Starting;
    let young = run.claimed_ms.is_none_or(|claimed| context.now.since(claimed) < limits::START_MS);
    // Its starter may have opened the gate already: until it hands the worker over, nobody else can see it.
    if context.in_hand && (young || !starting) {
        Stage::InHand
    } else if starting {
        Stage::Starting
    } else {
        Stage::Running
    }
}

fn stop(task: Option<&TaskPart>, run: &RunPart, context: &Context) -> Option<Stop> {
    let cause = run.stop_cause?;
    let grace_ms = task.and_then(|task| task.stop_grace_ms).unwrap_or(context.stop_grace_ms);
    let passed =
        |stamp: MonoMs, span_ms: i64| context.stamps == Boot::Same && context.now.since(stamp) >= span_ms;
    let ladder = match (run.kill_ms, run.term_ms) {
        (Some(kill), _) if passed(kill, limits::KILL_MS) => Ladder::Stuck,
        (Some(_), _) => Ladder::Kill,
        (None, Some(term)) if passed(term, grace_ms) => Ladder::GraceOver,
        (None, Some(_)) => Ladder::Term,
        (None, None) => Ladder::Asked,
    };
    Some(Stop { cause, ladder, urgency: run.stop_urgency })
}

fn leftover(run: &RunPart, observed: &Observed, context: &Context) -> Leftover {
    let leader_gone = run.launched
        && matches!(observed.process, Some(Seen::Gone | Seen::Other))
        && run.stage != RunStage::Starting;
    if !(leader_gone || run.ended || run.stage == RunStage::Ending) {
        return Leftover::None;
    }
    // Without a stamp this is the first look at it: the linger time begins now.
    let over = context.stamps == Boot::Same
        && run.leader_gone_ms.is_some_and(|since| context.now.since(since) >= context.linger_ms);
    if over { Leftover::Overdue } else { Leftover::Lingering }
}

/// Stamps that belong to no boot that can be named are due for a fresh period; so is what ran out while
/// nobody could look.
const fn fresh(times: &Times, context: &Context) -> Fresh {
    if matches!(context.stamps, Boot::Absent) || context.late && (times.lease_expired || times.stalled) {
        Fresh::Due
    } else if context.late {
        Fresh::Given
    } else {
        Fresh::No
    }
}

struct Times {
    max_runtime_passed: bool,
    stalled: bool,
    lease_expired: bool,
}

impl Times {
    fn of(task: Option<&TaskPart>, run: &RunPart, context: &Context) -> Self {
        if context.stamps != Boot::Same {
            return Self { max_runtime_passed: false, stalled: false, lease_expired: false };
        }
        let started = run.started_ms.or(run.claimed_ms);
        let passed = |since: Option<MonoMs>, span_ms: Option<i64>| matches!((since, span_ms), (Some(since), Some(span_ms)) if span_ms > 0 && context.now.since(since) >= span_ms);
        let own = |of: fn(&TaskPart) -> Option<i64>| task.and_then(of);
        let running = run.stage != RunStage::Starting;
        Self {
            max_runtime_passed: running && passed(started, own(|task| task.max_runtime_ms)),
            stalled: running
                && passed(run.progress_ms.max(started), own(|task| task.stall_ms).or(context.stall_ms)),
            lease_expired: run.lease_expires_ms.is_some_and(|expires| expires <= context.now),
        }
    }
}

/// Whether the host took the run with it. A record that tells of an end before that is an end, and stands.
fn lost(record: Option<&Record>, run: &RunPart, context: &Context) -> bool {
    let never_ran = matches!(record, Some(Record { end: record::End::GateClosed, .. }));
    // Where no daemon was there to see the host go down, the manager that ended the worker says it.
    let manager_asked = record.is_some_and(|record| record.manager_asked);
    if context.identity == Boot::Other || context.stamps == Boot::Other {
        // A daemon that ended before it could judge an end of that shutdown left it to us.
        let ended = record.map(|record| MonoMs(record.ended_ms));
        let went_with_it = ended.zip(context.shutdown).is_some_and(|(ended, shutdown)| ended >= shutdown);
        return record.is_none() || never_ran || went_with_it || manager_asked;
    }
    if context.late && manager_asked {
        return true;
    }
    let Some(shutdown) = context.shutdown else {
        return false;
    };
    // Without a record the end was seen only now, and that is after the shutdown began.
    let ended = record.map_or(run.leader_gone_ms.unwrap_or(context.now), |record| MonoMs(record.ended_ms));
    ended >= shutdown
}

fn ended_before_term(run: &RunPart, record: Option<&Record>) -> bool {
    match (run.term_ms.or(run.kill_ms), record) {
        (None, _) => true,
        (Some(sent), Some(record)) => MonoMs(record.ended_ms) < sent,
        (Some(_), None) => false,
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
