//! Carries out what was decided: writes in bounded commits, causes before signals, times of sending after.

use std::collections::HashMap;

use crate::core::fault::Error;
use crate::core::ids::{RunId, TaskId};
use crate::core::limits;
use crate::core::plan::{Basis, Step, plan};
use crate::core::record::{End, Record};
use crate::core::retry::{Exit, Outcome, outcome_of_exit};
use crate::core::row::RunPart;
use crate::core::spec::Completion;
use crate::core::verdict::{Fresh, Hold, Passes, Release, Rung, StopCause, Urgency, Verdict};
use crate::core::view::SweepReport;
use crate::daemon::engine::Engine;
use crate::daemon::judge::Judged;
use crate::daemon::observe::Part;
use crate::daemon::send::Sent;
use crate::linux::spawn::exit_of;
use crate::store::{Tx, When, sweep};

/// One write, owned, so that it can travel to the writer's thread.
#[derive(Clone, Debug)]
enum Write {
    Extend { basis: Basis, lease_ms: i64, mark_progress: bool },
    Hold(Basis, Hold),
    Unhold(Basis),
    Release { basis: Basis, ending: Box<sweep::Ending>, by_record: bool },
    Forget(Basis),
    LeaderGone(RunId),
}

impl Write {
    fn apply(&self, tx: &mut Tx<'_>, when: &When) -> Result<Written, Error> {
        let written = match self {
            Self::Extend { basis, lease_ms, mark_progress } => {
                sweep::extend(tx, basis, *lease_ms, *mark_progress, when)?
            }
            Self::Hold(basis, hold) => sweep::hold(tx, basis, *hold, when)?,
            Self::Unhold(basis) => sweep::unhold(tx, basis, when)?,
            Self::Forget(basis) => sweep::forget(tx, basis, when)?,
            Self::LeaderGone(run) => {
                sweep::leader_gone(tx, *run, when)?;
                true
            }
            Self::Release { basis, ending, by_record } => {
                return release(tx, basis, ending, *by_record, when);
            }
        };
        Ok(if written { Written::Done } else { Written::Stale })
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// It was done.
    Done,
    /// A claim ended, with this outcome.
    Released(Outcome),
    /// The row had changed since it was read: nothing was.
    Stale,
}

/// Ends a claim; an exit by itself completes only the tasks that say so, which the board knows.
fn release(
    tx: &mut Tx<'_>,
    basis: &Basis,
    ending: &sweep::Ending,
    by_record: bool,
    when: &When,
) -> Result<Written, Error> {
    let mut ending = ending.clone();
    if by_record
        && ending.outcome == Outcome::Completed
        && let Some(task) = basis.task_id()
        && sweep::completion(tx, task)? == Completion::Explicit
    {
        ending.outcome = Outcome::Failed;
        ending.error = Some("exit 0 without CompleteRun, and the task completes explicitly".to_owned());
    }
    let released = sweep::release(tx, basis, &ending, when)?;
    Ok(released.map_or(Written::Stale, |_| Written::Released(ending.outcome)))
}

impl Engine {
    /// Carries out every verdict, and tells what came of it. A row that has changed since is left to the
    /// next look.
    pub(super) async fn apply(&mut self, judged: &[Judged]) -> Result<SweepReport, Error> {
        let mut report = SweepReport::default();
        let steps = plan(judged.iter().map(|judged| (&judged.row, judged.verdict)));
        let mut writes: Vec<(usize, Write)> = judged
            .iter()
            .enumerate()
            .filter(|(_, judged)| judged.leader_newly_gone())
            .filter_map(|(at, judged)| judged.row.run.as_ref().map(|run| (at, Write::LeaderGone(run.run))))
            .collect();
        let mut signals = Vec::new();
        for (at, step) in steps {
            match step {
                Step::Signal(basis, rung, cause) => signals.push((at, basis, rung, cause)),
                other => writes.extend(self.write_of(&judged[at], other).map(|write| (at, write))),
            }
        }
        for chunk in writes.chunks(limits::STEPS_PER_COMMIT) {
            self.apply_writes(judged, chunk, &mut report).await?;
        }
        for chunk in signals.chunks(limits::STEPS_PER_COMMIT) {
            self.apply_signals(judged, chunk, &mut report).await?;
        }
        note_holds(judged, &mut report);
        Ok(report)
    }

