//! The supervisor: parent of the command, subreaper of everything below it, writer of the record.
//!
//! Keeps the ids it was started with. As root it cannot be looked into, so that the task's user can neither
//! trace it nor forge the record. Takes two orders, as signals of the daemon through its proven pidfd: USR1
//! asks every descendant to end, USR2 kills until none is left. TERM of the service manager, which goes to the
//! whole scope when the host goes down, is noted in the record and otherwise ignored.

#![expect(unsafe_code, reason = "fork and signal dispositions have no safe calls")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::core::ids::{Nonce, RunId};
use crate::core::record::{End, Setup};
use crate::core::retry::Exit;
use crate::exec::NO_END;
use crate::exec::alike::{exit_alike, shell_code};
use crate::exec::command::{Side, become_command};
use crate::exec::descriptors;
use crate::exec::output::{Flow, Pump};
use crate::exec::record::{Ending, OomKills};
use crate::exec::status::{Word, hear};
use crate::exec::tree::Tree;
use crate::linux::clock::HostClock;
use crate::linux::pidfd;
use crate::linux::wait::{self, Child, Waited};
use crate::linux::wire::{self, Answer};
use crate::ports::Clock;

/// Between two walks of a kill that has not ended the tree yet.
const KILL_AGAIN_MS: i64 = 1;
/// The longest time between two walks: what is left then waits for the kernel.
const KILL_AGAIN_MAX_MS: i64 = 500;

/// The system's service manager, in its and our pid namespace.
const MANAGER_PID: u32 = 1;

/// What failed, and why.
type Fault = (&'static str, io::Error);

fn doing<T, E: Into<io::Error>>(what: &'static str, done: Result<T, E>) -> Result<T, Fault> {
    done.map_err(|error| (what, error.into()))
}

/// What the daemon's hello brings.
struct Hello {
    spec: File,
    record: File,
    output: Option<(OwnedFd, File)>,
}

/// Everything about one run.
struct Supervisor {
    record: File,
    signals: SignalFd,
    /// Words of the command's side, until the exec closes it.
    status: Option<OwnedFd>,
    output: Option<Pump>,
    command_pid: i32,
    tree: Tree,
    ending: Ending,
    said: Said,
    /// Time to the next walk of a kill, where one is under way.
    killing_ms: Option<i64>,
}

/// What the command's side has said.
#[derive(Default)]
struct Said {
    gate_passed: bool,
    setup_failed: Option<(Setup, i32)>,
    exec_failed: Option<i32>,
}

/// Supervises one run from hello to record.
pub(super) fn run() -> io::Result<u8> {
    // Whoever started the daemon may have left it descriptors that an exec does not close.
    descriptors::close_all_but(&mut [])?;
    // It was started through a descriptor, and would be called by its number.
    rustix::thread::set_name(c"tenured-exec")?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    nix::unistd::dup2_stdin(&null)?;
    drop(null);
    let Some(hello) = hear_hello(&socket)? else {
        return Ok(NO_END);
    };
    let started = start(hello, &socket);
    let mut supervisor = match started {
        Ok(supervisor) => supervisor,
        Err((doing, error)) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let fault = Answer::Fault { errno, doing: doing.to_owned() };
            wire::send(&socket, &fault.to_bytes(), &[])?;
            return Err(error);
        }
    };
    supervisor.answer(socket)?;
    let end = supervisor.watch()?;
    Ok(exit_alike(end))
}

/// The first packet. None where the daemon has ended before it.
fn hear_hello(socket: &OwnedFd) -> io::Result<Option<Hello>> {
    let (bytes, fds) = wire::receive(socket)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut fds = fds.into_iter();
    let (Some(spec), Some(record)) = (fds.next(), fds.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a hello without descriptors"));
    };
    if bytes != wire::HELLO {
        let fault = Answer::Fault { errno: 0, doing: "understanding a daemon of another version".to_owned() };
        wire::send(socket, &fault.to_bytes(), &[])?;
        return Ok(None);
    }
    let output = fds.next().zip(fds.next()).map(|(directory, file)| (directory, File::from(file)));
    Ok(Some(Hello { spec: File::from(spec), record: File::from(record), output }))
}

