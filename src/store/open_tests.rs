//! Opening boards of every kind: whole, damaged, foreign, older, newer, held by another.

#![expect(clippy::disallowed_methods, reason = "these tests damage files")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Barrier;

use tempfile::TempDir;

use crate::core::spec::TaskSpec;
use crate::core::state::Status;
use crate::store::open::{OpenError, open_with};
use crate::store::tasks::{self, Place};
use crate::store::testing::{Board, at, options};
use crate::store::{Store, migrate};

async fn add(store: &Store, title: &str) {
    let spec = TaskSpec { title: title.to_owned(), queue: Some("default".into()), ..TaskSpec::default() };
    let place = Place { status: Status::Ready, cancelled_parent: None, pending_parents: 0 };
    store.write("a task", move |tx| tasks::insert(tx, 0, &spec, &place, &at(1))).await.unwrap();
}

/// A board with some tasks, closed.
async fn closed_board(tasks: usize) -> TempDir {
    let board = Board::new();
    for number in 0..tasks {
        add(&board.store, &format!("task {number}")).await;
    }
    board.close()
}

fn refusal(directory: &Path) -> OpenError {
    match Store::open(options(directory), Box::new(|_| ())) {
        Ok(_) => panic!("the board was opened"),
        Err(error) => error,
    }
}

/// What must not have been touched: name and bytes of everything but the lock.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            !["board.lock", "board.db-shm"].contains(&entry.file_name().to_string_lossy().as_ref())
        })
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .filter(|(_, bytes)| !bytes.is_empty())
        .collect();
    files.sort();
    files
}

/// Refused, with a text that names two commands, and every file as it was.
fn refused_and_kept(directory: &Path) -> String {
    let before = contents(directory);
    let error = refusal(directory).to_string();
    assert_eq!(contents(directory), before, "{error}");
    assert!(error.contains("cp BACKUP") && error.contains(".recover"), "{error}");
    error
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_close() {
    let directory = closed_board(3).await;
    assert!(!directory.path().join("board.db-wal").exists());
    let board = Board::in_directory(directory);
    assert_eq!(board.number("SELECT count(*) FROM tasks"), 3);
    assert_eq!(board.number("SELECT sum(tasks) FROM tallies WHERE status = 'ready'"), 3);
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_kill() {
    let board = Board::new();
    add(&board.store, "one").await;
    // What a kill leaves: the files as they are now, without a close.
    let left = tempfile::tempdir().unwrap();
    for name in ["board.db", "board.db-wal", "board.lock"] {
        fs::copy(board.state().0.join(name), left.path().join(name)).unwrap();
    }
    let again = Board::in_directory(left);
    assert_eq!(again.number("SELECT count(*) FROM tasks"), 1);
}

#[tokio::test]
async fn c06_one_open_of_many_succeeds_and_the_others_name_the_holder() {
    let directory = closed_board(1).await;
    let barrier = Barrier::new(8);
    let outcomes: Vec<Result<Store, OpenError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    Store::open(options(directory.path()), Box::new(|_| ()))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(error, OpenError::Held { .. }), "{error}");
    }
}

#[tokio::test]
async fn c26_an_emptied_board_is_never_an_empty_board() {
    for missing_too in [false, true] {
        let directory = closed_board(3).await;
        let path = directory.path().join("board.db");
        fs::File::create(&path).unwrap();
        if missing_too {
            fs::remove_file(&path).unwrap();
        }
        let text = refused_and_kept(directory.path());
        assert!(text.contains("there was a board here before"), "{text}");
    }
}

#[tokio::test]
async fn c26_a_truncated_board_is_refused_and_kept() {
    let directory = closed_board(200).await;
    let path = directory.path().join("board.db");
    let whole = fs::metadata(&path).unwrap().len();
    for left in [10, 100, 4_096, whole / 2, whole - 4_096] {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        refused_and_kept(directory.path());
    }
}

