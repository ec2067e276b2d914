//! The methods that change something, each one transaction.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::core::fault::{Error, Fault};
use crate::core::ids::{CommentId, RunId, TaskId};
use crate::core::limits;
use crate::core::refusal::Refusal;
use crate::core::spec::{self, Patch, TaskSpec};
use crate::core::state::Act;
use crate::core::view::{Outcome, QueueChange, StopRequest, SweepReport, SweepRequest, Word};
use crate::service::claim::Wanted;
use crate::service::desk::Desk;
use crate::service::stop::Stopped;
use crate::service::types::{Ask, Caller, ClaimRequest, Claimed, WorkerGiven};
use crate::service::{access, act, claim, create, edit, finish, queue, stop};
use crate::store::{Tx, When, settings};

/// How long a stop waits for the daemon's word; the stop itself is on the board.
const STOP_WAIT: Duration = Duration::from_secs(20);

#[expect(missing_docs, clippy::missing_errors_doc, reason = "each is a method of the bus of the same name")]
impl Desk {
    pub async fn create_task(&self, caller: &Caller, mut spec: TaskSpec) -> Result<(TaskId, bool), Error> {
        let (caller, when) = (*caller, self.when());
        create::check(&caller, &spec, &when.policy)?;
        let work = move |tx: &mut Tx<'_>| create::create(tx, &caller, &mut spec, &when);
        self.store().write("CreateTask", work).await
    }

    /// Waits for work, if that is asked, without polling: what becomes ready wakes it.
    pub async fn claim_task(&self, caller: &Caller, mut request: ClaimRequest) -> Result<Claimed, Error> {
        let wanted = Wanted::check(caller, &request)?;
        let given = std::mem::replace(&mut request.worker, WorkerGiven::None);
        let worker = self.identify(caller, given).await?;
        let wait_ms = request.wait_ms.unwrap_or(0).clamp(0, limits::CLAIM_WAIT_MS);
        let until = Instant::now() + Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
        let mut ready = self.store().ready();
        let mut is_first = true;
        loop {
            // What becomes ready after this line is noticed, whether the attempt saw it or not.
            let woken = *ready.borrow_and_update();
            if is_first || self.is_worth_claiming(caller, &wanted, woken).await? {
                let (caller, when, wanted, worker) = (*caller, self.when(), wanted.clone(), worker.clone());
                let work = move |tx: &mut Tx<'_>| claim::claim(tx, &caller, &wanted, worker.as_ref(), &when);
                match self.store().write("ClaimTask", work).await {
                    Err(Error::Refused(Refusal::NothingReady)) if wait_ms > 0 => {}
                    answer => return answer,
                }
            }
            is_first = false;
            match timeout_at(until, ready.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(Refusal::NothingReady.into()),
            }
        }
    }

    async fn is_worth_claiming(&self, caller: &Caller, wanted: &Wanted, woken: u64) -> Result<bool, Error> {
        let (kind, when) = (wanted.kind(caller), self.when());
        let sought = kind.clone();
        let look = move |snapshot: &crate::store::Snapshot<'_>| claim::may_find(snapshot, &sought, &when);
        self.waiting().is_worth_it(woken, kind, self.store().read_page("a waiting claim", look)).await
    }

    /// Returns what is left of the lease, milliseconds.
    pub async fn heartbeat(&self, caller: &Caller, run: RunId, note: Option<String>) -> Result<i64, Error> {
        let (caller, when) = (*caller, self.when());
        spec::text("Note", note.as_deref().unwrap_or_default(), when.policy.limits.text_bytes)?;
        let work = move |tx: &mut Tx<'_>| claim::heartbeat(tx, &caller, run, note.as_deref(), &when);
        self.store().write_end("Heartbeat", work).await
    }

