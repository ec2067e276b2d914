//! Creating, editing, linking, acting, queues, lists and limits on a real board.

use crate::core::fault::Error;
use crate::core::ids::{EventId, TaskId};
use crate::core::refusal::Refusal;
use crate::core::spec::{Patch, Program, TaskSpec};
use crate::core::state::Status;
use crate::core::verdict::Urgency;
use crate::core::view::{EventFilter, Outcome, Page, QueueChange, StopRequest, TaskFilter, Word};
use crate::service::testing::{ANNA, BERT, Office, ROOT, spec};
use crate::store::testing::WALL_USEC;

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Refusal {
    match answer {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn child_of(parents: &[TaskId]) -> TaskSpec {
    TaskSpec { parents: parents.to_vec(), ..spec("child") }
}

async fn complete(office: &Office, task: TaskId) {
    let request =
        crate::service::types::ClaimRequest { task: Some(task), ..crate::service::testing::wanted() };
    let run = office.desk.claim_task(&ANNA, request).await.unwrap().run;
    office.desk.speak(&ANNA, run, Word::Complete { summary: None, result: None }).await.unwrap();
}

async fn cancel(office: &Office, task: TaskId) {
    let request = StopRequest { reason: None, urgency: Urgency::Normal, run: None };
    office.desk.cancel_task(&ANNA, task, request).await.unwrap();
}

#[tokio::test]
async fn c35_one_key_makes_one_task_from_fifty_callers() {
    let office = Office::new();
    let keyed = |title: String| TaskSpec { idempotency_key: Some("k".into()), ..spec(&title) };
    let calls = (0..50).map(|number| office.desk.create_task(&ANNA, keyed(format!("call {number}"))));
    let answers = futures_util::future::join_all(calls).await;
    let answers: Vec<(TaskId, bool)> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|(_, created)| *created).count(), 1);
    assert!(answers.iter().all(|(task, _)| *task == answers[0].0));
    let (others, created) = office.desk.create_task(&BERT, keyed("another owner's".into())).await.unwrap();
    assert!(created && others != answers[0].0);
    let first = answers[0].0;
    cancel(&office, first).await;
    assert!(!office.desk.create_task(&ANNA, keyed("again".into())).await.unwrap().1);
    office.desk.archive_task(&ANNA, first).await.unwrap();
    assert!(
        office.desk.create_task(&ANNA, keyed("again".into())).await.unwrap().1,
        "an archived task gives its key back"
    );
}

#[tokio::test]
async fn what_was_asked_for_is_what_is_shown() {
    let office = Office::new();
    let program = Program {
        command: vec!["sh".into(), "-c".into(), "true".into()],
        environment: vec!["A=1".into()],
        nice: Some(3),
        ..Program::default()
    };
    let asked = TaskSpec {
        body: "more".into(),
        priority: -4,
        labels: vec!["a".into(), "b".into()],
        max_runtime_ms: Some(5_000),
        failure_limit: Some(0),
        queue: Some("default".into()),
        program,
        ..spec("all of it")
    };
    let (task, _) = office.desk.create_task(&ANNA, asked.clone()).await.unwrap();
    let view = office.view(task).await;
    assert_eq!(view.spec, asked);
    assert_eq!((view.owner_uid, view.created_usec), (ANNA.uid, WALL_USEC));
}

#[tokio::test]
async fn parents_hold_their_children_until_all_are_done() {
    let office = Office::new();
    let (one, two) = (office.task(&ANNA, "one").await, office.task(&ANNA, "two").await);
    let (child, _) = office.desk.create_task(&ANNA, child_of(&[two, one, one])).await.unwrap();
    assert_eq!(office.view(child).await.status, Status::Todo);
    complete(&office, one).await;
    assert_eq!(office.view(child).await.status, Status::Todo);
    complete(&office, two).await;
    assert_eq!(office.view(child).await.status, Status::Ready);
    // A parent that is retried does not take it back.
    office.desk.retry_task(&ANNA, one).await.unwrap();
    assert_eq!(office.view(child).await.status, Status::Ready);
    let (late, _) = office.desk.create_task(&ANNA, child_of(&[two])).await.unwrap();
    assert_eq!(office.view(late).await.status, Status::Ready, "its parent is done");
    office.desk.archive_task(&ANNA, two).await.unwrap();
    let (later, _) = office.desk.create_task(&ANNA, child_of(&[two])).await.unwrap();
    assert_eq!(office.view(later).await.status, Status::Ready, "an archived done parent stays satisfied");
}

