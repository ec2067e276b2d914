//! The reserve file: space that is given back when the disk is full, so that ends of runs are still recorded
//! (on a full disk even DELETE fails).

#![expect(clippy::disallowed_methods, reason = "the reserve file is this adapter's own")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The reserve of one board.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    is_there: bool,
}

impl Reserve {
    /// Sets the space aside; where there is not enough of it, the disk counts as full from the start.
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        let mut reserve = Self { path, bytes, is_there: false };
        reserve.is_there = reserve.make().is_ok();
        reserve
    }

    /// Whether the space is set aside; where none is wanted, it always is.
    pub(super) const fn is_there(&self) -> bool {
        self.is_there
    }

    /// Gives the space back.
    pub(super) fn release(&mut self) {
        self.is_there = false;
        Self::give_back(&self.path);
    }

    /// Gives back what an earlier life set aside.
    pub(super) fn give_back(path: &Path) {
        // Truncated before it is removed: somebody who holds it open must not keep the space.
        if let Ok(file) = OpenOptions::new().write(true).open(path) {
            let _ = file.set_len(0);
        }
        let _ = fs::remove_file(path);
    }

    /// Sets the space aside again once there is room for it and for some work beside it, so that it is not
    /// taken and given in turns.
    pub(super) fn restore(&mut self) -> bool {
        if !self.is_there
            && self.free_bytes().is_ok_and(|free| free >= self.bytes.saturating_add(MARGIN_BYTES))
        {
            self.is_there = self.make().is_ok();
        }
        self.is_there
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let directory = self.path.parent().unwrap_or(&self.path);
        let disk = statvfs(directory)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn make(&self) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let file: File =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let made = fallocate(&file, FallocateFlags::empty(), 0, self.bytes).map_err(io::Error::from);
        match made {
            Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => Ok(()),
            Err(error) => {
                let _ = fs::remove_file(&self.path);
                Err(error)
            }
            Ok(()) => file.set_len(self.bytes),
        }
    }
}

/// Less than this is as good as full: one commit and one checkpoint must fit.
const MARGIN_BYTES: u64 = 1_024 * 1_024;
