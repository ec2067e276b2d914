//! A run's output where it goes to the journal: read by `journalctl`, which knows every format and rotation.
//!
//! Lines come as journald keeps them: each whole, without the space at its end and without a level prefix. Of
//! a scope, what has been shown is remembered by the journal's own
//! cursor, so that nothing is shown twice and nothing is left out between two looks. A run without a scope
//! is told from the other runs of its task by its time alone, which goes with no cursor: its lines are shown
//! all at once, when it has ended or when they are asked for; and its identifier is a name that anybody may
//! log under, which a unit of the system's manager is not.

#![expect(clippy::disallowed_methods, reason = "an adapter: starts journalctl")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::bus::proxy::{Endpoint, Row};
use crate::cli::failure::Failure;
use crate::cli::render::{aside, line};
use crate::cli::row::Fields as _;

/// Between two looks while the run goes on.
const LOOK: Duration = Duration::from_millis(300);
/// After the end journald may still be at work on the last lines: looked at again after this, until nothing
/// more comes.
const SETTLE: Duration = Duration::from_millis(100);
/// Such looks at most.
const SETTLE_LOOKS: u32 = 20;
/// Looks that must find nothing more where journald could not be asked to get done.
const QUIET_LOOKS: u32 = 5;

/// The lines of one run.
#[derive(Debug)]
pub struct Journal {
    run: u64,
    matches: Vec<String>,
    /// Holds the cursor, where there is one.
    place: Option<TempDir>,
}

impl Journal {
    /// The output of this run, by its row and its task's; none if it does not go to the journal.
    ///
    /// # Errors
    /// Where no place is to be had for the cursor.
    pub fn of(endpoint: &Endpoint, run: &Row, task: &Row) -> Result<Option<Self>, Failure> {
        let (matches, place) = match run.text("Unit") {
            "" if task.text("Output") == "journal" => (by_time(run), None),
            "" => return Ok(None),
            unit => (of_unit(unit, endpoint), Some(tempfile::tempdir()?)),
        };
        Ok(Some(Self { run: run.number("Run"), matches, place }))
    }

    /// Waits until there may be more.
    pub async fn grown(&self) {
        tokio::time::sleep(LOOK).await;
    }

    /// Prints what is new. `ended` says that no more will be written.
    ///
    /// # Errors
    /// Where journalctl cannot be started, or refuses.
    pub async fn pump(&mut self, ended: bool) -> Result<(), Failure> {
        // Not everybody may; without it the looks below wait longer for the last lines.
        let is_done = ended
            && self
                .journalctl()
                .arg("--sync")
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|done| done.success());
        if self.place.is_none() {
            return if ended { self.print() } else { Ok(()) };
        }
        self.print()?;
        if !ended {
            return Ok(());
        }
        let wanted = if is_done { 1 } else { QUIET_LOOKS };
        let mut quiet = 0;
        for _ in 0..SETTLE_LOOKS {
            let before = self.cursor();
            tokio::time::sleep(SETTLE).await;
            self.print()?;
            quiet = if self.cursor() == before { quiet + 1 } else { 0 };
            if quiet == wanted {
                break;
            }
        }
        if self.cursor().is_none() && !rustix::process::geteuid().is_root() {
            aside(&format!(
                "nothing of run {} is in the journal that you may read (root and the group systemd-journal see all of it)",
                self.run
            ));
        }
        Ok(())
    }

    fn journalctl(&self) -> Command {
        let mut command = Command::new("journalctl");
        command.stdin(Stdio::null());
        command
    }

    fn print(&self) -> Result<(), Failure> {
        std::io::stdout().flush()?;
        let cursor = self
            .place
            .as_ref()
            .map(|place| format!("--cursor-file={}", place.path().join("cursor").display()));
        let shown = self
            .journalctl()
            .args(["--quiet", "--no-pager", "--all", "--output=cat"])
            .args(cursor)
            .args(&self.matches)
            .stderr(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        // Some versions end with 1 where there is nothing to show, and say nothing.
        let said = String::from_utf8_lossy(&shown.stderr);
        if shown.status.success() || said.trim().is_empty() {
            return Ok(());
        }
        Err(Failure::own(
            format!("journalctl could not show the output of run {}: {}", self.run, line(said.trim())),
            "See whether `journalctl -n1` works for you.".to_owned(),
        ))
    }

    fn cursor(&self) -> Option<Vec<u8>> {
        std::fs::read(self.place.as_ref()?.path().join("cursor")).ok()
    }
}

/// Lines of a scope: of the manager that this daemon uses, where that is known. Anybody may have a unit of the
/// same name under a manager of his own.
fn of_unit(unit: &str, endpoint: &Endpoint) -> Vec<String> {
    let of_system = format!("_SYSTEMD_UNIT={unit}");
    let of_user = format!("_SYSTEMD_USER_UNIT={unit}");
    match endpoint {
        Endpoint::System => vec![of_system],
        Endpoint::Session => vec![of_user, format!("_UID={}", rustix::process::getuid().as_raw())],
        Endpoint::Address(_) => vec![of_system, "+".to_owned(), of_user],
    }
}

fn by_time(run: &Row) -> Vec<String> {
    let mut matches = vec![
        format!("SYSLOG_IDENTIFIER=tenured-{}", run.number("Task")),
        format!("--since={}", at(run.number("StartedUsec"))),
    ];
    if let ended @ 1.. = run.number("EndedUsec") {
        // The last lines are stamped when journald gets to them.
        matches.push(format!("--until={}", at(ended.saturating_add(1_000_000))));
    }
    matches
}

/// Microseconds since the epoch, as journalctl reads them. Source: systemd.time(7).
fn at(usec: u64) -> String {
    format!("@{}.{:06}", usec / 1_000_000, usec % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zbus::OwnedVariant;

    fn row(fields: &[(&str, &str)]) -> Row {
        let owned = |text: &str| OwnedVariant::try_from(zbus::Variant::from(text)).unwrap();
        fields.iter().map(|(name, text)| ((*name).to_owned(), owned(text))).collect()
    }

    #[test]
    fn a_scope_is_matched_by_its_unit_of_the_daemons_own_manager() {
        let of = |endpoint: Endpoint| {
            Journal::of(&endpoint, &row(&[("Unit", "a.scope")]), &row(&[])).unwrap().unwrap().matches
        };
        assert_eq!(of(Endpoint::System), ["_SYSTEMD_UNIT=a.scope"]);
        assert_eq!(of(Endpoint::Session)[0], "_SYSTEMD_USER_UNIT=a.scope");
        let either = ["_SYSTEMD_UNIT=a.scope", "+", "_SYSTEMD_USER_UNIT=a.scope"];
        assert_eq!(of(Endpoint::Address("unix:path=/x".to_owned())), either);
    }

    #[test]
    fn a_run_whose_output_goes_elsewhere_is_not_looked_for() {
        assert!(
            Journal::of(&Endpoint::System, &row(&[("Unit", "")]), &row(&[("Output", "file")]))
                .unwrap()
                .is_none()
        );
        assert!(
            Journal::of(&Endpoint::System, &row(&[("Unit", "")]), &row(&[("Output", "journal")]))
                .unwrap()
                .is_some()
        );
    }
}
