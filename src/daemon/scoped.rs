//! From a command at its gate to a scope that was seen to hold it.
//!
//! Nothing here is believed because the manager says so: the processes are looked up in the kernel, by
//! handles that are held, and the cgroup is stored with the kernel's own id of it.

use crate::core::ids::{Nonce, RunId, TaskId};
use crate::core::row::Cgroup;
use crate::core::spec::Resource;
use crate::core::unit;
use crate::linux::cgroup::HostCgroups;
use crate::linux::pidfd::PidFd;
use crate::linux::spawn::Launched;
use crate::ports::Held as _;
use crate::store::start::{Start, Unit};
use crate::systemd::journal_fields;
use crate::systemd::scopes::{Member, NoScope, Scope, Scopes};

/// What the manager waits at the most when the host goes down, milliseconds.
const STOP_MAX_MS: i64 = 90_000;

/// What makes scopes, where this daemon does.
#[derive(Clone, Debug)]
pub struct ScopeMaker {
    /// The manager.
    pub scopes: Scopes,
    /// What the kernel says.
    pub cgroups: HostCgroups,
    /// Whether journald, which reads what the system's manager leaves it, is told whose lines they are.
    pub tells_journal: bool,
}

/// A scope that a run asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    scope: Scope,
    task: TaskId,
    run: RunId,
}

impl Wanted {
    /// What this start asks for; the grace is what the run's own stop would give.
    pub fn of(start: &Start, stop_grace_ms: i64) -> Self {
        let scope = Scope {
            unit: unit::scope(start.task, start.run, &start.nonce),
            slice: unit::slice(&start.queue),
            // Everybody may list units: a title stays with those who may see the task.
            description: format!("Task {} of tenured, run {}", start.task, start.run),
            stop_usec: stop_grace_ms.clamp(0, STOP_MAX_MS).unsigned_abs() * 1_000,
            resources: start.spec.program.resources.clone(),
        };
        Self { scope, task: start.task, run: start.run }
    }

    /// Its unit.
    pub fn unit(&self) -> &str {
        &self.scope.unit
    }
}

impl ScopeMaker {
    /// Puts a run that waits at its gate into its scope.
    ///
    /// # Errors
    /// [`NoScope`]; the gate must stay shut.
    pub async fn make(&self, wanted: &Wanted, launched: &Launched) -> Result<Unit, NoScope> {
        let handles = [&launched.command.handle, &launched.supervisor.handle];
        if self.tells_journal {
            journal_fields::write(&wanted.scope.unit, wanted.task, wanted.run);
        }
        let members =
            handles.map(|handle| Member { pid: handle.pid(), fd: std::os::fd::AsFd::as_fd(handle) });
        let unit = wanted.scope.unit.as_str();
        let is_in = || handles.iter().all(|handle| self.is_in(handle, unit));
        self.scopes.start(&wanted.scope, &members, is_in).await?;
        self.verified(wanted, handles).await
    }

    fn is_in(&self, process: &PidFd, unit: &str) -> bool {
        self.cgroups.path_of(process).is_ok_and(|path| path.rsplit('/').next() == Some(unit))
    }

    /// The cgroup that both are in, with its id and the unit's invocation.
    async fn verified(&self, wanted: &Wanted, handles: [&PidFd; 2]) -> Result<Unit, NoScope> {
        let host = |error: std::io::Error| NoScope::Host(format!("its cgroup cannot be seen: {error}"));
        let unit = wanted.scope.unit.as_str();
        let path = self.cgroups.path_of(handles[0]).map_err(host)?;
        let found = self.cgroups.find(&path).map_err(host)?;
        let asked = wanted.scope.resources.keys().copied();
        if let Some(resource) = self.cgroups.not_kept(&path, asked).map_err(host)?.first() {
            return Err(NoScope::Refused(not_kept(*resource)));
        }
        let invocation = match found.invocation {
            Some(invocation) => invocation,
            None => self.scopes.invocation(unit).await?,
        };
        // Once more, after the last look at the cgroup: what was seen of it is theirs.
        if !handles.iter().all(|handle| self.cgroups.path_of(handle).is_ok_and(|now| now == path)) {
            return Err(NoScope::Host("its processes left it at once".to_owned()));
        }
        let cgroup = Cgroup { path, id: found.id, invocation };
        Ok(Unit { name: unit.to_owned(), cgroup })
    }

    /// Takes back what journald was told of a run that is over.
    pub fn forget(&self, task: TaskId, run: RunId, nonce: &Nonce) {
        if self.tells_journal {
            journal_fields::remove(&unit::scope(task, run, nonce));
        }
    }
}

fn not_kept(resource: Resource) -> String {
    format!(
        "{} is not kept on this host: the cgroup controller it needs is not enabled; leave it out, or enable the controller",
        resource.word()
    )
}
