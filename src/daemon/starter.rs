//! From a claim to an open gate: makes the child, makes its identity durable, opens the gate.
//!
//! One task a start, so that a slow one holds up no other. The gate is opened only after the identity is
//! committed, and the commit says that no stop was asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::{Epoch, Fingerprint, Looked, Stored};
use crate::core::ids::{RunId, Uid};
use crate::core::limits;
use crate::core::spec::{Launch, Output, Resource};
use crate::core::state_dir::StateDir;
use crate::daemon::kept;
use crate::daemon::scoped::{ScopeMaker, Wanted};
use crate::linux::account::{self, Account, NoAccount};
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::spawn::{
    Begun, Credentials, LaunchError, LaunchSpec, Launched, Launcher, Member, OutputTo, begin, launch,
};
use crate::ports::Held as _;
use crate::service::desk::Desk;
use crate::store::start::{self, Identity, Start, Unit};
use crate::systemd::fd_store::{FdStore, Whose};
use crate::systemd::scopes::NoScope;

/// What a start needs of the daemon.
#[derive(Clone)]
pub struct Starter {
    /// The use cases.
    pub desk: Desk,
    /// What makes the child.
    pub launcher: Arc<Launcher>,
    /// Where records and output go.
    pub state: StateDir,
    /// The uid of the daemon.
    pub own_uid: Uid,
    /// What the worker's own client is to talk to.
    pub bus_address: String,
    /// This boot.
    pub epoch: Epoch,
    /// What makes scopes, where systemd is the manager.
    pub scopes: Option<ScopeMaker>,
    /// Whether there is a journal for the output of workers.
    pub has_journal: bool,
    /// Where the service manager keeps their pidfds.
    pub kept: FdStore,
}

/// A process of a run, held, and what proves it.
pub type Proven = (Arc<PidFd>, Stored);

/// What became of a start.
#[derive(Debug)]
pub enum Started {
    /// The gate is open.
    Running {
        /// The command.
        worker: Proven,
        /// Its parent.
        supervisor: Proven,
    },
    /// The gate stays shut: the run is no longer open, or a stop was asked, or its identity could not be
    /// made durable. The child ends by itself.
    Shut {
        /// The command.
        worker: Proven,
        /// Its parent.
        supervisor: Proven,
    },
    /// There is no child, and the board knows.
    Nothing,
}

/// What makes a scope, and which.
type Scoped<'own> = (&'own ScopeMaker, Wanted);

/// Why there is no child.
enum Failed {
    /// The task's matter.
    Task(String),
    /// The task's matter: something of its own does not answer.
    Hung(String),
    /// The host's matter.
    Host(String),
    /// Nobody's: the bus is away, and with it the way to systemd, or the daemon ends.
    NotNow(String),
}

impl Starter {
    /// Starts one claim.
    pub async fn start(&self, start: Start) -> Started {
        let (run, nonce) = (start.run, start.nonce.clone());
        let made = match self.scope_of(&start) {
            Ok(scope) => self.make(start, scope).await,
            Err(failed) => Err(failed),
        };
        let (uid, launched, unit) = match made {
            Ok(made) => made,
            Err(failed) => return self.not_started(run, failed).await,
        };
        let worker = self.proven(launched.command);
        let supervisor = self.proven(launched.supervisor);
        match self.identify(run, &worker, &supervisor, uid, unit).await {
            Ok(true) => {}
            Ok(false) => return Started::Shut { worker, supervisor },
            Err(error) => {
                tracing::warn!(TENURED_RUN = run.get(), error = %error, "the worker's identity is not durable; the gate stays shut");
                return Started::Shut { worker, supervisor };
            }
        }
        self.desk.set_degraded("launch", false);
        let parts = [(Whose::Worker, &*worker.0), (Whose::Supervisor, &*supervisor.0)];
        kept::keep(&self.kept, run, &nonce, parts);
        if let Err(error) = launched.gate.open() {
            // Child and gate are gone together; its record says that nothing ran.
            tracing::warn!(TENURED_RUN = run.get(), %error, "the gate could not be opened; the run ends as not started");
        }
        Started::Running { worker, supervisor }
    }

