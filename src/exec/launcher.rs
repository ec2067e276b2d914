//! The launcher, `tenured-exec --launcher`: makes supervisors for a daemon whose own children would inherit
//! its sandbox.
//!
//! Root, alone on a socket that only root may open, one thread, no state: what it has made it does not know
//! any more, and whatever becomes of it, supervisors and their commands go on. It takes one packet a
//! connection, with the supervisor's end of a gate and a sealed spec, and answers with the supervisor's pidfd.
//! It never opens a gate and never sees a command. Whoever may talk to it may run anything as root: that is
//! the daemon, and the threat model says so.
//!
//! Must never wait for a client, nor touch a child but to take its end.
//!
//! Source: sd_listen_fds(3), unix(7) SO_PEERCRED and SCM_RIGHTS.

#![expect(unsafe_code, reason = "the listening socket is passed by number")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::core::ids::{Nonce, RunId};
use crate::core::time::MonoMs;
use crate::exec::descriptors;
use crate::linux::deadline::{left, now};
use crate::linux::wait::{self, Child, Waited};
use crate::linux::wire::{self, Answer};
use crate::linux::{pidfd, supervisors};

/// Connections at once; more wait in the socket's queue. A daemon starts a handful of runs at a time.
const CONNECTIONS: usize = 64;
/// How long a connection may be without its packet, milliseconds. Less than a daemon waits for an answer, so
/// that idle ones that take all the places do not fail a start.
const PACKET_MS: i64 = 2_000;
/// How long nobody is let in after that has failed, milliseconds: without a free descriptor the socket stays
/// readable, and the loop must not spin.
const REST_MS: i64 = 100;

/// What failed, and why.
type Fault = (&'static str, io::Error);

fn doing<T, E: Into<io::Error>>(what: &'static str, done: Result<T, E>) -> Result<T, Fault> {
    done.map_err(|error| (what, error.into()))
}

/// Serves until it is told to end.
pub(super) fn run() -> io::Result<u8> {
    let listener = listener()?;
    descriptors::close_all_but(&mut [listener.as_raw_fd()])?;
    rustix::thread::set_name(c"tenured-exec")?;
    Launcher::new(listener)?.serve()?;
    Ok(0)
}

/// The socket that the service manager listens at for us.
fn listener() -> io::Result<OwnedFd> {
    let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let mut passed = sd_notify::listen_fds()?;
    let (Some(number), None) = (passed.next(), passed.next()) else {
        return invalid("the launcher is started by tenured-launcher.socket, with one socket");
    };
    // SAFETY: it was passed to this process, which has opened nothing so far.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    if !is_packet_socket(socket.as_fd())? || !sockopt::socket_acceptconn(&socket)? {
        return invalid("the launcher's socket is none that listens for sequential packets");
    }
    let flags = rustix::fs::fcntl_getfl(&socket)?;
    rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
    Ok(socket)
}

fn is_packet_socket(socket: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let unix = sockopt::socket_domain(socket)? == AddressFamily::UNIX;
    Ok(unix && sockopt::socket_type(socket)? == SocketType::SEQPACKET)
}

/// Somebody who has connected and may ask.
struct Asker {
    socket: OwnedFd,
    until: MonoMs,
}

struct Launcher {
    listener: OwnedFd,
    signals: SignalFd,
    /// This very program, whatever is installed meanwhile.
    program: OwnedFd,
    askers: Vec<Asker>,
    /// Nobody is let in before.
    rests_until: Option<MonoMs>,
}

