//! How a supervisor comes to be: forked by this process, or asked of the launcher.
//!
//! A daemon that is hardened asks, because what it forks would inherit its seccomp filter, its mounts, its
//! capabilities and its limits. Everything else of a start is the same for both.

#![expect(clippy::disallowed_methods, reason = "an adapter: starts processes")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::core::fingerprint::Looked;
use crate::core::ids::{Nonce, Pid, RunId};
use crate::core::time::MonoMs;
use crate::linux::launcher_client::{Unanswered, ask};
use crate::linux::pidfd::HostProcesses;
use crate::linux::spawn::{LaunchError, Member, host_fault};
use crate::ports::{Processes, Target};

/// The name under which every program of this package is the supervisor.
pub const PROGRAM: &str = "tenured-exec";

/// Who makes supervisors.
#[derive(Debug)]
pub(super) enum Maker {
    /// This process, from the program that it holds.
    Here(OwnedFd),
    /// The launcher at that socket.
    Asked(PathBuf),
}

/// The supervisor to be made.
pub(super) struct Wanted<'spec> {
    pub(super) run: RunId,
    pub(super) nonce: &'spec Nonce,
    pub(super) sealed: BorrowedFd<'spec>,
}

impl Maker {
    /// Makes a supervisor that waits for its hello; it, and our end of its gate.
    pub(super) fn make(
        &self,
        host: &HostProcesses,
        wanted: &Wanted<'_>,
        deadline: MonoMs,
    ) -> Result<(Member, OwnedFd), LaunchError> {
        match self {
            Self::Here(program) => make_here(host, program, wanted),
            Self::Asked(path) => make_there(host, path, wanted, deadline),
        }
    }
}

/// Our end, and the supervisor's.
fn gate() -> Result<(OwnedFd, OwnedFd), LaunchError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(host_fault("making the gate"))
}

fn make_here(
    host: &HostProcesses,
    program: &OwnedFd,
    wanted: &Wanted<'_>,
) -> Result<(Member, OwnedFd), LaunchError> {
    let (ours, theirs) = gate()?;
    let starting = "starting tenured-exec";
    let mut child = start(program.as_fd(), wanted.run, wanted.nonce, theirs).map_err(host_fault(starting))?;
    // Nobody else takes its end, so until we do the number is its own.
    let (looked, handle) = match Pid::new(i64::from(child.id())) {
        Some(pid) => host.open(Target::Pid(pid)),
        None => (Looked::Unknown, None),
    };
    if let Some(handle) = handle {
        return Ok((Member { handle, looked }, ours));
    }
    // It hears the end of the socket in place of a hello, and ends at once.
    drop(ours);
    child.wait().map_err(host_fault(starting))?;
    Err(unseen(starting))
}

/// A launcher that ends in between is asked once more, with another gate: whatever the first one made has
/// its gate closed for good, and ends.
fn make_there(
    host: &HostProcesses,
    path: &std::path::Path,
    wanted: &Wanted<'_>,
    deadline: MonoMs,
) -> Result<(Member, OwnedFd), LaunchError> {
    let mut is_again = false;
    loop {
        let (ours, theirs) = gate()?;
        let error = match ask(path, theirs, wanted.sealed, deadline) {
            Ok(supervisor) => {
                let (looked, handle) = host.open(Target::Fd(supervisor));
                let handle = handle.ok_or_else(|| unseen("asking the launcher"))?;
                return Ok((Member { handle, looked }, ours));
            }
            Err(Unanswered::Lost(_)) if !is_again => {
                is_again = true;
                continue;
            }
            Err(Unanswered::Lost(error)) => {
                host_fault(&format!("asking the launcher at {}, which ended twice", path.display()))(error)
            }
            Err(Unanswered::Failed { doing, error }) => host_fault(&doing)(error),
        };
        return Err(error);
    }
}

fn unseen(doing: &str) -> LaunchError {
    host_fault(doing)(io::Error::other("the supervisor's process could not be seen"))
}

/// Starts the program as the supervisor of a run, with the gate as its standard input and nothing else of
/// ours. The child is the caller's to wait for.
///
/// # Errors
/// What fork(2) or execve(2) said.
pub fn start(
    program: BorrowedFd<'_>,
    run: RunId,
    nonce: &Nonce,
    gate: OwnedFd,
) -> io::Result<std::process::Child> {
    Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0(PROGRAM)
        .arg(run.to_string())
        .env_clear()
        .env("TENURED_NONCE", nonce.as_str())
        .stdin(gate)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