/// Becomes a supervisor, and makes the command's side.
fn start(hello: Hello, socket: &OwnedFd) -> Result<Supervisor, Fault> {
    let Hello { spec, record, output } = hello;
    let asked = doing("reading the spec", wire::read_supervisor(&spec))?;
    let nonce =
        Nonce::parse(&asked.nonce).ok_or_else(|| ("reading the nonce", io::ErrorKind::InvalidData.into()))?;
    let signals = doing("becoming a supervisor", set_up())?;
    let tree = doing("looking at /proc", Tree::below_us())?;
    let (status, status_of_command) = doing("making a pipe", rustix::pipe::pipe_with(PipeFlags::CLOEXEC))?;
    let (pump, output_of_command) = match output.zip(asked.output_file) {
        Some(((directory, file), (name, cap_bytes))) => {
            let (out, into) = doing("making a pipe", rustix::pipe::pipe_with(PipeFlags::CLOEXEC))?;
            doing("making a pipe", rustix::fs::fcntl_setfl(&out, OFlags::NONBLOCK))?;
            let pump = doing("opening the output", Pump::new(out, directory, name, file, cap_bytes))?;
            (Some(pump), Some(into))
        }
        None => (None, None),
    };
    let gate = doing("keeping the gate", socket.try_clone())?;
    let supervisor_pid = std::process::id();
    // SAFETY: this process has one thread, so the child may do what any process may.
    let forked = doing("making the command's process", unsafe { fork() })?;
    let command_pid = match forked {
        ForkResult::Child => become_command(Side {
            spec,
            gate,
            status: status_of_command,
            output: output_of_command,
            supervisor_pid,
        }),
        ForkResult::Parent { child } => child.as_raw(),
    };
    Ok(Supervisor {
        record,
        signals,
        status: Some(status),
        output: pump,
        command_pid,
        tree,
        ending: Ending {
            run: RunId::new(asked.run),
            nonce,
            oom_before: None,
            end: None,
            asked_by: None,
            manager_asked: false,
        },
        said: Said::default(),
        killing_ms: None,
    })
}

