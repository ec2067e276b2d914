//! Looks at the workers of rows, and keeps hold of what it has seen.
//!
//! Owns the handles (pidfds) of every worker and supervisor that the daemon watches. Never decides and
//! never writes. A handle that was taken once stays with its process for ever, so a second look at a row
//! that has not changed costs one poll.

use std::collections::HashMap;
use std::sync::Arc;

use crate::core::boot::{Boot, Doubt};
use crate::core::facts::{Objection, Observed, Tree};
use crate::core::fingerprint::{Looked, Seen, Stored};
use crate::core::ids::{Nonce, Pid, RunId};
use crate::core::record::Record;
use crate::core::row::{Cgroup, RunPart, RunStage};
use crate::core::time::MonoMs;
use crate::ports::{Cgroups, Held, Processes, Records, Target};

/// Between two scans of /proc that must both find nothing before a tree without a record counts as empty.
const SCANS_APART_MS: i64 = 1_000;

/// Which process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The worker itself.
    Worker,
    /// Its supervisor.
    Supervisor,
}

/// A process that is held, and the cells of the row it was held for.
struct Grip<H> {
    handle: Arc<H>,
    pid: i64,
    stored: Stored,
    /// Whether somebody waits for its end.
    watched: bool,
}

struct Holding<H> {
    parts: HashMap<Part, Grip<H>>,
    /// What carries the run's nonce though its supervisor is gone.
    carriers: Vec<Arc<H>>,
    /// When a scan first found no such process.
    empty_since: Option<MonoMs>,
    /// Whether something lives in its scope though its supervisor is gone: nobody tells when that ends.
    unsupervised: bool,
    /// Whether the run has not ended.
    open: bool,
}

impl<H> Default for Holding<H> {
    fn default() -> Self {
        Self {
            parts: HashMap::new(),
            carriers: Vec::new(),
            empty_since: None,
            unsupervised: false,
            open: true,
        }
    }
}

/// See the module.
pub struct Observer<P: Processes> {
    processes: Arc<P>,
    cgroups: Arc<dyn Cgroups<Handle = P::Handle>>,
    records: Arc<dyn Records>,
    holdings: HashMap<RunId, Holding<P::Handle>>,
}

impl<P: Processes> Observer<P> {
    /// Holds nothing yet.
    pub fn new(
        processes: Arc<P>,
        cgroups: Arc<dyn Cgroups<Handle = P::Handle>>,
        records: Arc<dyn Records>,
    ) -> Self {
        Self { processes, cgroups, records, holdings: HashMap::new() }
    }

    /// Takes over the handles of a run that was just started.
    pub fn adopt(
        &mut self,
        run: RunId,
        worker: (Arc<P::Handle>, Stored),
        supervisor: (Arc<P::Handle>, Stored),
    ) {
        for (part, (handle, stored)) in [(Part::Worker, worker), (Part::Supervisor, supervisor)] {
            self.offer(run, part, handle, stored);
        }
    }

    /// Takes a handle from elsewhere, which the caller has shown to be the process that the row names.
    pub fn offer(&mut self, run: RunId, part: Part, handle: Arc<P::Handle>, stored: Stored) {
        let pid = i64::from(handle.pid().get());
        let parts = &mut self.holdings.entry(run).or_default().parts;
        parts.insert(part, Grip { handle, pid, stored, watched: false });
    }

    /// Lets go of a run that is over.
    pub fn forget(&mut self, run: RunId) {
        self.holdings.remove(&run);
    }

