//! The daemon's loop: observe, decide, apply.
//!
//! One actor. Everything that may end a claim, signal a worker or start a task goes through it, one thing
//! after the other, so that no two looks at a run can cross. It wakes for what was asked, for what has
//! changed, for the end of a process, and for the nearest due time; an idle board wakes it once per
//! interval.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::core::fault::Error;
use crate::core::fingerprint::Seen;
use crate::core::ids::{RunId, TaskId};
use crate::core::limits;
use crate::core::policy::Policy;
use crate::core::refusal::Refusal;
use crate::core::row::{ClaimRow, RunPart};
use crate::core::state_dir::StateDir;
use crate::core::time::MonoMs;
use crate::core::verdict::{Hold, Pass, Passes, Proof, Rung, Verdict, Worker};
use crate::core::view::{Outcome, SweepReport, SweepRequest};
use crate::daemon::apply;
use crate::daemon::boots::Boots;
use crate::daemon::exits::{self, Ended};
use crate::daemon::host::Owed;
use crate::daemon::hub::Hints;
use crate::daemon::judge::{Judged, Round};
use crate::daemon::kept;
use crate::daemon::observe::{Observer, Part};
use crate::daemon::send::{SCOPE_KILL_MS, proof};
use crate::daemon::starter::{Started, Starter, host_fault, in_full};
use crate::daemon::tidy;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::spawn::reap;
use crate::ports::Clock;
use crate::service::desk::Desk;
use crate::service::types::{Ask, Reply};
use crate::store::{Snapshot, Store, Tx, start, sweep};
use crate::systemd::host::Host;
use crate::systemd::journal_fields;

/// A leader that has ended leaves its supervisor this long to write the record, before the rest of the tree
/// counts as lingering.
const LEADER_GRACE_MS: i64 = 200;
/// One empty scan for what a dead supervisor left is followed by another after this.
const RESCAN_MS: i64 = 1_050;
/// Between two looks at a scope without supervisor that was killed.
const AFTER_KILL_MS: i64 = 20;
/// A worker's end that could not be recorded is looked at again after this.
const RETRY_MS: i64 = 1_000;
/// Between two notes of CLOCK_BOOTTIME on the board, milliseconds.
const TOUCH_MS: i64 = 5 * 60 * 1_000;
/// Tasks that one sweep puts away for their age.
const RETAIN_TASKS: usize = 500;
/// A write-ahead log above this is said to be too long, bytes.
const WAL_BYTES: u64 = 64 * 1_024 * 1_024;

/// What the engine's own tasks tell it.
#[derive(Debug)]
pub enum Event {
    /// A watched process has ended.
    Ended(Ended),
    /// A start has come to its end.
    Started(RunId, Started),
    /// A stop whose worker could not be seen is tried once more.
    StopAgain(RunId, u32, Reply<Outcome>),
}

/// See the module.
pub struct Engine {
    pub(super) desk: Desk,
    pub(super) store: Store,
    pub(super) observer: Observer<HostProcesses>,
    pub(super) boots: Boots,
    pub(super) state: StateDir,
    pub(super) in_hand: HashSet<RunId>,
    /// When the host began to shut down.
    pub(super) shutdown: Option<MonoMs>,
    /// What the board is still to be told of that.
    pub(super) stamp: Option<Owed>,
    clock: Arc<dyn Clock>,
    starter: Starter,
    events: mpsc::Sender<Event>,
    watchers: HashMap<RunId, Vec<AbortHandle>>,
    /// The doubts about boots that were said last.
    doubts: BTreeMap<&'static str, usize>,
    /// Runs that are owed a look, and when.
    relooks: HashMap<RunId, MonoMs>,
    /// When everything is to be looked at.
    full_due: MonoMs,
    /// Whether everything was looked at once in this life.
    looked_once: bool,
    /// When everything was looked at last.
    looked_all: MonoMs,
    /// Runs whose last verdict was void, because their row changed after it was read.
    pub(super) void: HashSet<RunId>,
    touched: MonoMs,
    /// What was due up to then has been looked at.
    due_seen: MonoMs,
    /// Whether the daemon is ending: nothing more is started.
    is_ending: bool,
    /// Sweeps rest until then: the host is about to sleep.
    pub(super) rest_until: Option<MonoMs>,
    /// Who can be asked what the host is about to do.
    pub(super) host: Option<Host>,
}

