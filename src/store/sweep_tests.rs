//! Rows, verdicts applied to the version they were decided on, ends of claims of every shape.

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::plan::Basis;
use crate::core::retry::{Exit, Outcome, Settlement};
use crate::core::row::ClaimRow;
use crate::core::spec::{Program, TaskSpec};
use crate::core::state::{BlockCode, Status};
use crate::core::time::MonoMs;
use crate::core::verdict::{Hold, Rung, StopCause, Urgency};
use crate::core::view::Change;
use crate::store::sweep::{self, Ending, Selection};
use crate::store::tasks::{self, Place};
use crate::store::testing::{Board, at, at_with, epoch, other_epoch};
use crate::store::{When, boots, rows, start};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

async fn read(board: &Board, selection: Selection) -> Vec<ClaimRow> {
    board.store.read("rows", move |snapshot| sweep::rows(snapshot, &selection)).await.unwrap()
}

async fn release(board: &Board, row: &ClaimRow, ending: Ending, when: When) -> Option<Settlement> {
    let basis = Basis::of(row);
    board.store.write_end("a release", move |tx| sweep::release(tx, &basis, &ending, &when)).await.unwrap()
}

/// A task with a command, claimed by the dispatcher and with its gate open at 1 s.
async fn launched(board: &Board) -> (TaskId, RunId) {
    let program = Program { command: vec!["true".into()], ..Program::default() };
    let spec = TaskSpec { title: "t".into(), queue: Some("default".into()), program, ..TaskSpec::default() };
    let place = Place { status: Status::Ready, cancelled_parent: None, pending_parents: 0 };
    board
        .store
        .write("a launched task", move |tx| {
            let task = tasks::insert(tx, 0, &spec, &place, &at(1_000))?;
            let starts = start::claim_for_launch(tx, 1, &at(1_000))?;
            start::opened(tx, starts[0].run, &at(1_000))?;
            Ok((task, starts[0].run))
        })
        .await
        .unwrap()
}

/// A running task and its run, written by another process with the public columns alone.
fn by_hand(board: &Board, lease_ms: i64, pid: Option<i64>) -> (TaskId, RunId) {
    let epoch = epoch();
    let pid = pid.map_or("NULL".to_owned(), |pid| pid.to_string());
    board.by_hand(&format!(
        "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
             VALUES ('running', 'default', 'by hand', NULL, 0, NULL);
         INSERT INTO runs (run, task, claimant, lease_expires_ms, epoch, worker_pid, worker_fingerprint, stage,
                 started_ms, started_usec)
             VALUES (NULL, last_insert_rowid(), 'hand', {lease_ms}, '{epoch}', {pid}, NULL, 'running', 500, 1);
         UPDATE tasks SET run = last_insert_rowid() WHERE task = (SELECT max(task) FROM tasks);"
    ));
    let task = board.number("SELECT max(task) FROM tasks");
    (TaskId::new(task), RunId::new(board.number("SELECT max(run) FROM runs")))
}

#[tokio::test]
async fn a_row_has_both_halves() {
    let board = Board::new();
    let (task, run) = launched(&board).await;
    let rows = read(&board, Selection::All).await;
    assert_eq!(rows.len(), 1);
    let (task_part, run_part) = (rows[0].task.clone().unwrap(), rows[0].run.clone().unwrap());
    assert_eq!((task_part.task, task_part.status, task_part.run), (task, Status::Running, Some(run)));
    assert_eq!((run_part.run, run_part.task, run_part.launched), (run, task, true));
    assert_eq!(run_part.lease_expires_ms, Some(MonoMs(1_000 + 15 * 60 * 1_000)));
    assert_eq!((run_part.epoch, rows[0].open_runs), (Some(epoch()), 1));
}

