//! How a process ended that is not our child: the kernel tells whoever has held its pidfd since before.
//!
//! Source: ioctl PIDFD_GET_INFO, include/uapi/linux/pidfd.h; exit information since Linux 6.15.

#![expect(unsafe_code, reason = "the ioctl has no safe call")]

use std::os::fd::AsRawFd;

use nix::libc;

use crate::core::retry::Exit;
use crate::linux::pidfd::PidFd;

/// struct pidfd_info in its first size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Info {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// PIDFD_INFO_EXIT.
const EXIT: u64 = 1 << 3;
/// PIDFD_GET_INFO: _IOWR(0xFF, 11, struct pidfd_info).
const GET_INFO: u32 = rustix::ioctl::opcode::read_write::<Info>(0xff, 11);

/// How the process ended, once its parent has taken its end; nothing before that, or where the kernel does
/// not say.
pub fn exit_of(process: &PidFd) -> Option<Exit> {
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the kernel fills at most the size that the request's number carries, which is that of `info`.
    let done = unsafe { libc::ioctl(process.as_raw_fd(), libc::Ioctl::from(GET_INFO), &raw mut info) };
    if done != 0 || info.mask & EXIT == 0 {
        return None;
    }
    Some(from_status(info.exit_code))
}

/// Source: wait(2), the macros for a status.
const fn from_status(status: i32) -> Exit {
    if libc::WIFEXITED(status) {
        Exit::Code(libc::WEXITSTATUS(status))
    } else {
        Exit::Signal(libc::WTERMSIG(status))
    }
}
