//! The start of one run: `tenured-exec` is made (see `supervisors.rs`), its command waits at the gate, both
//! are looked at.
//!
//! Owns the gate: its one writing end is in this process and in no other, so that a daemon that dies closes
//! it and the command never runs. Blocks; call it where blocking is allowed. Safe from several threads: every
//! descriptor is closed by an exec, and the child is given one only, its end of the socket; the others follow
//! over that.

#![expect(clippy::disallowed_methods, reason = "an adapter: starts processes and makes their files")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::core::fingerprint::Looked;
use crate::core::record::Setup;
use crate::core::retry::Exit;
use crate::core::time::MonoMs;
use crate::linux::deadline::{now, readable_before};
pub use crate::linux::exit_info::exit_of;
use crate::linux::launch_files::{make_record, open_output, seal};
pub use crate::linux::launch_spec::{Credentials, LaunchSpec, OutputTo};
use crate::linux::limits;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::supervisors::{Maker, PROGRAM, Wanted};
use crate::linux::wait::{self, Child, Waited};
use crate::linux::wire::{self, Answer, ResourceLimit};
use crate::ports::{Processes, Target};

/// How long a start may take until its command waits at the gate, milliseconds.
pub const LAUNCH_MS: i64 = 5_000;
/// How long an abandoned start may take to end by itself before it is killed, milliseconds.
const ABANDON_MS: i64 = 1_000;
/// Where packages put it.
const LIBEXEC: &str = "/usr/libexec/tenured/tenured-exec";
/// Where the journal takes streams. Source: systemd-journald.service(8).
const JOURNAL: &str = "/run/systemd/journal/stdout";

/// Makes runs: with the program `tenured-exec`, found once and held, so that an upgrade of the package
/// changes nothing under a running daemon; or by way of the launcher.
#[derive(Debug)]
pub struct Launcher {
    host: HostProcesses,
    maker: Maker,
    limits: Vec<ResourceLimit>,
    journal: PathBuf,
}

impl Launcher {
    /// Finds `tenured-exec`: beside the running program, else in /usr/libexec/tenured, else the running
    /// program itself under that name. A `tenurectl` that runs as the daemon is always its own: what lies
    /// beside it may be of another build. Call it before the daemon changes its own limits: the commands get
    /// those that hold now.
    ///
    /// # Errors
    /// Where the running program or its limits cannot be read.
    pub fn find(host: HostProcesses) -> io::Result<Self> {
        const ITSELF: &str = "/proc/self/exe";
        let running = fs::read_link(ITSELF)?;
        if running.file_name().is_some_and(|name| name == "tenurectl") {
            return Self::with_program(host, Path::new(ITSELF));
        }
        let beside = running.parent().map(|directory| directory.join(PROGRAM));
        let found = beside
            .into_iter()
            .chain([PathBuf::from(LIBEXEC)])
            .find(|path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0));
        Self::with_program(host, found.as_deref().unwrap_or(Path::new(ITSELF)))
    }

    /// With a certain program.
    ///
    /// # Errors
    /// Where it cannot be opened, or the own limits cannot be read.
    pub fn with_program(host: HostProcesses, program: &Path) -> io::Result<Self> {
        let program = rustix::fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let maker = Maker::Here(program);
        Ok(Self { host, maker, limits: limits::own()?, journal: PathBuf::from(JOURNAL) })
    }

    /// By way of the launcher that listens at a socket. Commands get that one's limits, not ours.
    ///
    /// # Errors
    /// Where no socket can have such a path.
    pub fn asking(host: HostProcesses, socket: PathBuf) -> io::Result<Self> {
        rustix::net::SocketAddrUnix::new(&socket)?;
        Ok(Self { host, maker: Maker::Asked(socket), limits: Vec::new(), journal: PathBuf::from(JOURNAL) })
    }

    /// With another journal, for tests.
    #[must_use]
    pub fn with_journal(mut self, socket: PathBuf) -> Self {
        self.journal = socket;
        self
    }

    /// The processes it looks at.
    pub const fn host(&self) -> &HostProcesses {
        &self.host
    }
}

/// A held process, and what was seen through its pidfd.
#[derive(Debug)]
pub struct Member {
    /// The pidfd.
    pub handle: PidFd,
    /// [`Looked::Present`], with start and inode.
    pub looked: Looked,
}

/// A run whose command waits at its gate. Dropping it closes the gate: the command never runs.
#[derive(Debug)]
pub struct Launched {
    /// What becomes the command: exec changes neither its pid nor its start.
    pub command: Member,
    /// Its parent, our child or the launcher's: [`reap`] it once its pidfd is readable.
    pub supervisor: Member,
    /// What holds the command back.
    pub gate: Gate,
}