    /// Up to the gate. Where it has a scope, the supervisor is put there first, and the command is born in it.
    async fn make(
        &self,
        start: Start,
        scope: Option<Scoped<'_>>,
    ) -> Result<(Uid, Launched, Option<Unit>), Failed> {
        let Some((maker, wanted)) = scope else {
            let (uid, launched) = self.apart(move |starter| starter.launch_here(start)).await?;
            return Ok((uid, launched, None));
        };
        let is_limited = !start.spec.program.resources.is_empty();
        let for_spec = wanted.clone();
        let (uid, begun) = self.apart(move |starter| starter.begin_here(start, &for_spec)).await?;
        let unit = match maker.make(&wanted, &begun.supervisor().handle).await {
            Ok(unit) => unit,
            Err(no_scope) => {
                self.give_up(move |host| begun.abandon(host)).await;
                return Err(without_scope(&no_scope));
            }
        };
        let launched = self
            .apart(move |starter| begun.bring_to_gate(starter.launcher.host()).map_err(failed_launch))
            .await;
        let launched = launched.map_err(|failed| match failed {
            // Within limits of its own that is most likely their doing; it must not hold up all others.
            Failed::Host(why) if is_limited => Failed::Hung(why),
            other => other,
        })?;
        if let Err(no_scope) = maker.holds(&unit, [&launched.supervisor.handle, &launched.command.handle]) {
            self.give_up(move |host| launched.abandon(host)).await;
            return Err(without_scope(&no_scope));
        }
        Ok((uid, launched, Some(unit)))
    }

