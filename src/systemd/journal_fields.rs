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
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::core::ids::{RunId, TaskId};
use crate::core::time::WallUsec;
use crate::core::unit;

const DIRECTORY: &str = "/run/systemd/units";
const PREFIX: &str = "log-extra-fields:";
/// What is younger may belong to a scope that is being made, or whose lines are still on their way.
const KEPT_USEC: i64 = 60 * 1_000_000;

/// Writes the fields of a run's scope. What cannot be written is only said.
pub fn write(unit: &str, task: TaskId, run: RunId) {
    if let Err(error) = write_in(Path::new(DIRECTORY), unit, task, run) {
        tracing::debug!(unit, %error, "journald was not told whose lines they are");
    }
}

/// Removes those of scopes that are over. Not at once: journald reads them when it gets to a scope's first
/// line, which may be after its last.
pub fn tidy(now: WallUsec) {
    if let Err(error) = tidy_in(Path::new(DIRECTORY), now) {
        tracing::debug!(%error, "cannot tidy what journald was told; it stays until the next boot");
    }
}

fn tidy_in(directory: &Path, now: WallUsec) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let unit = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(unit) = unit.filter(|unit| unit::is_scope(unit)) else { continue };
        let written_usec = entry.metadata()?.mtime().saturating_mul(1_000_000);
        let is_old = now.0.saturating_sub(written_usec) > KEPT_USEC;
        // The manager takes this link away when the unit ends.
        if is_old && fs::symlink_metadata(directory.join(format!("invocation:{unit}"))).is_err() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
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
    #[test]
    fn only_what_is_ours_and_long_over_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let scope = |run| format!("tenured-1-run-{run}-{}.scope", "0".repeat(32));
        for run in [1, 2] {
            write_in(directory.path(), &scope(run), TaskId::new(1), RunId::new(run)).unwrap();
        }
        for name in ["log-extra-fields:other.service".to_owned(), format!("invocation:{}", scope(2))] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let written = fs::metadata(directory.path().join("log-extra-fields:other.service")).unwrap().mtime();
        let after = |seconds: i64| WallUsec((written + seconds) * 1_000_000);
        tidy_in(directory.path(), after(30)).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "its lines may be on their way");
        tidy_in(directory.path(), after(120)).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let running = format!("log-extra-fields:{}", scope(2));
        assert_eq!(
            left,
            [format!("invocation:{}", scope(2)).as_str(), "log-extra-fields:other.service", &running]
        );
    }
}