#[tokio::test]
async fn rows_written_by_hand_are_seen_and_odd_values_blind_nobody() {
    let board = Board::new();
    let (_, run) = by_hand(&board, 700, Some(4_000));
    by_hand(&board, 700, None);
    board.by_hand("UPDATE runs SET worker_pid = 'x', stop_urgency = 'y', epoch = 5 WHERE run = 2");
    let all = read(&board, Selection::All).await;
    assert_eq!(all.len(), 2);
    let first = all.iter().find_map(|row| row.run.as_ref().filter(|part| part.run == run)).unwrap();
    assert_eq!((first.worker_pid, first.launched, first.worker.kind()), (Some(4_000), false, "absent"));
    let due = read(&board, Selection::Due { now: MonoMs(0), epoch: epoch() }).await;
    assert_eq!(due.len(), 1, "nobody computed its due time: it is looked at each time");
}

#[tokio::test]
async fn only_what_is_due_is_read_and_the_timer_knows_when() {
    let board = Board::new();
    let (_, run) = launched(&board).await;
    let lease = 1_000 + 15 * 60 * 1_000;
    let due = |now| read(&board, Selection::Due { now: MonoMs(now), epoch: epoch() });
    assert_eq!(due(lease - 1).await, []);
    assert_eq!(due(lease).await.len(), 1);
    let next = |after| {
        board.store.read("next", move |snapshot| sweep::next_due(snapshot, MonoMs(after), &at(after)))
    };
    assert_eq!(next(2_000).await.unwrap().mono, Some(MonoMs(lease)));
    // What is overdue and was kept does not hide what comes later, and does not make the loop spin.
    board.by_hand("UPDATE tasks SET max_runtime_ms = 3600000");
    assert_eq!(next(lease).await.unwrap().mono, Some(MonoMs(1_000 + 3_600_000)));
    assert_eq!(next(4_000_000).await.unwrap().mono, None);
    let row = read(&board, Selection::Run(run)).await.remove(0);
    let basis = Basis::of(&row);
    let when = at(lease);
    assert!(
        board.store.write("extend", move |tx| sweep::extend(tx, &basis, 1_000, false, &when)).await.unwrap()
    );
    assert_eq!(next(lease).await.unwrap().mono, Some(MonoMs(lease + 1_000)));
    assert_eq!(board.number("SELECT count(*) FROM events WHERE kind = 'claim_extended'"), 1);
}

#[tokio::test]
async fn c32_a_stale_basis_changes_nothing() {
    let board = Board::new();
    let (task, run) = launched(&board).await;
    let stale = Basis::of(&read(&board, Selection::Run(run)).await[0]);
    let when = at(2_000);
    let done = Ending { exit: Some(Exit::Code(0)), ..Ending::of(Outcome::Completed) };
    let row = read(&board, Selection::Run(run)).await.remove(0);
    assert_eq!(release(&board, &row, done, when).await.unwrap().status, Status::Done);
    let before = board.text("SELECT group_concat(kind || run) FROM events");
    let applied = board
        .store
        .write_end("stale writes", move |tx| {
            let when = at(3_000);
            Ok([
                sweep::extend(tx, &stale, 1_000, false, &when)?,
                sweep::hold(tx, &stale, Hold::Unknown, &when)?,
                sweep::unhold(tx, &stale, &when)?,
                sweep::forget(tx, &stale, &when)?,
                sweep::ask_stop(tx, &stale, StopCause::TimedOut, Urgency::Normal, &when)?.is_some(),
                sweep::release(tx, &stale, &Ending::of(Outcome::Crashed), &when)?.is_some(),
            ])
        })
        .await
        .unwrap();
    assert_eq!(applied, [false; 6]);
    assert_eq!(board.text("SELECT group_concat(kind || run) FROM events"), before);
    assert_eq!(board.text(&format!("SELECT status FROM tasks WHERE task = {task}")), "done");
    assert_eq!(board.text("SELECT outcome || stage || ifnull(worker_pid, '-') FROM runs"), "completedended-");
}

