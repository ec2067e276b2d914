//! Words of workers: of which run, how often, and against what was there before.

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::plan::Basis;
use crate::core::refusal::Refusal;
use crate::core::retry;
use crate::core::state::Status;
use crate::core::verdict::Urgency;
use crate::core::view::{Change, Outcome, StopRequest, Word};
use crate::service::testing::{ANNA, Office, ROOT, wanted};
use crate::service::types::{Ask, ClaimRequest};
use crate::store::sweep::{self, Ending, Selection};

fn complete() -> Word {
    Word::Complete { summary: None, result: None }
}

fn fail(retry: bool) -> Word {
    Word::Fail { error: "broke".into(), retry }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Refusal {
    match answer {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// What the sweep does when the worker has gone.
async fn worker_goes(office: &Office, run: RunId) {
    let when = office.desk.when();
    office
        .board
        .store
        .write_end("a release", move |tx| {
            for row in sweep::rows(tx, &Selection::Run(run))? {
                let outcome = row.run.as_ref().and_then(|run| run.outcome).unwrap_or(retry::Outcome::Crashed);
                sweep::release(tx, &Basis::of(&row), &Ending::of(outcome), &when)?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

async fn claimed(office: &Office) -> (TaskId, RunId) {
    office.task(&ANNA, "t").await;
    office.claim(&ANNA).await
}

#[tokio::test]
async fn every_word_leads_where_it_should() {
    let block = Word::Block { reason: "needs a key".into() };
    let release = Word::Release { reason: "going home".into() };
    let cases = [
        (complete(), Status::Done, None, 0, Outcome::Done),
        (fail(true), Status::Ready, None, 1, Outcome::Done),
        (fail(false), Status::Blocked, Some("failed"), 1, Outcome::Done),
        (block, Status::Blocked, Some("worker"), 0, Outcome::Done),
        (release, Status::Ready, None, 0, Outcome::Released),
    ];
    for (word, status, code, failures, outcome) in cases {
        let office = Office::new();
        let (task, run) = claimed(&office).await;
        assert_eq!(office.desk.speak(&ANNA, run, word.clone()).await.unwrap(), outcome, "{word:?}");
        let view = office.view(task).await;
        assert_eq!(
            (view.status, view.block_code.as_deref(), view.failures),
            (status, code, failures),
            "{word:?}"
        );
        assert_eq!(office.board.number("SELECT count(*) FROM runs WHERE ended_usec IS NOT NULL"), 1);
    }
}

#[tokio::test]
async fn the_same_word_twice_is_a_success_and_another_is_stale() {
    let office = Office::new();
    let (_, run) = claimed(&office).await;
    office.desk.speak(&ANNA, run, fail(true)).await.unwrap();
    assert_eq!(office.desk.speak(&ANNA, run, fail(true)).await.unwrap(), Outcome::Unchanged);
    let other = refused(office.desk.speak(&ANNA, run, complete()).await);
    assert!(matches!(other, Refusal::StaleRun { now: None, .. }), "{other}");
}

#[tokio::test]
async fn c33_an_old_runs_word_changes_nothing_and_is_told_who_holds_the_task() {
    let office = Office::new();
    let (task, old) = claimed(&office).await;
    office.desk.speak(&ANNA, old, Word::Release { reason: "r".into() }).await.unwrap();
    let new = office.desk.claim_task(&ANNA, wanted()).await.unwrap().run;
    let before = office.board.text("SELECT group_concat(kind) FROM events");
    for word in
        [complete(), fail(true), Word::Release { reason: "r".into() }, Word::Block { reason: "b".into() }]
    {
        let refusal = refused(office.desk.speak(&ANNA, old, word).await);
        assert_eq!(refusal, Refusal::StaleRun { run: old, task, now: Some(new) });
    }
    let refusal = refused(office.desk.heartbeat(&ANNA, old, None).await);
    assert_eq!(refusal, Refusal::StaleRun { run: old, task, now: Some(new) });
    assert_eq!(office.board.text("SELECT group_concat(kind) FROM events"), before);
    assert_eq!(office.view(task).await.current.map(|current| current.run), Some(new));
}

#[tokio::test]
async fn a_launched_workers_word_ends_its_run_when_it_has_gone() {
    let office = Office::new();
    let (task, run) = claimed(&office).await;
    office.board.by_hand("UPDATE runs SET launched = 1");
    office.board.take_told();
    assert_eq!(office.desk.speak(&ANNA, run, complete()).await.unwrap(), Outcome::Ending);
    assert!(office.board.take_told().contains(&Change::Look(run)));
    let view = office.view(task).await;
    assert_eq!(view.status, Status::Running, "its tree may still be there");
    assert_eq!(view.current.map(|current| current.stage), Some("ending".into()));
    assert_eq!(office.desk.speak(&ANNA, run, complete()).await.unwrap(), Outcome::Ending);
    let refusal = refused(office.desk.speak(&ANNA, run, fail(true)).await);
    assert_eq!(refusal, Refusal::StaleRun { run, task, now: Some(run) });
    assert!(matches!(refused(office.desk.heartbeat(&ANNA, run, None).await), Refusal::StaleRun { .. }));
    worker_goes(&office, run).await;
    assert_eq!(office.view(task).await.status, Status::Done);
    assert_eq!(office.desk.speak(&ANNA, run, complete()).await.unwrap(), Outcome::Unchanged);
}

#[tokio::test]
async fn a_cancel_wins_over_a_later_word_and_the_result_is_kept() {
    let mut office = Office::new();
    let (task, run) = claimed(&office).await;
    office.board.by_hand("UPDATE runs SET launched = 1");
    let request = StopRequest { reason: Some("no need".into()), urgency: Urgency::Normal, run: Some(run) };
    let daemon = async {
        match office.asks.recv().await {
            Some(Ask::Stop(asked, reply)) => {
                assert_eq!(asked, run);
                reply.send(Ok(Outcome::Stopping)).unwrap();
            }
            other => panic!("{other:?}"),
        }
    };
    let (answer, ()) = tokio::join!(office.desk.cancel_task(&ANNA, task, request), daemon);
    assert_eq!(answer.unwrap(), Outcome::Stopping);
    let word = Word::Complete { summary: None, result: Some("7".into()) };
    assert_eq!(office.desk.speak(&ANNA, run, word).await.unwrap(), Outcome::Ending);
    worker_goes(&office, run).await;
    let view = office.view(task).await;
    assert_eq!((view.status, view.result.as_deref()), (Status::Cancelled, Some("7")));
}

#[tokio::test]
async fn a_result_must_be_json() {
    let office = Office::new();
    let (task, run) = claimed(&office).await;
    let word = Word::Complete { summary: None, result: Some("{".into()) };
    let text = refused(office.desk.speak(&ANNA, run, word).await).to_string();
    assert!(text.starts_with("Result"), "{text}");
    assert_eq!(office.view(task).await.status, Status::Running);
}

#[tokio::test]
async fn stops_that_need_no_daemon_are_settled_at_once() {
    let office = Office::new();
    let plain = || StopRequest { reason: None, urgency: Urgency::Normal, run: None };
    let task = office.task(&ANNA, "t").await;
    assert_eq!(office.desk.reclaim_task(&ANNA, task, plain()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(office.desk.cancel_task(&ANNA, task, plain()).await.unwrap(), Outcome::Done);
    assert_eq!(office.desk.cancel_task(&ANNA, task, plain()).await.unwrap(), Outcome::Unchanged);

    // A running task that nobody holds: there is nobody to stop.
    for (cancel, status) in [(false, "ready"), (true, "cancelled")] {
        let task = office.task(&ANNA, "broken").await;
        office.board.by_hand(&format!("UPDATE tasks SET status = 'running' WHERE task = {task}"));
        let outcome = if cancel {
            office.desk.cancel_task(&ANNA, task, plain()).await
        } else {
            office.desk.reclaim_task(&ANNA, task, plain()).await
        };
        assert_eq!(outcome.unwrap(), Outcome::Released);
        assert_eq!(office.board.text(&format!("SELECT status FROM tasks WHERE task = {task}")), status);
    }
}

#[tokio::test]
async fn a_stop_can_be_bound_to_a_run() {
    let office = Office::new();
    let (task, old) = claimed(&office).await;
    office.desk.speak(&ANNA, old, Word::Release { reason: "r".into() }).await.unwrap();
    let bound = || StopRequest { reason: None, urgency: Urgency::Normal, run: Some(old) };
    let refusal = refused(office.desk.reclaim_task(&ANNA, task, bound()).await);
    assert_eq!(refusal, Refusal::StaleRun { run: old, task, now: None });
    let named = ClaimRequest { task: Some(task), ..wanted() };
    let new = office.desk.claim_task(&ANNA, named).await.unwrap().run;
    let refusal = refused(office.desk.cancel_task(&ANNA, task, bound()).await);
    assert_eq!(refusal, Refusal::StaleRun { run: old, task, now: Some(new) });
    let signalled = office.desk.signal_task(&ROOT, task, 10, Some(old)).await;
    assert_eq!(refused(signalled), Refusal::StaleRun { run: old, task, now: Some(new) });
}
