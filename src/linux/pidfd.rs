//! Processes, held by pidfds: the one way in which this product points at a process.
//!
//! Owns every pidfd_open(2) and pidfd_send_signal(2). Never signals by number, and never takes an error
//! for an end: [`Looked::Gone`] is said only when the kernel knows no such process, or when a pidfd is
//! readable, and everything else is [`Looked::Unknown`].
//!
//! Source: pidfd_open(2), pidfd_send_signal(2), proc_pid_fdinfo(5), statfs(2); pidfs since Linux 6.9.

#![expect(unsafe_code, reason = "a signal by its number has no safe call")]
#![expect(clippy::disallowed_methods, reason = "an adapter: reads /proc")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::core::fingerprint::{Fingerprint, Looked};
use crate::core::ids::{Nonce, Pid};
use crate::linux::proc::ProcRoot;
use crate::linux::stat::Stat;
use crate::linux::{carriers, owner};
use crate::ports::{Held, Owner, Processes, Target};

/// File system type of pidfs. Source: include/uapi/linux/magic.h, PID_FS_MAGIC.
const PIDFS_MAGIC: rustix::fs::FsWord = 0x5049_4446;
/// In the flags of a pidfd that stands for one thread: PIDFD_THREAD is O_EXCL.
const PIDFD_THREAD: u32 = rustix::fs::OFlags::EXCL.bits();

/// The processes of this host.
#[derive(Clone, Debug, Default)]
pub struct HostProcesses {
    root: ProcRoot,
    without_inodes: bool,
}

/// One held process. Its number cannot go to another process unnoticed: the pidfd says so.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: Pid,
    /// What was seen of it while it lived: start and inode are its own for as long as it is held.
    seen: OnceLock<Looked>,
}

impl Held for PidFd {
    fn pid(&self) -> Pid {
        self.pid
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl PidFd {
    const fn new(fd: OwnedFd, pid: Pid) -> Self {
        Self { fd, pid, seen: OnceLock::new() }
    }

    /// Whether the process has ended: its pidfd is readable, whether it was reaped or not.
    ///
    /// # Errors
    /// What poll(2) said.
    pub fn has_ended(&self) -> io::Result<bool> {
        has_ended(self.fd.as_fd())
    }

    /// The pidfd alone, for the event loop or the fd store.
    ///
    /// # Errors
    /// Where no descriptor is free.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

fn send(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    if !(1..=nix::libc::SIGRTMAX()).contains(&signal) {
        return Err(Errno::INVAL.into());
    }
    // SAFETY: the number is a signal of this system, as was checked. The two that the C library keeps for
    // itself are no harm to another process' memory either.
    let signal = unsafe { Signal::from_raw_unchecked(signal) };
    Ok(pidfd_send_signal(fd, signal)?)
}

/// Opens a child of ours whose end nobody has taken: its number is its own until then.
///
/// # Errors
/// What pidfd_open(2) said.
pub fn open_own_child(pid: i32) -> io::Result<OwnedFd> {
    let number = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

/// Sends a signal to this very process.
///
/// # Errors
/// What pidfd_open(2) or pidfd_send_signal(2) said.
pub fn signal_self(signal: i32) -> io::Result<()> {
    let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    send(own.as_fd(), signal)
}

fn has_ended(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once)))?;
    let [polled] = polled;
    let seen = polled.revents();
    if seen.intersects(PollFlags::NVAL) {
        return Err(Errno::BADF.into());
    }
    Ok(seen.intersects(PollFlags::IN | PollFlags::HUP))
}

/// The `Tgid:` line. Source: proc_pid_status(5).
fn thread_group(status: &[u8]) -> Option<i32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// What a descriptor says of the process it stands for.
enum Adopted {
    Process(Pid),
    Gone,
    Refused,
}

impl HostProcesses {
    /// With another procfs, for tests.
    pub const fn with_proc(root: ProcRoot) -> Self {
        Self { root, without_inodes: false }
    }

    /// Behaves as on a kernel without pidfs, whose pidfds have no inodes of their own.
    #[must_use]
    pub fn without_inodes(mut self) -> Self {
        self.without_inodes = true;
        self
    }

    /// Where it reads.
    pub const fn proc_root(&self) -> &ProcRoot {
        &self.root
    }

    fn open_pid(&self, pid: Pid) -> (Looked, Option<PidFd>) {
        let Some(number) = rustix::process::Pid::from_raw(pid.get()) else {
            return (Looked::Unknown, None);
        };
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => self.look_and_keep(PidFd::new(fd, pid)),
            Err(Errno::SRCH) => (Looked::Gone, None),
            Err(Errno::INVAL | Errno::NOENT) if self.is_no_process(pid) => (Looked::Gone, None),
            Err(_) => (Looked::Unknown, None),
        }
    }

    /// Whether the number is that of a thread, or of a process group or session that outlived its first
    /// process: pidfd_open(2) says EINVAL to both (ENOENT or ESRCH on newer kernels), because no process has
    /// the number. Believed only where /proc does not show one.
    fn is_no_process(&self, pid: Pid) -> bool {
        match self.root.read(pid.get(), "status") {
            Ok(status) => thread_group(&status).is_some_and(|process| process != pid.get()),
            Err(missing) => missing.kind() == io::ErrorKind::NotFound && self.root.is_ours(),
        }
    }