impl Launcher {
    fn new(listener: OwnedFd) -> io::Result<Self> {
        let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mut heard = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
            heard.add(signal);
        }
        wait::keep_ends();
        // What it starts gets an empty mask: see `std::process::Command`.
        heard.thread_block()?;
        let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { listener, signals, program, askers: Vec::new(), rests_until: None })
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.signal && self.hear_signals()? {
                return Ok(());
            }
            for at in ready.askers.into_iter().rev() {
                let asker = self.askers.swap_remove(at);
                if let Some(asker) = self.serve_one(asker) {
                    self.askers.push(asker);
                }
            }
            if ready.listener {
                self.let_in();
            }
            let now = now();
            self.askers.retain(|asker| asker.until > now);
            self.rests_until = self.rests_until.filter(|until| *until > now);
        }
    }

    /// Waits for a signal, somebody new, a packet, or the first time that is over.
    fn wait(&self) -> io::Result<Ready> {
        let mut polled = vec![PollFd::new(&self.signals, PollFlags::IN)];
        polled.extend(self.askers.iter().map(|asker| PollFd::new(&asker.socket, PollFlags::IN)));
        if self.rests_until.is_none() && self.askers.len() < CONNECTIONS {
            polled.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let limit: Option<Timespec> =
            self.askers.iter().map(|asker| asker.until).chain(self.rests_until).min().map(left);
        rustix::io::retry_on_intr(|| poll(&mut polled, limit.as_ref()))?;
        let is_ready = |at: usize| polled.get(at).is_some_and(|polled| !polled.revents().is_empty());
        Ok(Ready {
            signal: is_ready(0),
            askers: (0..self.askers.len()).filter(|at| is_ready(at + 1)).collect(),
            listener: is_ready(self.askers.len() + 1),
        })
    }

    /// Takes the ends of what it has made; says whether it is to end itself.
    fn hear_signals(&self) -> io::Result<bool> {
        let mut ends = false;
        while let Some(heard) = self.signals.read_signal()? {
            ends |= heard.ssi_signo != Signal::SIGCHLD as u32;
        }
        // Found first and taken by name then, so that it holds no descriptor for each: there may be more
        // of them than its limit of descriptors, which is what every command is to inherit.
        while let Waited::Ended(pid) = wait::find_ended()? {
            wait::take(Child::Pid(pid))?;
        }
        Ok(ends)
    }

    /// Lets one in who may ask. Whoever may not is not even listened to.
    fn let_in(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) if may_ask(&socket) => {
                self.askers.push(Asker { socket, until: now().plus(PACKET_MS) });
            }
            Ok(_) => say("refusing a connection of a user who is not root"),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                say(&format!("accept failed: {error}; trying again"));
                self.rests_until = Some(now().plus(REST_MS));
            }
        }
    }

    /// Answers one packet, and closes the connection; gives it back where there is none yet.
    fn serve_one(&self, asker: Asker) -> Option<Asker> {
        let done = match wire::receive(&asker.socket) {
            Err(nothing) if nothing.kind() == io::ErrorKind::WouldBlock => return Some(asker),
            Ok((bytes, _)) if bytes.is_empty() => return None,
            received => doing("reading a packet", received).and_then(|(bytes, fds)| self.make(&bytes, fds)),
        };
        // Where it cannot be told it has closed its end of the gate, or will: then what was made ends.
        let _ = match done {
            Ok(supervisor) => wire::send(&asker.socket, &Answer::Ready.to_bytes(), &[supervisor.as_fd()]),
            Err((doing, error)) => {
                say(&format!("refusing a packet: {doing}: {error}"));
                let errno = error.raw_os_error().unwrap_or(0);
                let fault = Answer::Fault { errno, doing: doing.to_owned() };
                wire::send(&asker.socket, &fault.to_bytes(), &[])
            }
        };
        None
    }

    /// Makes a supervisor, if this is the whole of what one needs.
    fn make(&self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<OwnedFd, Fault> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        if bytes != wire::LAUNCH {
            return Err(("understanding a daemon of another version", invalid()));
        }
        let [gate, spec]: [OwnedFd; 2] =
            fds.try_into().map_err(|_| ("looking for gate and spec", invalid()))?;
        if !doing("looking at the gate", is_packet_socket(gate.as_fd()))? {
            return Err(("looking at the gate", invalid()));
        }
        let asked = doing("reading the spec", wire::read_supervisor(&File::from(spec)))?;
        let nonce = Nonce::parse(&asked.nonce).ok_or_else(|| ("reading the nonce", invalid()))?;
        if asked.run < 1 {
            return Err(("reading the number of the run", invalid()));
        }
        let run = RunId::new(asked.run);
        let child = supervisors::start(self.program.as_fd(), run, &nonce, gate);
        let child = doing("starting tenured-exec", child)?;
        // Its end is taken by this thread, later: until then the number is its own.
        let pid = doing("starting tenured-exec", i32::try_from(child.id()).map_err(io::Error::other))?;
        doing("opening the supervisor's pidfd", pidfd::open_own_child(pid))
    }
}

/// What the loop has to look at.
struct Ready {
    signal: bool,
    /// Ascending.
    askers: Vec<usize>,
    listener: bool,
}

/// Root, and our own user where we are not root. As it was when the connection was made.
fn may_ask(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// For whoever reads the journal. Standard error may be gone; there is nobody else to tell.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "tenured-exec: {text}");
}
