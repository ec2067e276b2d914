//! Transient scopes: asks the service manager to put processes that wait at their gate into a unit of
//! their own.
//!
//! Owns one connection to the manager's bus and its JobRemoved signals; always drained, since an unpolled
//! stream holds up every call of its connection. A job's result only wakes the one who waits: whether the
//! processes are in their scope is for the kernel to say, because a job is called done for zombies too, and
//! a manager that is executed anew in the middle forgets to answer. Never stops, kills or resets a unit.
//!
//! Source: org.freedesktop.systemd1(5) StartTransientUnit, JobRemoved; systemd.resource-control(5). Of the
//! abilities that came later than systemd 252 each is tried, and left out where it is refused by name.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use zbus::connection::Builder;
use zbus::fdo::DBusProxy;
use zbus::{Connection, DBusError as _, Fd, MatchRule, MessageStream, OwnedObjectPath, Variant};

use crate::core::ids::Pid;
use crate::core::spec::Resource;

const MANAGER: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER_INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const JOB_INTERFACE: &str = "org.freedesktop.systemd1.Job";

/// How long the manager may take from the call until the processes are in their scope.
const START: Duration = Duration::from_secs(10);
/// How long the bus may take to let us in.
const CONNECT: Duration = Duration::from_secs(10);
/// Between two looks at the processes while the manager has not said anything.
const LOOK: Duration = Duration::from_millis(100);
/// Without news the call is made again after this; a second unit of one name cannot be made.
const ASK_AGAIN: Duration = Duration::from_millis(1_000);
/// First and longest pause before the bus is tried again.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a job may take to be taken back.
const CANCEL: Duration = Duration::from_secs(1);
/// How long the manager may take to tell a unit's invocation.
const INVOCATION: Duration = Duration::from_secs(3);
/// Signals that wait for us at most; the bus holds what is more.
const SIGNALS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);

/// A scope to be made.
#[derive(Clone, Debug)]
pub struct Scope {
    /// A name that never comes again.
    pub unit: String,
    /// The slice it is in.
    pub slice: String,
    /// A line for people.
    pub description: String,
    /// How long the manager waits between TERM and KILL when the host goes down, microseconds.
    pub stop_usec: u64,
    /// Its limits, under systemd's names and units.
    pub resources: BTreeMap<Resource, u64>,
}

/// A process for the scope: its number, and what holds it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'fd> {
    /// Its number, for a manager that knows no pidfds.
    pub pid: Pid,
    /// Its pidfd.
    pub fd: BorrowedFd<'fd>,
}

/// Where a process was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its scope.
    There,
    /// Not yet, or that cannot be seen.
    Elsewhere,
    /// Nowhere: it has ended.
    Gone,
}

/// Why there is no scope.
#[derive(Debug, thiserror::Error)]
pub enum NoScope {
    /// What the task asks for is refused by the manager; the task's own matter.
    #[error("systemd refuses the scope: {0}")]
    Refused(String),
    /// The bus is away: nothing can be started until it is back.
    #[error("the bus is away, and with it the way to systemd")]
    BusLost,
    /// The daemon ends: the manager makes no scope that is ordered after a unit while that is stopped.
    #[error("the daemon ends; the next one starts it")]
    Leaving,
    /// The host's matter.
    #[error("systemd did not make the scope: {0}")]
    Host(String),
}

/// What a manager lacks, as one call takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lacks {
    pidfds: bool,
    oom_policy: bool,
}

/// Abilities that an older manager may not have, as far as it was tried.
#[derive(Debug, Default)]
struct Lacking {
    /// `PIDFDs` of a scope; since 255.
    pidfds: AtomicBool,
    /// `OOMPolicy` of a scope; since 253.
    oom_policy: AtomicBool,
}

impl Lacking {
    fn now(&self) -> Lacks {
        let lacks = |ability: &AtomicBool| ability.load(Ordering::Acquire);
        Lacks { pidfds: lacks(&self.pidfds), oom_policy: lacks(&self.oom_policy) }
    }

