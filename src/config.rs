//! The configuration: where its files are, what is in them, and how it is shown.
//!
//! Reads files; decides nothing. Every key has a default; what is not known, or has a wrong value or unit,
//! is an error that names file, line and key, and then nothing of it is used.

#![expect(clippy::disallowed_methods, reason = "the configuration is files")]

mod print;
mod read;
mod units;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub use print::print;

use crate::core::ids::Uid;
use crate::core::policy::Policy;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Something in a file.
    #[error("{}:{line}: {key}: {problem}", .file.display())]
    Wrong {
        /// Which file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Section and key.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A file or a directory that cannot be read.
    #[error("{} cannot be read: {source}", .file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Where the files of one instance are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The configuration: this file, then `*.toml` of the directory beside it with `.d` behind its name.
    pub config: PathBuf,
    /// The board, exit records, output.
    pub state: PathBuf,
    /// The private socket and the nonce of the boot.
    pub runtime: PathBuf,
}

/// The environment says nowhere where a user's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither HOME nor the XDG directories are set; give --state-dir, --runtime-dir and --config")]
pub struct NoHome;

impl Paths {
    /// The system's instance.
    pub fn system() -> Self {
        Self {
            config: "/etc/tenured/tenured.toml".into(),
            state: "/var/lib/tenured".into(),
            runtime: "/run/tenured".into(),
        }
    }

    /// A user's instance (`--user`, `--embedded`), from the process's environment.
    ///
    /// # Errors
    /// Where it has no home.
    pub fn user(uid: Uid) -> Result<Self, NoHome> {
        Self::from_environment(uid, |name| std::env::var_os(name))
    }

    /// As [`Paths::user`], from any environment. Source: XDG Base Directory Specification.
    fn from_environment(uid: Uid, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHome> {
        // The specification has relative paths ignored.
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let below_home = |rest: &str| absolute("HOME").map(|home| home.join(rest));
        let config = absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config")).ok_or(NoHome)?;
        let state = absolute("XDG_STATE_HOME").or_else(|| below_home(".local/state")).ok_or(NoHome)?;
        let state = state.join("tenured");
        let run_user = PathBuf::from(format!("/run/user/{uid}"));
        let runtime = absolute("XDG_RUNTIME_DIR").or_else(|| run_user.is_dir().then_some(run_user));
        let runtime = runtime.map_or_else(|| state.join("run"), |runtime| runtime.join("tenured"));
        Ok(Self { config: config.join("tenured/tenured.toml"), state, runtime })
    }

    /// The private socket.
    pub fn private_socket(&self) -> PathBuf {
        self.runtime.join("private")
    }
}

/// Which files to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// The usual ones of [`Paths::config`]; they may be missing.
    Usual(PathBuf),
    /// One that was named (`--config`), alone; it may not.
    Named(PathBuf),
}

impl Files {
    /// The policy in these files, for a host with so many CPUs.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(&self, cpus: u32) -> Result<Policy, ConfigError> {
        let mut policy = Policy::for_cpus(cpus);
        for file in self.list()? {
            let text = std::fs::read(&file);
            let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
            match text {
                Ok(text) => read::lay_over(&mut policy, &file, &text, cpus)?,
                Err(error) if self.may_miss(&error) => {}
                Err(source) => return Err(ConfigError::Io { file, source }),
            }
        }
        Ok(policy)
    }

    fn may_miss(&self, error: &io::Error) -> bool {
        matches!(self, Self::Usual(_)) && error.kind() == io::ErrorKind::NotFound
    }

    fn list(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let first = match self {
            Self::Named(file) => return Ok(vec![file.clone()]),
            Self::Usual(file) => file,
        };
        let mut directory = first.clone().into_os_string();
        directory.push(".d");
        let directory = PathBuf::from(directory);
        let mut files = match drop_ins(&directory) {
            Ok(files) => files,
            Err(error) if self.may_miss(&error) => Vec::new(),
            Err(source) => return Err(ConfigError::Io { file: directory, source }),
        };
        files.sort();
        files.insert(0, first.clone());
        Ok(files)
    }
}

fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