    fn write_of(&self, judged: &Judged, step: Step) -> Option<Write> {
        match step {
            Step::Extend(basis) => {
                let own = judged.row.task.as_ref().and_then(|task| task.lease_ms);
                let lease_ms = own.unwrap_or(self.desk.policy().lease_ms);
                let mark_progress = judged.facts.fresh == Fresh::Due;
                Some(Write::Extend { basis, lease_ms, mark_progress })
            }
            Step::Hold(basis, hold) => Some(Write::Hold(basis, hold)),
            Step::Unhold(basis) => Some(Write::Unhold(basis)),
            Step::Release(basis, why, survivor) => {
                let ending = Box::new(self.ending(judged, why, survivor));
                // What the kernel still knew of a crashed one is as good as a record.
                let by_record = matches!(why, Release::Record | Release::Crashed);
                Some(Write::Release { basis, ending, by_record })
            }
            Step::Forget(basis) => Some(Write::Forget(basis)),
            Step::Signal(..) => None,
        }
    }

    async fn apply_writes(
        &mut self,
        judged: &[Judged],
        writes: &[(usize, Write)],
        report: &mut SweepReport,
    ) -> Result<(), Error> {
        let when = self.desk.when();
        let owned: Vec<Write> = writes.iter().map(|(_, write)| write.clone()).collect();
        let work = move |tx: &mut Tx<'_>| owned.iter().map(|write| write.apply(tx, &when)).collect();
        let written: Vec<Written> = self.store.write_end("a sweep's decisions", work).await?;
        for ((at, write), written) in writes.iter().zip(written) {
            let judged = &judged[*at];
            if written == Written::Stale {
                self.owe_look_of(judged);
                continue;
            }
            let Some(task) = task_of(judged) else {
                continue;
            };
            match (write, written) {
                (_, Written::Released(outcome)) => {
                    let word = release_word(judged.verdict, outcome);
                    report.released.entry(word).or_default().push(task);
                    self.released(judged);
                }
                (Write::Extend { .. }, _) => report.extended.push(task),
                (Write::Forget(_), _) => self.let_go(judged),
                (Write::Hold(..) | Write::Release { .. } | Write::Unhold(_) | Write::LeaderGone(_), _) => {}
            }
        }
        Ok(())
    }

    /// The row changed after it was read: the verdict is void, and the next look decides anew.
    fn owe_look_of(&mut self, judged: &Judged) {
        if let Some(run) = &judged.row.run {
            self.void.insert(run.run);
            self.owe_look(run.run, 0);
        }
    }

    fn released(&mut self, judged: &Judged) {
        if !matches!(judged.verdict, Verdict::Release { survivor: true, .. }) {
            self.let_go(judged);
        }
    }

    /// The end of a run is on the board: nothing of it is needed any more.
    fn let_go(&mut self, judged: &Judged) {
        let Some(run) = &judged.row.run else {
            return;
        };
        self.unwatch(run.run);
        if let (true, Some(nonce)) = (run.launched, &run.nonce) {
            crate::linux::records::remove(&self.state, run.run, nonce);
        }
    }

    /// What the board is to be told of the end.
    fn ending(&self, judged: &Judged, why: Release, survivor: bool) -> sweep::Ending {
        let record = judged.observed.record.as_ref();
        let run = judged.row.run.as_ref();
        let (exit, error) = record.map_or((None, None), of_record);
        let exit = exit.or_else(|| run.and_then(|run| self.exit_by_pidfd(run)));
        let outcome = outcome(judged, why, exit);
        let forced = run.is_some_and(|run| run.stop_urgency == Urgency::Force)
            && matches!(why, Release::Operator | Release::Cancelled);
        sweep::Ending { exit, record: record.cloned(), error, survivor, forced, ..sweep::Ending::of(outcome) }
    }

    /// A supervisor that died without a record leaves the kernel's own word, where it keeps one.
    fn exit_by_pidfd(&self, run: &RunPart) -> Option<Exit> {
        let handle = self.observer.handle(run.run, Part::Worker).filter(|_| run.launched)?;
        exit_of(&handle)
    }

