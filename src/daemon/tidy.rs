//! Removes files that have no run any more: exit records that were left behind, outputs of archived tasks.
//!
//! Never fails: what cannot be removed is told and lies there until the next time. All of it is done on
//! blocking threads.

use std::io;

use crate::core::fault::Error;
use crate::core::ids::TaskId;
use crate::core::state_dir::StateDir;
use crate::daemon::starter::{host_fault, in_full};
use crate::linux::{outputs, records};
use crate::store::{Store, leavings};

/// All of it, for the beginning of a life.
pub async fn everything(store: &Store, state: &StateDir) {
    told("exit records", all_records(store, state).await);
    told("outputs", all_outputs(store, state).await);
}

/// Once per sweep: the records, and the outputs of what retention has put away just now.
pub async fn after_sweep(store: &Store, state: &StateDir, archived: Vec<TaskId>) {
    told("exit records", all_records(store, state).await);
    if !archived.is_empty() {
        told("outputs", outputs_of(store, state, archived).await);
    }
}

fn told(what: &str, done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::warn!(error = %in_full(&error), "cannot tidy up {what}; will try again");
    }
}

/// Lists first and asks the board afterwards: whatever was made in between has a run there.
async fn all_records(store: &Store, state: &StateDir) -> Result<(), Error> {
    let found = list("listing the exit records", state, records::all).await?;
    if found.is_empty() {
        return Ok(());
    }
    let state = state.clone();
    let tidy = move |snapshot: &crate::store::Snapshot<'_>| {
        for (run, nonce) in leavings::records(snapshot, found)? {
            records::remove(&state, run, &nonce);
        }
        Ok(())
    };
    store.read_page("the runs of exit records", tidy).await
}

async fn all_outputs(store: &Store, state: &StateDir) -> Result<(), Error> {
    let found = list("listing the outputs", state, outputs::all).await?;
    let state = state.clone();
    let tidy = move |snapshot: &crate::store::Snapshot<'_>| {
        leavings::outputs(snapshot, found)?.into_iter().for_each(|run| outputs::remove(&state, run));
        Ok(())
    };
    store.read_page("the runs of outputs", tidy).await
}

async fn outputs_of(store: &Store, state: &StateDir, archived: Vec<TaskId>) -> Result<(), Error> {
    let state = state.clone();
    let tidy = move |snapshot: &crate::store::Snapshot<'_>| {
        let runs = leavings::runs_of(snapshot, &archived)?;
        leavings::outputs(snapshot, runs)?.into_iter().for_each(|run| outputs::remove(&state, run));
        Ok(())
    };
    store.read_page("the runs of old tasks", tidy).await
}

async fn list<T: Send + 'static>(
    doing: &'static str,
    state: &StateDir,
    list: fn(&StateDir) -> io::Result<T>,
) -> Result<T, Error> {
    let state = state.clone();
    let listed = tokio::task::spawn_blocking(move || list(&state)).await;
    listed.unwrap_or_else(|ended| Err(io::Error::other(ended))).map_err(|error| host_fault(doing, error))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "looks at what is left in a directory of its own")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::core::ids::{Nonce, RunId};
    use crate::store::testing::Board;

    /// A run with these columns of its task and its own, its record, and both files of its output.
    fn leave(board: &Board, run: i64, status: &str, ended: &str, survivor: i64) {
        let nonce = Nonce::from_bytes([u8::try_from(run).unwrap(); 16]);
        if status != "none" {
            board.by_hand(&format!(
                "INSERT INTO tasks (task, status, queue, title) VALUES ({run}, '{status}', 'default', 't');
                 INSERT INTO runs (run, task, launched, nonce, ended_usec, survivor)
                     VALUES ({run}, {run}, 1, '{nonce}', {ended}, {survivor})"
            ));
        }
        let (state, run) = (board.state(), RunId::new(run));
        for path in [state.record(run, &nonce), state.output(run), state.older_output(run)] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "left").unwrap();
        }
    }

    fn names(directory: std::path::PathBuf) -> BTreeSet<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(name).map(|name| name[..1].to_owned()).collect()
    }

    #[tokio::test]
    async fn only_what_has_no_use_any_more_is_removed() {
        let board = Board::new();
        leave(&board, 1, "running", "NULL", 0);
        leave(&board, 2, "done", "5", 0);
        leave(&board, 3, "ready", "5", 1);
        leave(&board, 4, "archived", "5", 0);
        leave(&board, 5, "archived", "5", 1);
        leave(&board, 6, "none", "", 0);
        let state = board.state();
        fs::write(state.records().join("x is no record"), "").unwrap();
        fs::write(state.outputs().join("y is no output"), "").unwrap();
        let left = |digits: &str| digits.chars().map(String::from).collect::<BTreeSet<_>>();
        after_sweep(&board.store, &state, vec![TaskId::new(4), TaskId::new(5)]).await;
        assert_eq!(names(state.records()), left("135x"));
        assert_eq!(names(state.outputs()), left("12356y"));
        everything(&board.store, &state).await;
        assert_eq!(names(state.outputs()), left("1235y"));
    }
}
