//! Descriptors that nobody meant to pass on.
//!
//! Source: close_range(2), Linux 5.9.

#![expect(unsafe_code, reason = "close_range has no safe call, because it closes what others own")]

use std::io;
use std::os::fd::RawFd;

use nix::libc;

/// Closes every descriptor but the three standard ones and these. No owner of another one may close it
/// again afterwards: call it before there are any, or never return.
pub(super) fn close_all_but(kept: &mut [RawFd]) -> io::Result<()> {
    kept.sort_unstable();
    let mut from = 3_u32;
    for fd in kept {
        let fd = u32::try_from(*fd).map_err(io::Error::other)?;
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = from.max(fd + 1);
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: see [`close_all_but`], whose callers use none of these descriptors again.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