    /// The name service and the child are waited for where that holds up nobody else.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let starter = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&starter)).await;
        done.unwrap_or_else(|error| Err(Failed::Host(in_full(&error))))
    }

    /// Nothing is stopped by name: the gate closes, and what waits there ends by itself.
    async fn give_up(&self, abandon: impl FnOnce(&HostProcesses) -> std::io::Result<()> + Send + 'static) {
        let launcher = Arc::clone(&self.launcher);
        let abandoned = tokio::task::spawn_blocking(move || abandon(launcher.host())).await;
        let error = match abandoned {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(error, "a start that was given up has not ended yet; its gate is closed for good");
    }

    /// The scope that the task asks for, or that this daemon gives by itself.
    fn scope_of(&self, start: &Start) -> Result<Option<Scoped<'_>>, Failed> {
        let program = &start.spec.program;
        let policy = self.desk.policy();
        let maker = match (program.launch.unwrap_or(policy.launch), &self.scopes) {
            (Launch::Scope, None) => return Err(Failed::Task(NO_SCOPES.to_owned())),
            (Launch::Direct, _) | (Launch::Auto, None) => {
                return match program.resources.keys().next() {
                    Some(resource) => Err(Failed::Task(no_cgroup(*resource))),
                    None => Ok(None),
                };
            }
            (Launch::Scope | Launch::Auto, Some(maker)) => maker,
        };
        let grace_ms = start.spec.stop_grace_ms.unwrap_or(policy.stop_grace_ms);
        Ok(Some((maker, Wanted::of(start, grace_ms))))
    }

    /// The daemon ends: what does not wait at its gate yet is left to the next one.
    pub fn leave(&self) {
        if let Some(maker) = &self.scopes {
            maker.scopes.leave();
        }
    }

    /// Whether what is started by default can be started now.
    pub fn can_start(&self) -> bool {
        let is_direct = self.desk.policy().launch == Launch::Direct;
        self.scopes.as_ref().is_none_or(|maker| is_direct || maker.scopes.is_there())
    }

    fn launch_here(&self, start: Start) -> Result<(Uid, Launched), Failed> {
        let spec = self.launch_spec(start, None)?;
        let launched = launch(&self.launcher, &spec).map_err(failed_launch)?;
        Ok((self.uid_of(&spec), launched))
    }

    fn begin_here(&self, start: Start, scope: &Wanted) -> Result<(Uid, Begun), Failed> {
        let spec = self.launch_spec(start, Some(scope))?;
        let begun = begin(&self.launcher, &spec).map_err(failed_launch)?;
        Ok((self.uid_of(&spec), begun))
    }

    fn uid_of(&self, spec: &LaunchSpec) -> Uid {
        spec.credentials.as_ref().map_or(self.own_uid, |credentials| credentials.uid)
    }

    fn proven(&self, member: Member) -> Proven {
        let stored = match member.looked {
            Looked::Present { start_ticks, inode } => {
                Stored::Proven(Fingerprint { epoch: self.epoch.clone(), start_ticks, inode })
            }
            Looked::Gone | Looked::Unknown => Stored::Unverified,
        };
        (Arc::new(member.handle), stored)
    }

    async fn identify(
        &self,
        run: RunId,
        worker: &Proven,
        supervisor: &Proven,
        uid: Uid,
        unit: Option<Unit>,
    ) -> Result<bool, Error> {
        if !matches!((&worker.1, &supervisor.1), (Stored::Proven(_), Stored::Proven(_))) {
            return Ok(false);
        }
        let when = self.desk.when();
        let identity = Identity {
            worker_pid: i64::from(worker.0.pid().get()),
            worker: worker.1.clone(),
            supervisor_pid: i64::from(supervisor.0.pid().get()),
            supervisor: supervisor.1.clone(),
            uid,
            unit,
        };
        let work = move |tx: &mut crate::store::Tx<'_>| {
            let open = start::identify(tx, run, &identity, &when)?;
            if open {
                start::opened(tx, run, &when)?;
            }
            Ok(open)
        };
        self.desk.store().write("a worker's identity", work).await
    }

    async fn not_started(&self, run: RunId, failed: Failed) -> Started {
        if matches!(failed, Failed::Host(_)) {
            // Until one start succeeds; the log and the run say what it is.
            self.desk.set_degraded("launch", true);
        }
        let when = self.desk.when();
        let work = move |tx: &mut crate::store::Tx<'_>| match &failed {
            Failed::Task(why) => start::not_started(tx, run, why, false, &when),
            Failed::Hung(why) => start::hung(tx, run, why, &when),
            Failed::Host(why) => start::not_started(tx, run, why, true, &when),
            Failed::NotNow(why) => start::not_now(tx, run, why, &when),
        };
        if let Err(error) = self.desk.store().write_end("a start that failed", work).await {
            tracing::error!(TENURED_RUN = run.get(), error = %in_full(&error), "cannot record a failed start; the next sweep will");
        }
        Started::Nothing
    }

    fn launch_spec(&self, start: Start, scope: Option<&Wanted>) -> Result<LaunchSpec, Failed> {
        let program = &start.spec.program;
        let output = self.output(&start, scope)?;
        let account = account::find(start.owner_uid, program.user.as_deref(), program.group.as_deref());
        let account = account.map_err(|error| match error {
            NoAccount::User(_) | NoAccount::Group(_) => Failed::Task(error.to_string()),
            NoAccount::Io(_) => Failed::Host(in_full(&error)),
        })?;
        if self.own_uid != 0 && account.uid != self.own_uid {
            return Err(Failed::Task(format!("only root may run a command as {}", account.name)));
        }
        let environment = self.environment(&start, &account);
        let credentials = (self.own_uid == 0).then(|| Credentials {
            uid: account.uid,
            gid: account.gid,
            groups: account.groups.clone(),
        });
        Ok(LaunchSpec {
            run: start.run,
            environment,
            credentials,
            working_directory: program.working_directory.clone().unwrap_or_else(|| "/".to_owned()).into(),
            stdin: program.stdin.clone().map(Into::into),
            nice: program.nice,
            no_new_privileges: false,
            record: self.state.record(start.run, &start.nonce),
            output,
            argv: start.spec.program.command,
            nonce: start.nonce,
        })
    }

    /// To the journal from a scope, where its lines are found by the unit; to a file from elsewhere.
    fn output(&self, start: &Start, scope: Option<&Wanted>) -> Result<OutputTo, Failed> {
        let by_itself = if scope.is_some() && self.has_journal { Output::Journal } else { Output::File };
        Ok(match start.spec.program.output.unwrap_or(by_itself) {
            Output::Journal if !self.has_journal => return Err(Failed::Task(NO_JOURNAL.to_owned())),
            Output::Journal => OutputTo::Journal {
                identifier: format!("tenured-{}", start.task),
                unit: scope.map(|scope| scope.unit().to_owned()),
            },
            Output::File => {
                OutputTo::File { path: self.state.output(start.run), cap_bytes: limits::OUTPUT_FILE_BYTES }
            }
        })
    }

    /// A clean environment; nothing of the daemon's own gets through. The task's own entries win over the
    /// account's, and the daemon's over both.
    fn environment(&self, start: &Start, account: &Account) -> Vec<String> {
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |key: &str, value: &str| {
            variables.insert(key.to_owned(), value.to_owned());
        };
        set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        set("HOME", &account.home);
        set("USER", &account.name);
        set("LOGNAME", &account.name);
        set("SHELL", &account.shell);
        set("LANG", "C.UTF-8");
        for entry in &start.spec.program.environment {
            if let Some((key, value)) = entry.split_once('=') {
                set(key, value);
            }
        }
        set("TENURED_TASK", &start.task.to_string());
        set("TENURED_RUN", &start.run.to_string());
        set("TENURED_NONCE", start.nonce.as_str());
        set("TENURED_ATTEMPT", &start.attempt.to_string());
        set("TENURED_QUEUE", &start.queue);
        set("TENURED_BUS_ADDRESS", &self.bus_address);
        for (slot, units) in &start.slots {
            set(&slot_variable(slot), &units.join(","));
        }
        variables.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}

