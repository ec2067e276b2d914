//! `tenured-exec`: the tiny supervisor that stands between the daemon and one worker.

use std::process::ExitCode;

/// Runs as the supervisor of one run; called when the program's name (argv[0]) is `tenured-exec`.
pub fn main() -> ExitCode {
    ExitCode::from(125)
}
