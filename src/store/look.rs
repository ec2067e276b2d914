//! Looks at what is in the state directory before anything is touched. What cannot be trusted is refused and
//! left exactly as it is: it is looked at through a read-only connection that neither checkpoints nor repairs.

#![expect(clippy::disallowed_methods, reason = "the board's files are this adapter's own")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::core::state_dir::StateDir;
use crate::store::lock::Memory;
use crate::store::migrate::{self, APPLICATION_ID};
use crate::store::open::{OPEN_WAIT, OpenError};
use crate::store::reserve::Reserve;
use crate::store::settings;

/// The last event that was ever committed; events that retention removed count.
pub(super) fn last_event(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))
}

pub(super) enum Found {
    Nothing,
    Board { schema: i32 },
}

/// Looks at what is there, without changing it.
pub(super) fn look(state: &StateDir, memory: Memory, steps: &[&str]) -> Result<Found, OpenError> {
    let path = state.board();
    let there = header(&path)?;
    let lost = |what| OpenError::Lost { path: path.clone(), what };
    let before = memory.existed || size(&state.wal()) > 0;
    match there {
        Header::Missing if before => return Err(lost("there is no board")),
        Header::Empty if before => return Err(lost("the board is an empty file")),
        Header::Missing | Header::Empty => return Ok(Found::Nothing),
        Header::Foreign if before => {
            return Err(OpenError::Damaged { path, what: "its header is not SQLite's".to_owned() });
        }
        Header::Foreign => return Err(OpenError::Foreign { path, what: "no SQLite file" }),
        Header::Sqlite => {}
    }
    let seen = examine_with_room(state)?;
    if seen.application_id != APPLICATION_ID {
        if seen.application_id != 0 || seen.tables > 0 {
            return Err(OpenError::Foreign { path, what: "an SQLite file of another program" });
        }
        // Creating it was cut short: the header was written and the schema was not.
        return if memory.existed { Err(lost("the board has no tables")) } else { Ok(Found::Nothing) };
    }
    let known = migrate::newest(steps);
    if seen.schema > known {
        return Err(OpenError::Newer { path, found: seen.schema, known });
    }
    if let Some(what) = seen.damage {
        return Err(OpenError::Damaged { path, what });
    }
    if seen.last_event < memory.last_event && !seen.is_backup {
        return Err(OpenError::Older {
            path,
            lock: state.lock(),
            found: seen.last_event,
            remembered: memory.last_event,
        });
    }
    Ok(Found::Board { schema: seen.schema })
}

enum Header {
    Missing,
    Empty,
    Foreign,
    Sqlite,
}

/// Looks at the first bytes. Nothing of ours has the file open yet, so that closing it drops no lock.
fn header(path: &Path) -> Result<Header, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), doing: "looking at it", source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Header::Missing),
        Err(error) => return Err(io(error)),
    };
    let mut bytes = Vec::new();
    file.take(16).read_to_end(&mut bytes).map_err(io)?;
    Ok(match bytes.as_slice() {
        [] => Header::Empty,
        b"SQLite format 3\0" => Header::Sqlite,
        _ => Header::Foreign,
    })
}

/// Looks; where the disk has no room even for that, the reserve is given back first: on a full disk too the
/// ends of runs are to be recorded.
fn examine_with_room(state: &StateDir) -> Result<Seen, OpenError> {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, SystemIoFailure};
    let path = state.board();
    let mut seen = examine(&path);
    let code =
        |seen: &rusqlite::Result<Seen>| seen.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
    if matches!(code(&seen), Some(DiskFull | SystemIoFailure | CannotOpen)) && size(&state.reserve()) > 0 {
        Reserve::give_back(&state.reserve());
        seen = examine(&path);
    }
    let code = code(&seen);
    seen.map_err(|source| match code {
        Some(DatabaseCorrupt | NotADatabase) => OpenError::Damaged { path, what: source.to_string() },
        // A disk or a directory that does not let us is no damage.
        _ => OpenError::Sqlite { path, doing: "looking at it", source },
    })
}

struct Seen {
    application_id: i32,
    schema: i32,
    tables: i64,
    damage: Option<String>,
    last_event: i64,
    is_backup: bool,
}

/// Reads what the file says of itself, and lets SQLite check it.
fn examine(path: &Path) -> rusqlite::Result<Seen> {
    let board = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // Looking must not change anything: without this the last one to close would empty the log.
    board.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    board.busy_timeout(OPEN_WAIT)?;
    board.pragma_update(None, "cell_size_check", true)?;
    let mut seen = Seen {
        application_id: board.pragma_query_value(None, "application_id", |row| row.get(0))?,
        schema: board.pragma_query_value(None, "user_version", |row| row.get(0))?,
        tables: board.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        damage: None,
        last_event: 0,
        is_backup: false,
    };
    if seen.application_id != APPLICATION_ID {
        return Ok(seen);
    }
    let checked: String = board.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if checked != "ok" {
        seen.damage = Some(checked);
        return Ok(seen);
    }
    seen.last_event = last_event(&board)?;
    seen.is_backup =
        board.query_row("SELECT count(*) > 0 FROM settings WHERE name = ?1", [settings::BACKUP], |row| {
            row.get(0)
        })?;
    Ok(seen)
}

pub(super) fn has_setting(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) > 0 FROM settings WHERE name = ?1", [name], |row| row.get(0))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
