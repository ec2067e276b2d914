//! What is where in the state directory: names alone, nothing is opened here.

use std::path::PathBuf;

use crate::core::ids::{Nonce, RunId};

/// Where the pieces of the state directory are.
#[derive(Clone, Debug)]
pub struct StateDir(pub PathBuf);

impl StateDir {
    /// The board.
    pub fn board(&self) -> PathBuf {
        self.0.join("board.db")
    }

    /// The board's write-ahead log.
    pub fn wal(&self) -> PathBuf {
        self.0.join("board.db-wal")
    }

    /// The space that is set aside for a full disk.
    pub fn reserve(&self) -> PathBuf {
        self.0.join("reserve")
    }

    /// A copy of the board that somebody asked for.
    pub fn backup(&self, name: &str) -> PathBuf {
        self.0.join(format!("backup-{name}.db"))
    }

    /// The lock that one daemon holds.
    pub fn lock(&self) -> PathBuf {
        self.0.join("board.lock")
    }

    /// Where the exit records are.
    pub fn records(&self) -> PathBuf {
        self.0.join("exits")
    }

    /// The exit record of a run.
    pub fn record(&self, run: RunId, nonce: &Nonce) -> PathBuf {
        self.records().join(format!("{run}-{nonce}"))
    }

    /// Where the output files are.
    pub fn outputs(&self) -> PathBuf {
        self.0.join("output")
    }

    /// The output file of a run; the older part is beside it with `.1`.
    pub fn output(&self, run: RunId) -> PathBuf {
        self.outputs().join(format!("{run}.log"))
    }

    /// The part of a run's output that was put aside when the file was full.
    pub fn older_output(&self, run: RunId) -> PathBuf {
        self.outputs().join(format!("{run}.log.1"))
    }
}
