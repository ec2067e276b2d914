//! What the rules need from the host, as traits small enough to be modelled by hand.
//!
//! Every method returns an observation; none decides. The real ones are in `linux/`, the models in the
//! simulation.

use std::os::fd::OwnedFd;

use crate::core::boot::Witnesses;
use crate::core::fingerprint::Looked;
use crate::core::ids::{Nonce, Pid, RunId, Uid};
use crate::core::record::Record;
use crate::core::row::Cgroup;
use crate::core::time::Now;

/// The host's clocks and the witnesses of its boot.
pub trait Clock: Send + Sync {
    /// Both clocks.
    fn now(&self) -> Now;

    /// What the host says of its boot, without the nonce.
    ///
    /// # Errors
    /// Where /proc cannot be read.
    fn witnesses(&self) -> std::io::Result<Witnesses>;
}

/// The ids that a process runs with. Source: proc_pid_status(5), `Uid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Real.
    pub real: Uid,
    /// Effective.
    pub effective: Uid,
    /// Saved set-user-ID.
    pub saved: Uid,
    /// File system.
    pub fs: Uid,
    /// Whether its pid and user namespaces are ours.
    pub our_namespaces: bool,
    /// Whether it is a kernel thread.
    pub kernel_thread: bool,
}

impl Owner {
    /// Whether the process belongs wholly to this user.
    pub const fn is_wholly(&self, uid: Uid) -> bool {
        self.real == uid && self.effective == uid && self.saved == uid && self.fs == uid
    }
}

/// How a process is pointed at.
#[derive(Debug)]
pub enum Target {
    /// By its number.
    Pid(Pid),
    /// By a pidfd that somebody passed.
    Fd(OwnedFd),
}

/// A held process.
pub trait Held {
    /// Its number in our pid namespace.
    fn pid(&self) -> Pid;
}

/// Processes, by handles that no other process can ever take over (pidfds).
pub trait Processes: Send + Sync {
    /// Holds one process for as long as it is kept.
    type Handle: Held + Send + Sync + 'static;

    /// Opens a process: the handle, and what was seen through it ([`Looked::Present`]); or
    /// [`Looked::Gone`] or [`Looked::Unknown`] without one.
    fn open(&self, target: Target) -> (Looked, Option<Self::Handle>);

    /// Looks again through a handle: present with the same start and inode, gone, or unknown.
    fn look(&self, handle: &Self::Handle) -> Looked;

    /// Sends a signal. Success does not mean that the process lives: a zombie takes it.
    ///
    /// # Errors
    /// What pidfd_send_signal(2) said.
    fn signal(&self, handle: &Self::Handle, signal: i32) -> std::io::Result<()>;

    /// Who the process runs as.
    ///
    /// # Errors
    /// Where it could not be read, or the process ended meanwhile.
    fn owner(&self, handle: &Self::Handle) -> std::io::Result<Owner>;

    /// Every process that carries `TENURED_NONCE=<nonce>` in its environment.
    ///
    /// # Errors
    /// Where one live process could not be read: then nothing is known about the tree.
    fn carriers(&self, nonce: &Nonce) -> std::io::Result<Vec<Self::Handle>>;

    /// As [`Processes::carriers`], for a run whose supervisor started at these ticks of this boot: a process
    /// that is older descends from none of its processes, so it does not matter that it cannot be read.
    ///
    /// # Errors
    /// As [`Processes::carriers`].
    fn carriers_since(&self, nonce: &Nonce, start_ticks: u64) -> std::io::Result<Vec<Self::Handle>> {
        let _ = start_ticks;
        self.carriers(nonce)
    }
}

/// The cgroups of scopes. Whatever is asked of one, its id and its unit's invocation are matched first.
pub trait Cgroups: Send + Sync {
    /// Holds one process for as long as it is kept.
    type Handle: Held + Send + Sync + 'static;

    /// Whether a process lives in it; a cgroup that is there no more holds none. Zombies do not count.
    ///
    /// # Errors
    /// Where that could not be seen: then nothing is known of the tree.
    fn is_populated(&self, cgroup: &Cgroup) -> std::io::Result<bool>;

    /// The processes in it, each shown to be there through its handle.
    ///
    /// # Errors
    /// Where it could not be read.
    fn members(&self, cgroup: &Cgroup) -> std::io::Result<Vec<Self::Handle>>;

    /// Kills every process in it at once; says whether it was there.
    ///
    /// # Errors
    /// What the kernel said.
    fn kill_all(&self, cgroup: &Cgroup) -> std::io::Result<bool>;
}

/// The exit records of the state directory.
pub trait Records: Send + Sync {
    /// The whole record of this run with this nonce; none where none was written, or not to its end.
    ///
    /// # Errors
    /// Where it could not be read: then nothing is known of the end.
    fn read(&self, run: RunId, nonce: &Nonce) -> std::io::Result<Option<Record>>;
}
