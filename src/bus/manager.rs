//! The interface `org.tenured1.Manager`: every method, property and signal, and nothing but translation.
//!
//! A method proves its caller, takes a permit, reads its arguments, asks the [`Desk`], and answers with a
//! value that carries the permit until it is written. What a caller may do is decided behind the desk.
//! The comments of this interface go out as introspection text: no double hyphen in them.

use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, OwnedFd};

use crate::bus::admission::{Admission, Answer, Call, Permit, Weight};
use crate::bus::caller::Identity;
use crate::bus::convert::{self, Row};
use crate::bus::errors::Refused;
use crate::bus::options::{self, Dict};
use crate::bus::properties;
use crate::core::ids::{RunId, TaskId};
use crate::core::refusal::Refusal;
use crate::core::time::ms_to_usec;
use crate::core::view::{Outcome, Word};
use crate::service::desk::Desk;
use crate::service::types::Caller;

/// A call with a larger body is refused before anything is done with it; every property at its limit fits.
const CALL_BYTES: u32 = 1_024 * 1_024;

type Result<T> = std::result::Result<T, Refused>;

/// Serves one connection: a bus, or one private peer.
#[derive(Clone)]
pub struct Manager {
    desk: Desk,
    identity: Identity,
    admission: Admission,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Manager").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Manager {
    /// The interface for callers that are proven like this.
    pub const fn new(desk: Desk, identity: Identity, admission: Admission) -> Self {
        Self { desk, identity, admission }
    }

    async fn enter(
        &self,
        header: &Header<'_>,
        connection: &Connection,
        weight: Weight,
    ) -> Result<(Caller, Permit)> {
        let body_bytes = header.primary().body_len();
        if body_bytes > CALL_BYTES {
            let (limit, asked) = (CALL_BYTES.into(), body_bytes.into());
            return Err(Refusal::LimitExceeded { what: "a call (bytes)", limit, asked }.into());
        }
        let caller = self.identity.of(header, connection).await?;
        let connection = self.identity.connection(header);
        let call = Call { caller: &caller, connection, weight, body_bytes };
        let permit = self.admission.enter(call).await?;
        Ok((caller, permit))
    }
}

fn word(permit: Permit, outcome: Outcome) -> Answer<&'static str> {
    permit.with(outcome.word())
}

/// A durable board of tasks for this host, and the supervisor of their workers.
///
/// Times are microseconds since 1970 (names that end in Usec), spans microseconds too; 0 means none.
/// Options and results are a{sv}: an unknown key or a wrong type is refused by name. Methods that change
/// something answer an outcome word: done, unchanged, released, stopping, held, ending.
#[zbus::interface(name = "org.tenured1.Manager")]
impl Manager {
    /// Adds a task. Properties: see GetTask. created is false for an idempotency key that is known: then
    /// it is the first task of that key, and its own properties hold.
    #[zbus(out_args("task", "created"))]
    async fn create_task(
        &self,
        title: String,
        properties: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(u64, Answer<bool>)> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let spec = properties::create(title, properties)?;
        let (task, created) = self.desk.create_task(&caller, spec).await?;
        Ok((task.on_bus(), permit.with(created)))
    }