    /// Leaves out from now on what a call, made with the rest, was refused for by name; says whether that is
    /// something it can do without.
    fn learns(&self, made: Lacks, refusal: &str) -> bool {
        let abilities =
            [("PIDFDs", made.pidfds, &self.pidfds), ("OOMPolicy", made.oom_policy, &self.oom_policy)];
        let refused = abilities.into_iter().find(|(name, left_out, _)| !left_out && refusal.contains(name));
        refused.inspect(|(_, _, ability)| ability.store(true, Ordering::Release)).is_some()
    }
}

#[derive(Debug)]
struct Inner {
    address: String,
    /// Our own unit: scopes are ordered after it, so that a shutdown ends them first.
    own_unit: Option<String>,
    /// Whether the manager knows us as ready: until then a job that is ordered after us would wait for ever.
    is_ready: AtomicBool,
    is_leaving: AtomicBool,
    lacking: Lacking,
    waiting: Mutex<HashMap<String, Arc<Waiter>>>,
    link: watch::Sender<Option<Connection>>,
}

/// Who waits for the job of one unit.
#[derive(Debug, Default)]
struct Waiter {
    result: Mutex<Option<String>>,
    woken: Notify,
}

impl Waiter {
    fn result(&self) -> Option<String> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Scopes {
    inner: Arc<Inner>,
}

/// What was found on the bus at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// It is there.
    There,
    /// The bus is there, and no manager on it.
    Absent,
    /// The bus could not be asked.
    Unknown,
}

