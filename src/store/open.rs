//! Opening a board: lock, look before touching, create or migrate, set up the connections. An empty board is
//! made only where nothing says that there was one before.

#![expect(clippy::disallowed_methods, reason = "the board's files are this adapter's own")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::core::state_dir::StateDir;
use crate::store::lock::{Lock, Memory, NotLocked};
use crate::store::look::{Found, has_setting, last_event, look};
use crate::store::migrate::{self, STEPS};
use crate::store::reserve::Reserve;
use crate::store::{Options, settings};

/// Statements that a connection keeps prepared; more than the product has.
const STATEMENTS: usize = 256;

/// How long an open waits for another process that holds the write lock.
pub(super) const OPEN_WAIT: Duration = Duration::from_secs(10);

/// How long one attempt at the write lock waits; the writer tries again.
pub(super) const WRITE_WAIT: Duration = Duration::from_secs(1);

/// A longer write-ahead log is cut to this when it starts over.
const WAL_KEPT_BYTES: i64 = 64 * 1_024 * 1_024;

/// Why a board was not opened. Its files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is one daemon per board.
    #[error("the board {} is held by {holder}; one daemon serves a board", path.display())]
    Held {
        /// The board.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// A board was here, and what is here now is not it.
    #[error("{}", remedy(path, &format!("{what}, but there was a board here before")))]
    Lost {
        /// The board.
        path: PathBuf,
        /// What is here now.
        what: &'static str,
    },
    /// Commits that were acknowledged are missing.
    #[error(
        "{}",
        remedy(path, &format!(
            "it ends at event {found} and had been committed up to event {remembered}: its write-ahead log is \
             missing, or it is an older copy (if that is meant, remove {})", lock.display()))
    )]
    Older {
        /// The board.
        path: PathBuf,
        /// Its lock, which remembers.
        lock: PathBuf,
        /// The last event on the board.
        found: i64,
        /// The last event that was committed.
        remembered: i64,
    },
    /// Not a board.
    #[error("{} is not a board of tenured ({what}); move it away, or give another state directory", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// SQLite's check found damage.
    #[error("{}", remedy(path, &format!("it is damaged ({what})")))]
    Damaged {
        /// The board.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Of a later version.
    #[error(
        "the board {} has schema {found}, and this version of tenured knows schemas up to {known}; install the version that wrote it",
        path.display()
    )]
    Newer {
        /// The board.
        path: PathBuf,
        /// Its schema.
        found: i32,
        /// Ours.
        known: i32,
    },
    /// SQLite.
    #[error("the board {} cannot be opened while {doing}: {source}", path.display())]
    Sqlite {
        /// The board.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
    /// The operating system.
    #[error("{} cannot be used while {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Whether opening it again finds the same, until somebody has done something about it.
    #[must_use]
    pub fn lasts(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::Older { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::Newer { .. } => true,
            Self::Held { .. } | Self::Sqlite { .. } | Self::Io { .. } => false,
        }
    }
}

/// The two commands that help with a board that cannot be trusted.
fn remedy(board: &Path, what: &str) -> String {
    let board = board.display();
    format!(
        "the board {board} is not opened: {what}. It is left as it is. Keep a copy of the whole directory, then \
         either put a backup in its place: `rm -f {board}-wal {board}-shm && cp BACKUP {board}`, \
         or save what can be read: `sqlite3 {board} .recover | sqlite3 {board}.recovered`"
    )
}

/// An open board.
pub(super) struct Opened {
    pub(super) board: Board,
    pub(super) is_draining: bool,
    pub(super) readers: Vec<Connection>,
}

/// What the writer owns.
pub(super) struct Board {
    pub(super) connection: Connection,
    pub(super) lock: Lock,
    pub(super) reserve: Reserve,
}

/// Opens.
pub(super) fn open(options: &Options) -> Result<Opened, OpenError> {
    open_with(options, STEPS)
}

