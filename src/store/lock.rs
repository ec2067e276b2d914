//! One daemon per board: `board.lock`, and what it remembers of the board.
//!
//! The lock is an open file description lock on byte 0, which the kernel drops with the daemon. The pid that
//! a refusal names is the kernel's too, of a process-owned lock on byte 1; no number that was written down is
//! trusted. The text in the file remembers that a board existed and the last event that was committed, so
//! that a board that vanished, shrank or lost its log is never taken for an empty or a current one.
//! Source: fcntl(2), "Open file description locks" and "Advisory record locking".

#![expect(clippy::disallowed_methods, reason = "the lock file is this adapter's own")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Between two looks at a lock that a killed daemon's child still has.
const FORK_LOOK: Duration = Duration::from_millis(10);
/// How often: 2 s in all, for a host that is very busy.
const FORK_LOOKS: u32 = 200;

const HEAD: &str = "tenured board lock\n";

/// The lock, for as long as it is kept.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    memory: Memory,
}

/// What the lock remembers of the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// A board was there.
    pub(super) existed: bool,
    /// The last event that was committed.
    pub(super) last_event: i64,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Somebody holds it: in words.
    Held(String),
    /// The file cannot be used.
    Io(io::Error),
}

impl Lock {
    /// Takes the lock.
    pub(super) fn take(path: &Path) -> Result<Self, NotLocked> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(NotLocked::Io)?;
        name_ourselves(&file)?;
        take_description(&file)?;
        let memory = Memory::read(&file).map_err(NotLocked::Io)?;
        Ok(Self { file, memory })
    }

    /// What an earlier life remembered.
    pub(super) const fn memory(&self) -> Memory {
        self.memory
    }

    /// Remembers; a crash may lose the last of it, which errs on the harmless side.
    pub(super) fn remember(&mut self, memory: Memory) -> io::Result<()> {
        if memory == self.memory {
            return Ok(());
        }
        self.file.write_all_at(memory.text().as_bytes(), 0)?;
        let first = memory.existed && !self.memory.existed;
        self.memory = memory;
        if first { self.file.sync_all() } else { Ok(()) }
    }
}

/// Takes byte 0. Nobody has byte 1, so that a daemon which still holds this one has been killed: a child that
/// it had forked and that has not yet become another program keeps its descriptors for a moment.
fn take_description(file: &File) -> Result<(), NotLocked> {
    for _ in 0..FORK_LOOKS {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_WRLCK, 0))) {
            Ok(_) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EACCES) => std::thread::sleep(FORK_LOOK),
            Err(errno) => return Err(NotLocked::Io(errno.into())),
        }
    }
    Err(NotLocked::Held("a daemon that cannot be named from here".to_owned()))
}

/// Lets others learn our pid from the kernel; tells who was there before.
fn name_ourselves(file: &File) -> Result<(), NotLocked> {
    match fcntl(file, FcntlArg::F_SETLK(&range(libc::F_WRLCK, 1))) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let mut holder = range(libc::F_WRLCK, 1);
            let asked = fcntl(file, FcntlArg::F_GETLK(&mut holder));
            Err(NotLocked::Held(match asked {
                Ok(_) if holder.l_type != libc::F_UNLCK as libc::c_short && holder.l_pid > 0 => {
                    format!("process {}", holder.l_pid)
                }
                Ok(_) | Err(_) => "a process that has just ended, or of another pid namespace".to_owned(),
            }))
        }
        Err(errno) => Err(NotLocked::Io(errno.into())),
    }
}

fn range(kind: libc::c_int, at: libc::off_t) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

impl Memory {
    fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0_u8; 256];
        let used = file.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(bytes.get(..used).unwrap_or_default()).into_owned();
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let Some(body) = text.strip_prefix(HEAD) else { return Self::default() };
        let number = |key: &str| body.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        Self { existed: number("board ") == Some(1_i64), last_event: number("last_event ").unwrap_or(0) }
    }

    /// Always of one length, so that a write replaces all of it.
    fn text(self) -> String {
        format!("{HEAD}board {}\nlast_event {:019}\n", u8::from(self.existed), self.last_event.max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("board.lock");
        let memory = Memory { existed: true, last_event: 77 };
        let mut lock = Lock::take(&path).unwrap();
        assert_eq!(lock.memory(), Memory::default());
        lock.remember(Memory { existed: true, last_event: 1_000 }).unwrap();
        lock.remember(memory).unwrap();
        drop(lock);
        assert_eq!(Lock::take(&path).unwrap().memory(), memory);
    }

    #[test]
    fn a_text_of_another_form_remembers_nothing() {
        assert_eq!(Memory::parse("12345\n"), Memory::default());
        assert_eq!(Memory::parse(""), Memory::default());
    }

    #[test]
    fn c06_one_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("board.lock");
        let _lock = Lock::take(&path).unwrap();
        assert!(matches!(Lock::take(&path), Err(NotLocked::Held(_))));
    }
}