impl Scopes {
    /// By the manager on the bus at this address.
    pub fn new(address: String, own_unit: Option<String>) -> Self {
        let inner = Inner {
            address,
            own_unit,
            is_ready: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            lacking: Lacking::default(),
            waiting: Mutex::default(),
            link: watch::Sender::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Looks whether there is a manager, and keeps the connection for [`Scopes::stay`].
    pub async fn look(&self) -> Manager {
        let Ok(Ok(connection)) = timeout(CONNECT, self.connect()).await else {
            return Manager::Unknown;
        };
        let owned = async {
            let bus = DBusProxy::new(&connection).await?;
            // A user's bus that our own connection has started: the manager comes to it a moment later, and
            // the bus waits for it when asked for its name. Where there is no manager, nobody comes.
            let called = bus.start_service_by_name(MANAGER.try_into()?, 0);
            let came = timeout(CONNECT, called).await.is_ok_and(|called| called.is_ok());
            if came {
                return Ok(true);
            }
            bus.name_has_owner(MANAGER.try_into()?).await.map_err(zbus::Error::from)
        };
        match owned.await {
            Ok(true) => {
                self.inner.link.send_replace(Some(connection));
                Manager::There
            }
            Ok(false) => Manager::Absent,
            Err(_) => Manager::Unknown,
        }
    }

    /// The manager knows from now on that the daemon is ready.
    pub fn ready(&self) {
        self.inner.is_ready.store(true, Ordering::Release);
    }

    /// The daemon ends: whoever still waits for a scope gives up.
    pub fn leave(&self) {
        self.inner.is_leaving.store(true, Ordering::Release);
        for waiter in self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner).values() {
            waiter.woken.notify_one();
        }
    }

    /// Whether scopes can be made now.
    pub fn is_there(&self) -> bool {
        self.inner.link.borrow().is_some()
    }

    /// Calls `back` whenever the way to the manager is there again; never returns.
    pub async fn on_return(self, back: impl Fn()) {
        let mut link = self.inner.link.subscribe();
        while link.changed().await.is_ok() {
            if link.borrow_and_update().is_some() {
                back();
            }
        }
    }

    async fn connect(&self) -> zbus::Result<Connection> {
        Builder::address(self.inner.address.as_str()).method_timeout(START).build().await
    }

    /// Keeps the connection, and makes it anew whenever it is lost; never returns.
    pub async fn stay(self) {
        let mut pause = PAUSE;
        loop {
            let kept = self.inner.link.borrow().clone();
            let connection = match kept {
                Some(connection) => Ok(connection),
                None => match timeout(CONNECT, self.connect()).await {
                    Ok(made) => made,
                    Err(_) => Err(zbus::Error::Failure("it does not answer".to_owned())),
                },
            };
            let ended = match connection {
                Ok(connection) => self.follow(connection).await,
                Err(error) => Err(error),
            };
            if self.inner.link.send_replace(None).is_some() {
                pause = PAUSE;
                let why = ended.err().map_or_else(|| "it was closed".to_owned(), |error| error.to_string());
                tracing::warn!(
                    why,
                    "lost the bus to systemd; no scope is started until it is back, what runs is looked after"
                );
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Hands the results of jobs to those who wait, until the connection ends.
    async fn follow(&self, connection: Connection) -> zbus::Result<()> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender(MANAGER)
            .interface(MANAGER_INTERFACE)
            .member("JobRemoved")
            .build()?;
        let mut signals = MessageStream::for_match_rule(rule, &connection, Some(SIGNALS)).await?;
        self.inner.link.send_replace(Some(connection));
        while let Some(signal) = signals.next().await {
            let signal = signal?;
            let body = signal.body();
            // The id, the path of the job, the unit, the result.
            if let Ok((_, _, unit, result)) = body.deserialize::<(u32, zbus::ObjectPath<'_>, &str, &str)>() {
                self.tell(unit, result);
            }
        }
        Ok(())
    }

    fn tell(&self, unit: &str, result: &str) {
        let waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiter) = waiting.get(unit) {
            *waiter.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.to_owned());
            waiter.woken.notify_one();
        }
    }

    /// Makes a scope around a process, and returns once `look` says that it is there.
    ///
    /// # Errors
    /// [`NoScope`]. The scope may have been made all the same: it is empty once its process has ended, and
    /// the manager forgets it then. What it has not begun by then is taken back.
    pub async fn start(
        &self,
        scope: &Scope,
        member: Member<'_>,
        look: impl Fn() -> Place + Send,
    ) -> Result<(), NoScope> {
        let waiter = Arc::new(Waiter::default());
        let waits = Waits { inner: &self.inner, unit: &scope.unit };
        waits.register(&waiter);
        let mut job = None;
        let made = self.start_with(scope, member, look, &waiter, &mut job).await;
        if let (Err(_), Some(job)) = (&made, job) {
            // It may wait for something, and the number that it was given will be another process' one day.
            self.cancel(&job).await;
        }
        made
    }

    async fn start_with(
        &self,
        scope: &Scope,
        member: Member<'_>,
        look: impl Fn() -> Place + Send,
        waiter: &Waiter,
        job: &mut Option<OwnedObjectPath>,
    ) -> Result<(), NoScope> {
        let deadline = Instant::now() + START;
        let mut asked: Option<Instant> = None;
        loop {
            // Looked at each time before its number is told to anybody: only while it lives is that its own.
            match look() {
                Place::There => return Ok(()),
                Place::Gone => return Err(NoScope::Host("its supervisor has ended".to_owned())),
                Place::Elsewhere => {}
            }
            if self.inner.is_leaving.load(Ordering::Acquire) {
                return Err(NoScope::Leaving);
            }
            if let Some(result) = waiter.result()
                && result != "done"
            {
                return Err(NoScope::Host(format!("its job ended as {result}")));
            }
            if Instant::now() >= deadline {
                let is_away = self.inner.link.borrow().is_none();
                let late = NoScope::Host(format!("not within {} s", START.as_secs()));
                return Err(if is_away { NoScope::BusLost } else { late });
            }
            // A manager that is executed anew may have forgotten what it was asked, and whom to tell: a unit
            // that is still there is not made twice.
            if asked.is_none_or(|at| at.elapsed() >= ASK_AGAIN) {
                let first = asked.replace(Instant::now()).is_none();
                tokio::select! {
                    answered = timeout_at(deadline, self.ask(scope, member)) => match answered {
                        Ok(Ok(made)) => *job = made.or_else(|| job.take()),
                        Ok(Err(NoScope::BusLost)) if !first => {}
                        Ok(Err(refused)) => return Err(refused),
                        Err(_late) => {}
                    },
                    // The job's end may come before the answer to the call; or the daemon ends.
                    () = waiter.woken.notified() => continue,
                }
            }
            // A result that comes late is no loss: the process is looked at anyway.
            let _ = timeout_at(deadline.min(Instant::now() + LOOK), waiter.woken.notified()).await;
        }
    }

    /// Takes back a job; one that has ended needs it no more.
    async fn cancel(&self, job: &OwnedObjectPath) {
        let Some(connection) = self.inner.link.borrow().clone() else { return };
        let call = connection.call_method(Some(MANAGER), job, Some(JOB_INTERFACE), "Cancel", &());
        let _ = timeout(CANCEL, call).await;
    }

    /// Asks once, and says which job it was given; that the answer was lost, or that the unit is there already,
    /// is no error.
    async fn ask(&self, scope: &Scope, member: Member<'_>) -> Result<Option<OwnedObjectPath>, NoScope> {
        loop {
            let Some(connection) = self.inner.link.borrow().clone() else {
                return Err(NoScope::BusLost);
            };
            let lacks = self.inner.lacking.now();
            let properties = self.properties(scope, member, lacks);
            let aux: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let body = (scope.unit.as_str(), "fail", properties, aux);
            let call = connection.call_method(
                Some(MANAGER),
                MANAGER_PATH,
                Some(MANAGER_INTERFACE),
                "StartTransientUnit",
                &body,
            );
            let error = match call.await {
                Ok(reply) => return Ok(reply.body().deserialize().ok()),
                Err(error) => error,
            };
            match Refusal::of(&error) {
                Refusal::Unanswered | Refusal::Exists => return Ok(None),
                Refusal::Property(text) if self.inner.lacking.learns(lacks, &text) => {}
                Refusal::Property(text) => return Err(NoScope::Refused(text)),
                Refusal::Other(text) => return Err(NoScope::Host(text)),
            }
        }
    }

    fn properties<'v>(
        &self,
        scope: &'v Scope,
        member: Member<'v>,
        lacks: Lacks,
    ) -> Vec<(&'static str, Variant<'v>)> {
        let mut properties: Vec<(&'static str, Variant<'v>)> = vec![
            ("Description", Variant::from(scope.description.as_str())),
            ("Slice", Variant::from(scope.slice.as_str())),
            ("CollectMode", Variant::from("inactive-or-failed")),
            ("TimeoutStopUSec", Variant::from(scope.stop_usec)),
        ];
        if lacks.pidfds {
            properties.push(("PIDs", Variant::from(vec![member.pid.get().unsigned_abs()])));
        } else {
            properties.push(("PIDFDs", Variant::from(vec![Fd::from(member.fd)])));
        }
        if !lacks.oom_policy {
            // The kernel's kill is the worker's end; the manager's stop would take its supervisor too.
            properties.push(("OOMPolicy", Variant::from("continue")));
        }
        if let Some(unit) =
            self.inner.own_unit.as_ref().filter(|_| self.inner.is_ready.load(Ordering::Acquire))
        {
            properties.push(("After", Variant::from(vec![unit.clone()])));
        }
        properties.extend(scope.resources.iter().map(|(name, value)| (name.word(), Variant::from(*value))));
        properties
    }

