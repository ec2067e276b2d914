//! Asks the launcher for a supervisor: one connection a start, one packet there, one packet back.
//!
//! Owns nothing. The gate goes there closed in all but name: its writing end stays with the caller, and
//! without it nothing that the launcher makes lets a command run. So a launcher may die at any point, and
//! whoever asked drops that gate and asks again with another.
//!
//! Source: unix(7) SEQPACKET, SCM_RIGHTS; socket(7) SO_SNDTIMEO, which bounds connect(2) too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::core::time::MonoMs;
use crate::linux::deadline::{now, readable_before};
use crate::linux::wire::{self, Answer};

/// Why there is no supervisor.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The launcher ended in between. What it may have made ends with the gate that it was given.
    Lost(io::Error),
    /// It is not there, it refused, or it is too slow.
    Failed {
        /// What was being done, there or here.
        doing: String,
        /// Why it failed.
        error: io::Error,
    },
}

/// Asks for the supervisor of the run that the sealed spec names; its pidfd.
///
/// # Errors
/// [`Unanswered`]; the caller's end of the gate must be dropped then.
pub(super) fn ask(
    path: &Path,
    gate: OwnedFd,
    spec: BorrowedFd<'_>,
    deadline: MonoMs,
) -> Result<OwnedFd, Unanswered> {
    let here = |error: io::Error| Unanswered::Failed {
        doing: format!("asking the launcher at {}", path.display()),
        error,
    };
    let launcher = connect(path, deadline).map_err(here)?;
    wire::send(&launcher, wire::LAUNCH, &[gate.as_fd(), spec]).map_err(Unanswered::Lost)?;
    drop(gate);
    if !readable_before(launcher.as_fd(), deadline).map_err(here)? {
        return Err(here(io::ErrorKind::TimedOut.into()));
    }
    let (bytes, fds) = wire::receive(&launcher).map_err(Unanswered::Lost)?;
    match Answer::parse(&bytes) {
        Some(Answer::Ready) => match fds.into_iter().next() {
            Some(supervisor) => Ok(supervisor),
            None => Err(here(io::Error::other("it sent no pidfd"))),
        },
        Some(Answer::Fault { errno, doing }) => {
            let error =
                if errno == 0 { io::Error::other("refused") } else { io::Error::from_raw_os_error(errno) };
            Err(Unanswered::Failed { doing: format!("the launcher was {doing}"), error })
        }
        Some(Answer::Begun | Answer::SetupFailed { .. }) => {
            Err(here(io::Error::other("it gave an answer of another kind")))
        }
        None if bytes.is_empty() => Err(Unanswered::Lost(io::ErrorKind::UnexpectedEof.into())),
        None => Err(here(io::Error::other("it is of another version; restart tenured-launcher.service"))),
    }
}

fn connect(path: &Path, deadline: MonoMs) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // Zero would mean for ever.
    let left_ms = deadline.since(now()).max(1);
    let left = Duration::from_millis(left_ms.unsigned_abs());
    set_socket_timeout(&socket, Timeout::Send, Some(left))?;
    let address = SocketAddrUnix::new(path)?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
        Ok(()) => Ok(socket),
        // More wait for it than its queue holds.
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}