#[tokio::test]
async fn c34_broken_claims_of_every_shape_are_repaired_once_with_an_event_and_a_note() {
    let shapes = [
        ("no run", "UPDATE tasks SET run = NULL; DELETE FROM runs"),
        ("a run that does not exist", "UPDATE tasks SET run = 999; DELETE FROM runs"),
        ("no lease", "UPDATE runs SET lease_expires_ms = NULL"),
        ("no claimant", "UPDATE runs SET claimant = NULL"),
        ("an ended run", "UPDATE runs SET stage = 'ended', ended_usec = 5, outcome = 'crashed'"),
        ("a run of another task", "UPDATE runs SET task = 77"),
        ("a ready task with an open run", "UPDATE tasks SET status = 'ready', run = NULL"),
        ("a ready task that names its open run", "UPDATE tasks SET status = 'ready'"),
        (
            "two open runs",
            "INSERT INTO runs (task, claimant, lease_expires_ms, stage, started_usec) VALUES (1, 'x', 5, 'running', 1)",
        ),
        (
            "no run named, two open",
            "UPDATE tasks SET run = NULL;
             INSERT INTO runs (task, claimant, lease_expires_ms, stage, started_usec) VALUES (1, 'x', 5, 'running', 1)",
        ),
    ];
    for (shape, sql) in shapes {
        let board = Board::new();
        by_hand(&board, 10_000, None);
        board.by_hand(sql);
        for row in read(&board, Selection::All).await {
            release(&board, &row, Ending::of(Outcome::Reconciled), at(1_000)).await;
        }
        assert_eq!(read(&board, Selection::All).await, [], "{shape}: still broken");
        let task = board.text("SELECT status || ifnull(run, '-') FROM tasks WHERE task = 1");
        assert_eq!(task, "ready-", "{shape}");
        let reasons = board.number(
            "SELECT count(*) FROM events WHERE kind = 'reconciled'
                 AND json_extract(payload, '$.reason') = 'orphaned_running'",
        );
        assert!(reasons >= 1, "{shape}: no event");
        let notes = board.number("SELECT count(*) FROM comments WHERE author = 'tenured' AND task = 1");
        assert_eq!(notes, 1, "{shape}: notes");
        assert_eq!(board.number("SELECT count(*) FROM runs WHERE ended_usec IS NULL"), 0, "{shape}");
        assert_eq!(
            board.number("SELECT failures FROM tasks WHERE task = 1"),
            0,
            "{shape}: it was nobody's fault"
        );
        let again = board.store.write("claim", |tx| start::promote(tx, &at(2_000))).await.unwrap();
        assert_eq!(again, []);
    }
}

#[tokio::test]
async fn a_run_that_holds_its_own_task_is_not_ended_for_another_that_names_it() {
    let board = Board::new();
    let (_, run) = by_hand(&board, 10_000, None);
    board.by_hand(&format!(
        "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
         VALUES ('running', 'default', 'an impostor', {run}, 0, NULL)"
    ));
    let all = read(&board, Selection::All).await;
    let impostor = all.iter().find(|row| row.task.as_ref().is_some_and(|task| task.task.get() == 2)).unwrap();
    assert_eq!(impostor.run, None);
    release(&board, impostor, Ending::of(Outcome::Reconciled), at(1_000)).await.unwrap();
    assert_eq!(
        board.text("SELECT group_concat(status) FROM (SELECT status FROM tasks ORDER BY task)"),
        "running,ready"
    );
    assert_eq!(board.number("SELECT count(*) FROM runs WHERE ended_usec IS NULL"), 1);
}

#[tokio::test]
async fn a_broken_claim_with_an_end_on_record_goes_by_that_end() {
    let board = Board::new();
    by_hand(&board, 10_000, None);
    board.by_hand("UPDATE runs SET stage = 'ended', ended_usec = 5, outcome = 'completed'");
    let row = read(&board, Selection::All).await.remove(0);
    assert_eq!(row.run.as_ref().and_then(|run| run.outcome), Some(Outcome::Completed));
    let settled = release(&board, &row, Ending::of(Outcome::Completed), at(1_000)).await.unwrap();
    assert_eq!(settled.status, Status::Done);
    assert_eq!(board.text("SELECT group_concat(kind) FROM events"), "reconciled");
    assert_eq!(board.number("SELECT ended_usec FROM runs"), 5, "a run ends once");
}

