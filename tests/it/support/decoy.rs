//! Processes that tell which signals they got.
//!
//! A child of the test, made without exec, that blocks every signal and takes them one by one with
//! sigwaitinfo(2), so nothing that is sent can be missed; each is written to a pipe. KILL cannot be
//! blocked: it shows as the end.

#![expect(unsafe_code, reason = "a fork without exec, and the system calls that are safe after one")]

use std::io::Read;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::wait::eventually;

/// SIGRTMAX: sent by the tests alone.
const MARK: i32 = 64;

/// What a decoy does on TERM. Anything else it only records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records it and goes on.
    Stubborn,
    /// Records it and exits 0.
    Obedient,
}

/// What a decoy is like before it begins to wait.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    pub kind: Kind,
    /// The number to have; it must be free, and the test must be root.
    pub pid: Option<u32>,
    /// Its name, at most 15 bytes.
    pub name: Option<&'a [u8]>,
    /// The user to run as.
    pub uid: Option<u32>,
    /// Whether its first thread ends and another one goes on, as /proc shows by `Z`.
    pub leaderless: bool,
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self { kind: Kind::Stubborn, pid: None, name: None, uid: None, leaderless: false }
    }
}

/// A child of the test; ends with its value.
pub struct Decoy {
    pub pid: u32,
    reports: std::fs::File,
    seen: Vec<i32>,
    ended: Option<WaitStatus>,
}

impl Decoy {
    pub fn start(kind: Kind) -> Self {
        Self::shaped(Shape { kind, ..Shape::default() }).expect("a process")
    }

    /// # Errors
    /// What clone3(2) said: EPERM where this user may not choose a number, EEXIST where it is taken.
    pub fn shaped(shape: Shape<'_>) -> std::io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK)?;
        let pid = clone_child(shape.pid)?;
        if pid == 0 {
            be(shape, writer.as_raw_fd());
        }
        drop(writer);
        let reports = std::fs::File::from(reader);
        let mut decoy = Self { pid, reports, seen: Vec::new(), ended: None };
        eventually("the decoy to block its signals", || {
            decoy.read();
            decoy.seen.first().map(|_| ()).ok_or_else(|| "nothing yet".to_owned())
        });
        decoy.seen.clear();
        Ok(decoy)
    }

    fn read(&mut self) {
        let mut report = [0_u8; 4];
        while let Ok(4) = self.reports.read(&mut report) {
            self.seen.push(i32::from_ne_bytes(report));
        }
    }

    /// The signals it got, in order; KILL last if that ended it. Whatever was sent before this call is
    /// among them: a mark is sent after it, of the highest number, which is taken last.
    pub fn received(&mut self) -> Vec<i32> {
        if self.lives() {
            send_mark(self.pid);
            eventually("the decoy to take the mark", || {
                self.read();
                let passed = self.seen.contains(&MARK) || !self.lives();
                if passed { Ok(()) } else { Err(format!("it got {:?}", self.seen)) }
            });
        }
        self.read();
        self.seen.retain(|signal| *signal != MARK);
        let mut all = self.seen.clone();
        if let Some(WaitStatus::Signaled(_, signal, _)) = self.poll() {
            all.push(signal as i32);
        }
        all
    }

    /// Whether it lives.
    pub fn lives(&mut self) -> bool {
        self.poll().is_none()
    }

    /// Waits until it has ended, and reaps it.
    pub fn wait(&mut self) {
        eventually("the decoy to end", || {
            if self.lives() { Err(format!("it got {:?}", self.seen)) } else { Ok(()) }
        });
    }

    /// Ends it as a stranger would, and reaps it.
    pub fn end(&mut self) {
        if self.lives() {
            super::kernel::signal(self.pid, rustix::process::Signal::KILL);
            self.ended = Some(waitid(self.id(), WaitPidFlag::WEXITED).unwrap());
        }
    }

