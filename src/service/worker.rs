//! The confused deputy: whoever registers a process as a worker asks the daemon to signal it one day, so it
//! must belong wholly to the one who asks. Everything is read through the pidfd, so that it is all of one
//! process; the daemon looks again before each signal.

use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::{Epoch, Fingerprint, Looked, Seen, Stored};
use crate::core::ids::Pid;
use crate::core::refusal::Refusal;
use crate::ports::{Held, Processes, Target};
use crate::service::types::{Caller, WorkerGiven};

/// Looks at a process that a claimant names, and says what proves it.
pub trait Registrar: Send + Sync {
    /// The pid and what proves it; `None` for a lease-only claim.
    ///
    /// # Errors
    /// [`Refusal::NotYourProcess`], or a fault while looking.
    fn identify(&self, caller: &Caller, given: WorkerGiven) -> Result<Option<(i64, Stored)>, Error>;

    /// Whether a registered worker was seen to be gone. What cannot be seen is not gone.
    fn is_gone(&self, pid: i64, worker: &Stored) -> bool;
}

/// The real one, over any [`Processes`].
pub struct Deputy<P> {
    /// Where to look.
    pub processes: P,
    /// The epoch of what is captured.
    pub epoch: Epoch,
    /// The daemon, its launcher: never a worker.
    pub never: Vec<Pid>,
}

impl<P: Processes> Registrar for Deputy<P> {
    fn identify(&self, caller: &Caller, given: WorkerGiven) -> Result<Option<(i64, Stored)>, Error> {
        match given {
            WorkerGiven::None => Ok(None),
            WorkerGiven::Pid { pid, start_ticks } => {
                let number = i64::from(pid);
                let target =
                    Pid::new(number).ok_or_else(|| refusal(number, "it is no process of anybody's"))?;
                self.look(caller, number, Target::Pid(target), Claimed::Number(start_ticks)).map(Some)
            }
            WorkerGiven::PidFd(fd) => self.look(caller, 0, Target::Fd(fd), Claimed::Handle).map(Some),
        }
    }

    fn is_gone(&self, pid: i64, worker: &Stored) -> bool {
        // A number that is no process never was one; ticks of another boot are not compared.
        let Some(pid) = Pid::new(pid) else { return true };
        let epoch = match worker.epoch() {
            Some(epoch) if *epoch != self.epoch => return false,
            epoch => epoch,
        };
        let (looked, _handle) = self.processes.open(Target::Pid(pid));
        match worker.compare(looked, epoch.is_some()) {
            Seen::Gone | Seen::Other => true,
            Seen::Same | Seen::Present | Seen::Unknown => false,
        }
    }
}

/// How the claimant pointed at the process.
#[derive(Clone, Copy)]
enum Claimed {
    /// By its number, perhaps with the start ticks as the claimant read them.
    Number(Option<u64>),
    /// By a descriptor, which no other process can take over.
    Handle,
}

impl<P: Processes> Deputy<P> {
    fn look(
        &self,
        caller: &Caller,
        number: i64,
        target: Target,
        claimed: Claimed,
    ) -> Result<(i64, Stored), Error> {
        let (looked, handle) = self.processes.open(target);
        let (Looked::Present { start_ticks, inode }, Some(handle)) = (looked, handle) else {
            return match (looked, claimed) {
                (Looked::Gone, _) => Err(refusal(number, "it has ended")),
                // Root may register anybody's process, so nothing has to be known of it but its number: it is
                // never signalled, and the claim is held for as long as somebody has the number.
                (_, Claimed::Number(_)) if caller.uid == 0 => Ok((number, Stored::Unverified)),
                _ => Err(refusal(number, "it cannot be looked at")),
            };
        };
        let pid = handle.pid();
        let number = i64::from(pid.get());
        self.belongs(caller, number, pid, &handle)?;
        // What was read belongs to this process only if it still lives now.
        if self.processes.look(&handle) != looked {
            return Err(refusal(number, "it ended while it was looked at"));
        }
        let print = Fingerprint { epoch: self.epoch.clone(), start_ticks, inode };
        let stored = match claimed {
            Claimed::Handle => Stored::Proven(print),
            Claimed::Number(Some(ticks)) if ticks == start_ticks => Stored::Proven(print),
            Claimed::Number(Some(_)) => {
                return Err(refusal(number, "its StartTicks are another process'; the one meant has ended"));
            }
            Claimed::Number(None) => Stored::Named(print),
        };
        Ok((number, stored))
    }

    fn belongs(&self, caller: &Caller, number: i64, pid: Pid, handle: &P::Handle) -> Result<(), Error> {
        if self.never.contains(&pid) {
            return Err(refusal(number, "it belongs to the daemon itself"));
        }
        let owner = self
            .processes
            .owner(handle)
            .map_err(|source| Fault::Host { doing: "reading a process' ids", source })?;
        if owner.kernel_thread {
            return Err(refusal(number, "it is a thread of the kernel"));
        }
        if !owner.our_namespaces {
            return Err(refusal(number, "it lives in another pid or user namespace"));
        }
        if caller.uid != 0 && !owner.is_wholly(caller.uid) {
            return Err(refusal(number, "its real, effective, saved and file system uids are not all yours"));
        }
        Ok(())
    }
}

fn refusal(pid: i64, why: &'static str) -> Error {
    Refusal::NotYourProcess { pid, why }.into()
}
