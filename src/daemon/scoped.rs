//! The scope of a run: made around its supervisor, so that the command is born in it, and seen to hold both
//! before the gate opens.
//!
//! Nothing here is believed because the manager says so: the processes are looked up in the kernel, by
//! handles that are held, and the cgroup is stored with the kernel's own id of it.

use std::os::fd::AsFd as _;

use crate::core::ids::{RunId, TaskId};
use crate::core::row::Cgroup;
use crate::core::spec::Resource;
use crate::core::unit;
use crate::linux::cgroup::HostCgroups;
use crate::linux::pidfd::PidFd;
use crate::ports::Held as _;
use crate::store::start::{Start, Unit};
use crate::systemd::journal_fields;
use crate::systemd::scopes::{Member, NoScope, Place, Scope, Scopes};

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
    /// Puts the supervisor of a run into the run's scope.
    ///
    /// # Errors
    /// [`NoScope`]; there must be no command then.
    pub async fn make(&self, wanted: &Wanted, supervisor: &PidFd) -> Result<Unit, NoScope> {
        let unit = wanted.scope.unit.as_str();
        if self.tells_journal {
            journal_fields::write(unit, wanted.task, wanted.run);
        }
        let member = Member { pid: supervisor.pid(), fd: supervisor.as_fd() };
        let look = || match self.cgroups.path_of(supervisor) {
            Ok(path) if last(&path) == unit => Place::There,
            Ok(_) => Place::Elsewhere,
            Err(_) => match supervisor.has_ended() {
                Ok(true) => Place::Gone,
                Ok(false) | Err(_) => Place::Elsewhere,
            },
        };
        self.scopes.start(&wanted.scope, member, look).await?;
        self.seen(wanted, supervisor).await
    }

    /// The cgroup that it is in, with its id and the unit's invocation.
    async fn seen(&self, wanted: &Wanted, supervisor: &PidFd) -> Result<Unit, NoScope> {
        let unit = wanted.scope.unit.as_str();
        let path = self.cgroups.path_of(supervisor).map_err(unseen)?;
        let found = self.cgroups.find(&path).map_err(unseen)?;
        let asked = wanted.scope.resources.keys().copied();
        if let Some(resource) = self.cgroups.not_kept(&path, asked).map_err(unseen)?.first() {
            return Err(NoScope::Refused(not_kept(*resource)));
        }
        let invocation = match found.invocation {
            Some(invocation) => invocation,
            None => self.scopes.invocation(unit).await?,
        };
        Ok(Unit { name: unit.to_owned(), cgroup: Cgroup { path, id: found.id, invocation } })
    }

    /// Whether both are in the very cgroup that was seen: then what was seen of it is theirs.
    ///
    /// # Errors
    /// [`NoScope::Host`] where they are not, or cannot be seen.
    pub fn holds(&self, unit: &Unit, handles: [&PidFd; 2]) -> Result<(), NoScope> {
        for handle in handles {
            if self.cgroups.path_of(handle).map_err(unseen)? != unit.cgroup.path {
                return Err(NoScope::Host("one of its processes has left it".to_owned()));
            }
        }
        Ok(())
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn unseen(error: std::io::Error) -> NoScope {
    NoScope::Host(format!("its cgroup cannot be seen: {error}"))
}

fn not_kept(resource: Resource) -> String {
    format!(
        "{} is not kept on this host: the cgroup controller it needs is not enabled; leave it out, or enable the controller",
        resource.word()
    )
}
