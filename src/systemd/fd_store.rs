//! The manager's store of descriptors: the pidfds of workers outlive the daemon there.
//!
//! With them a new life of the daemon still learns how a worker ended that ended while no daemon was there.
//! Owns the names; what comes back is proven by the caller, since a name proves nothing. Never more is
//! handed over than the manager has room for: a supervisor goes without before a worker does.
//!
//! Source: sd_notify(3), `FDSTORE=1`; systemd.service(5), `FileDescriptorStoreMax=`; sd_listen_fds(3).

#![expect(clippy::disallowed_methods, reason = "the manager passes descriptors by the environment")]

use std::collections::HashMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::ids::{Nonce, RunId};
use crate::systemd::notify::Notifier;

/// What the manager is taken to have room for where it does not say so, which it does since 254.
const MAX_UNSAID: usize = 512;

/// Which process of a run a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The worker.
    Worker,
    /// Its supervisor.
    Supervisor,
}

impl Whose {
    const ALL: [Self; 2] = [Self::Worker, Self::Supervisor];

    const fn word(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Supervisor => "supervisor",
        }
    }
}

/// What the name of a descriptor claims: `run-7-<nonce>-worker`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The run.
    pub run: RunId,
    /// Its random name: a board that was put back has the same numbers for other runs.
    pub nonce: Nonce,
    /// Which process.
    pub whose: Whose,
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "run-{}-{}-{}", self.run, self.nonce, self.whose.word())
    }
}

impl Name {
    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("run-")?.splitn(3, '-');
        let run = parts.next()?.parse().ok().map(RunId::new)?;
        let nonce = Nonce::parse(parts.next()?)?;
        let word = parts.next()?;
        let whose = Whose::ALL.into_iter().find(|whose| whose.word() == word)?;
        Some(Self { run, nonce, whose })
    }
}

/// The store. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FdStore {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    notifier: Notifier,
    max: usize,
    kept: Mutex<HashMap<RunId, Vec<Name>>>,
    /// Names that are to leave the store, and that the manager could not be told of yet.
    leaving: Mutex<Vec<String>>,
}

impl FdStore {
    /// That of the manager, if it listens and has one.
    pub fn of(notifier: &Notifier) -> Self {
        let said = std::env::var("FDSTORE").ok().and_then(|text| text.parse().ok());
        Self::with_max(notifier, said.unwrap_or(MAX_UNSAID))
    }

    fn with_max(notifier: &Notifier, max: usize) -> Self {
        let inner =
            Inner { notifier: notifier.clone(), max, kept: Mutex::default(), leaving: Mutex::default() };
        Self { inner: (notifier.listens() && max > 0).then(|| Arc::new(inner)) }
    }

    /// Hands a descriptor over, if there is room for it.
    pub fn keep(&self, name: Name, descriptor: OwnedFd) {
        let Some(inner) = &self.inner else { return };
        let mut kept = inner.lock();
        if has_room(&kept, name.whose, inner.room()) && inner.notifier.keep(name.to_string(), descriptor) {
            kept.entry(name.run).or_default().push(name);
        }
    }

    /// Whether a descriptor of this kind would be taken.
    pub fn has_room(&self, whose: Whose) -> bool {
        self.inner.as_ref().is_some_and(|inner| has_room(&inner.lock(), whose, inner.room()))
    }

    /// One that came back and is what it should be: it is in the store still.
    pub fn found(&self, name: Name) {
        if let Some(inner) = &self.inner {
            inner.lock().entry(name.run).or_default().push(name);
        }
    }

    /// What the store holds under a name that stands for nothing.
    pub fn discard(&self, name: String) {
        if let Some(inner) = &self.inner {
            inner.leave([name]);
        }
    }

    /// The result of a run is on the board: nothing of it is needed any more.
    pub fn release(&self, run: RunId) {
        let Some(inner) = &self.inner else { return };
        let names = inner.lock().remove(&run).unwrap_or_default();
        if !names.is_empty() {
            inner.leave(names.iter().map(Name::to_string));
        }
    }

    /// Tells the manager once more of what is to leave, where it read too slowly before.
    pub fn tidy(&self) {
        if let Some(inner) = &self.inner {
            inner.leave([]);
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Vec<Name>>> {
        // A list of names is whole at every moment.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to leave takes its place until the manager is told.
    fn room(&self) -> usize {
        self.max.saturating_sub(self.leaving.lock().unwrap_or_else(PoisonError::into_inner).len())
    }

    /// What the manager cannot be told of now stays for the next time.
    fn leave(&self, names: impl IntoIterator<Item = String>) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.extend(names);
        leaving.retain(|name| !self.notifier.drop_kept(name.clone()));
    }
}

/// Supervisors get half of the room, so that there is some for the workers.
fn has_room(kept: &HashMap<RunId, Vec<Name>>, whose: Whose, max: usize) -> bool {
    let all = || kept.values().flatten();
    let supervisors = all().filter(|name| name.whose == Whose::Supervisor).count();
    let fits = whose == Whose::Worker || supervisors < max / 2;
    fits && all().count() < max
}

/// What the manager gave to this process, by number and name; each number is an open descriptor that nobody
/// owns yet. To be asked once.
pub fn given() -> Vec<(RawFd, String)> {
    match sd_notify::listen_fds_with_names() {
        Ok(given) => given.collect(),
        Err(error) => {
            tracing::warn!(%error, "what the service manager kept cannot be taken; workers are looked at by number");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(run: i64, whose: Whose) -> Name {
        Name { run: RunId::new(run), nonce: Nonce::from_bytes([7; 16]), whose }
    }

    #[test]
    fn a_name_says_run_nonce_and_process() {
        let worker = name(7, Whose::Worker);
        assert_eq!(worker.to_string(), "run-7-07070707070707070707070707070707-worker");
        assert_eq!(Name::parse(&worker.to_string()), Some(worker));
        for strange in
            ["", "run-7", "run-7-07-worker", "run-x-07070707070707070707070707070707-worker", "stored"]
        {
            assert_eq!(Name::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_supervisor_goes_without_before_a_worker_does() {
        let mut kept: HashMap<RunId, Vec<Name>> = HashMap::new();
        let mut took = Vec::new();
        for run in 1..=4 {
            for whose in Whose::ALL {
                if has_room(&kept, whose, 5) {
                    kept.entry(RunId::new(run)).or_default().push(name(run, whose));
                    took.push((run, whose));
                }
            }
        }
        let workers = took.iter().filter(|(_, whose)| *whose == Whose::Worker).count();
        assert_eq!((took.len(), workers), (5, 3), "{took:?}");
    }

    #[test]
    fn what_the_manager_was_not_told_of_leaves_later() {
        let (notifier, mut read) = Notifier::unread(1);
        let store = FdStore::with_max(&notifier, 8);
        for whose in Whose::ALL {
            store.found(name(7, whose));
        }
        store.release(RunId::new(7));
        assert_eq!(read(), 1, "there is room for one of the two");
        store.tidy();
        assert_eq!(read(), 1);
        store.tidy();
        assert_eq!(read(), 0, "nothing is said twice");
    }

    #[test]
    fn without_a_manager_there_is_no_store() {
        let none = FdStore::of(&Notifier::default());
        assert!(!none.has_room(Whose::Worker));
        none.release(RunId::new(1));
    }
}