#[tokio::test]
async fn a_task_with_two_open_runs_stays_until_the_last_of_them_has_gone() {
    let board = Board::new();
    by_hand(&board, 10_000, None);
    board.by_hand(
        "INSERT INTO runs (task, claimant, lease_expires_ms, stage, started_usec) VALUES (1, 'x', 5, 'running', 1)",
    );
    let all = read(&board, Selection::All).await;
    assert_eq!(all.len(), 2);
    release(&board, &all[0], Ending::of(Outcome::Reconciled), at(1_000)).await.unwrap();
    assert_eq!(board.text("SELECT status FROM tasks"), "running", "the other's worker may live");
    let left = read(&board, Selection::All).await;
    assert_eq!(left.len(), 1);
    release(&board, &left[0], Ending::of(Outcome::Reconciled), at(1_000)).await.unwrap();
    assert_eq!(board.text("SELECT status FROM tasks"), "ready");
}

#[tokio::test]
async fn c37_failures_are_counted_backed_off_and_block_in_the_end() {
    let board = Board::new();
    launched(&board).await;
    let mut now = 2_000;
    for (failures, back_off) in [(1, 10_000), (2, 20_000)] {
        let row = read(&board, Selection::All).await.remove(0);
        let ending = Ending { exit: Some(Exit::Code(3)), ..Ending::of(Outcome::Failed) };
        let settled = release(&board, &row, ending, at(now)).await.unwrap();
        assert_eq!((settled.status, settled.failures), (Status::Ready, failures));
        assert!(settled.back_off_ms.unwrap() >= back_off);
        let until = MonoMs(now).plus(settled.back_off_ms.unwrap());
        let early = at(until.0 - 1);
        assert_eq!(
            board.store.write("early", move |tx| start::claim_for_launch(tx, 8, &early)).await.unwrap(),
            []
        );
        let next = at(now);
        let next =
            board.store.read("next", move |snapshot| sweep::next_due(snapshot, next.now.mono, &next)).await;
        assert_eq!(next.unwrap().mono, Some(until));
        now = until.0;
        let when = at(now);
        let started =
            board.store.write("due", move |tx| start::claim_for_launch(tx, 8, &when)).await.unwrap();
        assert_eq!((started.len(), started[0].attempt), (1, failures + 1));
        let when = at(now);
        board.store.write("opened", move |tx| start::opened(tx, started[0].run, &when)).await.unwrap();
    }
    let row = read(&board, Selection::All).await.remove(0);
    let settled = release(&board, &row, Ending::of(Outcome::Crashed), at(now)).await.unwrap();
    assert_eq!((settled.status, settled.block_code), (Status::Blocked, Some(BlockCode::Failures)));
    assert_eq!(board.text("SELECT block_code FROM tasks"), "failures");
    let kinds =
        board.text("SELECT group_concat(kind) FROM events WHERE event > (SELECT max(event) - 2 FROM events)");
    assert_eq!(kinds, "crashed,gave_up");
}

#[tokio::test]
async fn a_back_off_of_another_epoch_is_over() {
    let board = Board::new();
    launched(&board).await;
    let row = read(&board, Selection::All).await.remove(0);
    release(&board, &row, Ending::of(Outcome::Failed), at(2_000)).await.unwrap();
    let when = When { epoch: other_epoch(), ..at(2_001) };
    let started =
        board.store.write("other boot", move |tx| start::claim_for_launch(tx, 8, &when)).await.unwrap();
    assert_eq!(started.len(), 1);
}

