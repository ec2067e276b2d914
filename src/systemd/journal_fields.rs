//! Tells journald which task a scope's lines belong to, so that `journalctl TENURED_TASK=42` shows them.
//!
//! Best effort: the file is systemd's own affair, which it writes for services with LogExtraFields= and not
//! for scopes; where journald reads it no more, `journalctl -t tenured-42` and `tenurectl logs` show the
//! same lines.
//!
//! Source: systemd src/core/unit.c, unit_export_log_extra_fields(): for each field its length (64 bits,
//! little endian) and `NAME=value`.

#![expect(clippy::disallowed_methods, reason = "an adapter: writes the file that journald reads")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::core::ids::{RunId, TaskId};

const DIRECTORY: &str = "/run/systemd/units";
const PREFIX: &str = "log-extra-fields:";

/// Writes the fields of a run's scope. What cannot be written is only said.
pub fn write(unit: &str, task: TaskId, run: RunId) {
    if let Err(error) = write_in(Path::new(DIRECTORY), unit, task, run) {
        tracing::debug!(unit, %error, "journald was not told whose lines they are");
    }
}

/// Removes them.
pub fn remove(unit: &str) {
    // One that is not there is as good, and one that stays costs a file in memory until the next boot.
    let _ = fs::remove_file(path(Path::new(DIRECTORY), unit));
}

fn path(directory: &Path, unit: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{unit}"))
}

fn write_in(directory: &Path, unit: &str, task: TaskId, run: RunId) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".#tenured-").tempfile_in(directory)?;
    file.write_all(&contents(task, run))?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    file.persist(path(directory, unit))?;
    Ok(())
}

fn contents(task: TaskId, run: RunId) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [format!("TENURED_TASK={task}"), format!("TENURED_RUN={run}")] {
        bytes.extend((field.len() as u64).to_le_bytes());
        bytes.extend(field.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_comes_after_its_length() {
        let directory = tempfile::tempdir().unwrap();
        write_in(directory.path(), "a.scope", TaskId::new(42), RunId::new(7)).unwrap();
        let written = fs::read(directory.path().join("log-extra-fields:a.scope")).unwrap();
        assert_eq!(written, b"\x0f\0\0\0\0\0\0\0TENURED_TASK=42\x0d\0\0\0\0\0\0\0TENURED_RUN=7");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }
}