#[tokio::test]
async fn c26_a_zeroed_or_flipped_page_is_refused_and_kept() {
    for byte in [0_u8, 0xff] {
        let directory = closed_board(200).await;
        let path = directory.path().join("board.db");
        let pages = fs::metadata(&path).unwrap().len() / 4_096;
        for page in [0, 1, pages / 2, pages - 1] {
            let whole = fs::read(&path).unwrap();
            let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.seek(SeekFrom::Start(page * 4_096)).unwrap();
            file.write_all(&[byte; 4_096]).unwrap();
            drop(file);
            refused_and_kept(directory.path());
            fs::write(&path, whole).unwrap();
        }
        assert_eq!(Board::in_directory(directory).number("SELECT count(*) FROM tasks"), 200);
    }
}

#[tokio::test]
async fn c26_a_missing_log_is_noticed() {
    let board = Board::new();
    add(&board.store, "one").await;
    let left = tempfile::tempdir().unwrap();
    for name in ["board.db", "board.lock"] {
        fs::copy(board.state().0.join(name), left.path().join(name)).unwrap();
    }
    let text = refused_and_kept(left.path());
    assert!(text.contains("write-ahead log is missing"), "{text}");
}

#[tokio::test]
async fn a_foreign_file_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("board.db");
    fs::write(&path, "not a database at all, but a text of some length").unwrap();
    assert!(matches!(refusal(directory.path()), OpenError::Foreign { .. }));
    fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE something (x); PRAGMA user_version = 1;").unwrap();
    drop(foreign);
    let before = fs::read(&path).unwrap();
    assert!(matches!(refusal(directory.path()), OpenError::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_board_is_refused() {
    let directory = closed_board(1).await;
    let raw = rusqlite::Connection::open(directory.path().join("board.db")).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    assert!(matches!(refusal(directory.path()), OpenError::Newer { found: 99, .. }));
}

#[tokio::test]
async fn an_older_board_migrates_after_a_backup_or_not_at_all() {
    let directory = closed_board(2).await;
    let bad: Vec<&str> = [migrate::STEPS, &["CREATE TABLE extra (x); SELECT no_such_function();"]].concat();
    assert!(open_with(&options(directory.path()), &bad).is_err());
    let good: Vec<&str> = [migrate::STEPS, &["CREATE TABLE extra (x);"]].concat();
    drop(open_with(&options(directory.path()), &good).unwrap());
    let migrated = rusqlite::Connection::open(directory.path().join("board.db")).unwrap();
    let tasks: i64 = migrated.query_row("SELECT count(*) FROM tasks", [], |row| row.get(0)).unwrap();
    let extra: i64 = migrated.query_row("SELECT count(*) FROM extra", [], |row| row.get(0)).unwrap();
    assert_eq!((tasks, extra), (2, 0));
    let backup = directory.path().join("board.db.schema-1.backup");
    let backup = rusqlite::Connection::open(backup).unwrap();
    let version: i64 = backup.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

#[tokio::test]
async fn a_backup_can_be_put_back() {
    let board = Board::new();
    add(&board.store, "before").await;
    let state = board.state();
    board.store.backup(&state.backup("one")).await.unwrap();
    assert!(board.store.backup(&state.backup("one")).await.is_err(), "a backup is never written over");
    add(&board.store, "after").await;
    let directory = board.close();
    fs::copy(state.backup("one"), state.board()).unwrap();
    let board = Board::in_directory(directory);
    assert_eq!(board.number("SELECT count(*) FROM tasks"), 1);
    add(&board.store, "later").await;
    let board = Board::in_directory(board.close());
    assert_eq!(board.number("SELECT count(*) FROM tasks"), 2);
}

#[tokio::test]
async fn the_board_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let board = Board::new();
    add(&board.store, "one").await;
    for path in [board.state().board(), board.state().wal(), board.state().lock()] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
}
