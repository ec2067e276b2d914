//! A disk that fills up: what is still recorded, what is refused, and that all is well again afterwards.

#![expect(clippy::disallowed_methods, reason = "these tests mount a small file system and fill it")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::core::fault::Error;
use crate::core::refusal::Refusal;
use crate::store::testing::options;
use crate::store::{Options, Store, Tx, settings};

/// A file system of a few MiB, for as long as it is kept.
struct Small(TempDir);

impl Small {
    /// Nothing where this user may not mount.
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(directory)),
            Ok(_) | Err(_) => {
                eprintln!("SKIPPED: a full disk cannot be tried, because this user may not mount a tmpfs");
                None
            }
        }
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.ballast()).unwrap();
        for chunk in [65_536, 4_096, 1] {
            while file.write_all(&vec![1; chunk]).is_ok() {}
        }
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the test's tmpfs stays mounted");
    }
}

fn open(directory: &Path) -> Store {
    let options = Options { reserve_bytes: 2 * 1_024 * 1_024, ..options(&directory.join("state")) };
    Store::open(options, Box::new(|_| ())).unwrap()
}

fn grow(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.needs_room()?;
    settings::set(tx, "new", &"x".repeat(50_000))
}

fn end(tx: &mut Tx<'_>) -> Result<(), Error> {
    settings::set(tx, "ended", &"x".repeat(50_000))
}

#[tokio::test]
async fn c40_ends_are_recorded_on_a_full_disk_and_new_work_is_refused_until_there_is_space() {
    let Some(disk) = Small::mount("16m") else { return };
    let store = open(disk.0.path());
    store.write("new work", grow).await.unwrap();
    let reader = rusqlite::Connection::open(disk.0.path().join("state/board.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM settings;").unwrap();
    disk.fill();

    store.write_end("an end", end).await.unwrap();
    assert!(store.health().disk_full);
    for _ in 0..3 {
        let refused = store.write("new work", grow).await;
        assert!(matches!(refused, Err(Error::Refused(Refusal::ReadOnly))), "{refused:?}");
        store.write_end("another end", end).await.unwrap();
    }
    let ended = store.read("what is there", |snapshot| settings::get(snapshot, "ended")).await.unwrap();
    assert_eq!(ended.map(|text| text.len()), Some(50_000));

    reader.execute_batch("ROLLBACK").unwrap();
    fs::remove_file(disk.ballast()).unwrap();
    let healed = tokio::time::timeout(Duration::from_secs(20), async {
        while store.health().disk_full {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(healed.await.is_ok(), "the disk still counts as full: {:?}", store.health());
    store.write("new work", grow).await.unwrap();
    store.close();
}

#[tokio::test]
async fn c40_without_a_reserve_left_an_end_is_refused_and_nothing_is_half_done() {
    let Some(disk) = Small::mount("16m") else { return };
    let store = open(disk.0.path());
    disk.fill();
    store.write_end("an end", end).await.unwrap();
    disk.fill();
    let mut refused = 0;
    let mut last = "x".repeat(50_000);
    for turn in 0..200_u8 {
        // Other bytes each time: SQLite does not write what has not changed.
        let text = char::from(b'a' + turn % 26).to_string().repeat(50_000);
        let next = text.clone();
        if store.write_end("another end", move |tx| settings::set(tx, "ended", &next)).await.is_err() {
            refused += 1;
            break;
        }
        last = text;
    }
    assert_eq!(refused, 1, "the disk never became full again");
    let ended = store.read("what is there", |snapshot| settings::get(snapshot, "ended")).await.unwrap();
    assert!(ended == Some(last), "a refused end changed the board");
    store.close();
}