    /// Claims a ready task for a worker that is not started by the daemon. An empty queue means any.
    /// Options: Task t, Pid u with StartTicks t or PidFD h, LeaseUsec t, Claimant s, ClaimKey s, WaitUsec t.
    /// run is the fencing token of the claim. NothingReady where there is nothing to claim.
    #[zbus(out_args("task", "run", "task_properties"))]
    async fn claim_task(
        &self,
        queue: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<(u64, u64, Answer<Row>)> {
        let request = options::claim(queue, options)?;
        let weight = if request.wait_ms.is_some() { Weight::Claim } else { Weight::Short };
        let (caller, permit) = self.enter(&header, connection, weight).await?;
        let claimed = tokio::select! {
            claimed = self.desk.claim_task(&caller, request) => claimed?,
            // Nobody is left to work on it.
            () = self.identity.gone(&header, connection) => return Err(Refusal::NothingReady.into()),
        };
        let task = claimed.task.task.on_bus();
        Ok((task, claimed.run.on_bus(), permit.with(convert::task(claimed.task))))
    }

    /// Extends the lease of a run and marks progress. Options: Note s.
    #[zbus(out_args("lease_remaining_usec"))]
    async fn heartbeat(
        &self,
        run: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<u64>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let note = options::note(options)?;
        let remaining_ms = self.desk.heartbeat(&caller, RunId::from_bus(run), note).await?;
        Ok(permit.with(ms_to_usec(remaining_ms)))
    }

    /// Registers the worker of a claim. Options: Pid u with StartTicks t, or PidFD h.
    #[zbus(out_args("outcome"))]
    async fn set_worker(
        &self,
        run: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let worker = options::set_worker(options)?;
        let outcome = self.desk.set_worker(&caller, RunId::from_bus(run), worker).await?;
        Ok(word(permit, outcome))
    }

    /// Says that a run did its task. Options: Summary s, Result s (JSON).
    #[zbus(out_args("outcome"))]
    async fn complete_run(
        &self,
        run: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let word_given = options::complete(options)?;
        let outcome = self.desk.speak(&caller, RunId::from_bus(run), word_given).await?;
        Ok(word(permit, outcome))
    }

    /// Says that a run failed; counted. Options: Retry b (default true; false blocks the task).
    #[zbus(out_args("outcome"))]
    async fn fail_run(
        &self,
        run: u64,
        error: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let retry = options::retry(options)?;
        let outcome = self.desk.speak(&caller, RunId::from_bus(run), Word::Fail { error, retry }).await?;
        Ok(word(permit, outcome))
    }

    /// A worker parks its own task.
    #[zbus(out_args("outcome"))]
    async fn block_run(
        &self,
        run: u64,
        reason: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.speak(&caller, RunId::from_bus(run), Word::Block { reason }).await?;
        Ok(word(permit, outcome))
    }

    /// Gives a claim back; not counted.
    #[zbus(out_args("outcome"))]
    async fn release_run(
        &self,
        run: u64,
        reason: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.speak(&caller, RunId::from_bus(run), Word::Release { reason }).await?;
        Ok(word(permit, outcome))
    }

    /// Takes a claim back; the worker is stopped first. Options: Reason s, Kill b, Force b, Run t.
    /// Answers released, stopping, held or unchanged.
    #[zbus(out_args("outcome"))]
    async fn reclaim_task(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let request = options::stop(options)?;
        let outcome = self.desk.reclaim_task(&caller, TaskId::from_bus(task), request).await?;
        Ok(word(permit, outcome))
    }

    /// Gives a task up; a running worker is stopped first. Options: as ReclaimTask.
    #[zbus(out_args("outcome"))]
    async fn cancel_task(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let request = options::stop(options)?;
        let outcome = self.desk.cancel_task(&caller, TaskId::from_bus(task), request).await?;
        Ok(word(permit, outcome))
    }

    /// Sends a signal to the proven worker of a task. Options: Run t.
    #[zbus(out_args("outcome"))]
    async fn signal_task(
        &self,
        task: u64,
        signal: i32,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let run = options::only_run(options)?;
        let outcome = self.desk.signal_task(&caller, TaskId::from_bus(task), signal, run).await?;
        Ok(word(permit, outcome))
    }

    /// Makes a blocked, done or cancelled task ready once more; one that is in back-off becomes due.
    #[zbus(out_args("outcome"))]
    async fn retry_task(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.retry_task(&caller, TaskId::from_bus(task)).await?;
        Ok(word(permit, outcome))
    }

    /// Takes a task out of blocked; its failures are forgotten.
    #[zbus(out_args("outcome"))]
    async fn unblock_task(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.unblock_task(&caller, TaskId::from_bus(task)).await?;
        Ok(word(permit, outcome))
    }

    /// Puts a done or cancelled task away, for good.
    #[zbus(out_args("outcome"))]
    async fn archive_task(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.archive_task(&caller, TaskId::from_bus(task)).await?;
        Ok(word(permit, outcome))
    }

    /// Parks a task that waits; refused while it runs.
    #[zbus(out_args("outcome"))]
    async fn block_task(
        &self,
        task: u64,
        reason: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.block_task(&caller, TaskId::from_bus(task), reason).await?;
        Ok(word(permit, outcome))
    }

    /// Changes the properties that are given, Title among them. While a task runs only MaxRuntimeUsec,
    /// StallUsec, Priority, Title, Body and Labels. LinkTasks and UnlinkTasks change Parents.
    #[zbus(out_args("outcome"))]
    async fn update_task(
        &self,
        task: u64,
        properties: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let patch = properties::update(properties)?;
        let outcome = self.desk.update_task(&caller, TaskId::from_bus(task), patch).await?;
        Ok(word(permit, outcome))
    }

    /// Makes child wait for parent. A cycle is refused.
    #[zbus(out_args("outcome"))]
    async fn link_tasks(
        &self,
        parent: u64,
        child: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let (parent, child) = (TaskId::from_bus(parent), TaskId::from_bus(child));
        let outcome = self.desk.link_tasks(&caller, parent, child).await?;
        Ok(word(permit, outcome))
    }

    /// Lets child no longer wait for parent.
    #[zbus(out_args("outcome"))]
    async fn unlink_tasks(
        &self,
        parent: u64,
        child: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let (parent, child) = (TaskId::from_bus(parent), TaskId::from_bus(child));
        let outcome = self.desk.unlink_tasks(&caller, parent, child).await?;
        Ok(word(permit, outcome))
    }

    /// Adds a comment to a task, by the caller.
    #[zbus(out_args("comment"))]
    async fn add_comment(
        &self,
        task: u64,
        text: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<u64>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let comment = self.desk.add_comment(&caller, TaskId::from_bus(task), text).await?;
        Ok(permit.with(comment.on_bus()))
    }

    /// All of a task. What was asked for: Title s, Body s, Queue s, Priority i, Labels as, Parents at,
    /// NotBeforeUsec t, IdempotencyKey s, Command as, Environment as, WorkingDirectory s, User s, Group s,
    /// Launch s (scope, direct, auto), MaxRuntimeUsec t, StallUsec t, LeaseUsec t, StopSignal s,
    /// StopGraceUsec t, FailureLimit u, BackoffUsec t, BackoffMaxUsec t, Completion s (exit, explicit),
    /// MemoryMax t, MemoryHigh t, CPUQuotaPerSecUSec t, TasksMax t, IOWeight t, CPUWeight t, Nice i,
    /// Slots a{su}, Stdin s, Output s (journal, file); what was not given is left out. Where it stands:
    /// Task t, Status s, BlockCode s, BlockReason s, OwnerUid u, CreatedUsec t, Attempts u, Failures u,
    /// RetryInUsec t, LastError s, Result s, Survivors u, Run t. While a run holds it also: Claimant s,
    /// LeaseRemainingUsec t, Stage s, StopCause s, WorkerPid u, WorkerKind s, Fingerprint s,
    /// FingerprintKind s, Unit s, Held s.
    #[zbus(out_args("properties"))]
    async fn get_task(
        &self,
        task: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Row>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let view = self.desk.get_task(&caller, TaskId::from_bus(task)).await?;
        Ok(permit.with(convert::task(view)))
    }

    /// All of a run: Run t, Task t, Attempt u, Claimant s, WorkerPid u, WorkerKind s, Unit s, Stage s,
    /// StartedUsec t, EndedUsec t, Outcome s, ExitCode i (left out where there is none), Signal u, Error s.
    #[zbus(out_args("properties"))]
    async fn get_run(
        &self,
        run: u64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Row>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let view = self.desk.get_run(&caller, RunId::from_bus(run)).await?;
        Ok(permit.with(convert::run(view)))
    }

    /// A page of tasks, as GetTask shows them. Filter: Status as, Queue s, Label s, Owner u, Text s,
    /// AfterTask t, Limit u (default 100, at most 1000). A page may be shorter than Limit because of its
    /// size; an empty one is the end.
    #[zbus(out_args("tasks"))]
    async fn list_tasks(
        &self,
        filter: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Vec<Row>>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let filter = options::task_filter(filter)?;
        let views = self.desk.list_tasks(&caller, filter).await?;
        Ok(permit.with(convert::page(views.into_iter().map(convert::task))))
    }

    /// A page of the runs of a task, as GetRun shows them. Options: After t, Limit u.
    #[zbus(out_args("runs"))]
    async fn list_runs(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Vec<Row>>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let page = options::page(options)?;
        let views = self.desk.list_runs(&caller, TaskId::from_bus(task), page).await?;
        Ok(permit.with(convert::page(views.into_iter().map(convert::run))))
    }

    /// A page of the comments of a task: Comment t, Author s, Text s, AtUsec t. Options: After t, Limit u.
    #[zbus(out_args("comments"))]
    async fn list_comments(
        &self,
        task: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Vec<Row>>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let page = options::page(options)?;
        let views = self.desk.list_comments(&caller, TaskId::from_bus(task), page).await?;
        Ok(permit.with(convert::page(views.into_iter().map(convert::comment))))
    }

    /// A page of events, oldest first: Event t, Task t, Run t, Kind s, Payload s (JSON), AtUsec t.
    /// Filter: Task t, AfterEvent t, Limit u.
    #[zbus(out_args("events"))]
    async fn list_events(
        &self,
        filter: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Vec<Row>>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let filter = options::event_filter(filter)?;
        let views = self.desk.list_events(&caller, filter).await?;
        Ok(permit.with(convert::page(views.into_iter().map(convert::event))))
    }

    /// A descriptor of the output file of a run, for reading. Options: Older b (the part that was put aside
    /// when the file was full).
    #[zbus(out_args("output"))]
    async fn open_output(
        &self,
        run: u64,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<OwnedFd>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let older = options::older(options)?;
        let output = self.desk.open_output(&caller, RunId::from_bus(run), older).await?;
        Ok(permit.with(output.into()))
    }

    /// Makes or changes a queue. Options: MaxRunning u (0: no limit), Paused b, LaunchDefaults a{sv}.
    #[zbus(out_args("outcome"))]
    async fn set_queue(
        &self,
        name: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let change = options::queue(options)?;
        let outcome = self.desk.set_queue(&caller, name, change).await?;
        Ok(word(permit, outcome))
    }

    /// Removes a queue that has no open tasks.
    #[zbus(out_args("outcome"))]
    async fn remove_queue(
        &self,
        name: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.remove_queue(&caller, name).await?;
        Ok(word(permit, outcome))
    }

    /// The queues: Queue s, MaxRunning u, Paused b, Ready u, Running u.
    #[zbus(out_args("queues"))]
    async fn list_queues(
        &self,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Vec<Row>>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        options::none(options)?;
        let views = self.desk.list_queues(&caller).await?;
        Ok(permit.with(convert::page(views.into_iter().map(convert::queue))))
    }

    /// Counts of what the caller may see: one t for each status (Todo, Ready, Running, Blocked, Done,
    /// Cancelled, Archived), OpenRuns t, Held t.
    #[zbus(out_args("stats"))]
    async fn get_stats(
        &self,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Row>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let stats = self.desk.stats(&caller).await?;
        Ok(permit.with(convert::stats(&stats)))
    }

    /// Looks at every running task now. Options: Passes as, Dispatch b (default true), Preview b (write
    /// nothing). The report names for each cause of a release the tasks (at), then extended at,
    /// promoted at, started at, signalled a(ti), held a(ts), rows u, took_usec t.
    #[zbus(out_args("report"))]
    async fn sweep(
        &self,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<Row>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Page).await?;
        let request = options::sweep(options)?;
        let report = self.desk.sweep(&caller, request).await?;
        Ok(permit.with(convert::report(&report)))
    }

