//! Processes that tell which signals they got and from whom.
//!
//! A fork of the test that blocks every signal and takes them one by one with sigwaitinfo(2), so nothing
//! that is sent can be missed; each is written to a pipe. KILL cannot be blocked: it shows as the end.

#![expect(unsafe_code, reason = "a fork without exec, and the system calls that are safe after one")]

use std::io::Read;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{ForkResult, Pid, fork};

use super::wait::eventually;

/// What a decoy does on TERM. Anything else it only records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records it and goes on.
    Stubborn,
    /// Records it and exits 0.
    Obedient,
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
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&reader, flags).unwrap();
        // SAFETY: the child makes async-signal-safe system calls only, and never returns.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => be(kind, writer.as_raw_fd()),
            ForkResult::Parent { child } => {
                let mut decoy = Self {
                    pid: child.as_raw().unsigned_abs(),
                    reports: std::fs::File::from(reader),
                    seen: Vec::new(),
                    ended: None,
                };
                drop(writer);
                eventually("the decoy to block its signals", || {
                    decoy.read();
                    decoy.seen.first().map(|_| ()).ok_or_else(|| "nothing yet".to_owned())
                });
                decoy.seen.clear();
                decoy
            }
        }
    }

    fn read(&mut self) {
        let mut report = [0_u8; 4];
        while let Ok(4) = self.reports.read(&mut report) {
            self.seen.push(i32::from_ne_bytes(report));
        }
    }

    /// The signals it got, in order; KILL last if that ended it.
    pub fn received(&mut self) -> Vec<i32> {
        self.read();
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

    /// Ends it as a stranger would, and reaps it.
    pub fn end(&mut self) {
        if self.lives() {
            super::kernel::signal(self.pid, rustix::process::Signal::KILL);
            let pid = Pid::from_raw(i32::try_from(self.pid).unwrap());
            self.ended = Some(waitid(Id::Pid(pid), WaitPidFlag::WEXITED).unwrap());
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

    fn poll(&mut self) -> Option<WaitStatus> {
        if self.ended.is_none() {
            let pid = Pid::from_raw(i32::try_from(self.pid).unwrap());
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
            match waitid(Id::Pid(pid), flags).unwrap() {
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

/// What the child is. Nothing here may allocate or take a lock: another thread may have held it.
fn be(kind: Kind, report_to: i32) -> ! {
    // SAFETY: system calls on our own descriptors, and statics of libc that are plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::dup2(report_to, 3);
        libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0);
        let mut everything = std::mem::zeroed();
        libc::sigfillset(&raw mut everything);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const everything, std::ptr::null_mut());
        let mut number: libc::c_int = 0;
        loop {
            libc::write(3, (&raw const number).cast(), 4);
            number = libc::sigwaitinfo(&raw const everything, std::ptr::null_mut());
            if number == libc::SIGTERM && kind == Kind::Obedient {
                libc::write(3, (&raw const number).cast(), 4);
                libc::_exit(0);
            }
        }
    }
}