/// The pieces of an engine.
pub struct Parts {
    /// The use cases.
    pub desk: Desk,
    /// The host's clocks.
    pub clock: Arc<dyn Clock>,
    /// What looks at processes.
    pub observer: Observer<HostProcesses>,
    /// Which boot each row belongs to.
    pub boots: Boots,
    /// What starts tasks.
    pub starter: Starter,
    /// Where the engine's own tasks report.
    pub events: mpsc::Sender<Event>,
    /// When the host began to shut down.
    pub shutdown: Option<MonoMs>,
}

impl Engine {
    /// Nothing has been looked at yet.
    pub fn new(parts: Parts) -> Self {
        let now = parts.desk.when().now.mono;
        Self {
            store: parts.desk.store().clone(),
            state: parts.starter.state.clone(),
            desk: parts.desk,
            observer: parts.observer,
            boots: parts.boots,
            in_hand: HashSet::new(),
            shutdown: parts.shutdown,
            stamp: None,
            clock: parts.clock,
            starter: parts.starter,
            events: parts.events,
            watchers: HashMap::new(),
            doubts: BTreeMap::new(),
            relooks: HashMap::new(),
            full_due: now,
            looked_once: false,
            looked_all: now,
            void: HashSet::new(),
            touched: now,
            due_seen: now,
            is_ending: false,
            rest_until: None,
            host: None,
        }
    }

    /// How long until a moment; nothing if it has passed.
    pub fn until(&self, due: MonoMs) -> Duration {
        Duration::from_millis(u64::try_from(due.since(self.now())).unwrap_or(0))
    }

    /// Looks at everything soon, as at the beginning of a life: nobody could look for a while.
    pub(super) fn look_anew(&mut self) {
        self.looked_once = false;
        self.full_due = self.now();
    }

    /// Nothing new is started any more in this life.
    pub fn stop_starting(&mut self) {
        self.is_ending = true;
        self.starter.leave();
    }

    fn starts(&self) -> bool {
        !self.is_ending && self.desk.starts() && self.starter.can_start()
    }

    /// Whether starts are under way.
    pub fn is_starting(&self) -> bool {
        !self.in_hand.is_empty()
    }

    pub(super) fn now(&self) -> MonoMs {
        self.desk.when().now.mono
    }

    /// Takes back what the service manager kept of the workers.
    ///
    /// # Errors
    /// A fault of the board.
    pub async fn take_back(&mut self, given: Vec<kept::Given>) -> Result<(), Error> {
        if given.is_empty() {
            return Ok(());
        }
        let runs = self.rows(sweep::Selection::All).await?.into_iter().filter_map(|row| row.run);
        let runs: HashMap<RunId, RunPart> =
            runs.filter(|run| !run.ended || run.survivor).map(|run| (run.run, run)).collect();
        kept::adopt(given, &runs, self.boots.epoch(), &self.starter.kept, &mut self.observer);
        Ok(())
    }

    /// The first look of a daemon's life, at every running row.
    ///
    /// # Errors
    /// A fault of the board.
    pub async fn first_look(&mut self) -> Result<SweepReport, Error> {
        self.sweep(SweepRequest { passes: None, dispatch: false, preview: false }).await
    }

