//! Ends of claims that must not reach further than the claim: survivors, and runs of other tasks.

use crate::core::ids::{RunId, TaskId};
use crate::core::plan::Basis;
use crate::core::retry::Outcome;
use crate::core::row::ClaimRow;
use crate::core::time::MonoMs;
use crate::core::verdict::Urgency;
use crate::store::runs;
use crate::store::sweep::{self, Ending, Selection};
use crate::store::testing::{Board, at, epoch};

/// A running task that a run holds, and another one that names the same run.
const HELD: &str = "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
        VALUES ('running', 'default', 'held', 1, 0, NULL);
    INSERT INTO runs (run, task, claimant, lease_expires_ms, stage, started_usec) VALUES (1, 1, 'x', 5, 'running', 1);
    INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
        VALUES ('running', 'default', 'an impostor', 1, 0, NULL);";

async fn rows(board: &Board, selection: Selection) -> Vec<ClaimRow> {
    board.store.read("rows", move |snapshot| sweep::rows(snapshot, &selection)).await.unwrap()
}

#[tokio::test]
async fn the_stop_that_let_a_worker_go_is_over_for_the_survivor() {
    let board = Board::new();
    board.by_hand(&format!(
        "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
             VALUES ('running', 'default', 't', 1, 0, NULL);
         INSERT INTO runs (run, task, claimant, lease_expires_ms, epoch, worker_pid, worker_fingerprint, stage,
                 started_usec, stop_cause, stop_urgency, stop_reason, term_ms, kill_ms)
             VALUES (1, 1, 'x', 5, '{}', 4000, 77, 'running', 1, 'reclaimed', 2, 'now', 10, 20)",
        epoch()
    ));
    let row = rows(&board, Selection::Run(RunId::new(1))).await.remove(0);
    let basis = Basis::of(&row);
    let ending = Ending { survivor: true, forced: true, ..Ending::of(Outcome::Operator) };
    board.store.write_end("force", move |tx| sweep::release(tx, &basis, &ending, &at(2_000))).await.unwrap();
    let run = rows(&board, Selection::Run(RunId::new(1))).await.remove(0).run.unwrap();
    assert!(run.survivor && run.ended && run.worker_pid == Some(4_000));
    assert_eq!(
        (run.stop_cause, run.stop_urgency),
        (None, Urgency::Normal),
        "else the reaper's first word is KILL"
    );
    assert_eq!((run.term_ms, run.kill_ms, run.leader_gone_ms), (None, None, Some(MonoMs(2_000))));
    let linger = 2_000 + at(0).policy.linger_ms;
    assert_eq!(board.number("SELECT due_ms FROM runs"), linger, "it has its linger time");
}

#[tokio::test]
async fn whatever_a_basis_names_a_run_that_holds_another_task_is_left_alone() {
    let board = Board::new();
    board.by_hand(HELD);
    let basis = Basis { task: Some((TaskId::new(2), 0)), run: Some((RunId::new(1), 0)) };
    let ended = board
        .store
        .write_end("a release", move |tx| {
            assert!(!sweep::extend(tx, &basis, 1, false, &at(1_000))?, "nor is its lease");
            sweep::release(tx, &basis, &Ending::of(Outcome::Reconciled), &at(1_000))
        })
        .await
        .unwrap();
    assert!(ended.is_some());
    let statuses = board.text("SELECT group_concat(status) FROM (SELECT status FROM tasks ORDER BY task)");
    assert_eq!(statuses, "running,ready");
    let run = board.store.read("the run", |snapshot| runs::state(snapshot, RunId::new(1))).await.unwrap();
    assert!(run.is_some_and(|run| !run.ended && run.version == 0));
}
