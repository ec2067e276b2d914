//! The methods that only look.

use std::os::fd::OwnedFd;

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::refusal::Refusal;
use crate::core::view::{
    CommentView, EventFilter, EventView, Page, QueueView, RunView, Stats, TaskFilter, TaskView,
};
use crate::service::access;
use crate::service::desk::Desk;
use crate::service::types::Caller;
use crate::store::query;

#[expect(missing_docs, clippy::missing_errors_doc, reason = "each is a method of the bus of the same name")]
impl Desk {
    pub async fn get_task(&self, caller: &Caller, task: TaskId) -> Result<TaskView, Error> {
        let (caller, when) = (*caller, self.when());
        self.store()
            .read("GetTask", move |snapshot| {
                access::task(snapshot, &caller, task)?;
                query::task(snapshot, task, &when)?.ok_or_else(|| Refusal::NoSuchTask(task).into())
            })
            .await
    }

    pub async fn get_run(&self, caller: &Caller, run: RunId) -> Result<RunView, Error> {
        let caller = *caller;
        self.store()
            .read("GetRun", move |snapshot| {
                access::run(snapshot, &caller, run)?;
                query::run(snapshot, run)?.ok_or_else(|| Refusal::NoSuchRun(run).into())
            })
            .await
    }

    pub async fn list_tasks(&self, caller: &Caller, filter: TaskFilter) -> Result<Vec<TaskView>, Error> {
        let (sight, when) = (access::sight(caller), self.when());
        self.store()
            .read_page("ListTasks", move |snapshot| query::tasks(snapshot, &filter, sight, &when))
            .await
    }

    pub async fn list_runs(&self, caller: &Caller, task: TaskId, page: Page) -> Result<Vec<RunView>, Error> {
        let caller = *caller;
        self.store()
            .read_page("ListRuns", move |snapshot| {
                access::task(snapshot, &caller, task)?;
                query::runs_of(snapshot, task, page)
            })
            .await
    }

    pub async fn list_comments(
        &self,
        caller: &Caller,
        task: TaskId,
        page: Page,
    ) -> Result<Vec<CommentView>, Error> {
        let caller = *caller;
        self.store()
            .read_page("ListComments", move |snapshot| {
                access::task(snapshot, &caller, task)?;
                query::comments_of(snapshot, task, page)
            })
            .await
    }

    pub async fn list_events(&self, caller: &Caller, filter: EventFilter) -> Result<Vec<EventView>, Error> {
        let caller = *caller;
        self.store()
            .read_page("ListEvents", move |snapshot| {
                if let Some(task) = filter.task {
                    access::task(snapshot, &caller, task)?;
                }
                query::events(snapshot, &filter, access::sight(&caller))
            })
            .await
    }

    pub async fn list_queues(&self, caller: &Caller) -> Result<Vec<QueueView>, Error> {
        let sight = access::sight(caller);
        self.store().read_page("ListQueues", move |snapshot| query::queues(snapshot, sight)).await
    }

    pub async fn stats(&self, caller: &Caller) -> Result<Stats, Error> {
        let sight = access::sight(caller);
        self.store().read_page("GetStats", move |snapshot| query::stats(snapshot, sight)).await
    }

    /// The same for the daemon itself.
    pub async fn all_stats(&self) -> Result<Stats, Error> {
        self.store().read("what there is", |snapshot| query::stats(snapshot, None)).await
    }

    /// A read-only descriptor of a run's output: of its newest file, or of the one before it.
    pub async fn open_output(&self, caller: &Caller, run: RunId, older: bool) -> Result<OwnedFd, Error> {
        let caller = *caller;
        let state = self.state().clone();
        self.store()
            .read("OpenOutput", move |snapshot| {
                access::run(snapshot, &caller, run)?;
                let problem = match older {
                    true => "has no older output: its file was never full",
                    false => "has no output file: it has not started, or its output goes to the journal",
                };
                crate::store::open_output(&state, run, older)?
                    .ok_or_else(|| Refusal::argument("run", format!("{run} {problem}")).into())
            })
            .await
    }
}
