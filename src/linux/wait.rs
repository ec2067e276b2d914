//! Ends of children, each taken by its own name: never `waitpid(-1)`, which would take the end of a child
//! that somebody else waits for.
//!
//! Source: waitid(2).

#![expect(unsafe_code, reason = "waitid with all it says has no safe call")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

use crate::core::retry::Exit;

/// Which child.
#[derive(Clone, Copy, Debug)]
pub enum Child<'fd> {
    /// One of ours by its number: it cannot go to another process before we have taken its end.
    Pid(i32),
    /// One of ours by its pidfd.
    PidFd(BorrowedFd<'fd>),
}

/// What waiting found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// An end.
    Ended(T),
    /// Children, and none of them has ended.
    Running,
    /// No such child.
    NoChild,
}

/// Has the kernel keep the ends of children until they are taken. Whoever ignores SIGCHLD passes that on
/// through every exec, and with it that ends are thrown away and nobody is told.
pub fn keep_ends() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Takes the end of one child, without waiting for it.
///
/// # Errors
/// What waitid(2) said.
pub fn take(child: Child<'_>) -> io::Result<Waited<Exit>> {
    let (kind, id) = match child {
        Child::Pid(pid) => (libc::P_PID, libc::id_t::try_from(pid).map_err(io::Error::other)?),
        Child::PidFd(fd) => (libc::P_PIDFD, libc::id_t::try_from(fd.as_raw_fd()).map_err(io::Error::other)?),
    };
    Ok(match waitid(kind, id, libc::WEXITED | libc::WNOHANG | libc::__WALL)? {
        Waited::Ended((_, exit)) => Waited::Ended(exit),
        Waited::Running => Waited::Running,
        Waited::NoChild => Waited::NoChild,
    })
}

/// Finds a child that has ended, and leaves it as it is: for a subreaper, which does not know the names of
/// those it adopted.
///
/// # Errors
/// What waitid(2) said.
pub fn find_ended() -> io::Result<Waited<i32>> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    Ok(match waitid(libc::P_ALL, 0, flags)? {
        Waited::Ended((pid, _)) => Waited::Ended(pid),
        Waited::Running => Waited::Running,
        Waited::NoChild => Waited::NoChild,
    })
}

fn waitid(kind: libc::idtype_t, id: libc::id_t, flags: i32) -> io::Result<Waited<(i32, Exit)>> {
    // SAFETY: siginfo_t is plain data for which all zeroes are valid; with WNOHANG the kernel leaves si_pid
    // at 0 where nothing has ended.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `info` lives through the call and is written by nobody else.
        if unsafe { libc::waitid(kind, id, &raw mut info, flags) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(Waited::NoChild),
            _ => return Err(error),
        }
    }
    // SAFETY: waitid fills the fields of a SIGCHLD, or leaves the zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(Waited::Running);
    }
    let exit = if info.si_code == libc::CLD_EXITED { Exit::Code(status) } else { Exit::Signal(status) };
    Ok(Waited::Ended((pid, exit)))
}
