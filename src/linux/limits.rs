//! The resource limits of this process, to be given on unchanged whatever the daemon does to its own.
//!
//! Source: getrlimit(2).

#![expect(unsafe_code, reason = "the safe calls know limits by name only")]

use std::io;

use nix::libc;

use crate::linux::wire::ResourceLimit;

/// Every limit that the kernel knows.
///
/// # Errors
/// What prlimit(2) said.
pub fn own() -> io::Result<Vec<ResourceLimit>> {
    let mut limits = Vec::new();
    for resource in 0.. {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the struct lives through the call; nothing is set.
        if unsafe { libc::prlimit64(0, resource, std::ptr::null(), &raw mut limit) } == 0 {
            limits.push(ResourceLimit { resource, soft: limit.rlim_cur, hard: limit.rlim_max });
            continue;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || limits.is_empty() {
            return Err(error);
        }
        break;
    }
    Ok(limits)
}

/// Puts limits on this process.
///
/// # Errors
/// What prlimit(2) said.
pub fn put_on(limits: &[ResourceLimit]) -> io::Result<()> {
    for limit in limits {
        let wanted = libc::rlimit64 { rlim_cur: limit.soft, rlim_max: limit.hard };
        // SAFETY: the struct lives through the call; nothing is written back.
        if unsafe { libc::prlimit64(0, limit.resource, &raw const wanted, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