    /// Starts nothing new while it is on; what runs may end. Kept over restarts. Options: Durable b (default
    /// true; false switches this life of the daemon alone, beside what is kept).
    #[zbus(out_args("outcome"))]
    async fn drain(
        &self,
        on: bool,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        let durable = options::durable(options)?;
        let outcome = self.desk.drain(&caller, on, durable).await?;
        Ok(word(permit, outcome))
    }

    /// Copies the board into the state directory, under this name.
    #[zbus(out_args("path"))]
    async fn backup(
        &self,
        name: String,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<String>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let path = self.desk.backup(&caller, name).await?;
        Ok(permit.with(path))
    }

    /// Reads the configuration again. A bad one is refused whole, and the old one stays.
    #[zbus(out_args("outcome"))]
    async fn reload(
        &self,
        options: Dict,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Answer<&'static str>> {
        let (caller, permit) = self.enter(&header, connection, Weight::Short).await?;
        options::none(options)?;
        let outcome = self.desk.reload(&caller).await?;
        Ok(word(permit, outcome))
    }

    /// Something of this task has changed: a hint without content, after the commit.
    #[zbus(signal)]
    async fn task_changed(emitter: &SignalEmitter<'_>, task: u64) -> zbus::Result<()>;

    /// This run has ended: a hint without content, after the commit.
    #[zbus(signal)]
    async fn run_ended(emitter: &SignalEmitter<'_>, run: u64) -> zbus::Result<()>;

    /// The version of the daemon.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// The boot id of the kernel.
    #[zbus(property(emits_changed_signal = "const"))]
    fn boot_id(&self) -> String {
        self.desk.boot_id()
    }

    /// Which boot this is, and which view of it the daemon has.
    #[zbus(property(emits_changed_signal = "const"))]
    fn epoch(&self) -> String {
        self.desk.epoch()
    }

    /// The directory of the board.
    #[zbus(property(emits_changed_signal = "const"))]
    fn state_directory(&self) -> String {
        self.desk.state().0.display().to_string()
    }

    /// Whether nothing new is started.
    #[zbus(property)]
    fn draining(&self) -> bool {
        self.desk.draining()
    }

    /// Why the daemon is not well: disk_full, bus_lost, epoch, wal and others; empty if it is.
    #[zbus(property)]
    fn degraded(&self) -> Vec<String> {
        self.desk.degraded()
    }

    /// The workers that the daemon watches.
    #[zbus(property(emits_changed_signal = "false"))]
    fn workers(&self) -> u32 {
        self.desk.workers()
    }

    /// What the last sweep did, for administrators; see Sweep.
    #[zbus(property(emits_changed_signal = "false"))]
    async fn last_sweep(
        &self,
        #[zbus(header)] header: Option<Header<'_>>,
        #[zbus(connection)] connection: &Connection,
    ) -> Result<Row> {
        let Some(header) = header else { return Ok(Row::new()) };
        let caller = self.identity.of(&header, connection).await?;
        if !caller.is_admin {
            return Err(
                Refusal::NotAuthorized("only an administrator may see the last sweep".to_owned()).into()
            );
        }
        Ok(self.desk.last_sweep().map_or_else(Row::new, |report| convert::report(&report)))
    }
}
