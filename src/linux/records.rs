//! The exit records in the state directory.

#![expect(clippy::disallowed_methods, reason = "an adapter: it reads and removes the records")]

use std::fs;
use std::io::{self, Read as _};

use crate::core::ids::{Nonce, RunId};
use crate::core::record::{RECORD_BYTES, Record};
use crate::core::state_dir::StateDir;
use crate::ports::Records;

impl Records for StateDir {
    fn read(&self, run: RunId, nonce: &Nonce) -> io::Result<Option<Record>> {
        let file = match fs::File::open(self.record(run, nonce)) {
            Ok(file) => file,
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        file.take(RECORD_BYTES as u64).read_to_end(&mut bytes)?;
        let record = Record::parse(&bytes).ok();
        Ok(record.filter(|record| record.run == run && record.nonce == *nonce))
    }
}

/// The records that lie there; what has no name of a record is none.
///
/// # Errors
/// Where the directory cannot be read.
pub fn all(state: &StateDir) -> io::Result<Vec<(RunId, Nonce)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(state.records())? {
        let name = entry?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('-'));
        if let Some((run, nonce)) = parts
            && let (Ok(run), Some(nonce)) = (run.parse(), Nonce::parse(nonce))
        {
            found.push((RunId::new(run), nonce));
        }
    }
    Ok(found)
}

/// Removes the record of a run whose end is on the board.
pub fn remove(state: &StateDir, run: RunId, nonce: &Nonce) {
    let path = state.record(run, nonce);
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot remove an exit record; leaving it")
        }
    }
}
