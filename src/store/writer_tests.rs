//! Group commit from outside: what is kept, what is answered, what another process can do to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::core::fault::{Error, Fault};
use crate::core::ids::TaskId;
use crate::core::refusal::Refusal;
use crate::core::view::Change;
use crate::store::testing::Board;
use crate::store::{Tx, settings};

fn set(name: &'static str) -> impl FnMut(&mut Tx<'_>) -> Result<(), Error> + Send + 'static {
    move |tx| settings::set(tx, name, "1")
}

#[tokio::test]
async fn a_refused_work_leaves_nothing_behind_and_spoils_nobodys() {
    let board = Board::new();
    let refused = board.store.write("refused", |tx| {
        settings::set(tx, "refused", "1")?;
        tx.change(Change::Ready);
        Err::<(), _>(Refusal::NothingReady.into())
    });
    let (refused, kept) = tokio::join!(refused, board.store.write("kept", set("kept")));
    assert!(matches!(refused, Err(Error::Refused(Refusal::NothingReady))));
    kept.unwrap();
    assert_eq!(board.text("SELECT group_concat(name) FROM settings"), "kept");
    assert_eq!(board.take_told(), []);
}

#[tokio::test]
async fn a_panic_ends_its_own_work_alone() {
    let board = Board::new();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let panicked = board.store.write("panics", |tx| {
        settings::set(tx, "panicked", "1")?;
        panic!("on purpose");
        #[expect(unreachable_code, reason = "it says the type of the answer")]
        Ok(())
    });
    let (panicked, kept) = tokio::join!(panicked, board.store.write("kept", set("kept")));
    std::panic::set_hook(before);
    assert!(matches!(panicked, Err(Error::Fault(Fault::Store { doing: "panics", .. }))));
    kept.unwrap();
    assert_eq!(board.text("SELECT group_concat(name) FROM settings"), "kept");
}

#[tokio::test]
async fn changes_are_told_in_order_after_the_commit() {
    let board = Board::new();
    for number in 1..=3 {
        let work = move |tx: &mut Tx<'_>| {
            tx.change(Change::Task(TaskId::new(number)));
            tx.change(Change::Ready);
            Ok(())
        };
        board.store.write("a change", work).await.unwrap();
    }
    let tasks: Vec<_> =
        board.take_told().into_iter().filter(|change| matches!(change, Change::Task(_))).collect();
    assert_eq!(tasks, [1, 2, 3].map(|number| Change::Task(TaskId::new(number))));
}

#[tokio::test]
async fn many_callers_share_commits() {
    let board = Board::new();
    let before = board.store.health().progress;
    let works = (0..500).map(|_| board.store.write("one", set("same")));
    for outcome in futures_util::future::join_all(works).await {
        outcome.unwrap();
    }
    let health = board.store.health();
    assert!(health.progress - before < 100, "{} steps for 500 works", health.progress - before);
    assert_eq!(health.waiting, 0);
}

#[tokio::test]
async fn c41_another_writer_delays_within_bounds_and_loses_nothing() {
    let board = Board::new();
    let other = rusqlite::Connection::open(board.state().board()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let work = board.store.write("waits", set("waited"));
    let progress = board.store.health().progress;
    let reads = async {
        // Readers are not in its way, and the writer shows that it lives.
        board.store.read("reads", settings::is_draining).await.unwrap();
        wait_for(|| board.store.health().progress > progress + 1, "the writer's progress").await;
        other.execute_batch("ROLLBACK").unwrap();
    };
    let (waited, ()) = tokio::join!(work, reads);
    waited.unwrap();
    assert_eq!(board.number("SELECT count(*) FROM settings"), 1);
}

#[tokio::test]
async fn c41_a_writer_that_never_ends_is_answered_busy() {
    let board = Board::new();
    let other = rusqlite::Connection::open(board.state().board()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(30), board.store.write("waits", set("waited")))
        .await
        .expect("an answer within bounds");
    assert!(matches!(refused, Err(Error::Refused(Refusal::Busy(_)))), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    board.store.write("goes", set("went")).await.unwrap();
    assert_eq!(board.text("SELECT group_concat(name) FROM settings"), "went");
}

#[tokio::test]
async fn c42_the_log_is_emptied_and_a_pinned_reader_is_seen() {
    let board = Board::new();
    // Other bytes each time: SQLite does not write what has not changed.
    let fill = |turn: u8| {
        let text = char::from(b'a' + turn % 26).to_string().repeat(1_000_000);
        board.store.write("a large row", move |tx| settings::set(tx, "big", &text))
    };
    for turn in 0..12 {
        fill(turn).await.unwrap();
    }
    // The answers come first; the log is emptied once nothing waits.
    wait_for(|| board.store.health().wal_bytes < 8 * 1_024 * 1_024, "an emptied log").await;
    let reader = rusqlite::Connection::open(board.state().board()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM settings;").unwrap();
    for turn in 0..100 {
        fill(turn).await.unwrap();
    }
    assert!(board.store.health().is_wal_large(), "{:?}", board.store.health());
    reader.execute_batch("ROLLBACK").unwrap();
    for turn in 0..20 {
        fill(turn).await.unwrap();
    }
    wait_for(|| !board.store.health().is_wal_large(), "a log that is emptied again").await;
}

#[tokio::test]
async fn what_is_queued_at_the_close_is_done() {
    let board = Board::new();
    let done = Arc::new(AtomicUsize::new(0));
    let works: Vec<_> = (0..50)
        .map(|_| {
            let (store, done) = (board.store.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                store
                    .write("late", move |_| {
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let store = board.store.clone();
    tokio::task::spawn_blocking(move || store.close()).await.unwrap();
    let mut answered = 0;
    for work in works {
        answered += usize::from(work.await.unwrap().is_ok());
    }
    assert_eq!(answered, done.load(Ordering::SeqCst));
    assert!(matches!(board.store.write("too late", set("x")).await, Err(Error::Fault(Fault::Ended(_)))));
}

/// One bounded wait for a condition that another thread brings about.
async fn wait_for(mut holds: impl FnMut() -> bool, what: &str) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "still waiting for {what}");
}
