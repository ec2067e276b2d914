//! Waits that end.
//!
//! Source: poll(2).

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::core::time::MonoMs;
use crate::linux::clock::HostClock;
use crate::ports::Clock as _;

/// CLOCK_MONOTONIC.
pub fn now() -> MonoMs {
    HostClock::default().now().mono
}

/// The time that is left, as poll(2) takes it; none where it is over.
pub fn left(deadline: MonoMs) -> Timespec {
    let left_ms = deadline.since(now()).max(0);
    Timespec { tv_sec: left_ms / 1_000, tv_nsec: left_ms % 1_000 * 1_000_000 }
}

/// Waits until a descriptor is readable or its other side has ended; false where that takes too long.
///
/// # Errors
/// What poll(2) said.
pub fn readable_before(fd: BorrowedFd<'_>, deadline: MonoMs) -> io::Result<bool> {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut polled, Some(&left(deadline))) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
