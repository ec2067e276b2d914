//! Who a process runs as, read while its pidfd shows that it lives.
//!
//! Source: proc_pid_status(5) `Uid`, namespaces(7), proc_pid_stat(5) field 9.

#![expect(clippy::disallowed_methods, reason = "an adapter: reads /proc")]

use std::fs;
use std::io;

use rustix::io::Errno;

use crate::core::ids::Uid;
use crate::linux::pidfd::PidFd;
use crate::linux::proc::ProcRoot;
use crate::linux::stat::Stat;
use crate::ports::{Held, Owner};

/// Reads the owner of a held process.
///
/// # Errors
/// Where something could not be read, or the process ended meanwhile (ESRCH).
pub fn read(root: &ProcRoot, handle: &PidFd) -> io::Result<Owner> {
    let pid = handle.pid().get();
    let read = || -> io::Result<Owner> {
        let [real, effective, saved, fs] = uids(&root.read(pid, "status")?)?;
        let kernel_thread = Stat::read(root, pid)?.is_kernel_thread;
        let our_namespaces = same_namespace(root, pid, "pid")? && same_namespace(root, pid, "user")?;
        Ok(Owner { real, effective, saved, fs, our_namespaces, kernel_thread })
    };
    let owner = read();
    if handle.has_ended()? || !root.is_ours() {
        return Err(Errno::SRCH.into());
    }
    owner
}

/// The four ids of the `Uid:` line. The name of the process is on a line of its own before it, with
/// newlines escaped.
///
/// # Errors
/// `InvalidData` where there is no such line.
pub fn uids(status: &[u8]) -> io::Result<[Uid; 4]> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "no valid Uid line");
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:"))
        .ok_or_else(invalid)?;
    let text = std::str::from_utf8(line).map_err(|_| invalid())?;
    let ids: Vec<Uid> = text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    ids.try_into().map_err(|_| invalid())
}

/// Whether a namespace of the process is ours; one that may not be looked at is not shown to be.
fn same_namespace(root: &ProcRoot, pid: i32, kind: &str) -> io::Result<bool> {
    let ours = fs::read_link(root.path().join("self/ns").join(kind))?;
    match fs::read_link(root.of(pid, "ns").join(kind)) {
        Ok(theirs) => Ok(ours == theirs),
        Err(refused) if refused.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_taken_for_the_line() {
        // The kernel escapes newlines in names.
        let status =
            b"Name:\tUid: 1 1 1 1\\nUid:\t0 0 0 0\nUmask:\t0022\nUid:\t5\t6\t7\t8\nGid:\t9\t9\t9\t9\n";
        assert_eq!(uids(status).unwrap(), [5, 6, 7, 8]);
        for bad in ["", "Uid:\t1\t2\t3\n", "Uid:\t1\t2\t3\tx\n", "Uid:\t1\t2\t3\t4\t5\n"] {
            assert!(uids(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
