//! Sends signals: only through pidfds that were proven in this round, and to nobody else.

use std::io;
use std::sync::Arc;

use nix::libc::{SIGCONT, SIGKILL, SIGTERM};

use crate::core::facts::Tree;
use crate::core::fingerprint::{Seen, Stored};
use crate::core::row::{Cgroup, RunPart};
use crate::core::time::MonoMs;
use crate::core::verdict::Rung;
use crate::daemon::engine::Engine;
use crate::daemon::judge::Judged;
use crate::daemon::observe::Part;
use crate::linux::pidfd::PidFd;
use crate::linux::spawn::end_tree;
use crate::ports::{Held as _, Processes as _};

/// KILL goes to the supervisor first, whose record says how it all ended; this long after, to the whole scope.
pub(super) const SCOPE_KILL_MS: i64 = 500;

/// What went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The signal.
    pub signal: i32,
    /// To whom: the worker, or its supervisor for the rest of a tree; 0 for a whole scope.
    pub pid: i64,
    /// How the target was proven.
    pub proof: &'static str,
}

impl Engine {
    /// Sends one rung of the ladder to the worker of a judged row.
    ///
    /// # Errors
    /// What pidfd_send_signal(2) said. ESRCH is no error here: the worker's end is seen by other means.
    pub(super) fn send(&mut self, judged: &Judged, rung: Rung) -> io::Result<Option<Sent>> {
        let Some(run) = &judged.row.run else {
            return Ok(None);
        };
        let leads = judged.observed.process == Some(Seen::Same);
        let own_signal = judged.row.task.as_ref().and_then(|task| task.stop_signal);
        match rung {
            Rung::Term if leads => self.term_worker(run, own_signal.unwrap_or(SIGTERM)),
            Rung::Term => self.signal_rest(run, false),
            Rung::Kill => self.kill(run, leads),
        }
    }

    fn term_worker(&self, run: &RunPart, signal: i32) -> io::Result<Option<Sent>> {
        let Some(handle) = self.observer.handle(run.run, Part::Worker) else {
            return Ok(None);
        };
        let sent = self.through(&handle, signal, proof(&run.worker))?;
        // TERM to a stopped process stays pending.
        self.through(&handle, SIGCONT, proof(&run.worker))?;
        Ok(sent)
    }

    fn kill(&mut self, run: &RunPart, leads: bool) -> io::Result<Option<Sent>> {
        let mut sent = None;
        if leads && let Some(handle) = self.observer.handle(run.run, Part::Worker) {
            sent = self.through(&handle, SIGKILL, proof(&run.worker))?;
        }
        let rest = if run.launched { self.signal_rest(run, true)? } else { None };
        Ok(sent.or(rest))
    }

    /// To what is left of a launched tree: its supervisor does it, as the parent of all, and so reaches also
    /// what somebody moved out of the scope. Without a supervisor, to the scope; without a scope, to each
    /// process that carries the run's nonce.
    fn signal_rest(&mut self, run: &RunPart, hard: bool) -> io::Result<Option<Sent>> {
        let signal = if hard { SIGKILL } else { SIGTERM };
        let identity = self.boots.of(run).identity;
        if self.observer.supervisor(run, identity) == Some(Seen::Same)
            && let Some(supervisor) = self.observer.handle(run.run, Part::Supervisor)
        {
            end_tree(self.observer.processes(), &supervisor, hard)?;
            let pid = i64::from(supervisor.pid().get());
            return Ok(Some(Sent { signal, pid, proof: "supervisor" }));
        }
        let mut sent = None;
        let carriers = self.observer.carriers(run.run);
        if let Some(cgroup) = &run.cgroup {
            sent = if hard { self.kill_scope(cgroup)? } else { self.term_scope(cgroup)? };
        }
        for carrier in carriers {
            sent = self.through_and_on(&carrier, signal, "nonce")?.or(sent);
        }
        Ok(sent)
    }

    /// A signal, and CONT behind one that a stopped process would keep pending.
    fn through_and_on(
        &self,
        member: &Arc<PidFd>,
        signal: i32,
        proof: &'static str,
    ) -> io::Result<Option<Sent>> {
        let sent = self.through(member, signal, proof)?;
        if signal != SIGKILL {
            self.through(member, SIGCONT, proof)?;
        }
        Ok(sent)
    }

    /// To each that is found in it. Where something lives there and nobody could be reached, that counts as
    /// sent: the grace runs, and then the kill reaches all.
    fn term_scope(&self, cgroup: &Cgroup) -> io::Result<Option<Sent>> {
        let mut sent = None;
        match self.observer.cgroups().members(cgroup) {
            Ok(members) => {
                for member in members.into_iter().map(Arc::new) {
                    sent = self.through_and_on(&member, SIGTERM, "cgroup")?.or(sent);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot see who is in a scope; KILL after the grace reaches all")
            }
        }
        if sent.is_none() && self.observer.cgroups().is_populated(cgroup)? {
            sent = Some(Sent { signal: SIGTERM, pid: 0, proof: "cgroup" });
        }
        Ok(sent)
    }

    /// Everything in it at once, whoever forks how fast.
    fn kill_scope(&self, cgroup: &Cgroup) -> io::Result<Option<Sent>> {
        let was_there = self.observer.cgroups().kill_all(cgroup)?;
        Ok(was_there.then_some(Sent { signal: SIGKILL, pid: 0, proof: "cgroup" }))
    }

    /// Whoever is left in a scope a while after KILL went to its supervisor: the supervisor's walk did not
    /// catch it, or there is no supervisor any more.
    pub(super) fn kill_rest(&mut self, judged: &[Judged], now: MonoMs) {
        for run in judged.iter().filter_map(|judged| overdue(judged, now)) {
            let Some(cgroup) = &run.cgroup else { continue };
            match self.observer.cgroups().kill_all(cgroup) {
                Ok(true) => tracing::debug!(TENURED_RUN = run.run.get(), "killed what was left in the scope"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(TENURED_RUN = run.run.get(), %error, "cannot kill what is left in a scope; leaving the claim, will try again")
                }
            }
        }
    }

    /// Sends through a pidfd, to a process and its end alike.
    pub(super) fn through(
        &self,
        handle: &Arc<PidFd>,
        signal: i32,
        proof: &'static str,
    ) -> io::Result<Option<Sent>> {
        match self.observer.processes().signal(handle, signal) {
            Ok(()) => Ok(Some(Sent { signal, pid: i64::from(handle.pid().get()), proof })),
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The run of a row whose scope lives on after KILL.
fn overdue(judged: &Judged, now: MonoMs) -> Option<&RunPart> {
    // Stamps of a boot that is in doubt say nothing.
    let is_alive = judged.observed.tree == Tree::Populated && judged.doubt.is_none();
    let run = judged.row.run.as_ref().filter(|run| run.launched && is_alive)?;
    run.kill_ms.filter(|sent| now.since(*sent) >= SCOPE_KILL_MS).map(|_| run)
}

/// How a worker is proven, in words.
pub(super) const fn proof(stored: &Stored) -> &'static str {
    match stored {
        Stored::Proven(print) if print.inode.is_some() => "pidfd+start+inode",
        Stored::Proven(_) => "pidfd+start",
        Stored::StartOnly(_) => "pidfd+start+epoch of the row",
        // None of these is ever signalled; the arm keeps the function total.
        Stored::None | Stored::Absent | Stored::Unverified | Stored::Named(_) => "none",
    }
}
