//! The processes that carry a run's nonce in their environment: what is left of a tree whose supervisor
//! was killed.
//!
//! One scan is a look at one moment, and a process made meanwhile may be missed: the caller looks twice. A
//! program that was given another environment (`env -i`, a set-user-ID program that cleans it) carries
//! nothing any more; so this finds what is left of a tree, and the supervisor alone knows that nothing is.
//!
//! Source: proc_pid_environ(5), proc_pid_stat(5) fields 3, 9 and 51.

use std::io;

use rustix::event::{Timespec, poll};

use crate::core::fingerprint::Looked;
use crate::core::ids::{Nonce, Pid};
use crate::linux::owner;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::proc::{ProcRoot, numbers};
use crate::linux::stat::Stat;
use crate::ports::{Processes, Target};

/// How often an environment is read that an exec is replacing, or an exit has given back already.
const LOOKS: usize = 40;
/// Looks after each of which others are let run; between later ones a millisecond goes by.
const QUICK_LOOKS: usize = 10;

/// What reading one environment found.
enum Environment {
    /// Its bytes; none for kernel threads and for what has ended.
    Bytes(Vec<u8>),
    /// It may not be read.
    Refused(io::Error),
}

/// Scans /proc once. A process that cannot be read makes the scan an error, but for one that cannot belong
/// to the run: one that started before `since_ticks`, if they are given; and, for a daemon that is not root,
/// one that belongs wholly to another user, whom its commands cannot become.
///
/// # Errors
/// Where one live process could not be read, or /proc does not show all of them.
pub fn scan(host: &HostProcesses, nonce: &Nonce, since_ticks: Option<u64>) -> io::Result<Vec<PidFd>> {
    let root = host.proc_root();
    let needle = format!("TENURED_NONCE={nonce}").into_bytes();
    let mut carriers = Vec::new();
    let mut sees_all = false;
    for pid in numbers(root.path())? {
        if pid == 1 {
            // Descends from nobody, so it carries nothing of ours; some sandboxes let nobody look into it.
            sees_all = true;
            continue;
        }
        match read(host, pid)? {
            Environment::Bytes(bytes) if has(&bytes, &needle) => carriers.extend(hold(host, pid, &needle)?),
            Environment::Bytes(_) => {}
            Environment::Refused(error) => {
                if !cannot_belong(root, pid, since_ticks) && !has_ended(host, pid) {
                    return Err(error);
                }
            }
        }
    }
    // Where /proc hides processes of others (hidepid), PID 1 is among the hidden.
    if !sees_all || !root.is_ours() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "/proc does not show every process"));
    }
    Ok(carriers)
}

fn has(environment: &[u8], needle: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|entry| entry == needle)
}

/// Opens a process that carried the nonce, and shows that the one it opened does.
fn hold(host: &HostProcesses, pid: i32, needle: &[u8]) -> io::Result<Option<PidFd>> {
    let Some(number) = Pid::new(i64::from(pid)) else { return Ok(None) };
    let handle = match host.open(Target::Pid(number)) {
        (Looked::Present { .. }, Some(handle)) => handle,
        (Looked::Gone, _) => return Ok(None),
        _ => return Err(io::Error::other("a process of the run could not be seen")),
    };
    let still = match read(host, pid)? {
        Environment::Bytes(bytes) => has(&bytes, needle),
        Environment::Refused(error) if handle.has_ended()? => {
            drop(error);
            false
        }
        Environment::Refused(error) => return Err(error),
    };
    Ok((still && !handle.has_ended()?).then_some(handle))
}

/// Reads one environment, until something is known: an exec or an exit may be under way.
fn read(host: &HostProcesses, pid: i32) -> io::Result<Environment> {
    for look in 0..LOOKS {
        if let Some(known) = look_once(host, pid)? {
            return Ok(known);
        }
        if look < QUICK_LOOKS {
            rustix::thread::sched_yield();
        } else {
            poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }))?;
        }
    }
    Err(io::Error::other(format!("the environment of process {pid} could not be seen")))
}

/// Reads one environment once. An empty one is believed of kernel threads, of what has ended, and of a
/// process whose memory map says that it is empty.
fn look_once(host: &HostProcesses, pid: i32) -> io::Result<Option<Environment>> {
    let root = host.proc_root();
    let nothing = || Ok(Some(Environment::Bytes(Vec::new())));
    let refusal = match root.read(pid, "environ") {
        Ok(bytes) if !bytes.is_empty() => return Ok(Some(Environment::Bytes(bytes))),
        Ok(_) => None,
        // What newer kernels say of a process without memory of its own.
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => None,
        Err(error) if refused(&error) => Some(error),
        Err(_) if has_ended(host, pid) => return nothing(),
        Err(error) => return Err(error),
    };
    let stat = match Stat::read(root, pid) {
        Ok(stat) => stat,
        Err(_) if has_ended(host, pid) => return nothing(),
        Err(error) => return Err(error),
    };
    if stat.is_kernel_thread || (refusal.is_none() && stat.has_empty_environment) {
        return nothing();
    }
    if matches!(stat.state, b'Z' | b'X') {
        if has_ended(host, pid) {
            return nothing();
        }
        // The leader has exited and given its memory back; other threads run on in the same memory.
        if let Some(known) = of_other_threads(root, pid) {
            return Ok(Some(known));
        }
    }
    Ok(refusal.map(Environment::Refused))
}

fn of_other_threads(root: &ProcRoot, pid: i32) -> Option<Environment> {
    let threads = numbers(&root.of(pid, "task")).ok()?;
    threads.filter(|thread| *thread != pid).find_map(|thread| {
        match root.read(pid, &format!("task/{thread}/environ")) {
            Ok(bytes) if !bytes.is_empty() => Some(Environment::Bytes(bytes)),
            Err(error) if refused(&error) => Some(Environment::Refused(error)),
            Ok(_) | Err(_) => None,
        }
    })
}

fn refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether the kernel says so; an error is no end.
fn has_ended(host: &HostProcesses, pid: i32) -> bool {
    Pid::new(i64::from(pid)).is_some_and(|pid| host.open(Target::Pid(pid)).0 == Looked::Gone)
}

fn cannot_belong(root: &ProcRoot, pid: i32, since_ticks: Option<u64>) -> bool {
    let older =
        || since_ticks.is_some_and(|since| Stat::read(root, pid).is_ok_and(|stat| stat.start_ticks < since));
    let foreign = || {
        let own = nix::unistd::Uid::effective();
        let ids = root.read(pid, "status").and_then(|status| owner::uids(&status));
        !own.is_root() && ids.is_ok_and(|ids| !ids.contains(&own.as_raw()))
    };
    older() || foreign()
}
