//! The dispatcher: order, turns, caps, pauses, back-offs; and the way to an open gate.

use std::collections::BTreeMap;

use crate::core::fingerprint::{Fingerprint, Stored};
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::spec::{Patch, Program, TaskSpec};
use crate::core::state::Status;
use crate::core::verdict::{StopCause, Urgency};
use crate::core::view::QueueChange;
use crate::store::start::{self, Identity, Start};
use crate::store::sweep::{self, Asked};
use crate::store::tasks::{self, Place};
use crate::store::testing::{Board, at, at_with, epoch};
use crate::store::{When, queues, settings};

struct New {
    owner: Uid,
    queue: &'static str,
    priority: i32,
    slots: BTreeMap<String, u32>,
}

impl Default for New {
    fn default() -> Self {
        Self { owner: 0, queue: "default", priority: 0, slots: BTreeMap::new() }
    }
}

async fn add(board: &Board, new: New) -> TaskId {
    let spec = TaskSpec {
        title: "t".into(),
        queue: Some(new.queue.into()),
        priority: new.priority,
        slots: new.slots,
        program: Program { command: vec!["true".into()], ..Program::default() },
        ..TaskSpec::default()
    };
    let place = Place { status: Status::Ready, cancelled_parent: None, pending_parents: 0 };
    board.store.write("a task", move |tx| tasks::insert(tx, new.owner, &spec, &place, &at(1))).await.unwrap()
}

async fn queue(board: &Board, name: &'static str, change: QueueChange) {
    board.store.write("a queue", move |tx| queues::set(tx, name, &change)).await.unwrap();
}

/// As many workers as one likes, unless a test says otherwise.
fn free(mono_ms: i64) -> When {
    at_with(mono_ms, |policy| policy.max_running = 0)
}

async fn claim(board: &Board, room: usize, when: When) -> Vec<Start> {
    let foreseen = {
        let when = when.clone();
        board.store.read("preview", move |snapshot| start::startable(snapshot, room, &when)).await.unwrap()
    };
    let starts =
        board.store.write("claims", move |tx| start::claim_for_launch(tx, room, &when)).await.unwrap();
    assert_eq!(
        foreseen,
        starts.iter().map(|start| start.task).collect::<Vec<_>>(),
        "the preview said otherwise"
    );
    starts
}

fn numbers(starts: &[Start]) -> Vec<i64> {
    starts.iter().map(|start| start.task.get()).collect()
}

#[tokio::test]
async fn queues_take_turns_and_priority_goes_first_within_each() {
    let board = Board::new();
    for name in ["a", "b"] {
        queue(&board, name, QueueChange::default()).await;
    }
    for (queue, priority) in [("a", 0), ("a", 0), ("a", 9), ("b", 0), ("b", -1)] {
        add(&board, New { queue, priority, ..New::default() }).await;
    }
    assert_eq!(numbers(&claim(&board, 3, free(10)).await), [3, 4, 1]);
    // b was served before a's last one.
    assert_eq!(numbers(&claim(&board, 9, free(10)).await), [5, 2]);
}

#[tokio::test]
async fn every_cap_holds() {
    let board = Board::new();
    queue(&board, "small", QueueChange { max_running: Some(1), ..QueueChange::default() }).await;
    queue(&board, "off", QueueChange { paused: Some(true), ..QueueChange::default() }).await;
    for queue in ["small", "small", "off"] {
        add(&board, New { queue, ..New::default() }).await;
    }
    assert_eq!(numbers(&claim(&board, 9, free(10)).await), [1]);
    assert_eq!(numbers(&claim(&board, 9, free(10)).await), [0_i64; 0]);
    queue(&board, "off", QueueChange { paused: Some(false), ..QueueChange::default() }).await;
    let one_more = at_with(10, |policy| policy.max_running = 1);
    assert_eq!(numbers(&claim(&board, 9, one_more).await), [0_i64; 0]);
    assert_eq!(numbers(&claim(&board, 9, at_with(10, |policy| policy.max_running = 2)).await), [3]);
}

#[tokio::test]
async fn a_user_at_the_limit_stands_in_nobodys_way() {
    let board = Board::new();
    for owner in [7, 7, 7, 8] {
        add(&board, New { owner, ..New::default() }).await;
    }
    let limited = |now| {
        at_with(now, |policy| {
            policy.max_running = 0;
            policy.limits.running_per_user = 1;
        })
    };
    assert_eq!(numbers(&claim(&board, 9, limited(10)).await), [1, 4]);
    assert_eq!(numbers(&claim(&board, 9, limited(10)).await), [0_i64; 0]);
}

