//! Descriptors that this process was started with, taken into ownership.

#![expect(unsafe_code, reason = "a number that was passed at exec has no owner to borrow from")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes one that whoever started this process passed to it. Each number is to be given once.
///
/// # Errors
/// Where no such descriptor is open, or it is one of the standard three.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: looked at only to see whether it is open; the number is not -1.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(there, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and by the protocol (sd_listen_fds(3)) nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