#[tokio::test]
async fn a_cancelled_parent_blocks_its_children_and_is_named() {
    let office = Office::new();
    let parent = office.task(&ANNA, "parent").await;
    let (child, _) = office.desk.create_task(&ANNA, child_of(&[parent])).await.unwrap();
    cancel(&office, parent).await;
    let view = office.view(child).await;
    assert_eq!((view.status, view.block_code.as_deref()), (Status::Blocked, Some("parent")));
    assert!(view.block_reason.unwrap().contains(&parent.to_string()));
    let (late, _) = office.desk.create_task(&ANNA, child_of(&[parent])).await.unwrap();
    assert_eq!(office.view(late).await.block_code.as_deref(), Some("parent"));
    office.desk.retry_task(&ANNA, parent).await.unwrap();
    office.desk.unblock_task(&ANNA, child).await.unwrap();
    assert_eq!(office.view(child).await.status, Status::Todo);
    complete(&office, parent).await;
    assert_eq!(office.view(child).await.status, Status::Ready);
}

#[tokio::test]
async fn a_child_that_ran_or_was_parked_while_its_parent_was_cancelled_is_parked_for_it_and_says_so() {
    let office = Office::new();
    let child = office.task(&ANNA, "child").await;
    let (_, run) = office.claim(&ANNA).await;
    let parent = office.task(&ANNA, "parent").await;
    cancel(&office, parent).await;
    office.desk.link_tasks(&ANNA, parent, child).await.unwrap();
    assert_eq!(office.view(child).await.status, Status::Running);
    office.desk.speak(&ANNA, run, Word::Release { reason: "later".into() }).await.unwrap();
    let parked = async || {
        let view = office.view(child).await;
        assert_eq!((view.status, view.block_code.as_deref()), (Status::Blocked, Some("parent")));
        assert!(view.block_reason.unwrap().contains(&parent.to_string()));
    };
    parked().await;
    office.desk.unblock_task(&ANNA, child).await.unwrap();
    parked().await;
    office.desk.archive_task(&ANNA, parent).await.unwrap();
    office.desk.unblock_task(&ANNA, child).await.unwrap();
    parked().await;
    office.desk.unlink_tasks(&ANNA, parent, child).await.unwrap();
    office.desk.unblock_task(&ANNA, child).await.unwrap();
    assert_eq!(office.view(child).await.status, Status::Ready);
}

#[tokio::test]
async fn a_circle_is_refused_and_shown() {
    let office = Office::new();
    let mut tasks = Vec::new();
    for title in ["a", "b", "c"] {
        tasks.push(office.task(&ANNA, title).await);
    }
    let link = |parent, child| office.desk.link_tasks(&ANNA, parent, child);
    assert_eq!(link(tasks[0], tasks[1]).await.unwrap(), Outcome::Done);
    assert_eq!(link(tasks[1], tasks[2]).await.unwrap(), Outcome::Done);
    assert_eq!(link(tasks[1], tasks[2]).await.unwrap(), Outcome::Unchanged);
    let refusal = refused(link(tasks[2], tasks[0]).await);
    assert_eq!(
        refusal,
        Refusal::Cycle { task: tasks[0], path: vec![tasks[0], tasks[1], tasks[2], tasks[0]] }
    );
    assert_eq!(refusal.to_string(), "task 1 would wait for itself: 1 -> 2 -> 3 -> 1");
    assert!(matches!(refused(link(tasks[0], tasks[0]).await), Refusal::Cycle { .. }));
    assert_eq!(office.view(tasks[2]).await.status, Status::Todo);
    assert_eq!(office.desk.unlink_tasks(&ANNA, tasks[1], tasks[2]).await.unwrap(), Outcome::Done);
    assert_eq!(office.view(tasks[2]).await.status, Status::Ready);
    assert_eq!(office.desk.unlink_tasks(&ANNA, tasks[1], tasks[2]).await.unwrap(), Outcome::Unchanged);
}

