//! Cgroups of the unified hierarchy: who is in one, whether anybody is, and the kill of all at once.
//!
//! Owns every touch of cgroupfs by the daemon. Never acts on a cgroup by its name: the directory is opened,
//! its inode (which is the kernel's id of it, unique for the boot) and the unit's invocation are matched, and
//! only what is opened below that descriptor is read or written.
//!
//! Source: kernel documentation admin-guide/cgroup-v2 (`cgroup.events`, `cgroup.kill` since Linux 5.14);
//! systemd writes `user.invocation_id` on the cgroup of each unit (src/core/cgroup.c).

#![expect(clippy::disallowed_methods, reason = "an adapter: reads and writes cgroupfs")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::core::ids::Pid;
use crate::core::row::Cgroup;
use crate::core::spec::Resource;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::ports::{Cgroups, Held, Processes, Target};

/// File system type of the unified hierarchy. Source: include/uapi/linux/magic.h, CGROUP2_SUPER_MAGIC.
const CGROUP2_MAGIC: rustix::fs::FsWord = 0x6367_7270;
/// Where it is mounted. Source: systemd's file-hierarchy(7).
const ROOT: &str = "/sys/fs/cgroup";
/// systemd's name of the unit's life, on its cgroup.
const INVOCATION: &str = "user.invocation_id";
/// How far down the cgroups that a worker made are looked at.
const DEPTH: usize = 8;
/// A cgroup's own files are short; `cgroup.procs` has a line a process.
const FILE_BYTES: u64 = 4 * 1_024 * 1_024;

/// The unified hierarchy of this host.
#[derive(Clone, Debug)]
pub struct HostCgroups {
    root: PathBuf,
    host: HostProcesses,
    is_real: bool,
}

/// A cgroup that was looked at, for the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The kernel's id of it.
    pub id: u64,
    /// systemd's InvocationID, where it is written there.
    pub invocation: Option<String>,
}

impl HostCgroups {
    /// At the usual place.
    pub fn new(host: HostProcesses) -> Self {
        Self { root: PathBuf::from(ROOT), host, is_real: true }
    }

    /// At another place, for tests.
    #[must_use]
    pub fn at(mut self, root: PathBuf) -> Self {
        self.root = root;
        self.is_real = false;
        self
    }

    /// Whether the unified hierarchy is there, so that a scope has its one cgroup in it.
    pub fn is_unified(&self) -> bool {
        rustix::fs::statfs(&self.root).is_ok_and(|system| system.f_type == CGROUP2_MAGIC)
    }

    /// The cgroup that a held process is in: read by its number, and then shown to be its own.
    ///
    /// # Errors
    /// Where it could not be read, or the process has ended.
    pub fn path_of(&self, process: &PidFd) -> io::Result<String> {
        let text = self.host.proc_root().read(process.pid().get(), "cgroup")?;
        if process.has_ended()? {
            return Err(Errno::SRCH.into());
        }
        unified(&text).ok_or_else(|| io::Error::other("it is in no unified hierarchy"))
    }

    /// The cgroup that this process is in.
    ///
    /// # Errors
    /// Where it could not be read.
    pub fn path_of_self(&self) -> io::Result<String> {
        let text = std::fs::read(self.host.proc_root().path().join("self/cgroup"))?;
        unified(&text).ok_or_else(|| io::Error::other("this process is in no unified hierarchy"))
    }

    /// Looks at the cgroup of this path, whichever it is.
    ///
    /// # Errors
    /// What open(2), fstat(2) or fgetxattr(2) said.
    pub fn find(&self, path: &str) -> io::Result<Found> {
        let directory = self.open(path)?;
        Ok(Found { id: id(&directory)?, invocation: invocation(&directory)? })
    }

