//! Following what happens on the board: the daemon's hints wake us, and then we ask.
//!
//! Subscribes first and asks afterwards, so that nothing is missed between; asks again after a long while in
//! any case, because hints may be lost. A daemon that goes away (a restart, an upgrade) is waited for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Interval;
use zbus::message::Type;
use zbus::{MatchRule, MessageStream};

use crate::bus::proxy::{self, BUS_NAME, Endpoint, INTERFACE, ManagerProxy, OBJECT_PATH};
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::render::aside;

/// Without a hint, we ask again after this: a safety net, not the way we learn things.
const RECHECK: Duration = Duration::from_secs(15);
/// Between two attempts to find a daemon that has gone.
const FIND_PAUSE: Duration = Duration::from_secs(1);
/// Attempts to find it: about two minutes, longer than a host takes to upgrade a package.
const FIND_ATTEMPTS: u32 = 120;
/// More tasks than this in one hint: everything may have changed.
const HINT_TASKS: usize = 10_000;

/// What may have changed since the last hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    tasks: BTreeSet<u64>,
    /// Anything may have.
    everything: bool,
    /// The stream of hints has ended: there will be no more until somebody mends it.
    lost: bool,
}

impl Hint {
    /// Whether this task may have changed.
    pub fn concerns(&self, task: u64) -> bool {
        self.everything || self.tasks.contains(&task)
    }

    fn add(&mut self, task: u64) {
        if self.tasks.len() >= HINT_TASKS {
            self.tasks.clear();
            self.everything = true;
        } else if !self.everything {
            self.tasks.insert(task);
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    hint: Mutex<Hint>,
    came: Notify,
}

impl Pending {
    fn with(&self, change: impl FnOnce(&mut Hint)) {
        change(&mut self.hint.lock().unwrap_or_else(PoisonError::into_inner));
        self.came.notify_one();
    }

    /// What has gathered. That the stream has ended stays true.
    fn take(&self) -> Hint {
        let mut hint = self.hint.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = hint.lost;
        std::mem::replace(&mut *hint, Hint { lost, ..Hint::default() })
    }
}

/// The hints of a daemon, on a connection of their own that is always read: a stream that nobody reads
/// would hold up every call beside it.
#[derive(Debug)]
struct Watch {
    pending: Arc<Pending>,
    reader: JoinHandle<()>,
    /// Whether nobody has the daemon's name now. A question would have it started: whoever stopped it would
    /// find that he cannot.
    away: watch::Receiver<bool>,
    /// Goes on over waits that are given up, so that it comes whatever else happens.
    recheck: Interval,
}

impl Watch {
    /// Subscribes; when this returns, no later hint is missed.
    async fn start(endpoint: &Endpoint) -> Result<Self, Failure> {
        let connection = proxy::connect(endpoint).await?;
        // Without a sender: hints say nothing, and whoever forges one only makes us ask.
        let hints =
            MatchRule::builder().msg_type(Type::Signal).interface(INTERFACE).path(OBJECT_PATH).build()?;
        // A daemon that has just come back tells nobody what it did before it had its name.
        let comings = MatchRule::builder()
            .msg_type(Type::Signal)
            .interface("org.freedesktop.DBus")
            .member("NameOwnerChanged")
            .add_arg(BUS_NAME)
            .build()?;
        let comings = MessageStream::for_match_rule(comings, &connection, None).await?;
        let hints = MessageStream::for_match_rule(hints, &connection, None).await?;
        let mut stream = stream::select(hints, comings);
        let pending = Arc::<Pending>::default();
        let told = Arc::clone(&pending);
        let (is_away, away) = watch::channel(false);
        let reader = tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                let member = message.header().member().map(|member| member.as_str().to_owned());
                if let Ok((_, _, owner)) = message.body().deserialize::<(&str, &str, &str)>() {
                    // What happened while it was away was told to nobody.
                    is_away.send_replace(owner.is_empty());
                    if !owner.is_empty() {
                        told.with(|hint| hint.everything = true);
                    }
                    continue;
                }
                let number = message.body().deserialize::<u64>();
                match (member.as_deref(), number) {
                    (Some("TaskChanged"), Ok(task)) => told.with(|hint| hint.add(task)),
                    // Told with the change of its task.
                    (Some("RunEnded"), Ok(_)) => {}
                    _ => told.with(|hint| hint.everything = true),
                }
            }
            is_away.send_replace(false);
            told.with(|hint| hint.lost = true);
            drop(connection);
        });
        Ok(Self::new(pending, reader, away))
    }

    fn new(pending: Arc<Pending>, reader: JoinHandle<()>, away: watch::Receiver<bool>) -> Self {
        let mut recheck = tokio::time::interval(RECHECK);
        // The first tick is now, and whoever has just subscribed asks in any case.
        recheck.reset();
        Self { pending, reader, away, recheck }
    }

    /// Waits until somebody has the name, or the stream has ended.
    async fn there(&mut self) {
        // A reader that has gone has said that it is lost.
        let _ = self.away.wait_for(|away| !away).await;
    }

    /// Waits for a hint, or for the time of the safety net. Giving up the wait loses nothing.
    async fn next(&mut self) -> Hint {
        self.there().await;
        let mut hint = self.pending.take();
        if hint == Hint::default() {
            let recheck = tokio::select! {
                () = self.pending.came.notified() => false,
                _ = self.recheck.tick() => true,
            };
            hint = self.pending.take();
            hint.everything |= recheck;
        }
        hint
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A conversation that outlives the daemon's restarts.
#[derive(Debug)]
pub struct Follower<'a> {
    session: &'a mut Session,
    watch: Watch,
    /// Whether it was said that the daemon has gone.
    told: bool,
}

