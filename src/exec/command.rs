//! The command's side: puts on what the task asks for, waits at the gate, becomes the command.
//!
//! Runs in the child that becomes the worker, whose pid and start ticks the exec does not change. Nothing of
//! the daemon passes on to the command: not its ids, limits, signal dispositions, descriptors or environment.
//! Never returns.
//!
//! Source: credentials(7), keyctl(2), prctl(2) PR_SET_PDEATHSIG, close_range(2), execve(2).

#![expect(unsafe_code, reason = "signal dispositions and _exit have no safe calls")]
#![expect(clippy::disallowed_methods, reason = "an adapter: writes its own oom_score_adj")]

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use nix::libc;
use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Uid};
use rustix::fs::{Mode, OFlags};

use crate::core::record::Setup;
use crate::exec::status::{Word, say};
use crate::exec::{descriptors, journal};
use crate::linux::limits;
use crate::linux::wire::{self, ForCommand, GO};

/// Where a command is looked for whose environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the child is given by its supervisor.
pub(super) struct Side {
    /// The sealed spec.
    pub(super) spec: File,
    /// The socket whose byte opens the gate and whose end closes it.
    pub(super) gate: OwnedFd,
    /// To the supervisor; closed by the exec.
    pub(super) status: OwnedFd,
    /// Where output goes; /dev/null where there is none.
    pub(super) output: Option<OwnedFd>,
    /// Who must still be the parent.
    pub(super) supervisor_pid: u32,
}

/// Why the child did not become the command.
enum Failure {
    Setup(Setup, io::Error),
    GateClosed,
    Exec(io::Error),
}

/// Becomes the command, or says why not and ends.
pub(super) fn become_command(side: Side) -> ! {
    let Side { spec, gate, status, output, supervisor_pid } = side;
    let failure = match prepare(&spec, &gate, &status, output, supervisor_pid) {
        Ok(command) => {
            let Err(failure) = pass_gate(&command, &gate, &status);
            failure
        }
        Err((step, error)) => Failure::Setup(step, error),
    };
    let errno = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
    // Where the supervisor does not hear it any more it has ended, and PDEATHSIG is on its way.
    let _ = match &failure {
        Failure::Setup(step, error) => say(&status, Word::SetupFailed(*step, errno(error))),
        Failure::Exec(error) => say(&status, Word::ExecFailed(errno(error))),
        Failure::GateClosed => Ok(()),
    };
    // SAFETY: ends the process at once. Destructors must not run: most descriptors are closed already.
    unsafe { libc::_exit(125) }
}

type Step<T> = Result<T, (Setup, io::Error)>;

fn at<T, E: Into<io::Error>>(step: Setup, done: Result<T, E>) -> Step<T> {
    done.map_err(|error| (step, error.into()))
}

fn prepare(
    spec: &File,
    gate: &OwnedFd,
    status: &OwnedFd,
    output: Option<OwnedFd>,
    supervisor_pid: u32,
) -> Step<ForCommand> {
    let command = at(Setup::Other, wire::read_command(spec))?;
    at(Setup::Other, rustix::process::setpgid(None, None))?;
    reset_signals();
    at(Setup::Limits, limits::put_on(&command.limits))?;
    at(Setup::Limits, set_nice(command.nice))?;
    reset_oom_score();
    rustix::process::umask(Mode::from_raw_mode(0o022));

    let output = at(Setup::Output, open_output(&command, output))?;
    if command.no_new_privileges {
        at(Setup::Other, rustix::thread::set_no_new_privs(true))?;
    }
    at(Setup::Credentials, take_credentials(command.credentials.as_ref()))?;
    // A change of ids clears it, so it comes after; and the parent may have ended before.
    let kill = Some(rustix::process::Signal::KILL);
    at(Setup::Other, rustix::process::set_parent_process_death_signal(kill))?;
    if std::os::unix::process::parent_id() != supervisor_pid {
        return Err((Setup::Other, io::Error::from_raw_os_error(libc::ESRCH)));
    }

    at(Setup::Directory, rustix::process::chdir(command.working_directory.as_str()))?;
    at(Setup::Stdin, open_stdin(command.stdin.as_deref()))?;
    at(Setup::Output, nix::unistd::dup2_stdout(&output))?;
    at(Setup::Output, nix::unistd::dup2_stderr(&output))?;
    // Closed by number below, with everything else; a destructor must not close it again.
    let _ = output.into_raw_fd();
    at(Setup::Other, descriptors::close_all_but(&mut [gate.as_raw_fd(), status.as_raw_fd()]))?;
    Ok(command)
}

/// Waits for the byte, and becomes the command.
fn pass_gate(command: &ForCommand, gate: &OwnedFd, status: &OwnedFd) -> Result<Infallible, Failure> {
    let words = |texts: &[String]| -> io::Result<Vec<CString>> {
        texts.iter().map(|text| CString::new(text.as_str()).map_err(io::Error::from)).collect()
    };
    let ready = words(&command.argv).and_then(|argv| Ok((argv, words(&command.environment)?)));
    let (argv, environment) = ready.map_err(|error| Failure::Setup(Setup::Other, error))?;
    say(status, Word::Ready).map_err(|_| Failure::GateClosed)?;

    let mut byte = [0_u8; 1];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(gate, &mut byte));
    if read != Ok(1) || byte != GO {
        return Err(Failure::GateClosed);
    }
    say(status, Word::GatePassed).map_err(|_| Failure::GateClosed)?;
    exec(&argv, &environment).map_err(Failure::Exec)
}