    async fn apply_signals(
        &mut self,
        judged: &[Judged],
        signals: &[(usize, Basis, Rung, StopCause)],
        report: &mut SweepReport,
    ) -> Result<(), Error> {
        let when = self.desk.when();
        let asks: Vec<(Basis, StopCause, Urgency)> = signals
            .iter()
            .map(|(at, basis, _, cause)| (*basis, *cause, urgency(&judged[*at], *cause)))
            .collect();
        let work = move |tx: &mut Tx<'_>| {
            asks.iter()
                .map(|(basis, cause, urgency)| sweep::ask_stop(tx, basis, *cause, *urgency, &when))
                .collect()
        };
        let asked: Vec<Option<Basis>> = self.store.write_end("the cause of a stop", work).await?;
        // Read before the first signal: who dies of it has ended after this moment, never before.
        let when = self.desk.when();
        let mut sent = Vec::new();
        for ((at, _, rung, _), asked) in signals.iter().zip(asked) {
            let judged = &judged[*at];
            if asked.is_none() {
                self.owe_look_of(judged);
                continue;
            }
            let (Some(task), Some(run)) = (task_of(judged), &judged.row.run) else {
                continue;
            };
            match self.send(judged, *rung) {
                Ok(Some(went)) => {
                    report.signalled.push((task, went.signal));
                    sent.push((run.run, *rung, went));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(
                    TENURED_TASK = task.get(),
                    TENURED_RUN = run.run.get(),
                    %error,
                    "a signal did not go out; leaving the claim, will try again"
                ),
            }
        }
        self.record_signals(sent, when).await
    }

    async fn record_signals(&self, sent: Vec<(RunId, Rung, Sent)>, when: When) -> Result<(), Error> {
        if sent.is_empty() {
            return Ok(());
        }
        let work = move |tx: &mut Tx<'_>| {
            sent.iter().try_for_each(|(run, rung, went)| {
                sweep::signalled(tx, *run, Some(*rung), went.signal, went.pid, went.proof, &when)
            })
        };
        self.store.write_end("that a signal went out", work).await
    }
}

/// What a sweep would do, for a preview.
pub(super) fn foresee(judged: &[Judged]) -> SweepReport {
    let mut report = SweepReport::default();
    for judged in judged {
        let Some(task) = task_of(judged) else {
            continue;
        };
        match judged.verdict {
            Verdict::Keep | Verdict::Forget | Verdict::Hold(_) => {}
            Verdict::Extend => report.extended.push(task),
            Verdict::Signal(Rung::Kill, _) => report.signalled.push((task, nix::libc::SIGKILL)),
            Verdict::Signal(Rung::Term, _) => {
                let own = judged.row.task.as_ref().and_then(|task| task.stop_signal);
                report.signalled.push((task, own.unwrap_or(nix::libc::SIGTERM)));
            }
            Verdict::Release { why, .. } => {
                let outcome = outcome(judged, why, None);
                report.released.entry(release_word(judged.verdict, outcome)).or_default().push(task);
            }
        }
    }
    note_holds(judged, &mut report);
    report
}

/// What a release makes of the run; whether an exit completes the task is for the board to say.
fn outcome(judged: &Judged, why: Release, exit: Option<Exit>) -> Outcome {
    let record = judged.observed.record.as_ref();
    match why {
        Release::NotStarted => Outcome::NotStarted,
        Release::Word | Release::ReconciledByEnd => {
            let fixed = judged.row.run.as_ref().and_then(|run| run.outcome);
            fixed.or_else(|| record.map(outcome_of_record)).unwrap_or(Outcome::Reconciled)
        }
        Release::Record => match (record.map_or(Outcome::Crashed, outcome_of_record), judged.facts.stop) {
            // Stopped at its gate: the stop is why the command never ran.
            (Outcome::NotStarted, Some(stop)) => Outcome::of_stop(stop.cause),
            (outcome, _) => outcome,
        },
        Release::Stopped(cause) => Outcome::of_stop(cause),
        Release::Lost => Outcome::Lost,
        Release::TimedOut => Outcome::TimedOut,
        Release::Stalled => Outcome::Stalled,
        Release::Reclaimed => Outcome::Reclaimed,
        Release::Crashed => exit.map_or(Outcome::Crashed, |exit| outcome_of_exit(exit, false, false)),
        Release::Reconciled => Outcome::Reconciled,
        Release::Operator => Outcome::Operator,
        Release::Cancelled => Outcome::Cancelled,
    }
}

