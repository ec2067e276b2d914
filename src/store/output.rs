//! Opens the output file of a run for somebody who may read it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_file};

use crate::core::fault::{Error, Fault};
use crate::core::ids::RunId;
use crate::core::state_dir::StateDir;

/// A read-only descriptor, of the part that was put aside if `older`; `None` where the run has no such file. Follows no link: what lies there must be a
/// file that the daemon made.
///
/// # Errors
/// A fault of the host.
pub fn open(state: &StateDir, run: RunId, older: bool) -> Result<Option<OwnedFd>, Error> {
    const DOING: &str = "opening a run's output";
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let path = if older { state.older_output(run) } else { state.output(run) };
    let fd = match open_file(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(Fault::Host { doing: DOING, source: io::Error::from(errno) }.into()),
    };
    let about = fstat(&fd).map_err(|errno| Fault::Host { doing: DOING, source: errno.into() })?;
    Ok((FileType::from_raw_mode(about.st_mode) == FileType::RegularFile).then_some(fd))
}
