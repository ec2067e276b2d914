//! Where /proc is: the real one, or a directory of fixtures.

#![expect(clippy::disallowed_methods, reason = "an adapter: reads /proc")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A procfs.
#[derive(Clone, Debug)]
pub struct ProcRoot(PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        Self(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// Another one than `/proc`, for tests.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file of one process.
    pub fn of(&self, pid: i32, name: &str) -> PathBuf {
        self.0.join(pid.to_string()).join(name)
    }

    /// Reads a file of one process, as bytes: names in it are what their owners chose.
    ///
    /// # Errors
    /// What open(2) or read(2) said.
    pub fn read(&self, pid: i32, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.of(pid, name))
    }

    /// Whether this procfs counts processes as we do: one of another pid namespace shows other processes
    /// under the same numbers. Source: proc_pid(5), `/proc/self` is the reader in the view of the mount.
    pub fn is_ours(&self) -> bool {
        fs::read_link(self.0.join("self"))
            .is_ok_and(|target| target.to_str() == Some(&std::process::id().to_string()))
    }
}

/// The numbers among the names of a directory of /proc: processes, or threads.
///
/// # Errors
/// Where the directory cannot be read. What ends while it is read is left out.
pub fn numbers(directory: &Path) -> io::Result<impl Iterator<Item = i32> + use<>> {
    let names = fs::read_dir(directory)?;
    Ok(names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}
