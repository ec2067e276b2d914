//! The daemon's own directories.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes a directory that is missing, with its parents. One that is there stays as it is: whoever set it up
/// (tmpfiles.d, a service's `StateDirectory=`) knows its mode.
///
/// # Errors
/// Where it cannot be made, or something else has its name.
pub fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}