    pub async fn set_worker(
        &self,
        caller: &Caller,
        run: RunId,
        worker: WorkerGiven,
    ) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        // First the run: about one that is not the caller's nothing else is said.
        let look = move |snapshot: &crate::store::Snapshot<'_>| claim::present_worker(snapshot, &caller, run);
        let present = self.store().read("SetWorker", look).await?;
        let Some(worker) = self.identify(&caller, worker).await? else {
            return Err(Refusal::argument("Pid", "is missing; give Pid (with StartTicks) or PidFD").into());
        };
        let gone = match present {
            Some((pid, there)) if self.is_gone(pid, there.clone()).await => Some((pid, there)),
            Some(_) | None => None,
        };
        let work = move |tx: &mut Tx<'_>| claim::set_worker(tx, &caller, run, &worker, gone.as_ref(), &when);
        self.store().write("SetWorker", work).await
    }

    /// CompleteRun, FailRun, BlockRun, ReleaseRun.
    pub async fn speak(&self, caller: &Caller, run: RunId, word: Word) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        finish::check(&word, &when.policy.limits)?;
        let work = move |tx: &mut Tx<'_>| finish::speak(tx, &caller, run, &word, &when);
        self.store().write_end("the end of a run", work).await
    }

    pub async fn reclaim_task(
        &self,
        caller: &Caller,
        task: TaskId,
        request: StopRequest,
    ) -> Result<Outcome, Error> {
        self.stop_task(caller, task, request, "ReclaimTask", stop::reclaim).await
    }

    pub async fn cancel_task(
        &self,
        caller: &Caller,
        task: TaskId,
        request: StopRequest,
    ) -> Result<Outcome, Error> {
        self.stop_task(caller, task, request, "CancelTask", stop::cancel).await
    }

    async fn stop_task(
        &self,
        caller: &Caller,
        task: TaskId,
        request: StopRequest,
        doing: &'static str,
        stop: fn(&mut Tx<'_>, &Caller, TaskId, &StopRequest, &When) -> Result<Stopped, Error>,
    ) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        stop::check(&request, when.policy.limits.text_bytes)?;
        let work = move |tx: &mut Tx<'_>| stop(tx, &caller, task, &request, &when);
        let stopped = self.store().write_end(doing, work).await?;
        self.see_through(stopped).await
    }

    /// The stop is on the board and will be carried out; the answer says how far it has come.
    async fn see_through(&self, stopped: Stopped) -> Result<Outcome, Error> {
        match stopped {
            Stopped::Settled(outcome) => Ok(outcome),
            Stopped::Ask(run) => {
                let asked = timeout(STOP_WAIT, self.ask(|reply| Ask::Stop(run, reply))).await;
                asked.ok().flatten().unwrap_or(Ok(Outcome::Stopping))
            }
        }
    }

    pub async fn signal_task(
        &self,
        caller: &Caller,
        task: TaskId,
        signal: i32,
        run: Option<RunId>,
    ) -> Result<Outcome, Error> {
        let caller = *caller;
        let look =
            move |snapshot: &crate::store::Snapshot<'_>| stop::target(snapshot, &caller, task, signal, run);
        let run = self.store().read("SignalTask", look).await?;
        self.loop_word(|reply| Ask::Signal(run, signal, reply)).await
    }

    async fn loop_word<T>(
        &self,
        ask: impl FnOnce(crate::service::types::Reply<T>) -> Ask,
    ) -> Result<T, Error> {
        self.ask(ask).await.unwrap_or(Err(Fault::Ended("the daemon's loop").into()))
    }

    async fn act(
        &self,
        caller: &Caller,
        task: TaskId,
        what: Act,
        reason: Option<String>,
    ) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        spec::text("reason", reason.as_deref().unwrap_or_default(), when.policy.limits.text_bytes)?;
        let work = move |tx: &mut Tx<'_>| act::act(tx, &caller, task, what, reason.as_deref(), &when);
        self.store().write("an act on a task", work).await
    }

    pub async fn retry_task(&self, caller: &Caller, task: TaskId) -> Result<Outcome, Error> {
        self.act(caller, task, Act::Retry, None).await
    }

    pub async fn unblock_task(&self, caller: &Caller, task: TaskId) -> Result<Outcome, Error> {
        self.act(caller, task, Act::Unblock, None).await
    }

    pub async fn archive_task(&self, caller: &Caller, task: TaskId) -> Result<Outcome, Error> {
        self.act(caller, task, Act::Archive, None).await
    }

    pub async fn block_task(&self, caller: &Caller, task: TaskId, reason: String) -> Result<Outcome, Error> {
        self.act(caller, task, Act::Block, Some(reason)).await
    }

    pub async fn update_task(&self, caller: &Caller, task: TaskId, patch: Patch) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        let work = move |tx: &mut Tx<'_>| edit::update(tx, &caller, task, &patch, &when);
        self.store().write("UpdateTask", work).await
    }

    pub async fn link_tasks(&self, caller: &Caller, parent: TaskId, child: TaskId) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        let work = move |tx: &mut Tx<'_>| edit::link(tx, &caller, parent, child, &when);
        self.store().write("LinkTasks", work).await
    }

    pub async fn unlink_tasks(
        &self,
        caller: &Caller,
        parent: TaskId,
        child: TaskId,
    ) -> Result<Outcome, Error> {
        let (caller, when) = (*caller, self.when());
        let work = move |tx: &mut Tx<'_>| edit::unlink(tx, &caller, parent, child, &when);
        self.store().write("UnlinkTasks", work).await
    }

    pub async fn add_comment(&self, caller: &Caller, task: TaskId, text: String) -> Result<CommentId, Error> {
        let (caller, when) = (*caller, self.when());
        spec::text("text", &text, when.policy.limits.text_bytes)?;
        let work = move |tx: &mut Tx<'_>| edit::comment(tx, &caller, task, &text, &when);
        self.store().write("AddComment", work).await
    }

    pub async fn set_queue(
        &self,
        caller: &Caller,
        name: String,
        change: QueueChange,
    ) -> Result<Outcome, Error> {
        access::admin(caller, "SetQueue")?;
        let when = self.when();
        queue::check(&name, &change, &when.policy.limits)?;
        self.store().write("SetQueue", move |tx| queue::set(tx, &name, &change, &when)).await
    }

    pub async fn remove_queue(&self, caller: &Caller, name: String) -> Result<Outcome, Error> {
        access::admin(caller, "RemoveQueue")?;
        self.store().write("RemoveQueue", move |tx| queue::remove(tx, &name)).await
    }

    pub async fn sweep(&self, caller: &Caller, request: SweepRequest) -> Result<SweepReport, Error> {
        access::admin(caller, "Sweep")?;
        self.loop_word(|reply| Ask::Sweep(request, reply)).await
    }

    /// `durable`: kept over restarts; else it is a switch of this life alone, beside the durable one.
    pub async fn drain(&self, caller: &Caller, on: bool, durable: bool) -> Result<Outcome, Error> {
        access::admin(caller, "Drain")?;
        if !durable {
            return Ok(if self.set_starts(!on) { Outcome::Done } else { Outcome::Unchanged });
        }
        let changed = self.store().write_end("Drain", move |tx| settings::set_draining(tx, on)).await?;
        self.set_draining(on);
        Ok(if changed { Outcome::Done } else { Outcome::Unchanged })
    }

    /// Returns the path of the copy.
    pub async fn backup(&self, caller: &Caller, name: String) -> Result<String, Error> {
        access::admin(caller, "Backup")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(plain) {
            let problem = "give 1 to 100 of letters, digits, dot, dash and underscore, no dot in front";
            return Err(Refusal::argument("name", problem).into());
        }
        let to = self.state().backup(&name);
        self.store().backup(&to).await?;
        Ok(to.to_string_lossy().into_owned())
    }

    pub async fn reload(&self, caller: &Caller) -> Result<Outcome, Error> {
        access::admin(caller, "Reload")?;
        self.loop_word(Ask::Reload).await
    }
}
