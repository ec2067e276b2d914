//! What the host is about to do: go down, stay up, sleep, wake.
//!
//! Hears it from the login manager, which waits for whoever holds a delay lock, and from the service manager
//! itself, which is all that containers and a user's session have. Owns one connection, always drained, and
//! the locks. Decides nothing: the loop is told, and a lock is let go once the loop has answered, or when no
//! longer can be waited.
//!
//! Source: org.freedesktop.login1(5) Inhibit, PrepareForShutdown, PrepareForSleep;
//! org.freedesktop.systemd1(5) SystemState, JobNew; systemd.special(7) shutdown.target.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use zbus::OwnedFd;
use zbus::connection::Builder;
use zbus::fdo::DBusProxy;
use zbus::{Connection, MatchRule, Message, MessageStream};

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const LOGIND_INTERFACE: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_INTERFACE: &str = "org.freedesktop.systemd1.Manager";

/// What the manager starts whenever it ends everything.
const SHUTDOWN: &str = "shutdown.target";

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the loop may be held up by the question whether the host goes down.
const QUESTION: Duration = Duration::from_secs(1);
/// So many times as long as an answer took it counts for whoever asks next, and no longer than
/// [`ANSWER_COUNTS_MAX`]: a manager that is quick is asked anew, since an old answer may just have become
/// wrong, and one that is slow holds up the loop once for all that ended meanwhile.
const ANSWER_COUNTS: u32 = 10;
/// See [`ANSWER_COUNTS`].
const ANSWER_COUNTS_MAX: Duration = Duration::from_secs(1);
/// The login manager waits 5 s for a lock by default (InhibitDelayMaxSec=); by then it is let go.
const LOCK_MAX: Duration = Duration::from_secs(4);
/// First and longest pause before the bus is tried again.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The host, or the session that we live in, goes down.
    Stops,
    /// It does not after all.
    Stays,
    /// The host is about to sleep.
    Sleeps,
    /// It is awake again.
    Wakes,
}

/// News for the loop, which answers when it has done what they mean.
#[derive(Debug)]
pub struct Told {
    /// What.
    pub news: News,
    /// Dropped or sent to when the loop is done.
    pub done: oneshot::Sender<()>,
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Host {
    address: String,
    has_logind: bool,
    asked: Arc<Asked>,
}

/// What has to do with questions.
#[derive(Debug, Default)]
struct Asked {
    /// That by which news are heard, while there is one.
    connection: Mutex<Option<Connection>>,
    /// The last answer, and until when it counts.
    answer: tokio::sync::Mutex<Option<(Option<bool>, Instant)>>,
}

impl Asked {
    fn by(&self, connection: Option<Connection>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }

    fn connection(&self) -> Option<Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The locks that are held. They do not depend on the connection by which they were taken.
#[derive(Debug, Default)]
struct Locks {
    shutdown: Option<OwnedFd>,
    sleep: Option<OwnedFd>,
    /// Whether it was said that there are none.
    said: bool,
}

impl Host {
    /// By the bus at this address; the login manager is on the system's only.
    pub fn new(address: String, has_logind: bool) -> Self {
        Self { address, has_logind, asked: Arc::default() }
    }

    async fn connect(&self) -> zbus::Result<Connection> {
        Builder::address(self.address.as_str()).method_timeout(ANSWER).build().await
    }

    /// Whether the service manager is about to end everything; nothing where it does not say. One answer
    /// counts for a while.
    pub async fn is_stopping(&self) -> Option<bool> {
        let mut last = self.asked.answer.lock().await;
        let asked = Instant::now();
        if let Some((answer, _)) = last.filter(|(_, until)| asked < *until) {
            return answer;
        }
        let ask = async {
            let connection = match self.asked.connection() {
                Some(connection) => connection,
                // Nothing is heard yet, or the bus was away.
                None => self.connect().await.ok()?,
            };
            is_stopping(&connection).await
        };
        let answer = timeout(QUESTION, ask).await.ok().flatten();
        let counts = (asked.elapsed() * ANSWER_COUNTS).min(ANSWER_COUNTS_MAX);
        *last = Some((answer, Instant::now() + counts));
        answer
    }

