//! ClaimTask, Heartbeat and SetWorker on a board in memory of the test.

use crate::core::fault::Error;
use crate::core::refusal::Refusal;
use crate::core::state::Status;
use crate::core::view::{Outcome, Word};
use crate::service::testing::{ANNA, BERT, Office, ROOT, wanted};

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
    let refused = office.desk.claim_task(&ROOT, wanted()).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NothingReady)), "{refused}");
    let hidden = office.desk.get_task(&BERT, task).await.unwrap_err();
    assert!(matches!(hidden, Error::Refused(Refusal::NoSuchTask(_))), "{hidden}");
}