    /// Runs that are held, for counting.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        self.holdings.keys().copied()
    }

    /// The handles of a run whose end nobody waits for yet; they count as waited for from now on.
    pub fn unwatched(&mut self, run: RunId) -> Vec<(Part, Arc<P::Handle>)> {
        let Some(holding) = self.holdings.get_mut(&run) else {
            return Vec::new();
        };
        holding
            .parts
            .iter_mut()
            .filter(|(_, grip)| !grip.watched)
            .map(|(part, grip)| {
                grip.watched = true;
                (*part, Arc::clone(&grip.handle))
            })
            .collect()
    }

    /// The handle through which a part of a run may be signalled. The caller has proven it by a look.
    pub fn handle(&self, run: RunId, part: Part) -> Option<Arc<P::Handle>> {
        self.holdings.get(&run)?.parts.get(&part).map(|grip| Arc::clone(&grip.handle))
    }

    /// What carries the run's nonce, by the last scan.
    pub fn carriers(&self, run: RunId) -> Vec<Arc<P::Handle>> {
        self.holdings.get(&run).map(|holding| holding.carriers.clone()).unwrap_or_default()
    }

    /// Whether another look is owed soon, because one empty scan alone proves nothing.
    pub fn owes_scan(&self, run: RunId) -> bool {
        self.holdings.get(&run).is_some_and(|holding| holding.empty_since.is_some())
    }

    /// Whether something of the run lives in its scope, and no supervisor whose end would tell of it.
    pub fn is_unsupervised(&self, run: RunId) -> bool {
        self.holdings.get(&run).is_some_and(|holding| holding.unsupervised)
    }

    /// Looks at the worker and the tree of one run.
    pub fn observe(&mut self, run: &RunPart, identity: Boot, now: MonoMs) -> Observed {
        self.holdings.entry(run.run).or_default().open = !run.ended;
        if identity == Boot::Other {
            // Nothing of another boot lives, and its pids are not looked at.
            let process = run.worker_pid.map(|_| Seen::Gone);
            let (record, unread) = self.record(run);
            return Observed { process, tree: Tree::Empty, record, unread, objection: None };
        }
        let process = run.worker_pid.map(|pid| self.see(run.run, Part::Worker, pid, &run.worker, identity));
        if process == Some(Seen::Same) {
            let tree = if run.launched { Tree::Populated } else { Tree::Empty };
            return Observed { process, tree, record: None, unread: false, objection: None };
        }
        let (record, unread) = self.record(run);
        let tree = if unread { Tree::Unknown } else { self.tree(run, record.is_some(), identity, now) };
        Observed { process, tree, record, unread, objection: None }
    }

    /// The record, and whether there may be one that could not be read: that must not be taken for none.
    fn record(&self, run: &RunPart) -> (Option<Record>, bool) {
        let Some(nonce) = run.nonce.as_ref().filter(|_| run.launched) else {
            return (None, false);
        };
        match self.records.read(run.run, nonce) {
            Ok(record) => (record, false),
            Err(error) => {
                tracing::warn!(TENURED_RUN = run.run.get(), %error, "cannot read an exit record; leaving the claim, will look again");
                (None, true)
            }
        }
    }

    fn see(&mut self, run: RunId, part: Part, number: i64, stored: &Stored, identity: Boot) -> Seen {
        let Some(pid) = Pid::new(number) else {
            return Seen::Gone;
        };
        if identity == Boot::Unknown(Doubt::Namespace) {
            return Seen::Unknown;
        }
        let looked = self.look(run, part, pid, stored);
        let seen = match identity {
            // In doubt about the boot only ESRCH says something.
            Boot::Unknown(_) if looked == Looked::Gone => Seen::Gone,
            Boot::Unknown(_) => Seen::Unknown,
            Boot::Same | Boot::Other => stored.compare(looked, true),
            Boot::Absent => stored.compare(looked, false),
        };
        if seen == Seen::Other
            && let Some(holding) = self.holdings.get_mut(&run)
        {
            // A stranger's handle is not kept: nothing of this run may ever go through it.
            holding.parts.remove(&part);
        }
        seen
    }

    /// Looks through the handle that is held for exactly these cells, else opens the pid.
    fn look(&mut self, run: RunId, part: Part, pid: Pid, stored: &Stored) -> Looked {
        let number = i64::from(pid.get());
        let holding = self.holdings.entry(run).or_default();
        if let Some(grip) = holding.parts.get(&part)
            && grip.pid == number
            && grip.stored == *stored
        {
            return self.processes.look(&grip.handle);
        }
        let (looked, handle) = self.processes.open(Target::Pid(pid));
        match handle {
            Some(handle) => {
                let grip =
                    Grip { handle: Arc::new(handle), pid: number, stored: stored.clone(), watched: false };
                holding.parts.insert(part, grip);
            }
            None => drop(holding.parts.remove(&part)),
        }
        looked
    }

    fn tree(&mut self, run: &RunPart, has_record: bool, identity: Boot, now: MonoMs) -> Tree {
        if !run.launched {
            return Tree::Empty;
        }
        match self.supervisor(run, identity) {
            Some(Seen::Same) => return Tree::Populated,
            Some(Seen::Present) => return Tree::Unproven,
            Some(Seen::Unknown) => return Tree::Unknown,
            Some(Seen::Gone | Seen::Other) | None => {}
        }
        if let Some(cgroup) = &run.cgroup {
            match self.scope(run.run, cgroup) {
                // Without its supervisor's word nothing says that none of it was moved elsewhere.
                Tree::Empty => {}
                other => return other,
            }
        }
        if has_record {
            return Tree::Empty;
        }
        let Some(nonce) = &run.nonce else {
            return Tree::Empty;
        };
        let since = start_ticks(&run.supervisor).or_else(|| start_ticks(&run.worker));
        self.scan(run.run, nonce, since, now)
    }

    /// A scope without its supervisor: what the kernel says of its cgroup, whatever the manager thinks of it.
    fn scope(&mut self, run: RunId, cgroup: &Cgroup) -> Tree {
        let seen = self.cgroups.is_populated(cgroup);
        self.holdings.entry(run).or_default().unsupervised = matches!(seen, Ok(true));
        match seen {
            Ok(true) => Tree::Populated,
            Ok(false) => Tree::Empty,
            Err(error) => {
                tracing::warn!(TENURED_RUN = run.get(), %error, "cannot look at a run's cgroup; leaving the claim, will look again");
                Tree::Unknown
            }
        }
    }

    /// What is seen of the supervisor: as the row names it; for a run that never got that far, as it was held at its start.
    pub fn supervisor(&mut self, run: &RunPart, identity: Boot) -> Option<Seen> {
        if let Some(pid) = run.supervisor_pid {
            return Some(self.see(run.run, Part::Supervisor, pid, &run.supervisor, identity));
        }
        if run.stage != RunStage::Starting {
            return None;
        }
        let grip = self.holdings.get(&run.run)?.parts.get(&Part::Supervisor)?;
        Some(grip.stored.compare(self.processes.look(&grip.handle), true))
    }

    /// Looks for what the dead supervisor left. One empty scan proves nothing: a process may have been
    /// forking past it.
    ///
    /// What is older than the run's own processes is no part of it, whether it can be read or not.
    fn scan(&mut self, run: RunId, nonce: &Nonce, since_ticks: Option<u64>, now: MonoMs) -> Tree {
        let found = match since_ticks {
            Some(ticks) => self.processes.carriers_since(nonce, ticks),
            None => self.processes.carriers(nonce),
        };
        let holding = self.holdings.entry(run).or_default();
        match found {
            Err(error) => {
                tracing::warn!(TENURED_RUN = run.get(), %error, "cannot scan for what is left of the run; will look again");
                holding.empty_since = None;
                Tree::Unknown
            }
            Ok(carriers) if !carriers.is_empty() => {
                holding.carriers = carriers.into_iter().map(Arc::new).collect();
                holding.empty_since = None;
                Tree::Populated
            }
            Ok(_) => {
                holding.carriers.clear();
                let since = *holding.empty_since.get_or_insert(now);
                if now.since(since) < SCANS_APART_MS {
                    return Tree::Unknown;
                }
                Tree::Empty
            }
        }
    }

    /// Whether the process, though it is the one, must not be signalled for this run: it has to belong
    /// wholly to the one who registered it, now and not only then.
    pub fn objection(&self, run: &RunPart) -> Option<Objection> {
        if run.launched {
            return None;
        }
        if self.is_shared(run) {
            return Some(Objection::Shared);
        }
        let uid = run.claimant_uid?;
        let handle = self.handle(run.run, Part::Worker)?;
        match self.processes.owner(&handle) {
            Ok(owner) if uid == 0 && owner.our_namespaces => None,
            Ok(owner) if owner.is_wholly(uid) && owner.our_namespaces => None,
            Ok(_) | Err(_) => Some(Objection::NotYours),
        }
    }

    /// Whether another open run holds the same process. Every open run is looked at once per interval and
    /// whenever it changes, so every worker is among the holdings.
    fn is_shared(&self, run: &RunPart) -> bool {
        let others = self.holdings.iter().filter(|(other, holding)| **other != run.run && holding.open);
        let mut workers = others.filter_map(|(_, holding)| holding.parts.get(&Part::Worker));
        workers
            .any(|grip| Some(grip.pid) == run.worker_pid && self.processes.look(&grip.handle) != Looked::Gone)
    }

    /// The cgroups, for what is to be done to one.
    pub fn cgroups(&self) -> &dyn Cgroups<Handle = P::Handle> {
        &*self.cgroups
    }

    /// The processes themselves, for sending.
    pub fn processes(&self) -> &P {
        &self.processes
    }
}

/// When a process of the run itself began; ticks of another boot never get here.
const fn start_ticks(stored: &Stored) -> Option<u64> {
    match stored {
        Stored::Proven(print) => Some(print.start_ticks),
        Stored::None | Stored::Absent | Stored::Unverified | Stored::StartOnly(_) | Stored::Named(_) => None,
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