#[tokio::test]
async fn slots_are_given_by_the_unit_and_come_back() {
    let board = Board::new();
    let gpu = |units| BTreeMap::from([("gpu".to_owned(), units)]);
    for units in [1, 2, 1] {
        add(&board, New { slots: gpu(units), ..New::default() }).await;
    }
    let with_two = |now| {
        at_with(now, |policy| {
            policy.max_running = 0;
            policy.slots = BTreeMap::from([("gpu".to_owned(), vec!["0".to_owned(), "1".to_owned()])]);
        })
    };
    let starts = claim(&board, 9, with_two(10)).await;
    assert_eq!(numbers(&starts), [1, 3]);
    assert_eq!(starts[0].slots["gpu"], ["0"]);
    assert_eq!(starts[1].slots["gpu"], ["1"]);
    for start in starts {
        let when = with_two(20);
        let work = move |tx: &mut crate::store::Tx<'_>| start::not_started(tx, start.run, "no", false, &when);
        board.store.write_end("ended", work).await.unwrap();
    }
    let starts = claim(&board, 9, with_two(30)).await;
    assert_eq!((numbers(&starts), starts[0].slots["gpu"].len()), (vec![2], 2));
}

#[tokio::test]
async fn nothing_starts_while_draining_or_going_down() {
    let board = Board::new();
    add(&board, New::default()).await;
    let drain =
        async |on| board.store.write("drain", move |tx| settings::set_draining(tx, on)).await.unwrap();
    assert!(drain(true).await);
    assert!(!drain(true).await);
    assert!(claim(&board, 9, free(10)).await.is_empty());
    let directory = board.close();
    let board = Board::in_directory(directory);
    assert!(board.store.was_draining(), "a drain is durable");
    board.store.write("drain", |tx| settings::set_draining(tx, false)).await.unwrap();
    board.by_hand("INSERT INTO boots (boot, epoch, nonce, boottime_ms, seen_usec, shutdown_ms) VALUES (1, 'e', 'n', 1, 1, 5)");
    assert!(claim(&board, 9, free(10)).await.is_empty());
    board.store.write("off", |tx| crate::store::boots::call_off_shutdown(tx, at(1).boot)).await.unwrap();
    assert_eq!(claim(&board, 9, free(10)).await.len(), 1);
}

#[tokio::test]
async fn a_task_with_an_open_run_is_never_claimed_again() {
    let board = Board::new();
    add(&board, New::default()).await;
    let starts = claim(&board, 9, free(10)).await;
    board.by_hand("UPDATE tasks SET status = 'ready', run = NULL");
    assert!(claim(&board, 9, free(20)).await.is_empty());
    board.by_hand(&format!("UPDATE runs SET ended_usec = 5 WHERE run = {}", starts[0].run));
    assert_eq!(claim(&board, 9, free(30)).await.len(), 1);
}

#[tokio::test]
async fn a_queues_defaults_are_in_the_spec_of_a_start() {
    let board = Board::new();
    let defaults = Patch {
        nice: Some(7),
        user: Some("nobody".into()),
        environment: Some(vec!["A=1".into()]),
        lease_ms: Some(60_000),
        ..Patch::default()
    };
    let change = QueueChange { launch_defaults: Some(defaults), ..QueueChange::default() };
    queue(&board, "nice", change).await;
    add(&board, New { queue: "nice", owner: 7, ..New::default() }).await;
    add(&board, New { queue: "nice", owner: 0, ..New::default() }).await;
    let starts = claim(&board, 9, free(10)).await;
    assert_eq!(starts[0].spec.program.nice, Some(7));
    assert_eq!(starts[0].spec.program.environment, ["A=1"]);
    assert_eq!(
        starts[0].spec.program.user, None,
        "a user's command runs as that user, whatever the queue says"
    );
    assert_eq!(starts[1].spec.program.user.as_deref(), Some("nobody"));
    assert_eq!(board.number("SELECT lease_expires_ms FROM runs WHERE run = 1"), 60_010);
}

fn identity() -> Identity {
    let proven = |start_ticks| Stored::Proven(Fingerprint { epoch: epoch(), start_ticks, inode: Some(1) });
    Identity {
        worker_pid: 4_000,
        worker: proven(5),
        supervisor_pid: 3_999,
        supervisor: proven(4),
        uid: 7,
        unit: None,
    }
}

async fn identify(board: &Board, run: RunId) -> bool {
    board.store.write("identity", move |tx| start::identify(tx, run, &identity(), &at(20))).await.unwrap()
}