#[tokio::test]
async fn acts_follow_the_transition_table() {
    let office = Office::new();
    let task = office.task(&ANNA, "t").await;
    let desk = &office.desk;
    assert_eq!(desk.block_task(&ANNA, task, "wait".into()).await.unwrap(), Outcome::Done);
    assert_eq!(office.view(task).await.block_reason.as_deref(), Some("wait"));
    assert_eq!(desk.block_task(&ANNA, task, "wait".into()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(desk.unblock_task(&ANNA, task).await.unwrap(), Outcome::Done);
    assert_eq!(desk.retry_task(&ANNA, task).await.unwrap(), Outcome::Unchanged);
    let refusal = refused(desk.archive_task(&ANNA, task).await);
    assert_eq!(refusal, Refusal::InvalidTransition { task, from: Status::Ready, to: "archived" });
    let (_, run) = office.claim(&ANNA).await;
    assert!(matches!(
        refused(desk.block_task(&ANNA, task, "x".into()).await),
        Refusal::InvalidTransition { .. }
    ));
    desk.speak(&ANNA, run, Word::Fail { error: "e".into(), retry: true }).await.unwrap();
    assert!(office.view(task).await.retry_in_ms.is_some());
    assert_eq!(desk.retry_task(&ANNA, task).await.unwrap(), Outcome::Done);
    assert_eq!(office.view(task).await.retry_in_ms, None);
    cancel(&office, task).await;
    assert_eq!(desk.archive_task(&ANNA, task).await.unwrap(), Outcome::Done);
    assert_eq!(desk.archive_task(&ANNA, task).await.unwrap(), Outcome::Unchanged);
    assert!(matches!(refused(desk.retry_task(&ANNA, task).await), Refusal::InvalidTransition { .. }));
    let kinds = office.board.text("SELECT group_concat(kind) FROM (SELECT kind FROM events ORDER BY event)");
    assert_eq!(kinds, "created,blocked,unblocked,claimed,failed,retried,cancelled,archived");
}

#[tokio::test]
async fn an_edit_changes_what_it_names_and_less_while_a_run_holds_the_task() {
    let office = Office::new();
    let task = office.task(&ANNA, "t").await;
    let desk = &office.desk;
    let later = Patch { not_before_usec: Some(WALL_USEC + 1_000_000), ..Patch::default() };
    assert_eq!(desk.update_task(&ANNA, task, later.clone()).await.unwrap(), Outcome::Done);
    assert_eq!(office.view(task).await.status, Status::Todo);
    assert_eq!(desk.update_task(&ANNA, task, later.clone()).await.unwrap(), Outcome::Unchanged);
    let now = Patch { not_before_usec: Some(0), ..Patch::default() };
    assert_eq!(desk.update_task(&ANNA, task, now).await.unwrap(), Outcome::Done);
    assert_eq!(office.view(task).await.status, Status::Ready);
    let nowhere = Patch { queue: Some("x".into()), ..Patch::default() };
    assert_eq!(refused(desk.update_task(&ANNA, task, nowhere).await), Refusal::NoSuchQueue("x".into()));
    office.claim(&ANNA).await;
    let text = refused(desk.update_task(&ANNA, task, later).await).to_string();
    assert!(text.starts_with("NotBeforeUsec"), "{text}");
    let running = Patch {
        title: Some("new".into()),
        labels: Some(vec!["z".into(), "y".into(), "z".into()]),
        max_runtime_ms: Some(9_000),
        ..Patch::default()
    };
    assert_eq!(desk.update_task(&ANNA, task, running).await.unwrap(), Outcome::Done);
    let view = office.view(task).await;
    assert_eq!((view.spec.title.as_str(), view.spec.labels.len()), ("new", 2));
    assert_eq!(office.board.number("SELECT due_ms FROM runs"), 9_000, "its deadline is its next due time");
}

#[tokio::test]
async fn limits_are_held_and_named() {
    let office = Office::with(|policy| policy.limits.open_tasks_per_user = 2);
    office.task(&ANNA, "one").await;
    let two = office.task(&ANNA, "two").await;
    let refusal = refused(office.desk.create_task(&ANNA, spec("three")).await);
    assert_eq!(refusal, Refusal::LimitExceeded { what: "open tasks of one user", limit: 2, asked: 3 });
    office.task(&BERT, "another's").await;
    cancel(&office, two).await;
    office.task(&ANNA, "three").await;
    let nowhere = TaskSpec { queue: Some("x".into()), ..spec("t") };
    assert_eq!(refused(office.desk.create_task(&BERT, nowhere).await), Refusal::NoSuchQueue("x".into()));
    let orphan = child_of(&[TaskId::new(99)]);
    assert_eq!(refused(office.desk.create_task(&BERT, orphan).await), Refusal::NoSuchTask(TaskId::new(99)));
    let theirs = child_of(&[two]);
    assert_eq!(refused(office.desk.create_task(&BERT, theirs).await), Refusal::NoSuchTask(two));
}

#[tokio::test]
async fn queues_are_made_changed_and_removed() {
    let office = Office::new();
    let desk = &office.desk;
    let limit = |max_running| QueueChange { max_running: Some(max_running), ..QueueChange::default() };
    assert_eq!(desk.set_queue(&ROOT, "q".into(), limit(3)).await.unwrap(), Outcome::Done);
    assert_eq!(desk.set_queue(&ROOT, "q".into(), limit(3)).await.unwrap(), Outcome::Unchanged);
    let own = Patch { title: Some("t".into()), ..Patch::default() };
    let bad = QueueChange { launch_defaults: Some(own), ..QueueChange::default() };
    assert!(matches!(refused(desk.set_queue(&ROOT, "q".into(), bad).await), Refusal::InvalidArgument { .. }));
    let in_q = TaskSpec { queue: Some("q".into()), ..spec("t") };
    let (task, _) = desk.create_task(&ANNA, in_q).await.unwrap();
    assert!(matches!(refused(desk.remove_queue(&ROOT, "q".into()).await), Refusal::Busy(_)));
    let queues = desk.list_queues(&BERT).await.unwrap();
    let q = queues.iter().find(|view| view.queue == "q").unwrap();
    assert_eq!((q.max_running, q.ready), (3, 0), "what others have there is not shown");
    assert_eq!(desk.list_queues(&ROOT).await.unwrap().iter().map(|view| view.ready).sum::<u32>(), 1);
    cancel(&office, task).await;
    assert_eq!(desk.remove_queue(&ROOT, "q".into()).await.unwrap(), Outcome::Done);
    assert_eq!(refused(desk.remove_queue(&ROOT, "q".into()).await), Refusal::NoSuchQueue("q".into()));
    assert!(matches!(refused(desk.remove_queue(&ROOT, "default".into()).await), Refusal::Busy(_)));
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let office = Office::new();
    for number in 1..=5 {
        let caller = if number % 2 == 0 { &ANNA } else { &BERT };
        let spec =
            TaskSpec { labels: vec![format!("l{number}")], body: format!("Text {number}"), ..spec("t") };
        office.desk.create_task(caller, spec).await.unwrap();
    }
    let list = async |caller, filter: TaskFilter| -> Vec<i64> {
        let tasks = office.desk.list_tasks(caller, filter).await.unwrap();
        tasks.into_iter().map(|view| view.task.get()).collect()
    };
    let all = TaskFilter::default;
    assert_eq!(list(&ROOT, all()).await, [1, 2, 3, 4, 5]);
    assert_eq!(list(&ANNA, all()).await, [2, 4]);
    assert_eq!(list(&ANNA, TaskFilter { owner: Some(BERT.uid), ..all() }).await, [0_i64; 0]);
    assert_eq!(list(&ROOT, TaskFilter { owner: Some(BERT.uid), ..all() }).await, [1, 3, 5]);
    assert_eq!(list(&ROOT, TaskFilter { label: Some("l3".into()), ..all() }).await, [3]);
    assert_eq!(list(&ROOT, TaskFilter { text: Some("tEXT 4".into()), ..all() }).await, [4]);
    assert_eq!(list(&ROOT, TaskFilter { after: Some(TaskId::new(3)), ..all() }).await, [4, 5]);
    assert_eq!(list(&ROOT, TaskFilter { limit: Some(2), ..all() }).await, [1, 2]);
    cancel(&office, TaskId::new(2)).await;
    let statuses = vec![Status::Cancelled, Status::Ready];
    assert_eq!(list(&ROOT, TaskFilter { statuses, limit: Some(3), ..all() }).await, [1, 2, 3]);
    assert_eq!(list(&ROOT, TaskFilter { queue: Some("x".into()), ..all() }).await, [0_i64; 0]);
}

#[tokio::test]
async fn a_page_stays_small_whatever_its_rows_hold() {
    let office = Office::new();
    for _ in 0..30 {
        let spec = TaskSpec { body: "x".repeat(65_000), ..spec("large") };
        office.desk.create_task(&ANNA, spec).await.unwrap();
    }
    let page = office.desk.list_tasks(&ANNA, TaskFilter::default()).await.unwrap();
    assert!((10..16).contains(&page.len()), "{} tasks of 65 kB", page.len());
}

#[tokio::test]
async fn comments_events_and_runs_are_listed_oldest_first() {
    let office = Office::new();
    let task = office.task(&ANNA, "t").await;
    office.desk.add_comment(&ANNA, task, "hello".into()).await.unwrap();
    let (_, run) = office.claim(&ANNA).await;
    let comments = office.desk.list_comments(&ANNA, task, Page::default()).await.unwrap();
    assert_eq!((comments[0].author.as_str(), comments[0].text.as_str()), ("uid:1000", "hello"));
    let runs = office.desk.list_runs(&ANNA, task, Page::default()).await.unwrap();
    assert_eq!((runs[0].run, runs[0].attempt, runs[0].worker_kind), (run, 1, "lease-only"));
    assert_eq!(office.desk.get_run(&ANNA, run).await.unwrap(), runs[0]);
    let events =
        office.desk.list_events(&ANNA, EventFilter { task: Some(task), ..EventFilter::default() }).await;
    let events = events.unwrap();
    assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["created", "claimed"]);
    let after = EventFilter { after: Some(EventId::new(1)), ..EventFilter::default() };
    assert_eq!(office.desk.list_events(&ANNA, after).await.unwrap().len(), 1);
    for event in events {
        serde_json::from_str::<serde_json::Value>(&event.payload).unwrap();
    }
}

#[tokio::test]
async fn a_drain_and_a_full_disk_are_announced() {
    let office = Office::new();
    let mut properties = office.desk.properties();
    assert_eq!(office.desk.drain(&ROOT, true, true).await.unwrap(), Outcome::Done);
    assert_eq!(office.desk.drain(&ROOT, true, true).await.unwrap(), Outcome::Unchanged);
    assert!(properties.borrow_and_update().draining && office.desk.draining());
    office.desk.set_degraded("wal", true);
    office.desk.set_degraded("bus_lost", true);
    assert!(properties.has_changed().unwrap());
    assert_eq!(office.desk.degraded(), ["bus_lost", "wal"]);
    properties.mark_unchanged();
    office.desk.set_degraded("wal", true);
    assert!(!properties.has_changed().unwrap(), "no storm");
    office.desk.set_degraded("wal", false);
    assert_eq!(office.desk.degraded(), ["bus_lost"]);
}

#[tokio::test]
async fn a_life_that_starts_nothing_is_no_drained_board() {
    let office = Office::new();
    assert_eq!(office.desk.drain(&ROOT, true, false).await.unwrap(), Outcome::Done);
    assert!(!office.desk.starts() && !office.desk.draining());
    assert_eq!(office.desk.drain(&ROOT, true, false).await.unwrap(), Outcome::Unchanged);
    office.desk.drain(&ROOT, true, true).await.unwrap();
    assert_eq!(office.desk.drain(&ROOT, false, false).await.unwrap(), Outcome::Done);
    assert!(office.desk.starts() && office.desk.draining(), "what is durable stays");
}

#[tokio::test]
async fn a_backup_has_a_plain_name() {
    let office = Office::new();
    for name in ["", "../x", "a/b", ".hidden", "a b"] {
        let refusal = refused(office.desk.backup(&ROOT, name.into()).await);
        assert!(matches!(refusal, Refusal::InvalidArgument { .. }), "{name:?}");
    }
    let path = office.desk.backup(&ROOT, "nightly-1.2".into()).await.unwrap();
    assert!(path.ends_with("/backup-nightly-1.2.db"), "{path}");
}

#[tokio::test]
async fn output_is_for_those_who_may_see_the_run() {
    let office = Office::new();
    office.task(&ANNA, "t").await;
    let (_, run) = office.claim(&ANNA).await;
    assert!(matches!(
        refused(office.desk.open_output(&ANNA, run, false).await),
        Refusal::InvalidArgument { .. }
    ));
    let path = office.board.state().output(run);
    #[expect(clippy::disallowed_methods, reason = "the test stands in for a worker")]
    {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "a line\n").unwrap();
    }
    office.desk.open_output(&ANNA, run, false).await.unwrap();
    let never_full = refused(office.desk.open_output(&ANNA, run, true).await);
    assert!(never_full.to_string().contains("was never full"), "{never_full}");
    #[expect(
        clippy::disallowed_methods,
        reason = "the test stands in for a supervisor that begins a new file"
    )]
    std::fs::rename(&path, office.board.state().older_output(run)).unwrap();
    office.desk.open_output(&ANNA, run, true).await.unwrap();
    assert_eq!(refused(office.desk.open_output(&BERT, run, false).await), Refusal::NoSuchRun(run));
}

