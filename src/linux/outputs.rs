//! The output files in the state directory.

#![expect(clippy::disallowed_methods, reason = "an adapter: it lists and removes the output files")]

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::core::ids::RunId;
use crate::core::state_dir::StateDir;

/// The runs that have output there; what has no name of an output file is none.
///
/// # Errors
/// Where the directory cannot be read.
pub fn all(state: &StateDir) -> io::Result<Vec<RunId>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(state.outputs())? {
        let name = entry?.file_name();
        let run = name
            .to_str()
            .and_then(|name| name.strip_suffix(".1").unwrap_or(name).strip_suffix(".log"))
            .and_then(|run| run.parse().ok());
        found.extend(run.map(RunId::new));
    }
    Ok(found.into_iter().collect())
}

/// Removes the output of a run, the older part first: what is left by half is still an output.
pub fn remove(state: &StateDir, run: RunId) {
    for path in [state.older_output(run), state.output(run)] {
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot remove an output file; leaving it");
            }
        }
    }
}