    /// The InvocationID of a unit, hexadecimal, where the manager does not write it on the cgroup.
    ///
    /// # Errors
    /// [`NoScope`].
    pub async fn invocation(&self, unit: &str) -> Result<String, NoScope> {
        if let Some(invocation) = linked_invocation(unit) {
            return Ok(invocation);
        }
        let deadline = Instant::now() + INVOCATION;
        loop {
            let Some(connection) = self.inner.link.borrow().clone() else {
                return Err(NoScope::BusLost);
            };
            match ask_invocation(&connection, unit).await {
                Ok(bytes) if bytes.is_empty() => {
                    return Err(NoScope::Host(format!("{unit} has no invocation")));
                }
                Ok(bytes) => return Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
                Err(error) if Refusal::of(&error) == Refusal::Unanswered && Instant::now() < deadline => {
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => return Err(NoScope::Host(error.to_string())),
            }
        }
    }
}

/// What the system's manager leaves for journald; a user's manager leaves it elsewhere. Source: systemd
/// src/core/unit.c, unit_export_invocation_id().
fn linked_invocation(unit: &str) -> Option<String> {
    let link = rustix::fs::readlink(format!("/run/systemd/units/invocation:{unit}"), Vec::new()).ok()?;
    let text = link.into_string().ok()?;
    (text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(text)
}

async fn ask_invocation(connection: &Connection, unit: &str) -> zbus::Result<Vec<u8>> {
    let reply = connection
        .call_method(Some(MANAGER), MANAGER_PATH, Some(MANAGER_INTERFACE), "GetUnit", &unit)
        .await?;
    let body = reply.body();
    let path: zbus::ObjectPath<'_> = body.deserialize()?;
    let name = ("org.freedesktop.systemd1.Unit", "InvocationID");
    let properties = Some("org.freedesktop.DBus.Properties");
    let reply = connection.call_method(Some(MANAGER), &path, properties, "Get", &name).await?;
    let body = reply.body();
    let value: Variant<'_> = body.deserialize()?;
    Vec::<u8>::try_from(value)
}

/// One who waits, until it is dropped.
struct Waits<'own> {
    inner: &'own Inner,
    unit: &'own str,
}

impl Waits<'_> {
    fn register(&self, waiter: &Arc<Waiter>) {
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(self.unit.to_owned(), Arc::clone(waiter));
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(self.unit);
    }
}

