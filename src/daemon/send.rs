//! Sends signals: only through pidfds that were proven in this round, and to nobody else.

use std::io;
use std::sync::Arc;

use nix::libc::{SIGCONT, SIGKILL, SIGTERM};

use crate::core::fingerprint::{Seen, Stored};
use crate::core::row::RunPart;
use crate::core::verdict::Rung;
use crate::daemon::engine::Engine;
use crate::daemon::judge::Judged;
use crate::daemon::observe::Part;
use crate::linux::pidfd::PidFd;
use crate::linux::spawn::end_tree;
use crate::ports::{Held as _, Processes as _};

/// What went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The signal.
    pub signal: i32,
    /// To whom: the worker, or its supervisor for the rest of a tree.
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

    /// To what is left of a launched tree: its supervisor does it, as the parent of all; without one, to
    /// each process that carries the run's nonce.
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
        for carrier in self.observer.carriers(run.run) {
            sent = self.through(&carrier, signal, "nonce")?.or(sent);
            if !hard {
                self.through(&carrier, SIGCONT, "nonce")?;
            }
        }
        Ok(sent)
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
