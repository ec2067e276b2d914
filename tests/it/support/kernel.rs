//! What the kernel says of a process, read without the product: its own reader of /proc, so that a fault
//! in the product's cannot hide behind itself.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Magic number of pidfs. Source: linux/magic.h, `PID_FS_MAGIC`.
const PIDFS: i64 = 0x5049_4446;

/// A field of /proc/PID/stat, counted from 1 as proc_pid_stat(5) does.
pub fn stat_field(pid: u32, field: usize) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
    let after_name = bytes.iter().rposition(|byte| *byte == b')').unwrap() + 2;
    let text = std::str::from_utf8(&bytes[after_name..]).unwrap();
    // The first field after the name is the third.
    text.split_whitespace().nth(field - 3).unwrap().to_owned()
}

pub fn start_ticks(pid: u32) -> u64 {
    stat_field(pid, 22).parse().unwrap()
}

/// Whether the process is there and not only waiting to be reaped.
pub fn lives(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let mut polled = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&zero)).unwrap() == 0
}

pub fn pidfd(pid: u32) -> OwnedFd {
    pidfd_open(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), PidfdFlags::empty()).unwrap()
}

pub fn signal(pid: u32, signal: Signal) {
    pidfd_send_signal(pidfd(pid), signal).unwrap();
}

/// The inode of a pidfd, where the kernel gives each process one of its own.
pub fn inode(pid: u32) -> Option<u64> {
    let fd = pidfd(pid);
    let pidfs = rustix::fs::fstatfs(fd.as_fd()).unwrap().f_type == PIDFS;
    pidfs.then(|| rustix::fs::fstat(fd.as_fd()).unwrap().st_ino)
}

/// Its children at this moment.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Processes other than this one that have a path in their environment or their arguments.
pub fn mentioning(path: &std::path::Path) -> Vec<u32> {
    let mark = path.as_os_str().as_encoded_bytes().trim_ascii_end();
    let mark = mark.strip_suffix(b"/").unwrap_or(mark);
    let mentions = |pid: &u32| {
        ["environ", "cmdline"].iter().any(|file| {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(mark.len()).any(|window| window == mark)
        })
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id() && mentions(pid))
        .collect()
}

pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

fn namespace(kind: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    link.to_str().unwrap().trim_matches(|char: char| !char.is_ascii_digit()).to_owned()
}

/// `<boot_id>:<pid namespace>:<time namespace>:<start ticks of PID 1>`
pub fn epoch() -> String {
    format!("{}:{}:{}:{}", boot_id(), namespace("pid"), namespace("time"), start_ticks(1))
}

/// The epoch of a boot that is not this one: boot_id and PID 1's start both differ.
pub fn other_epoch() -> String {
    format!(
        "{}:{}:{}:{}",
        "0b9d3c1e-5f7a-4d2b-8c6e-a1b2c3d4e5f6",
        namespace("pid"),
        namespace("time"),
        start_ticks(1) + 7
    )
}

/// `<epoch>|<start>|<inode>`
pub fn fingerprint(pid: u32) -> String {
    fingerprint_in(&epoch(), pid)
}

pub fn fingerprint_in(epoch: &str, pid: u32) -> String {
    let inode = inode(pid).map_or_else(|| "-".to_owned(), |inode| inode.to_string());
    format!("{epoch}|{}|{inode}", start_ticks(pid))
}

/// The fingerprint of a process that is not this one.
pub fn strangers_fingerprint(pid: u32) -> String {
    let inode = inode(pid).map_or_else(|| "-".to_owned(), |inode| (inode + 1_000_000).to_string());
    format!("{}|{}|{inode}", epoch(), start_ticks(pid) + 12_345)
}

/// CLOCK_MONOTONIC in milliseconds: what `*_ms` columns hold.
pub fn mono_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// Wall clock in microseconds: what `*_usec` columns hold.
pub fn wall_usec() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Whether a pidfd tells how its process ended once that was reaped. Source: linux/pidfd.h,
/// `PIDFD_INFO_EXIT`, Linux 6.15.
pub fn tells_exits() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}