/// What an error of StartTransientUnit means.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// The manager may have heard it: it went away, or was executed anew.
    Unanswered,
    /// There is a unit of this name: an earlier call was heard.
    Exists,
    /// A property is unknown, or its value is.
    Property(String),
    /// Anything else.
    Other(String),
}

impl Refusal {
    fn of(error: &zbus::Error) -> Self {
        let (name, text) = match error {
            zbus::Error::MethodError(name, text, _) => (name.to_string(), text.clone().unwrap_or_default()),
            zbus::Error::FDO(error) => {
                (error.name().to_string(), error.description().unwrap_or_default().to_owned())
            }
            zbus::Error::DBus(error) => {
                (error.name().to_string(), error.description().unwrap_or_default().to_owned())
            }
            zbus::Error::InputOutput(_) => return Self::Unanswered,
            other => return Self::of_words(&other.to_string()),
        };
        Self::by_name(&name, text)
    }

    /// An error that a library has put into words: the name comes first.
    fn of_words(words: &str) -> Self {
        match words.split_once(": ") {
            Some((name, text)) if name.starts_with("org.freedesktop.") => {
                Self::by_name(name, text.to_owned())
            }
            _ => Self::Other(words.to_owned()),
        }
    }

    fn by_name(name: &str, text: String) -> Self {
        let last = name.rsplit('.').next().unwrap_or(name);
        match last {
            "NoReply" | "Disconnected" | "Timeout" | "TimedOut" | "NameHasNoOwner" | "ServiceUnknown" => {
                Self::Unanswered
            }
            "UnitExists" => Self::Exists,
            "PropertyReadOnly" | "UnknownProperty" | "InvalidArgs" => Self::Property(text),
            _ => Self::Other(format!("{last}: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn scopes() -> Scopes {
        Scopes::new("unix:path=/nowhere".to_owned(), Some("tenured.service".to_owned()))
    }

    fn scope() -> Scope {
        Scope {
            unit: "tenured-1-run-2-x.scope".to_owned(),
            slice: "tenured-default.slice".to_owned(),
            description: "Task 1".to_owned(),
            stop_usec: 10,
            resources: BTreeMap::from([(Resource::MemoryMax, 5)]),
        }
    }

    fn names(scopes: &Scopes) -> Vec<&'static str> {
        let null =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let own = Member { pid: Pid::new(i64::from(std::process::id())).unwrap(), fd: null.as_fd() };
        scopes
            .properties(&scope(), own, scopes.inner.lacking.now())
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn an_older_manager_is_asked_without_what_it_refuses_by_name() {
        let scopes = scopes();
        let text = |name| format!("Cannot set property {name}, or unknown property.");
        assert!(names(&scopes).contains(&"PIDFDs") && names(&scopes).contains(&"OOMPolicy"));
        let lacking = &scopes.inner.lacking;
        let before = lacking.now();
        assert!(lacking.learns(before, &text("PIDFDs")));
        assert!(lacking.learns(before, &text("PIDFDs")), "so does a call that was under way at the time");
        assert!(!lacking.learns(lacking.now(), &text("PIDFDs")), "but it is left out now: that is no way on");
        assert!(names(&scopes).contains(&"PIDs") && !names(&scopes).contains(&"PIDFDs"));
        assert!(lacking.learns(lacking.now(), &text("OOMPolicy")));
        assert!(!names(&scopes).contains(&"OOMPolicy"));
        assert!(!lacking.learns(before, &text("MemoryMax")), "what the task asks for is never left out");
    }

    #[test]
    fn it_is_ordered_after_us_only_once_we_are_ready() {
        let scopes = scopes();
        assert!(!names(&scopes).contains(&"After"));
        scopes.ready();
        assert!(names(&scopes).contains(&"After"));
    }

    #[test]
    fn an_answer_that_was_lost_is_no_refusal() {
        let by_name = |name: &str| Refusal::by_name(name, "why".to_owned());
        assert_eq!(by_name("org.freedesktop.DBus.Error.NoReply"), Refusal::Unanswered);
        assert_eq!(Refusal::of_words("org.freedesktop.DBus.Error.NoReply: it left"), Refusal::Unanswered);
        assert_eq!(Refusal::of_words("a stream: ended"), Refusal::Other("a stream: ended".to_owned()));
        assert_eq!(by_name("org.freedesktop.systemd1.UnitExists"), Refusal::Exists);
        assert_eq!(by_name("org.freedesktop.DBus.Error.InvalidArgs"), Refusal::Property("why".to_owned()));
        assert_eq!(
            by_name("org.freedesktop.systemd1.NoSuchUnit"),
            Refusal::Other("NoSuchUnit: why".to_owned())
        );
    }

    #[tokio::test]
    async fn an_end_of_the_daemon_ends_the_waiting() {
        let scopes = scopes();
        let waiter = Arc::new(Waiter::default());
        let (inner, unit) = (&scopes.inner, "a.scope");
        let waits = Waits { inner, unit };
        waits.register(&waiter);
        scopes.leave();
        timeout(START, waiter.woken.notified()).await.expect("it was not woken");
    }

    #[tokio::test]
    async fn without_a_bus_it_says_so_at_once() {
        let null =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let own = Member { pid: Pid::new(i64::from(std::process::id())).unwrap(), fd: null.as_fd() };
        let refused = scopes().start(&scope(), own, || Place::Elsewhere).await;
        assert!(matches!(refused, Err(NoScope::BusLost)));
        let ended = scopes().start(&scope(), own, || Place::Gone).await;
        assert!(
            matches!(ended, Err(NoScope::Host(_))),
            "nobody is told the number of a process that has ended"
        );
    }
}