#[tokio::test]
async fn a_queues_new_spans_count_for_what_runs_already() {
    let office = Office::new();
    office.task(&ANNA, "t").await;
    office.claim(&ANNA).await;
    let due = || office.board.number("SELECT due_ms FROM runs");
    let lease = due();
    let spans = Patch { max_runtime_ms: Some(2_000), ..Patch::default() };
    let change = QueueChange { launch_defaults: Some(spans), ..QueueChange::default() };
    office.desk.set_queue(&ROOT, "default".into(), change).await.unwrap();
    assert_eq!((due(), lease > 2_000), (2_000, true));
}

#[tokio::test]
async fn events_far_behind_everybody_elses_are_still_found_and_in_order() {
    let office = Office::new();
    let others = office.task(&ROOT, "root's").await;
    office.board.by_hand(&format!(
        "INSERT INTO events (task, kind, at_usec)
         WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 25000)
         SELECT {others}, 'noise', 1 FROM n"
    ));
    let (first, second) = (office.task(&ANNA, "one").await, office.task(&ANNA, "two").await);
    office.desk.block_task(&ANNA, first, "wait".into()).await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let filter = EventFilter { after, limit: Some(2), ..EventFilter::default() };
        let page = office.desk.list_events(&ANNA, filter).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.event);
        seen.extend(page.iter().map(|event| (event.task.unwrap(), event.kind.clone())));
    }
    let event = |task, kind: &str| (task, kind.to_owned());
    assert_eq!(seen, [event(first, "created"), event(second, "created"), event(first, "blocked")]);
}