/// The word under which a release is reported.
const fn release_word(verdict: Verdict, outcome: Outcome) -> &'static str {
    match verdict {
        Verdict::Release { why: Release::Reconciled | Release::ReconciledByEnd, .. } => {
            Outcome::Reconciled.word()
        }
        Verdict::Release { .. }
        | Verdict::Keep
        | Verdict::Extend
        | Verdict::Hold(_)
        | Verdict::Signal(..)
        | Verdict::Forget => outcome.word(),
    }
}

fn note_holds(judged: &[Judged], report: &mut SweepReport) {
    report.rows = u32::try_from(judged.len()).unwrap_or(u32::MAX);
    for judged in judged {
        if let (Verdict::Hold(hold), Some(task)) = (judged.verdict, task_of(judged)) {
            report.held.push((task, hold.word()));
        }
    }
}

/// The task of a row; a run whose task is gone still names it.
pub(super) fn task_of(judged: &Judged) -> Option<TaskId> {
    let of_task = judged.row.task.as_ref().map(|task| task.task);
    of_task.or_else(|| judged.row.run.as_ref().map(|run| run.task))
}

/// An operator's urgency belongs to the operator's cause.
fn urgency(judged: &Judged, cause: StopCause) -> Urgency {
    let stop = judged.facts.stop.filter(|stop| stop.cause == cause);
    stop.map_or(Urgency::Normal, |stop| stop.urgency)
}

fn outcome_of_record(record: &Record) -> Outcome {
    match record.end {
        End::Exited(exit) => outcome_of_exit(exit, record.oom, false),
        End::GateClosed => Outcome::NotStarted,
        End::ExecFailed { .. } => Outcome::Failed,
        End::SetupFailed { .. } => Outcome::Misconfigured,
    }
}

/// The exit of a record, and its error in words.
fn of_record(record: &Record) -> (Option<Exit>, Option<String>) {
    let os = |errno: i32| std::io::Error::from_raw_os_error(errno);
    match record.end {
        End::Exited(exit @ Exit::Code(0)) => (Some(exit), None),
        End::Exited(exit @ Exit::Code(code)) => {
            let oom = if record.oom { ", some of it killed: out of memory" } else { "" };
            (Some(exit), Some(format!("exit {code}{oom}")))
        }
        End::Exited(exit @ Exit::Signal(signal)) => {
            let by = record.killed_by_pid.map(|pid| format!(", sent by process {pid}")).unwrap_or_default();
            let oom = if record.oom { ", out of memory" } else { "" };
            (Some(exit), Some(format!("ended by signal {signal}{by}{oom}")))
        }
        End::GateClosed => (None, Some("the gate never opened: the command did not run".to_owned())),
        End::ExecFailed { errno, code } => {
            (Some(Exit::Code(code)), Some(format!("the command could not be executed: {}", os(errno))))
        }
        End::SetupFailed { step, errno } => {
            (None, Some(format!("the command could not be set up ({}): {}", step.word(), os(errno))))
        }
    }
}

/// Verdicts on open runs, for answers about one: a survivor's claim has ended.
pub(super) fn by_run(judged: &[Judged]) -> HashMap<RunId, Verdict> {
    let open = judged.iter().filter_map(|judged| {
        judged.row.run.as_ref().filter(|run| !run.ended).map(|run| (run.run, judged.verdict))
    });
    open.collect()
}

/// The passes for a look at a run whose end was just seen: an exit record needs no pass then.
pub(super) const fn on_exit(configured: Passes, launched: bool) -> Passes {
    if launched { configured.with(crate::core::verdict::Pass::DetectCrashedWorkers) } else { configured }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::Nonce;

    #[test]
    fn whoever_ended_for_want_of_memory_is_told_so() {
        let words = |exit, oom| {
            let record = Record {
                run: RunId::new(1),
                nonce: Nonce::from_bytes([1; 16]),
                end: End::Exited(exit),
                oom,
                ended_ms: 0,
                ended_usec: 0,
                killed_by_pid: None,
                manager_asked: false,
                user_usec: 0,
                system_usec: 0,
                max_rss_kib: 0,
            };
            of_record(&record).1.unwrap()
        };
        for exit in [Exit::Code(5), Exit::Signal(9)] {
            assert!(words(exit, true).contains("out of memory"), "{exit:?}");
            assert!(!words(exit, false).contains("memory"), "{exit:?}");
        }
    }
}