#[tokio::test]
async fn c36_three_unclean_reboots_block_a_task_and_clean_ones_do_not() {
    for clean in [false, true] {
        let board = Board::new();
        launched(&board).await;
        for boot in 1..=3 {
            board.by_hand(&format!(
                "INSERT INTO boots (boot, epoch, nonce, boottime_ms, seen_usec, shutdown_ms)
                     VALUES ({boot}, 'e{boot}', 'n', 1, 1, {});
                 UPDATE runs SET boot = {boot} WHERE ended_usec IS NULL",
                if clean { "5" } else { "NULL" }
            ));
            let row = read(&board, Selection::All).await.remove(0);
            let when = When { boot: crate::core::ids::BootId::new(9), ..at(boot * 1_000_000) };
            let settled = release(&board, &row, Ending::of(Outcome::Lost), when.clone()).await.unwrap();
            let blocks = boot == 3 && !clean;
            assert_eq!(settled.block_code, blocks.then_some(BlockCode::Host), "boot {boot}, clean {clean}");
            assert_eq!(settled.failures, 0);
            if !blocks {
                let started =
                    board.store.write("again", move |tx| start::claim_for_launch(tx, 1, &when)).await;
                assert_eq!(started.unwrap().len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn an_end_tells_the_dispatcher_and_the_bus() {
    let board = Board::new();
    let (task, run) = launched(&board).await;
    board.take_told();
    let row = read(&board, Selection::All).await.remove(0);
    release(&board, &row, Ending::of(Outcome::Completed), at(2_000)).await.unwrap();
    let told = board.take_told();
    for change in [Change::Task(task), Change::RunEnded(run), Change::Ready] {
        assert!(told.contains(&change), "{change:?} is missing in {told:?}");
    }
}

#[tokio::test]
async fn a_hold_is_told_once_per_reason() {
    let board = Board::new();
    let (_, run) = launched(&board).await;
    for hold in [Hold::Unknown, Hold::Unknown, Hold::Unkillable, Hold::Unkillable] {
        let basis = Basis::of(&read(&board, Selection::Run(run)).await[0]);
        assert!(
            board.store.write("hold", move |tx| sweep::hold(tx, &basis, hold, &at(2_000))).await.unwrap()
        );
    }
    assert_eq!(board.number("SELECT count(*) FROM events WHERE kind = 'held'"), 2);
    let basis = Basis::of(&read(&board, Selection::Run(run)).await[0]);
    assert!(board.store.write("unhold", move |tx| sweep::unhold(tx, &basis, &at(2_000))).await.unwrap());
    assert_eq!(board.text("SELECT held FROM runs"), "");
}

#[tokio::test]
async fn a_stop_is_on_the_board_before_its_signal_and_a_cancel_is_never_weakened() {
    let board = Board::new();
    let (_, run) = launched(&board).await;
    let ask = async |cause, urgency| {
        let basis = Basis::of(&read(&board, Selection::Run(run)).await[0]);
        let asked = board
            .store
            .write("stop", move |tx| sweep::ask_stop(tx, &basis, cause, urgency, &at(2_000)))
            .await;
        let now = Basis::of(&read(&board, Selection::Run(run)).await[0]);
        assert_eq!(asked.unwrap(), Some(now));
        board.text("SELECT stop_cause || stop_urgency FROM runs")
    };
    assert_eq!(ask(StopCause::TimedOut, Urgency::Normal).await, "timed_out0");
    assert_eq!(ask(StopCause::Stalled, Urgency::Normal).await, "timed_out0");
    assert_eq!(ask(StopCause::Reclaimed, Urgency::Normal).await, "reclaimed0");
    assert_eq!(ask(StopCause::Cancelled, Urgency::Normal).await, "cancelled0");
    assert_eq!(ask(StopCause::Reclaimed, Urgency::Kill).await, "cancelled1");
    let send = async |rung, at_ms| {
        let when = at(at_ms);
        board
            .store
            .write("sent", move |tx| sweep::signalled(tx, run, Some(rung), 15, 4_000, "pidfd+inode", &when))
            .await
            .unwrap();
    };
    send(Rung::Term, 3_000).await;
    send(Rung::Term, 4_000).await;
    send(Rung::Kill, 5_000).await;
    assert_eq!(board.text("SELECT term_ms || '-' || kill_ms FROM runs"), "3000-5000");
    // The ladder's own moment counts now: five seconds after the KILL.
    let next =
        board.store.read("next", |snapshot| sweep::next_due(snapshot, MonoMs(5_000), &at(5_000))).await;
    assert_eq!(next.unwrap().mono, Some(MonoMs(10_000)));
    let row = read(&board, Selection::Run(run)).await.remove(0);
    let settled = release(&board, &row, Ending::of(Outcome::Failed), at(6_000)).await.unwrap();
    assert_eq!(settled.status, Status::Cancelled, "an acknowledged cancel wins over every end");
}

#[tokio::test]
async fn a_survivor_stays_on_its_run_until_it_is_forgotten() {
    let board = Board::new();
    let (task, run) = launched(&board).await;
    board.by_hand("UPDATE runs SET worker_pid = 4000, worker_fingerprint = 77");
    let row = read(&board, Selection::Run(run)).await.remove(0);
    let ending = Ending { survivor: true, forced: true, ..Ending::of(Outcome::Operator) };
    assert_eq!(release(&board, &row, ending, at(2_000)).await.unwrap().status, Status::Ready);
    let all = read(&board, Selection::All).await;
    assert_eq!(all.len(), 1);
    let part = all[0].run.clone().unwrap();
    assert!(part.survivor && part.ended && part.worker_pid == Some(4_000));
    // Its linger time is a due time like any other.
    let linger = 2_000 + 2 * 60 * 1_000;
    assert_eq!(read(&board, Selection::Due { now: MonoMs(linger), epoch: epoch() }).await.len(), 1);
    let kinds =
        board.text("SELECT group_concat(kind) FROM events WHERE event > (SELECT max(event) - 3 FROM events)");
    assert_eq!(kinds, "reclaimed,forced,survivor");
    // The operator let it go: the task may be claimed again beside it.
    let started = board.store.write("again", |tx| start::claim_for_launch(tx, 1, &at(3_000))).await.unwrap();
    assert_eq!(started[0].task, task);
    let basis = Basis::of(&read(&board, Selection::Run(run)).await[0]);
    assert!(board.store.write("forget", move |tx| sweep::forget(tx, &basis, &at(4_000))).await.unwrap());
    assert_eq!(read(&board, Selection::Run(run)).await, []);
}

#[tokio::test]
async fn noting_a_leaders_end_makes_no_verdict_stale() {
    let board = Board::new();
    let (_, run) = launched(&board).await;
    let row = read(&board, Selection::Run(run)).await.remove(0);
    board.store.write("leader", move |tx| sweep::leader_gone(tx, run, &at(2_000))).await.unwrap();
    board.store.write("leader", move |tx| sweep::leader_gone(tx, run, &at(9_000))).await.unwrap();
    assert_eq!(board.number("SELECT leader_gone_ms FROM runs"), 2_000);
    assert!(release(&board, &row, Ending::of(Outcome::Completed), at(3_000)).await.is_some());
}

#[tokio::test]
async fn retention_archives_what_is_over_in_small_batches_and_nothing_open() {
    let board = Board::new();
    for status in ["todo", "ready", "running", "blocked", "done", "done", "cancelled"] {
        board.by_hand(&format!(
            "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms, ended_usec, ended_as)
             VALUES ('{status}', 'default', 't', NULL, 0, NULL, 1, '{status}')"
        ));
    }
    let retain = async |limit, days: i64| {
        let when = at_with(days * DAY_MS, |policy| policy.retention_ms = 30 * DAY_MS);
        board.store.write("retention", move |tx| sweep::retain(tx, limit, &when)).await.unwrap().len()
    };
    assert_eq!(retain(2, 40).await, 2);
    assert_eq!(retain(2, 40).await, 1);
    assert_eq!(retain(2, 40).await, 0);
    assert_eq!(board.number("SELECT count(*) FROM tasks WHERE status = 'archived'"), 3);
    let open = board.text("SELECT group_concat(status) FROM (SELECT status FROM tasks WHERE task <= 4)");
    assert_eq!(open, "todo,ready,running,blocked");
}

#[tokio::test]
async fn boots_are_remembered_by_epoch_and_nonce() {
    use crate::core::boot::Witnesses;
    let board = Board::new();
    let remember = async |nonce: &str, boottime_ms| {
        let witnesses = Witnesses { epoch: epoch(), nonce: Some(nonce.to_owned()), boottime_ms };
        let now = at(1).now.wall;
        board.store.write("boot", move |tx| boots::remember(tx, &witnesses, now)).await.unwrap()
    };
    let first = remember("a", 10).await;
    assert_eq!(remember("a", 5).await, first);
    let second = remember("b", 1).await;
    assert!(second > first, "two boots may share an epoch");
    let all = board.store.read("boots", boots::all).await.unwrap();
    assert_eq!(all.iter().map(|boot| boot.boottime_ms).collect::<Vec<_>>(), [10, 1]);
    let when = When { boot: second, ..at(70) };
    let (first_stamp, second_stamp) = board
        .store
        .write("shutdown", move |tx| {
            boots::begin_shutdown(tx, &when)?;
            Ok((boots::shutdown_of(tx, first)?, boots::shutdown_of(tx, second)?))
        })
        .await
        .unwrap();
    assert_eq!((first_stamp, second_stamp), (None, Some(MonoMs(70))));
    let missing = Witnesses { epoch: epoch(), nonce: None, boottime_ms: 1 };
    let now = at(1).now.wall;
    let refused = board.store.write("boot", move |tx| boots::remember(tx, &missing, now)).await;
    assert!(matches!(refused, Err(Error::Fault(_))));
}

#[tokio::test]
async fn what_a_sweep_reads_does_not_grow_with_the_board() {
    let board = Board::new();
    let raw = rusqlite::Connection::open(board.state().board()).unwrap();
    for sql in [rows::RUNNING, rows::OPEN, rows::SURVIVORS, rows::DUE, rows::ONE_RUN, rows::ONE_TASK] {
        let mut explained = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let nothing = vec![rusqlite::types::Null; explained.parameter_count()];
        let lines: Vec<String> = explained
            .query_map(rusqlite::params_from_iter(nothing), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for line in &lines {
            let whole_table =
                line.starts_with("SCAN") && !line.contains("INDEX") && !line.contains("CONSTANT");
            assert!(!whole_table && !line.contains("tasks_by_status"), "{lines:#?}");
        }
    }
}

#[tokio::test]
async fn one_odd_value_hides_no_other_row_and_stops_nothing() {
    let board = Board::new();
    let (task, run) = by_hand(&board, 5_000, None);
    let (odd, odd_run) = by_hand(&board, 5_000, None);
    board.by_hand(&format!(
        "UPDATE runs SET version = 'zzz' WHERE run = {odd_run};
         UPDATE tasks SET version = x'ff' WHERE task = {odd};
         UPDATE boots SET boottime_ms = 'zzz';
         INSERT INTO boots (epoch, nonce, boottime_ms, seen_usec) VALUES (x'ff', x'ff', 1, 1);
         INSERT INTO queues (queue, max_running, paused, launch_defaults) VALUES ('odd', 'zzz', 'zzz', x'ff');"
    ));
    let rows = read(&board, Selection::All).await;
    let seen: Vec<_> = rows.iter().filter_map(|row| row.run.as_ref().map(|run| run.run)).collect();
    assert_eq!(seen, [run, odd_run]);
    for row in &rows {
        assert!(release(&board, row, Ending::of(Outcome::Reclaimed), at(6_000)).await.is_some());
    }
    for task in [task, odd] {
        let sql = format!("SELECT status FROM tasks WHERE task = {task}");
        assert_eq!(board.text(&sql), "ready");
    }
    assert!(board.store.read("boots", boots::all).await.is_ok());
    let starts = board.store.write("starts", |tx| start::claim_for_launch(tx, 8, &at(6_000))).await;
    assert!(starts.is_ok());
}