/// Opens with any list of schemas, for the tests of migrations.
pub(super) fn open_with(options: &Options, steps: &[&str]) -> Result<Opened, OpenError> {
    let state = &options.state;
    let path = state.board();
    make_directory(state)?;
    let mut lock = Lock::take(&state.lock()).map_err(|error| match error {
        NotLocked::Held(holder) => OpenError::Held { path: path.clone(), holder },
        NotLocked::Io(source) => OpenError::Io { path: state.lock(), doing: "locking", source },
    })?;
    let found = look(state, lock.memory(), steps)?;
    if let Found::Nothing = found {
        make_board(state, steps)?;
    }
    let sqlite = |doing| move |source| OpenError::Sqlite { path: state.board(), doing, source };
    let mut connection = connect(&path).map_err(sqlite("connecting"))?;
    connection.busy_timeout(OPEN_WAIT).map_err(sqlite("connecting"))?;
    match found {
        Found::Board { schema } if schema < migrate::newest(steps) => {
            upgrade(&mut connection, state, schema, steps)?;
        }
        Found::Board { .. } | Found::Nothing => {}
    }
    set_up_writer(&connection).map_err(sqlite("setting it up"))?;
    let last_event = last_event(&connection).map_err(sqlite("reading the last event"))?;
    let is_draining = has_setting(&connection, settings::DRAINING).map_err(sqlite("reading its settings"))?;
    lock.remember(Memory { existed: true, last_event }).map_err(|source| OpenError::Io {
        path: state.lock(),
        doing: "remembering the board",
        source,
    })?;
    let readers = (0..options.readers.max(1))
        .map(|_| reader(&path))
        .collect::<rusqlite::Result<Vec<_>>>()
        .map_err(sqlite("connecting readers"))?;
    let reserve = Reserve::new(state.reserve(), options.reserve_bytes);
    Ok(Opened { board: Board { connection, lock, reserve }, is_draining, readers })
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // One plan for each statement, whatever is bound to it: otherwise SQLite compares bound values with the
    // conditions of partial indexes, and prepares a statement anew whenever another value is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

fn set_up_writer(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(rusqlite::Error::InvalidParameterName(format!("journal_mode is {mode} and must be wal")));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The writer checkpoints by itself, when that disturbs nobody.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    // A backup that was put back is the board from now on. Asked first: nothing is written without need.
    if has_setting(connection, settings::BACKUP)? {
        connection.execute("DELETE FROM settings WHERE name = ?1", [settings::BACKUP])?;
    }
    connection.busy_timeout(WRITE_WAIT)
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path)?;
    connection.busy_timeout(OPEN_WAIT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Makes an empty board under another name, and gives it its own when it is whole: a creation that is cut
/// short leaves nothing that could be taken for a board, or for a damaged one.
fn make_board(state: &StateDir, steps: &[&str]) -> Result<(), OpenError> {
    let path = state.board();
    let fresh = state.0.join("board.db.new");
    let io = |source| OpenError::Io { path: fresh.clone(), doing: "creating a board", source };
    let sqlite = |source| OpenError::Sqlite { path: fresh.clone(), doing: "creating a board", source };
    for part in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(state.0.join(format!("board.db.new{part}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            Ok(()) | Err(_) => {}
        }
    }
    make_file(&fresh)?;
    let mut connection = connect(&fresh).map_err(sqlite)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sqlite)?;
    // In its final mode before it has its name: the change of mode has a rollback journal of its own.
    let _: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(sqlite)?;
    migrate::migrate(&mut connection, 0, steps).map_err(sqlite)?;
    connection.close().map_err(|(_, source)| sqlite(source))?;
    fs::rename(&fresh, &path).map_err(io)?;
    // The name must outlive a power cut before the lock remembers that there is a board.
    File::open(&state.0).and_then(|directory| directory.sync_all()).map_err(io)
}

/// Migrates after a backup.
fn upgrade(
    connection: &mut Connection,
    state: &StateDir,
    from: i32,
    steps: &[&str],
) -> Result<(), OpenError> {
    let to = state.0.join(format!("board.db.schema-{from}.backup"));
    let fresh = state.0.join(format!("board.db.schema-{from}.backup.part"));
    let io = |source| OpenError::Io { path: to.clone(), doing: "backing up before a migration", source };
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        Ok(()) | Err(_) => {}
    }
    crate::store::backup::write(connection, &fresh).map_err(|error| io(io::Error::other(error)))?;
    fs::rename(&fresh, &to).map_err(io)?;
    migrate::migrate(connection, from, steps).map_err(|source| OpenError::Sqlite {
        path: state.board(),
        doing: "migrating it",
        source,
    })
}

fn make_directory(state: &StateDir) -> Result<(), OpenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(&state.0).map_err(|source| OpenError::Io {
        path: state.0.clone(),
        doing: "making the state directory",
        source,
    })
}

fn make_file(path: &Path) -> Result<(), OpenError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(|_| ())
        .map_err(|source| OpenError::Io { path: path.to_owned(), doing: "making it", source })
}