impl Launched {
    /// Closes the gate, and waits until nothing is left but a record that says so.
    ///
    /// # Errors
    /// Where the supervisor cannot be seen or does not end.
    pub fn abandon(self, host: &HostProcesses) -> io::Result<()> {
        drop(self.gate);
        end_supervisor(host, &self.supervisor.handle)
    }
}

/// The gate of one run.
#[derive(Debug)]
pub struct Gate {
    socket: OwnedFd,
}

impl Gate {
    /// Opens it with one byte. The identity of the worker must be durable before.
    ///
    /// # Errors
    /// Where the command and its supervisor have ended: then it never ran.
    pub fn open(self) -> io::Result<()> {
        wire::send(&self.socket, &wire::GO, &[])
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Why a run was not started. Nothing of it is left, and the command never ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The task's own matter: its directory, its input, its user. The record says it too.
    #[error("the command could not be set up ({})", step.word())]
    Setup {
        /// Which step.
        step: Setup,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The task's own matter: its directory or its input does not answer. There is no record.
    #[error("the command's side did not come to its gate within {} s; does its working directory or its standard input answer?", LAUNCH_MS / 1_000)]
    Hung,
    /// The host's matter. There is no record.
    #[error("the host failed while {doing}")]
    Host {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

pub(super) fn host_fault<E: Into<io::Error>>(doing: &str) -> impl FnOnce(E) -> LaunchError {
    move |error| LaunchError::Host { doing: doing.to_owned(), source: error.into() }
}

/// A supervisor that waits for its first word, with all that it will be handed. Dropping it ends the
/// supervisor, and there was no command.
#[derive(Debug)]
pub struct Begun {
    supervisor: Member,
    socket: OwnedFd,
    sealed: OwnedFd,
    record: File,
    record_path: PathBuf,
    output: Option<(OwnedFd, File)>,
}

/// Starts a run up to its gate.
///
/// # Errors
/// [`LaunchError`]; the gate is closed then, and what was made has been ended and reaped.
pub fn launch(launcher: &Launcher, spec: &LaunchSpec) -> Result<Launched, LaunchError> {
    begin(launcher, spec)?.bring_to_gate(&launcher.host)
}

/// Starts the supervisor of a run and nothing else; within [`LAUNCH_MS`]. Wherever it is put now, the command
/// will be too.
///
/// # Errors
/// [`LaunchError::Host`]; nothing is left then.
pub fn begin(launcher: &Launcher, spec: &LaunchSpec) -> Result<Begun, LaunchError> {
    let record = make_record(&spec.record).map_err(host_fault("making the exit record"))?;
    let begun = begin_with(launcher, spec, record);
    if begun.is_err() {
        // It says nothing, and nobody will look for it.
        let _ = fs::remove_file(&spec.record);
    }
    begun
}

fn begin_with(launcher: &Launcher, spec: &LaunchSpec, record: File) -> Result<Begun, LaunchError> {
    let deadline = now().plus(LAUNCH_MS);
    let sealed = seal(spec, &launcher.limits, &launcher.journal).map_err(host_fault("sealing the spec"))?;
    let output = open_output(&spec.output).map_err(host_fault("opening the output file"))?;
    let wanted = Wanted { run: spec.run, nonce: &spec.nonce, sealed: sealed.as_fd() };
    let (supervisor, socket) = launcher.maker.make(&launcher.host, &wanted, deadline)?;
    Ok(Begun { supervisor, socket, sealed, record, record_path: spec.record.clone(), output })
}

impl Begun {
    /// The supervisor.
    pub const fn supervisor(&self) -> &Member {
        &self.supervisor
    }

    /// Lets the supervisor make the command, up to its gate; within [`LAUNCH_MS`].
    ///
    /// # Errors
    /// [`LaunchError`]; the gate is closed then, and what was made has been ended and reaped.
    pub fn bring_to_gate(self, host: &HostProcesses) -> Result<Launched, LaunchError> {
        let deadline = now().plus(LAUNCH_MS);
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.sealed.as_fd(), self.record.as_fd()];
        if let Some((directory, file)) = &self.output {
            fds.extend([directory.as_fd(), file.as_fd()]);
        }
        let command = wire::send(&self.socket, wire::HELLO, &fds)
            .map_err(host_fault("talking to tenured-exec"))
            .and_then(|()| hear_answer(host, &self.socket, deadline));
        match command {
            Ok(command) => {
                Ok(Launched { command, supervisor: self.supervisor, gate: Gate { socket: self.socket } })
            }
            Err(failed) => {
                let says_nothing = matches!(failed, LaunchError::Host { .. } | LaunchError::Hung);
                // If it does not end it stays, with a gate that is closed for good.
                let _ = self.end(host, says_nothing);
                Err(failed)
            }
        }
    }

    /// Gives the start up, and waits until nothing is left of it.
    ///
    /// # Errors
    /// Where the supervisor cannot be seen or does not end.
    pub fn abandon(self, host: &HostProcesses) -> io::Result<()> {
        self.end(host, true)
    }

    fn end(self, host: &HostProcesses, says_nothing: bool) -> io::Result<()> {
        drop(self.socket);
        let ended = end_supervisor(host, &self.supervisor.handle);
        if says_nothing {
            // Nobody will look for it.
            let _ = fs::remove_file(&self.record_path);
        }
        ended
    }
}

/// What the supervisor answers: the command's pidfd, or why there is none.
fn hear_answer(host: &HostProcesses, socket: &OwnedFd, deadline: MonoMs) -> Result<Member, LaunchError> {
    let waiting = "waiting for the command at its gate";
    let mut has_begun = false;
    loop {
        if !readable_before(socket.as_fd(), deadline).map_err(host_fault(waiting))? {
            let late = host_fault(waiting)(io::Error::from(io::ErrorKind::TimedOut));
            return Err(if has_begun { LaunchError::Hung } else { late });
        }
        let (bytes, fds) = wire::receive(socket).map_err(host_fault(waiting))?;
        return match Answer::parse(&bytes) {
            Some(Answer::Begun) => {
                has_begun = true;
                continue;
            }
            Some(Answer::Ready) => {
                let gone =
                    || host_fault(waiting)(io::Error::other("the command's process could not be seen"));
                let (looked, handle) = host.open(Target::Fd(fds.into_iter().next().ok_or_else(gone)?));
                Ok(Member { handle: handle.ok_or_else(gone)?, looked })
            }
            Some(Answer::SetupFailed { step, errno }) => {
                let source = io::Error::from_raw_os_error(errno);
                Err(if is_the_hosts(step, errno) {
                    host_fault(&format!("setting up the command ({})", step.word()))(source)
                } else {
                    LaunchError::Setup { step, source }
                })
            }
            Some(Answer::Fault { errno: 0, doing }) => {
                Err(host_fault(&doing)(io::Error::other("tenured-exec gave up")))
            }
            Some(Answer::Fault { errno, doing }) => {
                Err(host_fault(&doing)(io::Error::from_raw_os_error(errno)))
            }
            None => Err(host_fault(waiting)(io::Error::other("tenured-exec ended without a word"))),
        };
    }
}

/// Whether a step failed for want of something that the host gives to all: its output goes where the daemon
/// says, to a journal that may be away for a moment.
const fn is_the_hosts(step: Setup, errno: i32) -> bool {
    use nix::libc::{EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    matches!(step, Setup::Output) || matches!(errno, EAGAIN | EMFILE | ENFILE | ENOBUFS | ENOMEM)
}

/// Waits for a supervisor whose gate is closed, kills it if it does not end, and takes its end.
fn end_supervisor(host: &HostProcesses, supervisor: &PidFd) -> io::Result<()> {
    for kill in [false, true] {
        if kill {
            host.signal(supervisor, nix::libc::SIGKILL)?;
        }
        let deadline = now().plus(ABANDON_MS);
        if readable_before(supervisor.as_fd(), deadline)? {
            reap(supervisor)?;
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// What is known of a child that was asked for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It ended so.
    Ended(Exit),
    /// It has not ended.
    Running,
    /// It is no child of ours: the launcher or an earlier life of the daemon made it, or its end was taken
    /// already.
    NotOurs,
}

/// Takes the end of a supervisor that is our own child, by its pidfd alone; does not wait.
///
/// # Errors
/// What waitid(2) said.
pub fn reap(supervisor: &PidFd) -> io::Result<Reaped> {
    Ok(match wait::take(Child::PidFd(supervisor.as_fd()))? {
        Waited::Ended(exit) => Reaped::Ended(exit),
        Waited::Running => Reaped::Running,
        Waited::NoChild => Reaped::NotOurs,
    })
}

/// Asks a supervisor to end its tree: TERM and CONT to every descendant, or (`hard`) KILL until none is
/// left. The supervisor must be proven; it lives on until it has written the record.
///
/// # Errors
/// What pidfd_send_signal(2) said.
pub fn end_tree(host: &HostProcesses, supervisor: &PidFd, hard: bool) -> io::Result<()> {
    let signal = if hard { nix::libc::SIGUSR2 } else { nix::libc::SIGUSR1 };
    host.signal(supervisor, signal)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn who_is_late_says_whose_matter_it_is() {
        let pair = || {
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        };
        let host = HostProcesses::default();
        let (ours, theirs) = pair().unwrap();
        let at_once = now();
        let heard = hear_answer(&host, &ours, at_once);
        assert!(matches!(heard, Err(LaunchError::Host { .. })), "no supervisor answers: {heard:?}");
        wire::send(&theirs, &Answer::Begun.to_bytes(), &[]).unwrap();
        let heard = hear_answer(&host, &ours, at_once);
        assert!(matches!(heard, Err(LaunchError::Hung)), "the supervisor is there: {heard:?}");
    }
}
