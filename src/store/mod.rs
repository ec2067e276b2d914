//! The durable board: SQLite and the only SQL of the product.
//!
//! Owns `board.db`, its lock and its reserve file. Never looks at a process and never reads the wall clock:
//! every moment comes in as a [`When`]. Never opens `board.db` as a plain file while SQLite has it open:
//! closing such a descriptor would drop SQLite's own locks (fcntl(2), "advisory record locks").
//!
//! One thread writes (`writer`); a few connections read (`readers`). What is said to be done is on the
//! disk: answers are given after the commit, with synchronous=FULL.

pub mod boots;
pub mod claim;
pub mod comments;
pub mod leavings;
pub mod links;
pub mod query;
pub mod queues;
pub mod runs;
pub mod settings;
pub mod start;
pub mod sweep;
pub mod tasks;

mod back_off;
mod backup;
mod choose;
mod due;
mod events;
mod jobs;
mod lists;
mod lock;
mod look;
mod migrate;
mod moves;
mod open;
mod output;
mod readers;
mod release;
mod reserve;
mod rows;
mod settle;
mod sql;
mod stops;
mod tx;
mod when;
mod writer;

#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod open_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod writer_tests;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use crate::core::fault::Error;
use crate::core::happening::Happening;
use crate::core::state_dir::StateDir;
use crate::core::view::Change;

pub use open::OpenError;
pub use output::open as open_output;
pub use tx::{Snapshot, Tx};
pub use when::When;

/// The board, open. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    writer: writer::Writer,
    readers: readers::Readers,
    was_draining: bool,
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

/// How the board is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Grows whenever the writer does something, waiting for another process included.
    pub progress: u64,
    /// Works that wait or are being done; where it is 0, no progress is due.
    pub waiting: u64,
    /// How long the oldest work that is being done has waited, milliseconds.
    pub oldest_ms: u64,
    /// Reads that wait or are being done.
    pub reading: u64,
    /// Whether new work is refused.
    pub disk_full: bool,
    /// What the write-ahead log holds, bytes.
    pub wal_bytes: u64,
}

impl Health {
    /// Whether the write-ahead log has grown beyond what checkpoints should leave: somebody holds an old
    /// snapshot.
    pub const fn is_wal_large(&self) -> bool {
        self.wal_bytes > 4 * writer::WAL_BUSY_BYTES
    }
}

/// Called on the writer's thread after each commit, with what that commit changed, in order.
pub type OnCommit = Box<dyn Fn(&[Change]) + Send>;

impl Store {
    /// Locks, opens, creates or migrates the board.
    ///
    /// # Errors
    /// [`OpenError`]; the text names what helps. The files are left as they were.
    pub fn open(options: Options, on_commit: OnCommit) -> Result<Self, OpenError> {
        let opened = open::open(&options)?;
        let readers = readers::Readers::new(opened.readers);
        let writer = writer::Writer::start(opened.board, on_commit)?;
        Ok(Self { inner: Arc::new(Inner { writer, readers, was_draining: opened.is_draining }) })
    }

    /// Does one work in a write transaction; returns after its commit.
    ///
    /// # Errors
    /// What the work said (then it changed nothing), or a fault of the board.
    pub async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.inner.writer.once(doing, work).await
    }

    /// As [`Store::write`], for the ends of runs: done once more, on the reserve, if the disk is full.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn write_end<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.inner.writer.again(doing, work).await
    }

    /// Reads one consistent state.
    ///
    /// # Errors
    /// What the work said, or a fault of the board.
    pub async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.inner.readers.read(doing, work).await
    }

    /// As [`Store::read`], for lists and whatever else may take long: however many there are, short reads do
    /// not wait for them.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub async fn read_page<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.inner.readers.read_page(doing, work).await
    }

    /// How the board is.
    pub fn health(&self) -> Health {
        Health { reading: self.inner.readers.reading(), ..self.inner.writer.health() }
    }

    /// Writes a copy by SQLite's own backup. The copy knows that it is one, so that it may be put back.
    ///
    /// # Errors
    /// A fault of the board or of the disk; [`crate::core::refusal::Refusal::Busy`] if `to` exists.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        let to = to.to_owned();
        self.inner.readers.whole("a backup", move |board| backup::write(board, &to)).await
    }

    /// Grows after each commit that made something ready or made room.
    pub fn ready(&self) -> watch::Receiver<u64> {
        self.inner.writer.ready()
    }

    /// Whether the board was draining when it was opened.
    pub fn was_draining(&self) -> bool {
        self.inner.was_draining
    }

    /// Tells, now and whenever it changes, whether the disk is full. Called on the writer's thread.
    pub fn on_disk_full(&self, tell: impl Fn(bool) + Send + 'static) {
        self.inner.writer.on_disk_full(Box::new(tell));
    }

    /// Tells what has happened, once each, after the commit and its answers. Called on the writer's thread.
    pub fn on_happened(&self, tell: impl Fn(Vec<Happening>) + Send + 'static) {
        self.inner.writer.on_happened(Box::new(tell));
    }

    /// Finishes what is queued, empties the write-ahead log and lets go of the lock. Blocks.
    pub fn close(self) {
        self.inner.readers.close();
        self.inner.writer.close();
    }
}