impl<'a> Follower<'a> {
    /// Subscribes to the hints of the session's daemon.
    ///
    /// # Errors
    /// Where it does not answer.
    pub async fn start(session: &'a mut Session) -> Result<Self, Failure> {
        let watch = Watch::start(session.endpoint()).await?;
        Ok(Self { session, watch, told: false })
    }

    /// The conversation.
    pub const fn session(&self) -> &Session {
        self.session
    }

    /// Asks; if the daemon has gone, waits for it and asks again.
    ///
    /// # Errors
    /// Refusals at once; [`Failure::NoDaemon`] when it has been away for too long.
    pub async fn ask<T>(
        &mut self,
        question: impl AsyncFn(&ManagerProxy<'static>) -> zbus::Result<T>,
    ) -> Result<T, Failure> {
        loop {
            self.there().await?;
            match question(&self.session.manager).await.map_err(Failure::from) {
                Err(failure) if failure.is_gone() => self.find_again(failure).await?,
                other => return other,
            }
        }
    }

    /// Waits until something may have changed.
    ///
    /// # Errors
    /// As [`Follower::ask`].
    pub async fn hint(&mut self) -> Result<Hint, Failure> {
        let hint = self.news().await;
        self.mended(hint).await
    }

    /// Waits until something may have changed, or the daemon has gone. Giving up the wait loses nothing;
    /// what comes goes through [`Follower::mended`].
    pub async fn news(&mut self) -> Hint {
        self.watch.next().await
    }

    /// The hint, after the daemon was found again if it had gone.
    ///
    /// # Errors
    /// As [`Follower::ask`].
    pub async fn mended(&mut self, hint: Hint) -> Result<Hint, Failure> {
        if !hint.lost {
            return Ok(hint);
        }
        self.find_again(Failure::NoDaemon {
            what: "the daemon has closed the connection".into(),
            remedy: String::new(),
        })
        .await?;
        Ok(Hint { everything: true, ..Hint::default() })
    }

    /// Waits for the daemon where it has left the bus.
    async fn there(&mut self) -> Result<(), Failure> {
        if !*self.watch.away.borrow() {
            return Ok(());
        }
        self.tell_gone();
        let back = tokio::time::timeout(FIND_PAUSE * FIND_ATTEMPTS, self.watch.there()).await;
        self.told = false;
        back.map_err(|_| Failure::NoDaemon {
            what: "the daemon has gone, and has not come back".into(),
            remedy: "`systemctl status tenured` says why, where it is a service.".into(),
        })
    }

    fn tell_gone(&mut self) {
        if !self.session.is_embedded() && !std::mem::replace(&mut self.told, true) {
            aside("the daemon has gone; waiting for it to come back (Ctrl-C ends the wait, not the task)");
        }
    }

    async fn find_again(&mut self, mut why: Failure) -> Result<(), Failure> {
        self.tell_gone();
        for _ in 0..FIND_ATTEMPTS {
            match self.try_again().await {
                Ok(()) => return Ok(()),
                Err(failure) => why = failure,
            }
            tokio::time::sleep(FIND_PAUSE).await;
        }
        Err(why)
    }

    async fn try_again(&mut self) -> Result<(), Failure> {
        if !self.session.is_embedded() && !proxy::is_served(self.session.endpoint()).await? {
            return Err(Failure::NoDaemon {
                what: "the daemon has gone, and has not come back".into(),
                remedy: "`systemctl status tenured` says why, where it is a service.".into(),
            });
        }
        self.session.reopen().await?;
        self.watch = Watch::start(self.session.endpoint()).await?;
        // What happened meanwhile was told to nobody.
        self.watch.pending.with(|hint| hint.everything = true);
        self.told = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hints_are_gathered_until_somebody_asks() {
        let pending = Arc::<Pending>::default();
        let mut watch = Watch::new(Arc::clone(&pending), tokio::spawn(async {}), watch::channel(false).1);
        pending.with(|hint| hint.add(3));
        pending.with(|hint| hint.add(4));
        let hint = watch.next().await;
        assert!(hint.concerns(3) && hint.concerns(4) && !hint.concerns(5));
    }

    #[tokio::test]
    async fn that_the_daemon_has_gone_is_known_until_it_is_mended() {
        let pending = Arc::<Pending>::default();
        let mut watch = Watch::new(Arc::clone(&pending), tokio::spawn(async {}), watch::channel(false).1);
        pending.with(|hint| hint.lost = true);
        for _ in 0..3 {
            assert!(watch.next().await.lost);
        }
    }

    #[test]
    fn too_many_tasks_are_everything() {
        let mut hint = Hint::default();
        for task in 0..=HINT_TASKS as u64 {
            hint.add(task);
        }
        assert!(hint.concerns(u64::MAX) && hint.tasks.is_empty());
    }
}