/// Ignored signals and the mask pass through an exec: services ignore SIGPIPE, and so does this program.
fn reset_signals() {
    /// A kernel's `struct sigaction` of zeroes: SIG_DFL, no flags, no mask; at least as long as it is anywhere.
    const DEFAULT: [u64; 8] = [0; 8];
    const SET_BYTES: usize = 8;
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the kernel reads the struct and writes none. Called without the C library, which refuses the
        // two signals that it keeps for itself: they may be inherited too. KILL and STOP are refused, and have
        // no disposition to pass on.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                std::ptr::null_mut::<u64>(),
                SET_BYTES,
            )
        };
    }
    // Cannot fail for a valid set.
    let _ = SigSet::empty().thread_set_mask();
}

/// The nice level asked for, or 0 whatever the daemon's own is. An unprivileged daemon may not lower its own,
/// and passes it on where nothing was asked for.
fn set_nice(asked: Option<i32>) -> io::Result<()> {
    let nice = asked.unwrap_or(0);
    if rustix::process::getpriority_process(None)? == nice {
        return Ok(());
    }
    match rustix::process::setpriority_process(None, nice) {
        Err(_) if asked.is_none() => Ok(()),
        done => Ok(done?),
    }
}

/// The daemon protects itself from the OOM killer; its workers are not worth the same. An unprivileged one
/// may not lower its own, and keeps it.
fn reset_oom_score() {
    let _ = fs::write("/proc/self/oom_score_adj", "0");
}

/// The supervisor's pipe, the journal, or /dev/null.
fn open_output(command: &ForCommand, output: Option<OwnedFd>) -> io::Result<OwnedFd> {
    if let Some(pipe) = output {
        // So that the command may open /dev/stdout again, as a shell script does.
        if let Some((uid, gid, _)) = command.credentials.as_ref().filter(|_| is_root()) {
            std::os::unix::fs::fchown(&pipe, Some(*uid), Some(*gid))?;
        }
        return Ok(pipe);
    }
    if let Some((socket, identifier, unit)) = &command.journal {
        return journal::open(socket, identifier, unit);
    }
    open("/dev/null", OFlags::WRONLY)
}

fn open_stdin(path: Option<&str>) -> io::Result<()> {
    // A FIFO that nobody writes would hold up the start; reading it may wait again.
    let stdin = open(path.unwrap_or("/dev/null"), OFlags::RDONLY | OFlags::NONBLOCK)?;
    let flags = rustix::fs::fcntl_getfl(&stdin)?;
    rustix::fs::fcntl_setfl(&stdin, flags - OFlags::NONBLOCK)?;
    nix::unistd::dup2_stdin(&stdin)?;
    Ok(())
}

fn open(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}

fn is_root() -> bool {
    Uid::effective().is_root()
}

fn take_credentials(wanted: Option<&(u32, u32, Vec<u32>)>) -> io::Result<()> {
    let Some((uid, gid, groups)) = wanted else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
    if !is_root() {
        // The daemon of a user starts that user's commands only.
        let same = uid == Uid::effective() && uid == Uid::current() && gid == Gid::effective();
        return if same { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) };
    }
    leave_keyring()?;
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    nix::unistd::setgroups(&groups)?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    let taken = nix::unistd::getresuid()?;
    if [taken.real, taken.effective, taken.saved] != [uid; 3] {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(())
}

/// Goes into a session keyring of its own: whoever has one may read and write all that is in it, whatever
/// their uid, and the one we were started with is root's, or that of the daemon or the launcher, and so of all
/// its workers. Made as root, because a user may have few keys.
///
/// Source: session-keyring(7), keyctl(2) KEYCTL_JOIN_SESSION_KEYRING.
fn leave_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: u32 = 1;
    // SAFETY: no name is given, so nothing is read or written.
    let done =
        unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    if done >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // A kernel without keys, or a container without these calls: then nobody has any.
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        error => Err(error),
    }
}

/// Replaces this process. A name with a `/` is a path; any other is looked for in the command's own PATH.
fn exec(argv: &[CString], environment: &[CString]) -> io::Result<Infallible> {
    let name = argv.first().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    if name.as_bytes().contains(&b'/') {
        return Ok(nix::unistd::execve(name, argv, environment)?);
    }
    let path = environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let mut worst = libc::ENOENT;
    for directory in path.unwrap_or(DEFAULT_PATH.as_bytes()).split(|byte| *byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        let Ok(file) = CString::new([directory, b"/", name.as_bytes()].concat()) else { continue };
        let Err(errno) = nix::unistd::execve(&file, argv, environment);
        match errno {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => {}
            nix::errno::Errno::EACCES => worst = libc::EACCES,
            other => return Err(other.into()),
        }
    }
    Err(io::Error::from_raw_os_error(worst))
}