    /// Which of these limits the kernel does not keep in the cgroup, because its controller is not there.
    ///
    /// # Errors
    /// What open(2) or stat(2) said.
    pub fn not_kept(
        &self,
        path: &str,
        asked: impl IntoIterator<Item = Resource>,
    ) -> io::Result<Vec<Resource>> {
        let directory = self.open(path)?;
        let mut missing = Vec::new();
        for resource in asked {
            match rustix::fs::statat(&directory, control_file(resource), rustix::fs::AtFlags::empty()) {
                Ok(_) => {}
                Err(Errno::NOENT) => missing.push(resource),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(missing)
    }

    fn open(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let below = self.root.join(path.trim_start_matches('/'));
        Ok(rustix::fs::open(below, flags, Mode::empty())?)
    }

    /// The very cgroup that was stored; none where it is there no more, since neither its name nor its id
    /// ever comes again.
    fn open_stored(&self, cgroup: &Cgroup) -> io::Result<Option<OwnedFd>> {
        let directory = match self.open(&cgroup.path) {
            Ok(directory) => directory,
            // Without the hierarchy no name is there, and that says nothing.
            Err(error) if is_gone(&error) && (!self.is_real || self.is_unified()) => return Ok(None),
            Err(error) => return Err(error),
        };
        if id(&directory)? != cgroup.id {
            return Ok(None);
        }
        match invocation(&directory) {
            // The id is the cgroup's own; what is written on it may have been changed by whoever may write.
            Ok(Some(other)) if other != cgroup.invocation => {
                Err(io::Error::other("the cgroup carries another invocation of its unit"))
            }
            Ok(_) => Ok(Some(directory)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Cgroups for HostCgroups {
    type Handle = PidFd;

    fn is_populated(&self, cgroup: &Cgroup) -> io::Result<bool> {
        let Some(directory) = self.open_stored(cgroup)? else {
            return Ok(false);
        };
        match read_at(&directory, "cgroup.events") {
            Ok(events) => {
                populated(&events).ok_or_else(|| io::Error::other("cgroup.events has no populated"))
            }
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn members(&self, cgroup: &Cgroup) -> io::Result<Vec<PidFd>> {
        let Some(directory) = self.open_stored(cgroup)? else {
            return Ok(Vec::new());
        };
        let mut pids = Vec::new();
        pids_below(&directory, DEPTH, &mut pids)?;
        let held = pids.into_iter().filter_map(|pid| self.host.open(Target::Pid(pid)).1);
        // The number may be another process by now: only the pidfd's own cgroup counts.
        Ok(held
            .filter(|process| self.path_of(process).is_ok_and(|path| is_within(&path, &cgroup.path)))
            .collect())
    }

    fn kill_all(&self, cgroup: &Cgroup) -> io::Result<bool> {
        let Some(directory) = self.open_stored(cgroup)? else {
            return Ok(false);
        };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let killed = rustix::fs::openat(&directory, "cgroup.kill", flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(b"1"));
        match killed {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The numbers in a cgroup and in those below it: whoever may, makes some of its own there.
fn pids_below(directory: &OwnedFd, depth: usize, pids: &mut Vec<Pid>) -> io::Result<()> {
    match read_at(directory, "cgroup.procs") {
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse().ok().and_then(Pid::new))),
        Err(error) if is_gone(&error) => return Ok(()),
        // A threaded cgroup shows its processes further up.
        Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {}
        Err(error) => return Err(error),
    }
    if depth == 0 {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let is_below = entry.file_type() == rustix::fs::FileType::Directory;
        if !is_below || matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::openat(directory, entry.file_name(), flags, Mode::empty()) {
            Ok(below) => pids_below(&below, depth - 1, pids)?,
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A directory of cgroupfs that was removed: its name is gone (ENOENT), or it is held open (ENODEV).
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ENODEV))
}

fn is_within(path: &str, cgroup: &str) -> bool {
    path.strip_prefix(cgroup).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn id(directory: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(directory)?.st_ino)
}

fn invocation(directory: &OwnedFd) -> io::Result<Option<String>> {
    let mut value = [0; 64];
    match rustix::fs::fgetxattr(directory, INVOCATION, &mut value) {
        Ok(bytes) => {
            let value = value.get(..bytes).unwrap_or_default();
            Ok(std::str::from_utf8(value).ok().map(str::to_owned))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_at(directory: &OwnedFd, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(directory.as_fd(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).take(FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The path in the unified hierarchy. Source: proc_pid_cgroup(5), the line of hierarchy 0.
fn unified(text: &[u8]) -> Option<String> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    // A cgroup that was removed under a process that ends there is marked so.
    let path = std::str::from_utf8(line).ok()?.trim_end_matches(" (deleted)");
    Path::new(path).is_absolute().then(|| path.to_owned())
}

fn populated(events: &str) -> Option<bool> {
    match events.lines().find_map(|line| line.strip_prefix("populated "))? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The file that is there only where the kernel keeps the limit.
const fn control_file(resource: Resource) -> &'static str {
    match resource {
        Resource::MemoryMax => "memory.max",
        Resource::MemoryHigh => "memory.high",
        Resource::CPUQuotaPerSecUSec => "cpu.max",
        Resource::CPUWeight => "cpu.weight",
        Resource::TasksMax => "pids.max",
        // io.weight is there only with some schedulers; the controller is what systemd can ask for.
        Resource::IOWeight => "io.stat",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_that_of_the_unified_hierarchy() {
        assert_eq!(unified(b"12:pids:/x\n0::/a.slice/b.scope\n").as_deref(), Some("/a.slice/b.scope"));
        assert_eq!(unified(b"0::/a.scope (deleted)\n").as_deref(), Some("/a.scope"));
        assert_eq!(unified(b"3:cpu:/\n"), None);
        assert_eq!(unified(b"0::nonsense\n"), None);
    }

    #[test]
    fn only_its_own_words_say_whether_somebody_is_there() {
        assert_eq!(populated("populated 1\nfrozen 0\n"), Some(true));
        assert_eq!(populated("frozen 0\npopulated 0\n"), Some(false));
        assert_eq!(populated("frozen 0\n"), None);
        assert_eq!(populated("populated 2\n"), None);
    }

    #[test]
    fn a_name_that_begins_alike_is_not_within() {
        assert!(is_within("/a.scope", "/a.scope") && is_within("/a.scope/sub", "/a.scope"));
        assert!(!is_within("/a.scope2", "/a.scope") && !is_within("/", "/a.scope"));
    }

    fn stored(path: &str, id: u64) -> Cgroup {
        Cgroup { path: path.to_owned(), id, invocation: "i".to_owned() }
    }

    #[test]
    fn another_directory_of_the_name_is_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let host = HostCgroups::new(HostProcesses::default()).at(root.path().to_owned());
        std::fs::create_dir(root.path().join("a.scope")).unwrap();
        std::fs::write(root.path().join("a.scope/cgroup.events"), "populated 1\n").unwrap();
        std::fs::write(root.path().join("a.scope/cgroup.kill"), "").unwrap();
        let found = host.find("/a.scope").unwrap();
        assert!(host.is_populated(&stored("/a.scope", found.id)).unwrap());
        assert!(host.kill_all(&stored("/a.scope", found.id)).unwrap());
        assert_eq!(std::fs::read(root.path().join("a.scope/cgroup.kill")).unwrap(), b"1");
        std::fs::write(root.path().join("a.scope/cgroup.kill"), "").unwrap();
        for other in [stored("/a.scope", found.id + 1), stored("/b.scope", found.id)] {
            assert!(!host.is_populated(&other).unwrap() && !host.kill_all(&other).unwrap());
        }
        assert_eq!(std::fs::read(root.path().join("a.scope/cgroup.kill")).unwrap(), b"");
        let missing = host.not_kept("/a.scope", [Resource::MemoryMax]).unwrap();
        assert_eq!(missing, [Resource::MemoryMax]);
    }

    #[test]
    fn who_is_further_down_is_in_it_too() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a.scope/made/by/itself");
        std::fs::create_dir_all(&below).unwrap();
        for (cgroup, pids) in [
            ("a.scope", "7\n"),
            ("a.scope/made", ""),
            ("a.scope/made/by", ""),
            ("a.scope/made/by/itself", "8\n9\n"),
        ] {
            std::fs::write(root.path().join(cgroup).join("cgroup.procs"), pids).unwrap();
        }
        let host = HostCgroups::new(HostProcesses::default()).at(root.path().to_owned());
        let mut pids = Vec::new();
        pids_below(&host.open("/a.scope").unwrap(), DEPTH, &mut pids).unwrap();
        let mut pids: Vec<i32> = pids.into_iter().map(Pid::get).collect();
        pids.sort_unstable();
        assert_eq!(pids, [7, 8, 9]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_not_empty() {
        let root = tempfile::tempdir().unwrap();
        let host = HostCgroups::new(HostProcesses::default()).at(root.path().to_owned());
        std::fs::create_dir(root.path().join("a.scope")).unwrap();
        std::fs::write(root.path().join("a.scope/cgroup.events"), "nonsense\n").unwrap();
        let found = host.find("/a.scope").unwrap();
        assert!(host.is_populated(&stored("/a.scope", found.id)).is_err());
        std::fs::write(root.path().join("file"), "").unwrap();
        assert!(host.is_populated(&stored("/file", found.id)).is_err(), "ENOTDIR says nothing");
    }
}