    /// Answers one request.
    pub async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Sweep(request, reply) => {
                let report = self.sweep(request).await;
                give(reply, report);
            }
            Ask::Stop(run, reply) => self.stop(run, 1, reply).await,
            Ask::Signal(run, signal, reply) => {
                let outcome = self.signal(run, signal).await;
                give(reply, outcome);
            }
            // The configuration is the loop's own; it never hands this on.
            Ask::Reload(reply) => give(reply, Ok(Outcome::Unchanged)),
        }
    }

    /// Takes note of what happened.
    pub async fn handle(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Ended(ended) => self.ended(ended).await,
            Event::Started(run, started) => self.started(run, started).await,
            Event::StopAgain(run, looks, reply) => {
                self.stop(run, looks, reply).await;
                Ok(())
            }
        }
    }

    /// Acts on what commits have changed. One that fails does not stand in the way of the others.
    pub async fn changed(&mut self, hints: &Hints) -> Result<(), Error> {
        let mut outcome = Ok(());
        for run in &hints.look {
            let passes = self.desk.policy().passes;
            outcome = outcome.and(self.look(*run, passes).await.map(drop));
        }
        if hints.ready {
            outcome = outcome.and(self.dispatch().await.map(drop));
        }
        outcome
    }

    /// Looks at what is due, at everything once per interval, and starts what may start.
    pub async fn due(&mut self, armed_for: Option<MonoMs>) -> Result<(), Error> {
        let now = self.now();
        if self.rests_until(now).is_some() {
            return Ok(());
        }
        let stamped = self.stamp_if_due(now).await;
        self.look_at_due(now, armed_for).await.and(stamped)
    }

    async fn look_at_due(&mut self, now: MonoMs, armed_for: Option<MonoMs>) -> Result<(), Error> {
        let interval_ms = self.desk.policy().interval_ms;
        let late = armed_for.is_some_and(|armed| now.since(armed) > interval_ms);
        if now >= self.full_due {
            // One that fails is tried again after a pause, not at once.
            self.full_due = now.plus(RETRY_MS);
            let request = SweepRequest { passes: None, dispatch: true, preview: false };
            self.sweep(request).await?;
            return self.keep_house().await;
        }
        let mut owed: Vec<RunId> = Vec::new();
        self.relooks.retain(|run, at| {
            let due = *at <= now;
            if due {
                owed.push(*run);
            }
            !due
        });
        let mut outcome = Ok(());
        for run in owed {
            let launched = self.observer.handle(run, Part::Supervisor).is_some();
            let passes = apply::on_exit(self.desk.policy().passes, launched);
            outcome = outcome.and(self.look_late(run, passes, late).await.map(drop));
        }
        let epoch = self.boots.epoch().clone();
        let passes = self.desk.policy().passes;
        let selection = sweep::Selection::Due { now, epoch };
        self.due_seen = now;
        outcome = outcome.and(self.examine(selection, Round { now, passes, late }).await.map(drop));
        if passes.has(Pass::Promote) {
            outcome = outcome.and(self.promote().await.map(drop));
        }
        if passes.has(Pass::Dispatch) {
            outcome = outcome.and(self.dispatch().await.map(drop));
        }
        outcome
    }

    /// The nearest due times: of the loop's own, and of the board's.
    pub async fn next_due(&self) -> Result<sweep::NextDue, Error> {
        let (after, when) = (self.due_seen, self.desk.when());
        let when_now = when.now.mono;
        let read = move |snapshot: &Snapshot<'_>| sweep::next_due(snapshot, after, &when);
        let mut next = self.store.read("what is due next", read).await?;
        let stamp = self.stamp.as_ref().map(|owed| owed.due);
        let own = self.relooks.values().copied().chain(stamp).fold(self.full_due, MonoMs::min);
        let due = next.mono.map_or(own, |due| due.min(own));
        next.mono = Some(self.rests_until(when_now).map_or(due, |until| due.max(until)));
        Ok(next)
    }

    /// A sweep over every running row, with what belongs to it.
    async fn sweep(&mut self, request: SweepRequest) -> Result<SweepReport, Error> {
        let now = self.now();
        let policy = self.desk.policy();
        let passes = request.passes.unwrap_or(policy.passes);
        let late = !self.looked_once || now.since(self.looked_all) > 2 * policy.interval_ms;
        let round = Round { now, passes, late };
        let mut report = if request.preview {
            self.foresee(round, request.dispatch).await?
        } else {
            self.sweep_for_real(round, request.dispatch, request.passes.is_none()).await?
        };
        report.took_usec = crate::core::time::ms_to_usec(self.now().since(now));
        if !request.preview {
            self.desk.set_last_sweep(report.clone());
        }
        Ok(report)
    }

    async fn foresee(&mut self, round: Round, dispatch: bool) -> Result<SweepReport, Error> {
        let rows = self.rows(sweep::Selection::All).await?;
        let judged = self.judge(rows, round);
        self.watch(&judged);
        let mut report = apply::foresee(&judged);
        let (when, room) = (self.desk.when(), self.room());
        let promotes = round.passes.has(Pass::Promote);
        let starts = dispatch && self.starts() && round.passes.has(Pass::Dispatch);
        let read = move |snapshot: &Snapshot<'_>| {
            let promoted = if promotes { start::promotable(snapshot, &when)? } else { Vec::new() };
            let started = if starts { start::startable(snapshot, room, &when)? } else { Vec::new() };
            Ok((promoted, started))
        };
        (report.promoted, report.started) = self.store.read("a preview", read).await?;
        Ok(report)
    }

    async fn sweep_for_real(
        &mut self,
        round: Round,
        dispatch: bool,
        as_configured: bool,
    ) -> Result<SweepReport, Error> {
        let judged = self.examine(sweep::Selection::All, round).await?;
        // A sweep with passes of its own does not stand for the daemon's.
        if as_configured {
            self.looked_once = true;
            self.looked_all = round.now;
            self.due_seen = round.now;
            self.full_due = round.now.plus(self.desk.policy().interval_ms);
        }
        self.say_doubts(&judged.0);
        let mut report = judged.1;
        // A full disk refuses new work; what ended is on the board all the same, and is told.
        if round.passes.has(Pass::Promote) {
            report.promoted = unless_refused(self.promote().await)?;
        }
        if dispatch && round.passes.has(Pass::Dispatch) {
            report.started = unless_refused(self.dispatch().await)?;
        }
        Ok(report)
    }

    async fn rows(&self, selection: sweep::Selection) -> Result<Vec<ClaimRow>, Error> {
        self.store.read("the rows of a sweep", move |snapshot| sweep::rows(snapshot, &selection)).await
    }

    /// Observe, decide, apply.
    async fn examine(
        &mut self,
        selection: sweep::Selection,
        round: Round,
    ) -> Result<(Vec<Judged>, SweepReport), Error> {
        let rows = self.rows(selection).await?;
        let mut judged = self.judge(rows, round);
        if self.is_hosts_doing(&judged).await? {
            judged = self.judge(judged.into_iter().map(|judged| judged.row).collect(), round);
        }
        self.watch(&judged);
        let report = self.apply(&judged).await?;
        self.kill_rest(&judged, round.now);
        self.owe_looks(&judged, round.now);
        self.count_workers();
        Ok((judged, report))
    }

    /// Sees to it that a run is looked at soon.
    pub(super) fn owe_look(&mut self, run: RunId, in_ms: i64) {
        let due = self.now().plus(in_ms);
        let owed = self.relooks.entry(run).or_insert(due);
        *owed = due.min(*owed);
    }

    async fn look(&mut self, run: RunId, passes: Passes) -> Result<Option<Verdict>, Error> {
        self.look_late(run, passes, false).await
    }

    async fn look_late(&mut self, run: RunId, passes: Passes, late: bool) -> Result<Option<Verdict>, Error> {
        let round = Round { now: self.now(), passes, late };
        self.void.remove(&run);
        let examined = self.examine(sweep::Selection::Run(run), round).await;
        if examined.is_err() {
            // The board could not take it now; the claim stays and the look is owed.
            self.relooks.insert(run, round.now.plus(RETRY_MS));
        }
        let (judged, _) = examined?;
        if judged.is_empty() && !self.in_hand.contains(&run) {
            self.unwatch(run);
        }
        Ok(apply::by_run(&judged).remove(&run))
    }

    /// One empty scan alone proves nothing: the next one is owed. So is one to a scope that nobody supervises,
    /// and to one that was killed.
    fn owe_looks(&mut self, judged: &[Judged], now: MonoMs) {
        for judged in judged {
            let Some(run) = judged.row.run.as_ref() else { continue };
            if self.observer.owes_scan(run.run) {
                self.relooks.insert(run.run, now.plus(RESCAN_MS));
            } else if self.observer.is_unsupervised(run.run) {
                let soon = run.kill_ms.is_some_and(|sent| now.since(sent) < limits::KILL_MS);
                self.relooks.insert(run.run, now.plus(if soon { AFTER_KILL_MS } else { RESCAN_MS }));
            } else if run.cgroup.is_some() && matches!(judged.verdict, Verdict::Signal(Rung::Kill, _)) {
                self.relooks.insert(run.run, now.plus(SCOPE_KILL_MS));
            }
        }
    }

    async fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let Ended { run, part, .. } = ended;
        let launched = self.observer.handle(run, Part::Supervisor).is_some();
        if part == Part::Supervisor {
            self.reap(&ended.handle);
        } else if launched {
            let due = self.now().plus(LEADER_GRACE_MS);
            self.relooks.entry(run).or_insert(due);
            return Ok(());
        }
        self.relooks.remove(&run);
        let passes = apply::on_exit(self.desk.policy().passes, launched);
        self.look(run, passes).await?;
        self.dispatch().await?;
        Ok(())
    }

    fn reap(&self, supervisor: &PidFd) {
        if let Err(error) = reap(supervisor) {
            tracing::warn!(%error, "cannot reap a supervisor; it stays a zombie until the daemon ends");
        }
    }

    /// Stops a run whose stop is on the board, and says what became of its claim. A worker that cannot be
    /// seen for a moment is looked at again before the answer is `held`.
    async fn stop(&mut self, run: RunId, looks: u32, reply: Reply<Outcome>) {
        let passes = self.desk.policy().passes;
        let outcome = match self.look(run, passes).await {
            Ok(Some(Verdict::Hold(Hold::Unknown))) if looks < limits::RECLAIM_LOOKS => {
                let events = self.events.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(limits::RECLAIM_LOOK_MS)).await;
                    // A loop that has ended answers nobody; dropping the reply says so.
                    let _ = events.send(Event::StopAgain(run, looks + 1, reply)).await;
                });
                return;
            }
            Ok(Some(Verdict::Hold(_))) => Ok(Outcome::Held),
            // Not written: the next look, which is owed, decides anew.
            Ok(Some(Verdict::Release { .. })) if self.void.contains(&run) => Ok(Outcome::Stopping),
            Ok(Some(Verdict::Release { .. } | Verdict::Forget) | None) => Ok(Outcome::Released),
            Ok(Some(Verdict::Keep | Verdict::Extend | Verdict::Signal(..))) => Ok(Outcome::Stopping),
            Err(error) => Err(error),
        };
        give(reply, outcome);
        if let Err(error) = self.dispatch().await {
            tracing::error!(error = %in_full(&error), "cannot start tasks; will try again");
        }
    }

    /// Sends an operator's signal to a worker that is proven now.
    async fn signal(&mut self, run: RunId, signal: i32) -> Result<Outcome, Error> {
        let rows = self.rows(sweep::Selection::Run(run)).await?;
        let round = Round { now: self.now(), passes: Passes::NONE, late: false };
        let judged = self.judge(rows, round);
        self.watch(&judged);
        let refuse = |why: String| Err(Error::Refused(Refusal::Busy(why)));
        let Some((judged, part)) =
            judged.iter().find_map(|judged| judged.row.run.as_ref().map(|run| (judged, run)))
        else {
            return refuse(format!("run {run} has ended; nothing was sent"));
        };
        let objection = self.observer.objection(part);
        // A tree that lives proves nothing about who has the leader's number.
        let is_itself = judged.observed.process == Some(Seen::Same);
        if !is_itself || judged.facts.worker != Worker::Alive(Proof::Proven) || objection.is_some() {
            return refuse(format!("the worker of run {run} cannot be proven now; nothing was sent"));
        }
        let Some(handle) = self.observer.handle(run, Part::Worker) else {
            return refuse(format!("run {run} has no process yet; nothing was sent"));
        };
        let when = self.desk.when();
        let sent = self.through(&handle, signal, proof(&part.worker));
        let Some(sent) = sent.map_err(|error| host_fault("sending a signal", error))? else {
            return refuse(format!("the worker of run {run} has just ended; nothing was sent"));
        };
        let work =
            move |tx: &mut Tx<'_>| sweep::signalled(tx, run, None, sent.signal, sent.pid, sent.proof, &when);
        self.store.write_end("that a signal went out", work).await?;
        Ok(Outcome::Done)
    }

    async fn promote(&mut self) -> Result<Vec<TaskId>, Error> {
        let when = self.desk.when();
        self.store.write("promotion", move |tx| start::promote(tx, &when)).await
    }

    fn room(&self) -> usize {
        limits::STARTS_AT_ONCE.saturating_sub(self.in_hand.len())
    }

    /// Claims what may start and hands it to starters, while there is room.
    async fn dispatch(&mut self) -> Result<Vec<TaskId>, Error> {
        let mut started = Vec::new();
        if !self.starts() || self.shutdown.is_some() || !self.desk.policy().passes.has(Pass::Dispatch) {
            return Ok(started);
        }
        loop {
            let room = self.room();
            if room == 0 {
                return Ok(started);
            }
            let when = self.desk.when();
            let work = move |tx: &mut Tx<'_>| start::claim_for_launch(tx, room, &when);
            let starts = self.store.write("the dispatcher's claims", work).await?;
            if starts.is_empty() {
                return Ok(started);
            }
            for start in starts {
                started.push(start.task);
                self.begin(start);
            }
        }
    }

    fn begin(&mut self, start: start::Start) {
        let run = start.run;
        self.in_hand.insert(run);
        let (starter, events) = (self.starter.clone(), self.events.clone());
        tokio::spawn(async move {
            let started = starter.start(start).await;
            // A loop that has ended has closed every gate with it.
            let _ = events.send(Event::Started(run, started)).await;
        });
    }

    async fn started(&mut self, run: RunId, started: Started) -> Result<(), Error> {
        self.in_hand.remove(&run);
        match started {
            Started::Running { worker, supervisor } => {
                self.observer.adopt(run, worker, supervisor);
                self.watch_run(run);
                // A stop or a word that came while its starter had it was left for now.
                let passes = self.desk.policy().passes;
                self.look(run, passes).await?;
            }
            Started::Shut { worker, supervisor } => {
                // The child ends by itself, since its gate is gone; its end brings the next look.
                self.observer.adopt(run, worker, supervisor);
                self.watch_run(run);
                self.relooks.insert(run, self.now().plus(RETRY_MS));
            }
            // The board knows, unless it could not take it.
            Started::Nothing => self.owe_look(run, 0),
        }
        self.dispatch().await?;
        Ok(())
    }

    fn watch(&mut self, judged: &[Judged]) {
        for run in judged.iter().filter_map(|judged| judged.row.run.as_ref()) {
            if !run.ended || run.survivor {
                self.watch_run(run.run);
            }
        }
    }

    fn watch_run(&mut self, run: RunId) {
        let unwatched = self.observer.unwatched(run);
        if unwatched.is_empty() {
            return;
        }
        let watchers = self.watchers.entry(run).or_default();
        for (part, handle) in unwatched {
            let watcher = exits::watch(Ended { run, part, handle }, self.events.clone());
            // A supervisor is our child: it is waited for until it is reaped, whatever becomes of its run.
            watchers.extend(watcher.filter(|_| part == Part::Worker));
        }
    }

    fn count_workers(&self) {
        self.desk.set_workers(u32::try_from(self.watchers.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn unwatch(&mut self, run: RunId) {
        self.relooks.remove(&run);
        self.observer.forget(run);
        self.starter.kept.release(run);
        for watcher in self.watchers.remove(&run).unwrap_or_default() {
            watcher.abort();
        }
        self.count_workers();
    }

    /// Says which witness of the boot disagrees, and for how many rows, once per change.
    fn say_doubts(&mut self, judged: &[Judged]) {
        let mut doubts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for doubt in judged.iter().filter_map(|judged| judged.doubt) {
            *doubts.entry(doubt.words()).or_default() += 1;
        }
        self.desk.set_degraded("epoch", !doubts.is_empty());
        if doubts == self.doubts {
            return;
        }
        for (words, rows) in &doubts {
            tracing::warn!(rows, "{words}; leaving the claims of these rows alone");
        }
        self.doubts = doubts;
    }

    /// What belongs to the slow sweep alone.
    async fn keep_house(&mut self) -> Result<(), Error> {
        self.starter.kept.tidy();
        let health = self.store.health();
        self.desk.set_degraded("wal", health.wal_bytes > WAL_BYTES);
        let when = self.desk.when();
        let retained =
            self.store.write("retention", move |tx| sweep::retain(tx, RETAIN_TASKS, &when)).await?;
        if !retained.is_empty() {
            tracing::info!(tasks = retained.len(), "put old tasks away");
        }
        tidy::after_sweep(&self.store, &self.state, retained).await;
        if self.starter.scopes.as_ref().is_some_and(|maker| maker.tells_journal) {
            journal_fields::tidy(self.desk.when().now.wall);
        }
        if self.now().since(self.touched) >= TOUCH_MS {
            self.touch().await?;
        }
        Ok(())
    }

    /// Notes CLOCK_BOOTTIME, so that a later boot shows that it is another one.
    pub async fn touch(&mut self) -> Result<(), Error> {
        self.touched = self.now();
        let boot = self.desk.when().boot;
        let witnesses =
            self.clock.witnesses().map_err(|error| host_fault("reading the boot's clock", error))?;
        let boottime_ms = witnesses.boottime_ms;
        self.store
            .write("the boot's clock", move |tx| crate::store::boots::touch(tx, boot, boottime_ms))
            .await
    }

    /// Goes on with another configuration: due times are computed anew.
    pub async fn reload(&mut self, policy: Policy) -> Result<Outcome, Error> {
        self.desk.set_policy(policy).await?;
        let when = self.desk.when();
        let work = move |tx: &mut Tx<'_>| {
            // Whoever reloads may have repaired what kept commands from being started.
            start::end_pause(tx)?;
            sweep::rearm(tx, &when)
        };
        self.store.write("due times", work).await?;
        self.full_due = self.full_due.min(self.now().plus(self.desk.policy().interval_ms));
        self.dispatch().await?;
        Ok(Outcome::Done)
    }
}

/// What a full disk refused is nothing that was done; everything else is as it is.
fn unless_refused<T: Default>(done: Result<T, Error>) -> Result<T, Error> {
    match done {
        Err(Error::Refused(Refusal::ReadOnly)) => Ok(T::default()),
        done => done,
    }
}

/// Answers; a caller that has gone away needs none.
fn give<T>(reply: Reply<T>, answer: Result<T, Error>) {
    let _ = reply.send(answer);
}
