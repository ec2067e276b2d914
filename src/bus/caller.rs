//! Who calls: proven by the bus, or fixed when a private connection was accepted.
//!
//! Never believes a message about its own sender where nobody but the peer wrote it: on the private
//! socket the `sender` header is not read at all.
//!
//! Source: D-Bus specification, `GetConnectionUnixUser` and `NameOwnerChanged`; unix(7), SO_PEERCRED.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use tokio::sync::Notify;
use zbus::message::Header;
use zbus::names::{OwnedUniqueName, UniqueName};
use zbus::{Connection, MatchRule, MessageStream};

use crate::core::ids::Uid;
use crate::core::refusal::Refusal;
use crate::service::types::Caller;

/// Callers that are remembered at once: more than a bus lets connect.
const KNOWN_CALLERS: usize = 4_096;

/// Who may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admins {
    /// root alone.
    Root,
    /// root, and the daemon's own user: `--user` and `--embedded`.
    RootAnd(Uid),
}

impl Admins {
    /// The caller with this uid.
    pub fn caller(self, uid: Uid) -> Caller {
        let is_own = match self {
            Self::Root => false,
            Self::RootAnd(own) => own == uid,
        };
        Caller { uid, is_admin: uid == 0 || is_own }
    }
}

/// How the callers of one connection are proven.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A private peer: whoever connected, whatever its messages say.
    Peer {
        /// Told by the kernel.
        caller: Caller,
        /// Our own name for the connection.
        name: Arc<str>,
    },
    /// A bus: it knows each sender.
    Bus(Arc<Callers>),
}

impl Identity {
    /// Who sent this message.
    ///
    /// # Errors
    /// [`Refusal::NotAuthorized`] where the bus does not say; an unknown caller is nobody.
    pub async fn of(&self, header: &Header<'_>, connection: &Connection) -> Result<Caller, Refusal> {
        match self {
            Self::Peer { caller, .. } => Ok(*caller),
            Self::Bus(callers) => callers.of(header, connection).await,
        }
    }

    /// A name for the connection that this message came by, unique among all.
    pub fn connection<'a>(&'a self, header: &'a Header<'_>) -> &'a str {
        match self {
            Self::Peer { name, .. } => name,
            Self::Bus(_) => header.sender().map_or("", |sender| sender.as_str()),
        }
    }

    /// Waits until the sender of this message has gone: an answer would reach nobody.
    pub async fn gone(&self, header: &Header<'_>, connection: &Connection) {
        match (self, header.sender()) {
            (Self::Bus(callers), Some(sender)) => tokio::select! {
                () = callers.gone(sender) => {}
                () = connection.closed() => {}
            },
            _ => connection.closed().await,
        }
    }
}

/// The callers of one bus connection, by unique name. A bus never gives a unique name twice, so a name
/// that is kept too long does no harm but to memory.
#[derive(Debug)]
pub struct Callers {
    admins: Admins,
    known: Mutex<HashMap<OwnedUniqueName, Known>>,
    /// One question to the bus at a time: a burst of calls of a new caller asks once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    uid: Uid,
    gone: Arc<Notify>,
}

impl Callers {
    /// Knows nobody yet.
    pub fn new(admins: Admins) -> Self {
        Self { admins, known: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    async fn of(&self, header: &Header<'_>, connection: &Connection) -> Result<Caller, Refusal> {
        let Some(sender) = header.sender() else {
            return Err(Refusal::NotAuthorized("the bus does not say who calls".to_owned()));
        };
        if let Some(uid) = self.uid(sender) {
            return Ok(self.admins.caller(uid));
        }
        let _asking = self.asking.lock().await;
        if let Some(uid) = self.uid(sender) {
            return Ok(self.admins.caller(uid));
        }
        let uid = ask(connection, sender).await.map_err(|error| {
            tracing::debug!("the uid of {sender} is not known ({error}); refusing its call");
            Refusal::NotAuthorized("the bus does not say which user you are".to_owned())
        })?;
        self.remember(sender, uid);
        Ok(self.admins.caller(uid))
    }

    async fn gone(&self, sender: &UniqueName<'_>) {
        // Who is not known has called before and was dropped: it has gone already.
        let Some(gone) = self.known().get(sender.as_str()).map(|known| known.gone.clone()) else { return };
        let notified = gone.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if self.uid(sender).is_some() {
            notified.await;
        }
    }

    /// Drops callers as they leave the bus, until the connection ends.
    ///
    /// # Errors
    /// Where the bus does not take the subscription.
    pub async fn follow(&self, connection: &Connection) -> zbus::Result<()> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender("org.freedesktop.DBus")
            .interface("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            // Only names without a new owner: nobody has to be woken for those who come.
            .arg(2, "")
            .build()?;
        let mut leaving = MessageStream::for_match_rule(rule, connection, None).await?;
        while let Some(message) = leaving.next().await {
            let body = message?.body();
            let (name, ..) = body.deserialize::<(&str, &str, &str)>()?;
            self.forget(name);
        }
        Ok(())
    }

    fn uid(&self, sender: &UniqueName<'_>) -> Option<Uid> {
        self.known().get(sender.as_str()).map(|known| known.uid)
    }

    fn remember(&self, sender: &UniqueName<'_>, uid: Uid) {
        let mut known = self.known();
        if known.len() >= KNOWN_CALLERS {
            // They are asked for again; who waits for one of them to go is told that it went.
            for (_, caller) in known.drain() {
                caller.gone.notify_waiters();
            }
        }
        known.insert(sender.to_owned().into(), Known { uid, gone: Arc::default() });
    }

    fn forget(&self, name: &str) {
        if let Some(caller) = self.known().remove(name) {
            caller.gone.notify_waiters();
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<OwnedUniqueName, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(connection: &Connection, sender: &UniqueName<'_>) -> zbus::Result<Uid> {
    const BUS: &str = "org.freedesktop.DBus";
    let reply = connection
        .call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "GetConnectionUnixUser", sender)
        .await?;
    reply.body().deserialize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_where_allowed_the_daemons_own_user_may_do_everything() {
        assert!(Admins::Root.caller(0).is_admin);
        assert!(!Admins::Root.caller(1000).is_admin);
        assert!(Admins::RootAnd(1000).caller(0).is_admin);
        assert!(Admins::RootAnd(1000).caller(1000).is_admin);
        assert!(!Admins::RootAnd(1000).caller(1001).is_admin);
    }

    #[test]
    fn the_memory_of_callers_is_bounded() {
        let callers = Callers::new(Admins::Root);
        for number in 0..3 * KNOWN_CALLERS {
            let name = format!(":1.{number}");
            callers.remember(&UniqueName::try_from(name.as_str()).unwrap(), 5);
            assert!(callers.known().len() <= KNOWN_CALLERS);
        }
    }

    #[test]
    fn who_left_is_forgotten_and_those_who_wait_for_it_are_told() {
        let callers = Callers::new(Admins::Root);
        let name = UniqueName::try_from(":1.7").unwrap();
        callers.remember(&name, 5);
        let mut gone = std::pin::pin!(callers.gone(&name));
        let waker = futures_util::task::noop_waker();
        let mut context = std::task::Context::from_waker(&waker);
        assert!(gone.as_mut().poll(&mut context).is_pending());
        callers.forget(":1.7");
        assert!(gone.as_mut().poll(&mut context).is_ready());
        assert_eq!(callers.uid(&name), None);
    }
}
