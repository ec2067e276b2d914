//! A board in a directory of its own, for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;
use crate::core::policy::Policy;
use crate::core::state_dir::StateDir;
use crate::core::time::{MonoMs, Now, WallUsec};
use crate::core::view::Change;
use crate::store::{Options, Store, When};

/// The wall clock of tests begins here, microseconds.
pub const WALL_USEC: i64 = 1_700_000_000_000_000;

/// The epoch of tests.
pub fn epoch() -> Epoch {
    Epoch::parse("6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b:4026531836:4026531834:2").unwrap()
}

/// Another boot.
pub fn other_epoch() -> Epoch {
    Epoch { boot_id: "11111111-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(), ..epoch() }
}

/// The moment `mono_ms`; both clocks go at one pace.
pub fn at(mono_ms: i64) -> When {
    let now = Now { mono: MonoMs(mono_ms), wall: WallUsec(WALL_USEC + mono_ms * 1_000) };
    When { now, epoch: epoch(), boot: BootId::new(1), policy: Arc::new(Policy::for_cpus(2)), seed: 0 }
}

/// As [`at`], with another configuration.
pub fn at_with(mono_ms: i64, change: impl FnOnce(&mut Policy)) -> When {
    let mut policy = Policy::for_cpus(2);
    change(&mut policy);
    When { policy: Arc::new(policy), ..at(mono_ms) }
}

/// A board, and what its commits told.
pub struct Board {
    /// The board.
    pub store: Store,
    /// What was told.
    pub told: Arc<Mutex<Vec<Change>>>,
    directory: TempDir,
}

impl Board {
    /// A new one.
    pub fn new() -> Self {
        Self::in_directory(tempfile::tempdir().unwrap())
    }

    /// What is in a directory.
    pub fn in_directory(directory: TempDir) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = Arc::clone(&told);
        let store = Store::open(
            options(directory.path()),
            Box::new(move |changes| teller.lock().unwrap().extend_from_slice(changes)),
        )
        .unwrap();
        Self { store, told, directory }
    }

    /// Takes what was told so far.
    pub fn take_told(&self) -> Vec<Change> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    /// Where it is.
    pub fn state(&self) -> StateDir {
        StateDir(self.directory.path().to_owned())
    }

    /// Another process' hands: SQL through a connection of its own.
    pub fn by_hand(&self, sql: &str) {
        self.raw().execute_batch(sql).unwrap();
    }

    /// A number that another process reads.
    pub fn number(&self, sql: &str) -> i64 {
        self.raw().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// A text that another process reads; NULL is empty.
    pub fn text(&self, sql: &str) -> String {
        self.raw().query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap().unwrap_or_default()
    }

    fn raw(&self) -> rusqlite::Connection {
        let raw = rusqlite::Connection::open(self.state().board()).unwrap();
        raw.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        raw
    }

    /// Lets go of it; its directory stays.
    pub fn close(self) -> TempDir {
        self.store.close();
        self.directory
    }
}

/// Options for a small board.
pub fn options(directory: &std::path::Path) -> Options {
    Options { state: StateDir(PathBuf::from(directory)), reserve_bytes: 0, readers: 2 }
}
