//! ClaimTask, Heartbeat and SetWorker on a real board.

use std::time::Duration;

use crate::core::fault::Error;
use crate::core::ids::TaskId;
use crate::core::plan::Basis;
use crate::core::refusal::Refusal;
use crate::core::retry::Outcome as RunOutcome;
use crate::core::spec::{Patch, Program, TaskSpec};
use crate::core::state::Status;
use crate::core::view::{Outcome, QueueChange, Word};
use crate::service::testing::{ANNA, BERT, Office, ROOT, spec, wanted, wanted_for};
use crate::service::types::{ClaimRequest, WorkerGiven};
use crate::store::sweep::{self, Ending, Selection};

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Refusal {
    match answer {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_task_goes_from_ready_to_done() {
    let office = Office::new();
    let task = office.task(&ANNA, "first").await;
    assert_eq!(office.view(task).await.status, Status::Ready);
    let (claimed, run) = office.claim(&ANNA).await;
    assert_eq!(claimed, task);
    let view = office.view(task).await;
    assert_eq!((view.status, view.attempts), (Status::Running, 1));
    assert_eq!(view.current.as_ref().map(|current| current.worker_kind), Some("lease-only"));
    assert_eq!(office.desk.heartbeat(&ANNA, run, None).await.unwrap(), 15 * 60 * 1_000);
    let word = Word::Complete { summary: None, result: Some("{\"n\":1}".into()) };
    assert_eq!(office.desk.speak(&ANNA, run, word).await.unwrap(), Outcome::Done);
    let view = office.view(task).await;
    assert_eq!((view.status, view.result.as_deref()), (Status::Done, Some("{\"n\":1}")));
    assert!(view.current.is_none());
    assert_eq!(refused(office.desk.claim_task(&ROOT, wanted()).await), Refusal::NothingReady);
}

#[tokio::test]
async fn what_belongs_to_others_does_not_exist() {
    let office = Office::new();
    let task = office.task(&ANNA, "hers").await;
    assert_eq!(refused(office.desk.get_task(&BERT, task).await), Refusal::NoSuchTask(task));
    assert_eq!(refused(office.desk.claim_task(&BERT, wanted()).await), Refusal::NothingReady);
    let (_, run) = office.claim(&ANNA).await;
    assert_eq!(refused(office.desk.heartbeat(&BERT, run, None).await), Refusal::NoSuchRun(run));
    let word = Word::Release { reason: "mine".into() };
    assert_eq!(refused(office.desk.speak(&BERT, run, word).await), Refusal::NoSuchRun(run));
    let as_root = Program { user: Some("root".into()), command: vec!["id".into()], ..Program::default() };
    let spec = TaskSpec { program: as_root, ..spec("as root") };
    assert!(matches!(refused(office.desk.create_task(&BERT, spec).await), Refusal::NotAuthorized(_)));
    let named = refused(office.desk.drain(&BERT, true, true).await);
    assert!(matches!(named, Refusal::NotAuthorized(_)));
    assert_eq!(office.desk.list_tasks(&BERT, Default::default()).await.unwrap(), []);
    assert_eq!(office.desk.list_events(&BERT, Default::default()).await.unwrap(), []);
    assert_eq!(office.desk.stats(&BERT).await.unwrap().tasks[&Status::Running], 0);
    assert_eq!(office.desk.stats(&ANNA).await.unwrap().tasks[&Status::Running], 1);
}

#[tokio::test]
async fn tasks_with_a_command_are_given_only_by_name() {
    let office = Office::new();
    let program = Program { command: vec!["true".into()], ..Program::default() };
    let (task, _) = office.desk.create_task(&ANNA, TaskSpec { program, ..spec("launched") }).await.unwrap();
    assert_eq!(refused(office.desk.claim_task(&ANNA, wanted()).await), Refusal::NothingReady);
    let by_name = ClaimRequest { task: Some(task), ..wanted() };
    assert_eq!(office.desk.claim_task(&ANNA, by_name).await.unwrap().task.task, task);
    let again = ClaimRequest { task: Some(task), ..wanted() };
    let text = refused(office.desk.claim_task(&ANNA, again).await).to_string();
    assert!(text.contains("running"), "{text}");
}

#[tokio::test]
async fn the_same_claim_key_gets_the_same_claim() {
    let office = Office::new();
    office.task(&ANNA, "one").await;
    office.task(&ANNA, "two").await;
    let keyed = || ClaimRequest { claim_key: Some("k".into()), ..wanted() };
    let first = office.desk.claim_task(&ANNA, keyed()).await.unwrap();
    let second = office.desk.claim_task(&ANNA, keyed()).await.unwrap();
    assert_eq!((first.run, first.task.task), (second.run, second.task.task));
    let word = Word::Complete { summary: None, result: None };
    office.desk.speak(&ANNA, first.run, word).await.unwrap();
    let third = office.desk.claim_task(&ANNA, keyed()).await.unwrap();
    assert_ne!(third.run, first.run, "that claim is over");
}

#[tokio::test]
async fn a_claim_waits_for_work_without_polling() {
    let office = Office::new();
    let waiting = ClaimRequest { wait_ms: Some(60_000), ..wanted() };
    let work = async {
        tokio::task::yield_now().await;
        office.task(&ANNA, "late").await
    };
    let (claimed, task) = tokio::join!(office.desk.claim_task(&ANNA, waiting), work);
    assert_eq!(claimed.unwrap().task.task, task);
    let briefly = ClaimRequest { wait_ms: Some(1), ..wanted() };
    assert_eq!(refused(office.desk.claim_task(&ANNA, briefly).await), Refusal::NothingReady);
}

#[tokio::test]
async fn many_waiting_claims_share_what_comes_and_none_is_given_twice() {
    let office = Office::new();
    let claims = (0..20).map(|_| {
        let waiting = ClaimRequest { wait_ms: Some(60_000), ..wanted() };
        office.desk.claim_task(&ANNA, waiting)
    });
    let work = async {
        for number in 0..20 {
            office.task(&ANNA, &format!("task {number}")).await;
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(claims));
    let (claimed, ()) = tokio::join!(all, work);
    let mut tasks: Vec<TaskId> =
        claimed.unwrap().into_iter().map(|claimed| claimed.unwrap().task.task).collect();
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!(tasks.len(), 20);
}

#[tokio::test]
async fn queues_hold_for_external_workers_too() {
    let office = Office::new();
    let off = QueueChange { paused: Some(true), ..QueueChange::default() };
    office.desk.set_queue(&ROOT, "q".into(), off).await.unwrap();
    let in_queue = TaskSpec { queue: Some("q".into()), ..spec("t") };
    let (task, _) = office.desk.create_task(&ANNA, in_queue).await.unwrap();
    let from_q = || ClaimRequest { queue: Some("q".into()), ..wanted() };
    assert_eq!(refused(office.desk.claim_task(&ANNA, from_q()).await), Refusal::NothingReady);
    let by_name = ClaimRequest { task: Some(task), ..wanted() };
    let text = refused(office.desk.claim_task(&ANNA, by_name).await).to_string();
    assert!(text.contains("paused"), "{text}");
    let on = QueueChange { paused: Some(false), ..QueueChange::default() };
    office.desk.set_queue(&ROOT, "q".into(), on).await.unwrap();
    let elsewhere = ClaimRequest { queue: Some("default".into()), ..wanted() };
    assert_eq!(refused(office.desk.claim_task(&ANNA, elsewhere).await), Refusal::NothingReady);
    let nowhere = ClaimRequest { queue: Some("x".into()), ..wanted() };
    assert_eq!(refused(office.desk.claim_task(&ANNA, nowhere).await), Refusal::NoSuchQueue("x".into()));
    assert_eq!(office.desk.claim_task(&ANNA, from_q()).await.unwrap().task.task, task);
}

#[tokio::test]
async fn a_heartbeat_extends_the_lease_that_was_asked_for() {
    let office = Office::new();
    let task = office.task(&ANNA, "t").await;
    let claim = ClaimRequest { lease_ms: Some(5_000), ..wanted() };
    let run = office.desk.claim_task(&ANNA, claim).await.unwrap().run;
    office.clock.advance(4_000);
    let left =
        |view: crate::core::view::TaskView| view.current.and_then(|current| current.lease_remaining_ms);
    assert_eq!(left(office.view(task).await), Some(1_000));
    assert_eq!(office.desk.heartbeat(&ANNA, run, Some("half way".into())).await.unwrap(), 5_000);
    assert_eq!(left(office.view(task).await), Some(5_000));
    assert_eq!(office.board.text("SELECT progress_ms || note FROM runs"), "4000half way");
}

#[tokio::test]
async fn one_process_holds_one_claim() {
    let office = Office::new();
    for title in ["one", "two"] {
        office.task(&ANNA, title).await;
    }
    let first = office.desk.claim_task(&ANNA, wanted_for(4_000)).await.unwrap();
    assert_eq!(office.board.text("SELECT worker_pid || stage FROM runs"), "4000running");
    assert!(matches!(refused(office.desk.claim_task(&ANNA, wanted_for(4_000)).await), Refusal::Busy(_)));
    let (_, second) = office.claim(&ANNA).await;
    let worker = |pid| WorkerGiven::Pid { pid, start_ticks: Some(7) };
    assert!(matches!(refused(office.desk.set_worker(&ANNA, second, worker(4_000)).await), Refusal::Busy(_)));
    assert_eq!(office.desk.set_worker(&ANNA, second, worker(4_001)).await.unwrap(), Outcome::Done);
    assert_eq!(office.desk.set_worker(&ANNA, second, worker(4_001)).await.unwrap(), Outcome::Unchanged);
    let word = Word::Complete { summary: None, result: None };
    office.desk.speak(&ANNA, first.run, word).await.unwrap();
    office.task(&ANNA, "three").await;
    office.desk.claim_task(&ANNA, wanted_for(4_000)).await.expect("its first claim is over");
}

#[tokio::test]
async fn a_worker_is_replaced_only_when_it_is_gone() {
    let office = Office::new();
    office.task(&ANNA, "t").await;
    let run = office.desk.claim_task(&ANNA, wanted_for(4_000)).await.unwrap().run;
    let worker = |pid| WorkerGiven::Pid { pid, start_ticks: Some(7) };
    let text = refused(office.desk.set_worker(&ANNA, run, worker(4_001)).await).to_string();
    assert!(text.contains("4000"), "{text}");
    office.board.by_hand("UPDATE runs SET term_ms = 5, stop_cause = 'timed_out'");
    office.processes.gone.lock().unwrap().push(4_000);
    assert_eq!(office.desk.set_worker(&ANNA, run, worker(4_001)).await.unwrap(), Outcome::Done);
    let row =
        office.board.text("SELECT worker_pid || ifnull(term_ms, '-') || ifnull(stop_cause, '-') FROM runs");
    assert_eq!(row, "4001--", "a ladder belongs to one worker");
    let none = refused(office.desk.set_worker(&ANNA, run, WorkerGiven::None).await);
    assert!(matches!(none, Refusal::InvalidArgument { .. }));
}

#[tokio::test]
async fn a_launched_run_takes_no_other_worker() {
    let office = Office::new();
    office.task(&ANNA, "t").await;
    let (_, run) = office.claim(&ANNA).await;
    office.board.by_hand("UPDATE runs SET launched = 1");
    let given = WorkerGiven::Pid { pid: 4_000, start_ticks: None };
    assert!(matches!(
        refused(office.desk.set_worker(&ANNA, run, given).await),
        Refusal::InvalidArgument { .. }
    ));
}

#[tokio::test]
async fn a_heartbeat_succeeds_though_another_task_names_the_run() {
    let office = Office::new();
    office.task(&ANNA, "hers").await;
    let (_, run) = office.claim(&ANNA).await;
    office.board.by_hand(&format!(
        "INSERT INTO tasks (status, queue, title, run, failures, max_runtime_ms)
         VALUES ('running', 'default', 'an impostor', {run}, 0, NULL)"
    ));
    let basis = Basis { task: Some((TaskId::new(2), 0)), run: Some((run, 1)) };
    let when = office.desk.when();
    let work = move |tx: &mut crate::store::Tx<'_>| {
        sweep::release(tx, &basis, &Ending::of(RunOutcome::Reconciled), &when)
    };
    assert!(office.board.store.write_end("a repair", work).await.unwrap().is_some());
    office.desk.heartbeat(&ANNA, run, None).await.expect("its claim is good");
}

#[tokio::test]
async fn a_worker_must_belong_to_whoever_registered_it() {
    let office = Office::new();
    office.task(&BERT, "his").await;
    let (_, run) = office.claim(&ROOT).await;
    let registrant = async || {
        let one = move |snapshot: &crate::store::Snapshot<'_>| sweep::rows(snapshot, &Selection::Run(run));
        let row = office.board.store.read("the row", one).await.unwrap().remove(0);
        row.run.and_then(|run| run.claimant_uid)
    };
    assert_eq!(registrant().await, Some(0));
    let worker = WorkerGiven::Pid { pid: 4_000, start_ticks: Some(7) };
    assert_eq!(office.desk.set_worker(&BERT, run, worker).await.unwrap(), Outcome::Done);
    assert_eq!(registrant().await, Some(BERT.uid), "or he has root signal what is not his");
    office.task(&ANNA, "hers").await;
    office.desk.claim_task(&ANNA, wanted_for(4_001)).await.unwrap();
    assert_eq!(office.board.number("SELECT registered_uid FROM runs WHERE run = 2"), i64::from(ANNA.uid));
}

#[tokio::test]
async fn only_an_administrator_lets_a_command_go_before_others() {
    let office = Office::new();
    let urgent = |nice| {
        let program = Program { nice: Some(nice), command: vec!["true".into()], ..Program::default() };
        TaskSpec { program, ..spec("urgent") }
    };
    assert!(matches!(refused(office.desk.create_task(&ANNA, urgent(-1)).await), Refusal::NotAuthorized(_)));
    let (task, _) = office.desk.create_task(&ANNA, urgent(0)).await.unwrap();
    let patch = Patch { nice: Some(-20), ..Patch::default() };
    assert!(matches!(refused(office.desk.update_task(&ANNA, task, patch).await), Refusal::NotAuthorized(_)));
    office.desk.create_task(&ROOT, urgent(-20)).await.unwrap();
}
