//! Where a daemon of our own keeps its things: the same places as `tenured --user`.
//!
//! Makes them for their owner alone, and refuses what is somebody else's.

#![expect(clippy::disallowed_methods, reason = "an adapter: makes directories")]

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::bus::proxy::Endpoint;
use crate::cli::connect::socket;
use crate::cli::failure::Failure;

/// Where a daemon of our own keeps its things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// The board and what belongs to it.
    pub state: PathBuf,
    /// The socket.
    pub runtime: PathBuf,
    /// The configuration, where it is not the user's own.
    pub config: Option<PathBuf>,
}

impl Dirs {
    /// Those of this user: the same as of `tenured --user`, so that each finds the other's daemon.
    ///
    /// # Errors
    /// Where no directory for state is known.
    pub fn of_user() -> Result<Self, Failure> {
        Self::from_environment(rustix::process::getuid().as_raw(), |name| std::env::var_os(name))
    }

    /// As [`Dirs::of_user`], from any environment. Source: XDG Base Directory Specification.
    fn from_environment(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state =
            absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::usage(
                "neither XDG_STATE_HOME nor HOME is set",
                "Set one of them: the board is kept there.",
            )
        })?;
        let state = state.join("tenured");
        let run_user = PathBuf::from(format!("/run/user/{uid}"));
        let runtime = absolute("XDG_RUNTIME_DIR").or_else(|| run_user.is_dir().then_some(run_user));
        let runtime = runtime.map_or_else(|| state.join("run"), |runtime| runtime.join("tenured"));
        Ok(Self { state, runtime, config: None })
    }

    /// Those under one directory, for a board that does not last.
    pub fn under(directory: &Path) -> Self {
        Self { state: directory.join("state"), runtime: directory.join("run"), config: None }
    }

    /// The private socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("private")
    }

    /// The same as a D-Bus address.
    ///
    /// # Errors
    /// Where its path is no text.
    pub fn endpoint(&self) -> Result<Endpoint, Failure> {
        let path = self.socket();
        Ok(socket(path.to_str().ok_or_else(|| no_utf8(&path))?))
    }

    /// The same board with another socket, named after it: the daemon of another board has the first one.
    #[must_use]
    pub fn beside(&self) -> Self {
        let name = self.runtime.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let runtime = self.runtime.with_file_name(format!("{name}-{:08x}", digest(&self.state)));
        Self { runtime, ..self.clone() }
    }

    /// Makes both, for their owner alone, and refuses one that is somebody else's.
    ///
    /// # Errors
    /// Where that is not possible.
    pub fn make(&self) -> Result<(), Failure> {
        for directory in [&self.state, &self.runtime] {
            make_private(directory)?;
        }
        Ok(())
    }
}

/// FNV-1a, to tell paths apart. Source: draft-eastlake-fnv, 32 bits.
fn digest(path: &Path) -> u32 {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    path.as_os_str().as_encoded_bytes().iter().fold(0x811c_9dc5, step)
}

fn make_private(directory: &Path) -> Result<(), Failure> {
    let fail = |what: String| {
        Failure::own(
            format!("{}: {what}", directory.display()),
            "A daemon of your own needs a directory that is yours alone.",
        )
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| fail(error.to_string()))?;
    let seen = std::fs::symlink_metadata(directory).map_err(|error| fail(error.to_string()))?;
    if !seen.is_dir() || seen.uid() != rustix::process::getuid().as_raw() {
        return Err(fail("is not a directory of yours".to_owned()));
    }
    if seen.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))
            .map_err(|error| fail(error.to_string()))?;
    }
    Ok(())
}

fn no_utf8(path: &Path) -> Failure {
    Failure::usage(
        format!("{}: is not UTF-8", path.display()),
        "Set XDG_RUNTIME_DIR to a directory whose name is.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_for_their_owner_alone() {
        let base = tempfile::tempdir().unwrap();
        let dirs = Dirs::under(base.path());
        dirs.make().unwrap();
        std::fs::set_permissions(&dirs.runtime, Permissions::from_mode(0o755)).unwrap();
        dirs.make().unwrap();
        for directory in [&dirs.state, &dirs.runtime] {
            assert_eq!(std::fs::metadata(directory).unwrap().mode() & 0o777, 0o700);
        }
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&dirs.state, &link).unwrap();
        assert!(make_private(&link).is_err(), "a link may lead anywhere");
    }

    #[test]
    fn the_daemon_of_a_user_is_found_where_it_puts_itself() {
        let dirs = |variables: &[(&str, &str)]| {
            let found =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            Dirs::from_environment(4_000_000_000, found)
        };
        let usual = dirs(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/run/u")]).unwrap();
        assert_eq!(
            (usual.state.to_str(), usual.runtime.to_str()),
            (Some("/h/.local/state/tenured"), Some("/run/u/tenured"))
        );
        let bare = dirs(&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")]).unwrap();
        assert_eq!(bare.socket().to_str(), Some("/h/.local/state/tenured/run/private"));
        assert_eq!(dirs(&[]).map_err(|failure| failure.code()), Err(2));
        let other = dirs(&[("HOME", "/g"), ("XDG_RUNTIME_DIR", "/run/u")]).unwrap();
        assert_ne!(usual.beside().socket(), other.beside().socket());
        assert_eq!(usual.beside().socket().parent().and_then(Path::parent), Some(Path::new("/run/u")));
    }
}