fn failed_launch(error: LaunchError) -> Failed {
    match error {
        LaunchError::Setup { .. } => Failed::Task(in_full(&error)),
        LaunchError::Hung => Failed::Hung(in_full(&error)),
        LaunchError::Host { .. } => Failed::Host(in_full(&error)),
    }
}

fn without_scope(why: &NoScope) -> Failed {
    match why {
        NoScope::Refused(_) => Failed::Task(why.to_string()),
        NoScope::BusLost | NoScope::Leaving => Failed::NotNow(why.to_string()),
        NoScope::Host(_) => Failed::Host(why.to_string()),
    }
}

const NO_SCOPES: &str = "this daemon starts no scopes, since systemd is not the manager it could ask on its bus; use Launch=direct or Launch=auto";
const NO_JOURNAL: &str = "there is no journal on this host; use Output=file";

fn no_cgroup(resource: Resource) -> String {
    format!(
        "{} needs a cgroup, and a direct launch has none; use Launch=scope on a host with systemd",
        resource.word()
    )
}

/// `TENURED_SLOT_GPU` for `gpu`: what a shell can read.
fn slot_variable(slot: &str) -> String {
    let readable = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("TENURED_SLOT_{}", slot.chars().map(readable).collect::<String>())
}

/// An error with everything that caused it, on one line.
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A fault of the host, for the log.
pub fn host_fault(doing: &'static str, source: std::io::Error) -> Error {
    Error::Fault(Fault::Host { doing, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_a_name_that_a_shell_can_read() {
        assert_eq!(slot_variable("gpu"), "TENURED_SLOT_GPU");
        assert_eq!(slot_variable("a-b.c"), "TENURED_SLOT_A_B_C");
    }
}