    /// How things stand now: what was called off, or begun, while nobody listened.
    async fn stands(&self, connection: &Connection) -> Option<News> {
        let stops = is_stopping(connection).await;
        let prepares = if self.has_logind { is_preparing(connection).await } else { None };
        match (stops, prepares) {
            (None, None) => None,
            (Some(true), _) | (_, Some(true)) => Some(News::Stops),
            (Some(false) | None, Some(false) | None) => Some(News::Stays),
        }
    }

    /// Tells the loop for as long as it listens, and comes back when the bus does.
    pub async fn follow(self, loop_: mpsc::Sender<Told>) {
        let mut locks = Locks::default();
        let mut pause = PAUSE;
        while !loop_.is_closed() {
            let followed = self.follow_once(&mut locks, &loop_, &mut pause).await;
            self.asked.by(None);
            match followed {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "nothing is heard of the host for now; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn follow_once(
        &self,
        locks: &mut Locks,
        loop_: &mpsc::Sender<Told>,
        pause: &mut Duration,
    ) -> zbus::Result<()> {
        let connection = timeout(ANSWER, self.connect())
            .await
            .unwrap_or_else(|_| Err(zbus::Error::Failure("the bus does not answer".to_owned())))?;
        self.asked.by(Some(connection.clone()));
        let mut streams = Vec::new();
        for member in ["JobNew", "JobRemoved"] {
            streams.push(job_stream(&connection, member).await?);
        }
        if self.has_logind {
            for member in ["PrepareForShutdown", "PrepareForSleep"] {
                streams.push(logind_stream(&connection, member).await?);
            }
            streams.push(owner_stream(&connection).await?);
        }
        // Without this the manager keeps its signals to itself. One that cannot be asked sends none.
        let subscribed = connection
            .call_method(Some(SYSTEMD), SYSTEMD_PATH, Some(SYSTEMD_INTERFACE), "Subscribe", &())
            .await;
        if let Err(error) = subscribed {
            tracing::debug!(%error, "the service manager does not say when it ends everything");
        }
        self.lock(&connection, locks).await;
        if let Some(news) = self.stands(&connection).await {
            self.pass_on(news, &connection, locks, loop_).await;
        }
        *pause = PAUSE;
        let mut heard = select_all(streams);
        while let Some(message) = heard.next().await {
            let message = message?;
            if message.header().member().is_some_and(|member| member == "NameOwnerChanged") {
                self.lock(&connection, locks).await;
            } else if let Some(news) = news(&message) {
                self.pass_on(news, &connection, locks, loop_).await;
            }
        }
        Ok(())
    }

    /// Tells the loop, and lets go of the lock that this was taken for, or takes a new one.
    async fn pass_on(
        &self,
        news: News,
        connection: &Connection,
        locks: &mut Locks,
        loop_: &mpsc::Sender<Told>,
    ) {
        let (done, is_done) = oneshot::channel();
        if loop_.send(Told { news, done }).await.is_ok() {
            // One that does not answer in time is not waited for: it has been told.
            let _ = timeout(LOCK_MAX, is_done).await;
        }
        match news {
            News::Stops => locks.shutdown = None,
            News::Sleeps => locks.sleep = None,
            News::Stays | News::Wakes => self.lock(connection, locks).await,
        }
    }

    /// Takes the locks that are not held.
    async fn lock(&self, connection: &Connection, locks: &mut Locks) {
        if !self.has_logind {
            return;
        }
        if !is_owned(connection).await {
            if !locks.said {
                tracing::info!("there is no login manager; the service manager says when the host goes down");
                locks.said = true;
            }
            return;
        }
        for (what, why, lock) in [
            ("shutdown", "noting on the board that the host goes down", &mut locks.shutdown),
            ("sleep", "letting sweeps rest", &mut locks.sleep),
        ] {
            if lock.is_some() {
                continue;
            }
            match inhibit(connection, what, why).await {
                Ok(taken) => *lock = Some(taken),
                Err(error) if !locks.said => {
                    tracing::info!(%error, "the login manager gives no delay lock; going on without");
                    locks.said = true;
                }
                Err(_) => {}
            }
        }
    }
}

async fn property(
    connection: &Connection,
    of: (&str, &str, &str),
    name: &str,
) -> zbus::Result<zbus::OwnedVariant> {
    let (service, path, interface) = of;
    let properties = Some("org.freedesktop.DBus.Properties");
    let reply = connection.call_method(Some(service), path, properties, "Get", &(interface, name)).await?;
    reply.body().deserialize()
}

async fn is_stopping(connection: &Connection) -> Option<bool> {
    let manager = (SYSTEMD, SYSTEMD_PATH, SYSTEMD_INTERFACE);
    let state = property(connection, manager, "SystemState").await.ok()?;
    Some(String::try_from(state).ok()? == "stopping")
}

async fn is_preparing(connection: &Connection) -> Option<bool> {
    if !is_owned(connection).await {
        return None;
    }
    let manager = (LOGIND, LOGIND_PATH, LOGIND_INTERFACE);
    bool::try_from(property(connection, manager, "PreparingForShutdown").await.ok()?).ok()
}

/// Whether there is a login manager. One that is not there is not started by us.
async fn is_owned(connection: &Connection) -> bool {
    let owned = async {
        let bus = DBusProxy::new(connection).await?;
        bus.name_has_owner(LOGIND.try_into()?).await.map_err(zbus::Error::from)
    };
    owned.await.unwrap_or(false)
}

async fn inhibit(connection: &Connection, what: &str, why: &str) -> zbus::Result<OwnedFd> {
    let body = (what, "tenured", why, "delay");
    let reply =
        connection.call_method(Some(LOGIND), LOGIND_PATH, Some(LOGIND_INTERFACE), "Inhibit", &body).await?;
    reply.body().deserialize()
}

/// The manager ends everything by starting shutdown.target, whichever way it was asked.
async fn job_stream(connection: &Connection, member: &'static str) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(SYSTEMD)
        .interface(SYSTEMD_INTERFACE)
        .member(member)
        .arg(2, SHUTDOWN)
        .build()?;
    MessageStream::for_match_rule(rule, connection, None).await
}

async fn logind_stream(connection: &Connection, member: &'static str) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender(LOGIND)
        .interface(LOGIND_INTERFACE)
        .member(member)
        .build()?;
    MessageStream::for_match_rule(rule, connection, None).await
}

/// The login manager comes, goes, or is another one.
async fn owner_stream(connection: &Connection) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder()
        .msg_type(zbus::message::Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .arg(0, LOGIND)
        .build()?;
    MessageStream::for_match_rule(rule, connection, None).await
}

fn news(message: &Message) -> Option<News> {
    let header = message.header();
    let member = header.member()?;
    if member == "JobNew" {
        let body = message.body();
        let (_, _, unit) = body.deserialize::<(u32, zbus::ObjectPath<'_>, &str)>().ok()?;
        return (unit == SHUTDOWN).then_some(News::Stops);
    }
    if member == "JobRemoved" {
        let body = message.body();
        let (_, _, unit, result) = body.deserialize::<(u32, zbus::ObjectPath<'_>, &str, &str)>().ok()?;
        return (unit == SHUTDOWN && result == "canceled").then_some(News::Stays);
    }
    let begins: bool = message.body().deserialize().ok()?;
    match (member.as_str(), begins) {
        ("PrepareForShutdown", true) => Some(News::Stops),
        ("PrepareForShutdown", false) => Some(News::Stays),
        ("PrepareForSleep", true) => Some(News::Sleeps),
        ("PrepareForSleep", false) => Some(News::Wakes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manager_that_does_not_answer_holds_up_the_loop_once_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus");
        // Takes connections and never says a word.
        let bus = std::os::unix::net::UnixListener::bind(&path).unwrap();
        bus.set_nonblocking(true).unwrap();
        let host = Host::new(format!("unix:path={}", path.display()), false);
        let begun = Instant::now();
        for _ in 0..50 {
            assert_eq!(host.is_stopping().await, None);
        }
        let took = begun.elapsed();
        assert!(took < 5 * QUESTION, "{took:?}");
        let asked = std::iter::from_fn(|| bus.accept().ok()).count();
        assert!((1..=5).contains(&asked), "asked {asked} times");
    }
}