    /// Opens a process that is shown to be a child of `parent`, and reads its stat; nothing where it has
    /// ended or has another parent by now. `parent` must be this process, or be shown to live afterwards.
    ///
    /// # Errors
    /// Where it could not be seen.
    pub fn open_child(&self, pid: Pid, parent: i32) -> io::Result<Option<(PidFd, Stat)>> {
        let Some(number) = rustix::process::Pid::from_raw(pid.get()) else { return Ok(None) };
        let handle = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => PidFd::new(fd, pid),
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = Stat::read(&self.root, pid.get());
        if handle.has_ended()? {
            return Ok(None);
        }
        let stat = stat?;
        Ok((stat.parent_pid == parent).then_some((handle, stat)))
    }

    fn adopt(&self, fd: OwnedFd) -> (Looked, Option<PidFd>) {
        match self.adopted(&fd) {
            Ok(Adopted::Process(pid)) => self.look_and_keep(PidFd::new(fd, pid)),
            Ok(Adopted::Gone) => (Looked::Gone, None),
            Ok(Adopted::Refused) | Err(_) => (Looked::Unknown, None),
        }
    }

    /// Takes a descriptor that was kept elsewhere, if it is of the very process that was proven before: also
    /// where that has ended since, if its inode says so.
    pub fn recognise(&self, fd: OwnedFd, pid: Pid, print: &Fingerprint) -> Option<PidFd> {
        let adopted = self.adopted(&fd).ok()?;
        if matches!(adopted, Adopted::Refused) || matches!(adopted, Adopted::Process(seen) if seen != pid) {
            return None;
        }
        let handle = PidFd::new(fd, pid);
        let is_same = match self.look(&handle) {
            Looked::Present { start_ticks, inode } => {
                start_ticks == print.start_ticks && (inode == print.inode || print.inode.is_none())
            }
            Looked::Gone => print.inode.is_some() && self.inode(handle.as_fd()).ok()? == print.inode,
            Looked::Unknown => false,
        };
        is_same.then_some(handle)
    }

    fn look_and_keep(&self, handle: PidFd) -> (Looked, Option<PidFd>) {
        let looked = self.look(&handle);
        let keep = matches!(looked, Looked::Present { .. });
        (looked, keep.then_some(handle))
    }

    /// Reads `Pid:` of the descriptor's fdinfo: -1 once the process was reaped, 0 where it lives in a pid
    /// namespace that cannot be seen from here.
    fn adopted(&self, fd: &OwnedFd) -> io::Result<Adopted> {
        let info = fs::read_to_string(self.root.path().join(format!("self/fdinfo/{}", fd.as_raw_fd())))?;
        let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let flags = value("flags:").and_then(|text| u32::from_str_radix(text, 8).ok());
        let Some((flags, pid)) = flags.zip(value("Pid:").and_then(|text| text.parse::<i64>().ok())) else {
            return Ok(Adopted::Refused);
        };
        if flags & PIDFD_THREAD != 0 || !self.root.is_ours() {
            return Ok(Adopted::Refused);
        }
        if pid == -1 {
            return Ok(Adopted::Gone);
        }
        Ok(Pid::new(pid).map_or(Adopted::Refused, Adopted::Process))
    }

    /// Stat first, then the inode, then the proof that the process still lived: so all of it belongs to
    /// the process that the pidfd holds.
    fn read(&self, handle: &PidFd) -> io::Result<Looked> {
        let stat = Stat::read(&self.root, handle.pid.get())?;
        let inode = self.inode(handle.fd.as_fd())?;
        if !self.root.is_ours() {
            return Ok(Looked::Unknown);
        }
        if handle.has_ended()? {
            return Ok(Looked::Gone);
        }
        Ok(Looked::Present { start_ticks: stat.start_ticks, inode })
    }

    fn inode(&self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        if self.without_inodes || rustix::fs::fstatfs(fd)?.f_type != PIDFS_MAGIC {
            return Ok(None);
        }
        Ok(Some(rustix::fs::fstat(fd)?.st_ino))
    }
}

impl Processes for HostProcesses {
    type Handle = PidFd;

    fn open(&self, target: Target) -> (Looked, Option<PidFd>) {
        match target {
            Target::Pid(pid) => self.open_pid(pid),
            Target::Fd(fd) => self.adopt(fd),
        }
    }

    fn look(&self, handle: &PidFd) -> Looked {
        if let Some(seen) = handle.seen.get() {
            // Only whether it still lives can have changed.
            return match handle.has_ended() {
                Ok(false) => *seen,
                Ok(true) => Looked::Gone,
                Err(_) => Looked::Unknown,
            };
        }
        match self.read(handle) {
            Ok(looked) => {
                if matches!(looked, Looked::Present { .. }) {
                    // Two looks at once saw the same.
                    let _ = handle.seen.set(looked);
                }
                looked
            }
            Err(_) => match handle.has_ended() {
                Ok(true) => Looked::Gone,
                Ok(false) | Err(_) => Looked::Unknown,
            },
        }
    }

    fn signal(&self, handle: &PidFd, signal: i32) -> io::Result<()> {
        send(handle.fd.as_fd(), signal)
    }

    fn owner(&self, handle: &PidFd) -> io::Result<Owner> {
        owner::read(&self.root, handle)
    }

    fn carriers(&self, nonce: &Nonce) -> io::Result<Vec<PidFd>> {
        carriers::scan(self, nonce, None)
    }

    fn carriers_since(&self, nonce: &Nonce, start_ticks: u64) -> io::Result<Vec<PidFd>> {
        carriers::scan(self, nonce, Some(start_ticks))
    }
}
