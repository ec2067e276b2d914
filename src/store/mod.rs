//! The durable board: SQLite and the only SQL of the product.
//!
//! Owns `board.db`, its lock and its reserve file. Never looks at a process and never reads a clock: every
//! moment comes in as a [`When`]. Never opens `board.db` as a plain file while SQLite has it open: closing
//! such a descriptor would drop SQLite's own locks (fcntl(2), "advisory record locks").

pub mod boots;
pub mod start;
pub mod sweep;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::core::fault::Error;
use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;
use crate::core::policy::Policy;
use crate::core::state_dir::StateDir;
use crate::core::time::Now;
use crate::core::view::Change;

/// The board, open. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    _inner: Arc<()>,
}

/// How to open a board.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is.
    pub state: StateDir,
    /// Bytes that are set aside for the ends of runs when the disk is full; 0: none.
    pub reserve_bytes: u64,
    /// Connections for reading.
    pub readers: usize,
}

/// Why a board was not opened. Nothing on it was changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum OpenError {
    #[error("another process holds {}: {holder}", path.display())]
    Held { path: PathBuf, holder: String },
}

/// How the board is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Grows whenever the writer does something, waiting for another process included.
    pub progress: u64,
    /// Works that wait or are being done; 0 means that no progress is due.
    pub waiting: u64,
    /// Whether new work is refused.
    pub disk_full: bool,
    /// Size of the write-ahead log.
    pub wal_bytes: u64,
}

/// The moment and the circumstances of a use case.
#[derive(Clone, Debug)]
pub struct When {
    /// Both clocks.
    pub now: Now,
    /// The epoch of the monotonic one.
    pub epoch: Epoch,
    /// The boot, as the board remembers it.
    pub boot: BootId,
    /// The configuration.
    pub policy: Arc<Policy>,
    /// Random; jitter is made of it and of the run's number.
    pub seed: u64,
}

/// A read transaction.
pub struct Snapshot<'c> {
    connection: &'c rusqlite::Connection,
}

/// One work inside a write transaction. Reads as a [`Snapshot`] does.
pub struct Tx<'c> {
    snapshot: Snapshot<'c>,
    changes: Vec<Change>,
}

impl<'c> std::ops::Deref for Tx<'c> {
    type Target = Snapshot<'c>;

    fn deref(&self) -> &Self::Target {
        &self.snapshot
    }
}

impl Tx<'_> {
    /// Something to tell after the commit.
    pub fn change(&mut self, change: Change) {
        self.changes.push(change);
    }
}

impl Store {
    /// Locks, opens, creates or migrates the board. `on_commit` is called on the writer's thread after each
    /// commit with what that commit changed, in order.
    ///
    /// # Errors
    /// [`OpenError`]; the text names what helps.
    pub fn open(_options: Options, _on_commit: Box<dyn Fn(&[Change]) + Send>) -> Result<Self, OpenError> {
        todo!()
    }

    /// Does one work in a write transaction; returns after its commit.
    ///
    /// # Errors
    /// What the work said (then it changed nothing), or a fault of the board.
    pub async fn write<T: Send + 'static>(
        &self,
        _doing: &'static str,
        _work: impl FnOnce(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        todo!()
    }

    /// As [`Store::write`], for the ends of runs: done once more on the reserve if the disk is full.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn write_end<T: Send + 'static>(
        &self,
        _doing: &'static str,
        _work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        todo!()
    }

    /// Reads one consistent state.
    ///
    /// # Errors
    /// What the work said, or a fault of the board.
    pub async fn read<T: Send + 'static>(
        &self,
        _doing: &'static str,
        _work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        todo!()
    }

    /// How the board is.
    pub fn health(&self) -> Health {
        todo!()
    }

    /// Writes a copy by SQLite's own backup.
    ///
    /// # Errors
    /// A fault of the board or of the disk.
    pub async fn backup(&self, _to: &Path) -> Result<(), Error> {
        todo!()
    }

    /// Grows by one after each commit that made something ready or made room.
    pub fn ready(&self) -> tokio::sync::watch::Receiver<u64> {
        todo!()
    }

    /// Finishes what is queued, empties the write-ahead log and lets go of the lock.
    pub fn close(self) {
        todo!()
    }
}
