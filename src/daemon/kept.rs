//! The pidfds that the service manager kept while no daemon was there: taken back where they are what the
//! board says, and thrown away where they are not.

use std::collections::HashMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use crate::core::fingerprint::{Epoch, Stored};
use crate::core::ids::{Nonce, Pid, RunId};
use crate::core::row::RunPart;
use crate::daemon::observe::{Observer, Part};
use crate::linux::inherited;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::systemd::fd_store::{FdStore, Name, Whose};

/// A descriptor that came back, and its name.
pub type Given = (String, OwnedFd);

/// Takes what the manager passed into ownership. To be called once. What was opened before has other numbers,
/// since these were open from the process' beginning.
pub fn take(given: Vec<(RawFd, String)>) -> Vec<Given> {
    let taken = given.into_iter().filter_map(|(number, name)| match inherited::take(number) {
        Ok(descriptor) => Some((name, descriptor)),
        Err(error) => {
            tracing::warn!(number, name, %error, "a descriptor that was passed cannot be taken; going on without it");
            None
        }
    });
    taken.collect()
}

/// Offers to the observer what is proven to be a process of a run that the board still has in hand; the rest
/// is closed and leaves the store.
pub fn adopt(
    given: Vec<Given>,
    runs: &HashMap<RunId, RunPart>,
    epoch: &Epoch,
    store: &FdStore,
    observer: &mut Observer<HostProcesses>,
) {
    let (mut back, all) = (0_usize, given.len());
    for (text, descriptor) in given {
        let known = Name::parse(&text).and_then(|name| {
            let run = runs.get(&name.run)?;
            let handle = recognise(&name, run, descriptor, epoch, observer.processes())?;
            Some((name, run, handle))
        });
        let Some((name, run, handle)) = known else {
            store.discard(text);
            continue;
        };
        let (part, stored) = match name.whose {
            Whose::Worker => (Part::Worker, run.worker.clone()),
            Whose::Supervisor => (Part::Supervisor, run.supervisor.clone()),
        };
        observer.offer(name.run, part, Arc::new(handle), stored);
        store.found(name);
        back += 1;
    }
    if all > 0 {
        tracing::info!(back, of = all, "took back what the service manager kept of the workers");
    }
}

/// The name alone proves nothing: the row must have the same nonce, and the process must be the one that the
/// row names, in this boot.
fn recognise(
    name: &Name,
    run: &RunPart,
    descriptor: OwnedFd,
    epoch: &Epoch,
    processes: &HostProcesses,
) -> Option<PidFd> {
    let (pid, stored) = match name.whose {
        Whose::Worker => (run.worker_pid?, &run.worker),
        Whose::Supervisor => (run.supervisor_pid?, &run.supervisor),
    };
    let Stored::Proven(print) = stored else { return None };
    let is_ours = run.nonce.as_ref() == Some(&name.nonce) && run.launched && print.epoch == *epoch;
    processes.recognise(descriptor, Pid::new(pid)?, print).filter(|_| is_ours)
}

/// Hands a run's processes to the manager.
pub fn keep(store: &FdStore, run: RunId, nonce: &Nonce, processes: [(Whose, &PidFd); 2]) {
    for (whose, process) in processes {
        if !store.has_room(whose) {
            continue;
        }
        match process.duplicate() {
            Ok(descriptor) => store.keep(Name { run, nonce: nonce.clone(), whose }, descriptor),
            Err(error) => {
                tracing::debug!(TENURED_RUN = run.get(), %error, "a process is not kept by the service manager");
            }
        }
    }
}