/// Own session, no hold on any directory, parent of all orphans below, deaf to what is meant for others.
fn set_up() -> io::Result<SignalFd> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::from_raw_mode(0o027));
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    if nix::unistd::Uid::effective().is_root() {
        // Under a user's own daemon there is nothing to keep from that user, and the daemon could not read
        // the environment of this process any more, by which it finds what is left of a run.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    wait::keep_ends();
    SigSet::all().thread_set_mask()?;
    let mut heard = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM] {
        heard.add(signal);
    }
    Ok(SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

impl Supervisor {
    /// Waits until the command's side stands at its gate or has failed, and tells the daemon. A daemon that
    /// has ended meanwhile has closed the gate, and the record will say so.
    fn answer(&mut self, socket: OwnedFd) -> io::Result<()> {
        // What may take long from here on is the task's own: its directory, its input.
        let _ = wire::send(&socket, &Answer::Begun.to_bytes(), &[]);
        let word = match &self.status {
            Some(status) => hear(status)?,
            None => None,
        };
        let command = pidfd::open_own_child(self.command_pid)?;
        let _ = match word {
            Some(Word::Ready) => wire::send(&socket, &Answer::Ready.to_bytes(), &[command.as_fd()]),
            Some(Word::SetupFailed(step, errno)) => {
                self.said.setup_failed = Some((step, errno));
                wire::send(&socket, &Answer::SetupFailed { step, errno }.to_bytes(), &[])
            }
            Some(Word::GatePassed | Word::ExecFailed(_)) | None => {
                let fault = Answer::Fault { errno: 0, doing: "waiting for the command's side".to_owned() };
                wire::send(&socket, &fault.to_bytes(), &[])
            }
        };
        if let Some(status) = &self.status {
            rustix::fs::fcntl_setfl(status, OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    /// Until nothing of the tree is left and the record is on the disk.
    fn watch(&mut self) -> io::Result<End> {
        while self.reap()? {
            self.wait()?;
            self.hear_orders()?;
            self.hear_status()?;
            if let Some(pump) = &mut self.output
                && pump.turn()? == Flow::Closed
            {
                self.output = None;
            }
            if let Some(wait_ms) = self.killing_ms {
                self.tree.end();
                self.killing_ms = Some((wait_ms * 2).min(KILL_AGAIN_MAX_MS));
            }
        }
        if let Some(pump) = &mut self.output {
            pump.drain()?;
        }
        let (end, at) = self.ending.end.unwrap_or_else(|| (End::GateClosed, HostClock::default().now()));
        self.ending.write(&self.record, end, at)?;
        Ok(end)
    }

    /// Takes the ends of the command and of adopted orphans; says whether a child is left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            let pid = match wait::find_ended()? {
                Waited::Ended(pid) => pid,
                Waited::Running => return Ok(true),
                Waited::NoChild => return Ok(false),
            };
            if let Waited::Ended(exit) = wait::take(Child::Pid(pid))?
                && pid == self.command_pid
                && self.ending.end.is_none()
            {
                self.command_ended(exit)?;
            }
        }
    }

    fn command_ended(&mut self, exit: Exit) -> io::Result<()> {
        self.hear_status()?;
        // What the command was told before it ended was told to us before that.
        self.hear_orders()?;
        self.status = None;
        let end = match (self.said.setup_failed, self.said.exec_failed) {
            (Some((step, errno)), _) => End::SetupFailed { step, errno },
            (None, Some(errno)) => End::ExecFailed { errno, code: shell_code(errno) },
            (None, None) if self.said.gate_passed => End::Exited(exit),
            (None, None) => End::GateClosed,
        };
        self.ending.end = Some((end, HostClock::default().now()));
        Ok(())
    }

    /// Waits for a signal, a word, output, or the next walk of a kill.
    fn wait(&self) -> io::Result<()> {
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        polled.extend(self.status.iter().map(|status| PollFd::new(status, PollFlags::IN)));
        polled.extend(self.output.iter().map(|output| PollFd::new(output, PollFlags::IN)));
        let limit = self.killing_ms.map(|ms| Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 });
        rustix::io::retry_on_intr(|| poll(&mut polled, limit.as_ref()))?;
        Ok(())
    }

    fn hear_orders(&mut self) -> io::Result<()> {
        while let Some(order) = self.signals.read_signal()? {
            let signal = i32::try_from(order.ssi_signo).unwrap_or(0);
            // Only kill(2) and its kin tell the sender's number for sure.
            if signal == libc::SIGTERM && order.ssi_pid == MANAGER_PID && order.ssi_code == libc::SI_USER {
                self.ending.manager_asked |= self.ending.end.is_none();
            }
            if !matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
                continue;
            }
            if self.ending.end.is_none() {
                self.ending.asked_by = i32::try_from(order.ssi_pid).ok().filter(|pid| *pid > 0);
            }
            if signal == libc::SIGUSR1 {
                self.tree.ask();
            } else {
                self.killing_ms = Some(KILL_AGAIN_MS);
            }
        }
        Ok(())
    }

    fn hear_status(&mut self) -> io::Result<()> {
        while let Some(status) = &self.status {
            match hear(status) {
                Ok(Some(Word::GatePassed)) => {
                    self.said.gate_passed = true;
                    self.ending.oom_before = OomKills::read();
                }
                Ok(Some(Word::ExecFailed(errno))) => self.said.exec_failed = Some(errno),
                Ok(Some(Word::SetupFailed(step, errno))) => self.said.setup_failed = Some((step, errno)),
                Ok(Some(Word::Ready)) => {}
                Ok(None) => self.status = None,
                Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}