#[tokio::test]
async fn the_gate_opens_only_for_a_run_that_is_open_and_not_stopped() {
    let board = Board::new();
    for _ in 0..3 {
        add(&board, New::default()).await;
    }
    let starts = claim(&board, 9, free(10)).await;
    assert!(identify(&board, starts[0].run).await);
    board
        .store
        .write("opened", {
            let run = starts[0].run;
            move |tx| start::opened(tx, run, &at(30))
        })
        .await
        .unwrap();
    let row = board.text("SELECT stage || started_ms || worker_pid || worker_uid FROM runs WHERE run = 1");
    assert_eq!(row, "running3040007");
    assert_eq!(board.text("SELECT group_concat(kind) FROM events WHERE run = 1"), "claimed,started");
    assert!(!identify(&board, starts[0].run).await, "it runs already");

    let task = starts[1].task;
    board
        .store
        .write("stop", move |tx| {
            let asked = Asked { by: Some(0), reason: None };
            sweep::stop_task(tx, task, StopCause::Cancelled, Urgency::Normal, asked, &at(15))
        })
        .await
        .unwrap();
    assert!(!identify(&board, starts[1].run).await, "a stop was asked");

    let run = starts[2].run;
    let work = move |tx: &mut crate::store::Tx<'_>| start::not_started(tx, run, "why", true, &at(15));
    board.store.write_end("over", work).await.unwrap();
    assert!(!identify(&board, run).await, "it has ended");
}

#[tokio::test]
async fn a_sick_host_backs_off_and_a_faulty_task_is_blocked() {
    let board = Board::new();
    add(&board, New::default()).await;
    let mut now = 1_000;
    for span_ms in [1_000, 2_000, 4_000] {
        let run = claim(&board, 9, free(now)).await[0].run;
        let when = free(now);
        let work =
            move |tx: &mut crate::store::Tx<'_>| start::not_started(tx, run, "fork failed", true, &when);
        board.store.write_end("a failed start", work).await.unwrap();
        assert!(claim(&board, 9, free(now + span_ms - 1)).await.is_empty());
        let next = free(now);
        let next =
            board.store.read("next", move |snapshot| sweep::next_due(snapshot, next.now.mono, &next)).await;
        assert_eq!(next.unwrap().mono.map(|due| due.0), Some(now + span_ms));
        now += span_ms;
    }
    assert_eq!(board.text("SELECT status || failures || attempts FROM tasks"), "ready03");
    let run = claim(&board, 9, free(now)).await[0].run;
    let when = free(now);
    let work = move |tx: &mut crate::store::Tx<'_>| start::not_started(tx, run, "no user x", false, &when);
    board.store.write_end("a faulty task", work).await.unwrap();
    let task = board.text("SELECT status || ' ' || block_code || ' ' || block_reason FROM tasks");
    assert_eq!(task, "blocked config no user x");
}

#[tokio::test]
async fn what_waits_for_its_time_is_promoted_when_it_comes() {
    let board = Board::new();
    let wall = at(50_000).now.wall.0;
    board.by_hand(&format!(
        "INSERT INTO tasks (status, queue, title, not_before_usec) VALUES ('todo', 'default', 'later', {wall});
         INSERT INTO tasks (status, queue, title, pending_parents) VALUES ('todo', 'default', 'waits', 1);"
    ));
    let promote =
        async |now| board.store.write("promote", move |tx| start::promote(tx, &at(now))).await.unwrap();
    assert_eq!(promote(49_999).await, []);
    let next = board.store.read("next", |snapshot| sweep::next_due(snapshot, at(1).now.mono, &at(1))).await;
    assert_eq!(next.unwrap().wall.map(|wall| wall.0), Some(wall));
    assert_eq!(promote(50_000).await, [TaskId::new(1)]);
    assert_eq!(
        board.text("SELECT group_concat(status) FROM (SELECT status FROM tasks ORDER BY task)"),
        "ready,todo"
    );
}

#[tokio::test]
async fn a_start_that_hung_counts_for_its_task_and_holds_up_nobody() {
    let board = Board::new();
    for _ in 0..2 {
        add(&board, New::default()).await;
    }
    let run = claim(&board, 1, free(10)).await[0].run;
    board.store.write_end("hung", move |tx| start::hung(tx, run, "no answer", &free(20))).await.unwrap();
    let row = board.text("SELECT status || failures || last_error FROM tasks WHERE task = 1");
    assert_eq!(row, "ready1no answer");
    assert_eq!(numbers(&claim(&board, 9, free(30)).await), [2], "it backs off, and the host does not");
}