    /// Ends it and leaves it unreaped: a zombie.
    pub fn end_unreaped(&mut self) {
        super::kernel::signal(self.pid, rustix::process::Signal::KILL);
        eventually("the decoy to become a zombie", || {
            let state = super::kernel::stat_field(self.pid, 3);
            (state == "Z").then_some(()).ok_or(state)
        });
    }

    fn id(&self) -> Id<'_> {
        Id::Pid(Pid::from_raw(i32::try_from(self.pid).unwrap()))
    }

    fn poll(&mut self) -> Option<WaitStatus> {
        if self.ended.is_none() {
            match waitid(self.id(), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).unwrap() {
                WaitStatus::StillAlive => {}
                status => self.ended = Some(status),
            }
        }
        self.ended
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        self.end();
    }
}

/// fork(2), with a chosen number if one is given. 0 in the child.
fn clone_child(pid: Option<u32>) -> std::io::Result<u32> {
    let wanted = pid.map(|pid| i32::try_from(pid).unwrap());
    // SAFETY: all zero is a valid value of this plain struct.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.exit_signal = libc::SIGCHLD as u64;
    if let Some(wanted) = &wanted {
        how.set_tid = std::ptr::from_ref(wanted) as u64;
        how.set_tid_size = 1;
    }
    // SAFETY: the struct and what it points to live through the call; the child shares no memory with us
    // and makes async-signal-safe system calls only.
    let number = unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>()) };
    u32::try_from(number).map_err(|_| std::io::Error::last_os_error())
}

/// It may find that the process has ended.
fn send_mark(pid: u32) {
    let pidfd = super::kernel::pidfd(pid);
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a system call on a descriptor that lives through it, without any memory of ours.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), MARK, nothing, 0) };
}

/// What the child is. Nothing here may allocate or take a lock: another thread may have held it.
fn be(shape: Shape<'_>, report_to: i32) -> ! {
    static mut STACK: [u8; 65_536] = [0; 65_536];
    // SAFETY: system calls on our own descriptors and memory that only this child has.
    unsafe {
        libc::dup2(report_to, 3);
        libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0);
        if let Some(uid) = shape.uid {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>());
            libc::syscall(libc::SYS_setresgid, uid, uid, uid);
            libc::syscall(libc::SYS_setresuid, uid, uid, uid);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(name) = shape.name {
            let mut terminated = [0_u8; 16];
            let length = name.len().min(15);
            terminated[..length].copy_from_slice(&name[..length]);
            libc::prctl(libc::PR_SET_NAME, terminated.as_ptr());
        }
        let mut everything: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut everything);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const everything, std::ptr::null_mut());
        if shape.leaderless {
            let top = (&raw mut STACK).cast::<u8>().add(65_536).cast();
            let flags = libc::CLONE_VM
                | libc::CLONE_FS
                | libc::CLONE_FILES
                | libc::CLONE_SIGHAND
                | libc::CLONE_THREAD
                | libc::CLONE_SYSVSEM;
            libc::clone(second_thread, top, flags, std::ptr::null_mut());
            libc::syscall(libc::SYS_exit, 0);
        }
        record(shape.kind)
    }
}

extern "C" fn second_thread(_: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as for the caller; the signals are blocked already.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        record(Kind::Stubborn)
    }
}

/// Takes signals and reports them, for ever.
unsafe fn record(kind: Kind) -> ! {
    // SAFETY: system calls on descriptor 3 and on the stack.
    unsafe {
        let mut everything: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut everything);
        let mut number: libc::c_int = 0;
        loop {
            // A stop and its end interrupt the wait without a signal to take.
            if number >= 0 {
                libc::write(3, (&raw const number).cast(), 4);
            }
            number = libc::sigwaitinfo(&raw const everything, std::ptr::null_mut());
            if number == libc::SIGTERM && kind == Kind::Obedient {
                libc::write(3, (&raw const number).cast(), 4);
                libc::syscall(libc::SYS_exit_group, 0);
            }
        }
    }
}
