//! The one door to the use cases, for the bus, the private socket and the daemon.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::core::fault::Error;
use crate::core::fingerprint::Epoch;
use crate::core::ids::{BootId, CommentId, RunId, TaskId};
use crate::core::policy::Policy;
use crate::core::spec::{Patch, TaskSpec};
use crate::core::view::{
    CommentView, EventFilter, EventView, Outcome, Page, QueueChange, QueueView, RunView, Stats, StopRequest,
    SweepReport, SweepRequest, TaskFilter, TaskView, Word,
};
use crate::ports::Clock;
use crate::service::types::{Ask, Caller, ClaimRequest, Claimed, StateDir, WorkerGiven};
use crate::service::worker::Registrar;
use crate::store::{Store, When};

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct Desk(Arc<()>);

/// The boot of this life of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThisBoot {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its row on the board.
    pub boot: BootId,
}

/// What announces its changes on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Nothing new is started.
    pub draining: bool,
    /// Why the daemon is not well, sorted.
    pub degraded: Vec<String>,
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "each is a method of the bus of the same name")]
impl Desk {
    /// Opens the desk.
    pub fn new(
        _store: Store,
        _clock: Arc<dyn Clock>,
        _registrar: Arc<dyn Registrar>,
        _asks: mpsc::Sender<Ask>,
        _policy: Policy,
        _boot: ThisBoot,
        _state: StateDir,
    ) -> Self {
        todo!()
    }

    /// The board.
    pub fn store(&self) -> &Store {
        todo!()
    }
    /// The moment, with the circumstances of a use case.
    pub fn when(&self) -> When {
        todo!()
    }
    /// The configuration.
    pub fn policy(&self) -> Arc<Policy> {
        todo!()
    }
    /// Another configuration from now on; queues that are missing are made.
    pub async fn set_policy(&self, _policy: Policy) -> Result<(), Error> {
        todo!()
    }

    pub async fn create_task(&self, _caller: &Caller, _spec: TaskSpec) -> Result<(TaskId, bool), Error> {
        todo!()
    }
    pub async fn claim_task(&self, _caller: &Caller, _request: ClaimRequest) -> Result<Claimed, Error> {
        todo!()
    }
    /// Returns what is left of the lease, milliseconds.
    pub async fn heartbeat(
        &self,
        _caller: &Caller,
        _run: RunId,
        _note: Option<String>,
    ) -> Result<i64, Error> {
        todo!()
    }
    pub async fn set_worker(
        &self,
        _caller: &Caller,
        _run: RunId,
        _worker: WorkerGiven,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    /// CompleteRun, FailRun, BlockRun, ReleaseRun.
    pub async fn speak(&self, _caller: &Caller, _run: RunId, _word: Word) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn reclaim_task(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _request: StopRequest,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn cancel_task(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _request: StopRequest,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn signal_task(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _signal: i32,
        _run: Option<RunId>,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn retry_task(&self, _caller: &Caller, _task: TaskId) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn unblock_task(&self, _caller: &Caller, _task: TaskId) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn archive_task(&self, _caller: &Caller, _task: TaskId) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn block_task(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _reason: String,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn update_task(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _patch: Patch,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn link_tasks(
        &self,
        _caller: &Caller,
        _parent: TaskId,
        _child: TaskId,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn unlink_tasks(
        &self,
        _caller: &Caller,
        _parent: TaskId,
        _child: TaskId,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn add_comment(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _text: String,
    ) -> Result<CommentId, Error> {
        todo!()
    }
    pub async fn get_task(&self, _caller: &Caller, _task: TaskId) -> Result<TaskView, Error> {
        todo!()
    }
    pub async fn get_run(&self, _caller: &Caller, _run: RunId) -> Result<RunView, Error> {
        todo!()
    }
    pub async fn list_tasks(&self, _caller: &Caller, _filter: TaskFilter) -> Result<Vec<TaskView>, Error> {
        todo!()
    }
    pub async fn list_runs(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _page: Page,
    ) -> Result<Vec<RunView>, Error> {
        todo!()
    }
    pub async fn list_comments(
        &self,
        _caller: &Caller,
        _task: TaskId,
        _page: Page,
    ) -> Result<Vec<CommentView>, Error> {
        todo!()
    }
    pub async fn list_events(&self, _caller: &Caller, _filter: EventFilter) -> Result<Vec<EventView>, Error> {
        todo!()
    }
    pub async fn set_queue(
        &self,
        _caller: &Caller,
        _queue: String,
        _change: QueueChange,
    ) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn remove_queue(&self, _caller: &Caller, _queue: String) -> Result<Outcome, Error> {
        todo!()
    }
    pub async fn list_queues(&self, _caller: &Caller) -> Result<Vec<QueueView>, Error> {
        todo!()
    }
    pub async fn stats(&self, _caller: &Caller) -> Result<Stats, Error> {
        todo!()
    }
    pub async fn sweep(&self, _caller: &Caller, _request: SweepRequest) -> Result<SweepReport, Error> {
        todo!()
    }
    pub async fn drain(&self, _caller: &Caller, _on: bool) -> Result<Outcome, Error> {
        todo!()
    }
    /// Returns the path of the copy.
    pub async fn backup(&self, _caller: &Caller, _name: String) -> Result<String, Error> {
        todo!()
    }
    pub async fn reload(&self, _caller: &Caller) -> Result<Outcome, Error> {
        todo!()
    }
    /// A read-only descriptor of a run's output.
    pub async fn open_output(&self, _caller: &Caller, _run: RunId) -> Result<OwnedFd, Error> {
        todo!()
    }

    /// Whether nothing new is started.
    pub fn draining(&self) -> bool {
        todo!()
    }
    /// Why the daemon is not well.
    pub fn degraded(&self) -> Vec<String> {
        todo!()
    }
    /// Announces changes of [`Properties`].
    pub fn properties(&self) -> watch::Receiver<Properties> {
        todo!()
    }
    /// Workers that the daemon watches.
    pub fn workers(&self) -> u32 {
        todo!()
    }
    /// The last sweep that was asked for or did something.
    pub fn last_sweep(&self) -> Option<SweepReport> {
        todo!()
    }
    /// The epoch's text.
    pub fn epoch(&self) -> String {
        todo!()
    }
    /// The boot_id alone.
    pub fn boot_id(&self) -> String {
        todo!()
    }
    /// For the daemon: one reason more, or one less.
    pub fn set_degraded(&self, _reason: &str, _on: bool) {
        todo!()
    }
    /// For the daemon.
    pub fn set_workers(&self, _workers: u32) {
        todo!()
    }
    /// For the daemon.
    pub fn set_last_sweep(&self, _report: SweepReport) {
        todo!()
    }
}
