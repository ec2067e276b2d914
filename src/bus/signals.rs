//! Hints to those who listen: TaskChanged and RunEnded after the commit, and changes of properties.
//!
//! A hint has no content, so many of the same are one. Each listener has an outbox of its own that holds
//! every hint once; a listener that is too slow for even that is cut off, because it could not know what
//! it missed. Telling never waits: it happens on the thread that commits.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use zbus::message::Message;
use zbus::{OwnedMatchRule, Variant};

use crate::bus::proxy::{INTERFACE, OBJECT_PATH};
use crate::core::ids::{RunId, TaskId};
use crate::core::view::Change;
use crate::service::desk::Properties;

/// Hints that wait for one listener.
const OUTBOX_HINTS: usize = 65_536;
/// Between two batches to one listener: what changes often is told once in this time.
const PAUSE: Duration = Duration::from_millis(25);

/// Something to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// TaskChanged.
    Task(TaskId),
    /// RunEnded.
    RunEnded(RunId),
    /// Property Draining.
    Draining,
    /// Property Degraded.
    Degraded,
}

/// Where hints come in and listeners are known. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Signals(Arc<Mutex<Vec<Weak<Mailbox>>>>);

#[derive(Debug, Default)]
struct Mailbox {
    listening: AtomicBool,
    hints: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    hints: BTreeSet<Hint>,
    overflowed: bool,
}

impl Signals {
    /// Tells what a commit changed; to be called after it. Never waits.
    pub fn tell(&self, changes: &[Change]) {
        let hints = changes.iter().filter_map(|change| match change {
            Change::Task(task) => Some(Hint::Task(*task)),
            Change::RunEnded(run) => Some(Hint::RunEnded(*run)),
            Change::Ready | Change::Look(_) | Change::Due => None,
        });
        self.put(&hints.collect::<Vec<_>>());
    }

    /// Tells changes of properties, for as long as there is a desk.
    pub async fn follow(&self, mut properties: watch::Receiver<Properties>) {
        let mut before = properties.borrow_and_update().clone();
        while properties.changed().await.is_ok() {
            let now = properties.borrow_and_update().clone();
            let mut hints = Vec::new();
            if now.draining != before.draining {
                hints.push(Hint::Draining);
            }
            if now.degraded != before.degraded {
                hints.push(Hint::Degraded);
            }
            self.put(&hints);
            before = now;
        }
    }

    /// A new listener, which hears nothing before it asks with [`Outbox::listen`].
    pub fn outbox(&self) -> Outbox {
        let outbox = Arc::new(Mailbox::default());
        let mut all = self.all();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&outbox));
        Outbox(outbox)
    }

    fn put(&self, hints: &[Hint]) {
        if hints.is_empty() {
            return;
        }
        for outbox in self.all().iter().filter_map(Weak::upgrade) {
            if outbox.listening.load(Ordering::Acquire) {
                outbox.put(hints);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    fn put(&self, hints: &[Hint]) {
        let mut waiting = self.waiting();
        waiting.hints.extend(hints);
        if waiting.hints.len() > OUTBOX_HINTS {
            waiting.hints.clear();
            waiting.overflowed = true;
        }
        drop(waiting);
        self.filled.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits for one listener.
#[derive(Debug)]
pub struct Outbox(Arc<Mailbox>);

/// A listener was too slow, and hints to it were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflowed;

impl Outbox {
    /// Hears from now on.
    pub fn listen(&self) {
        self.0.listening.store(true, Ordering::Release);
    }

    /// The next hints, each once; waits for the first.
    ///
    /// # Errors
    /// [`Overflowed`] where some were lost.
    pub async fn next(&self) -> Result<BTreeSet<Hint>, Overflowed> {
        loop {
            let filled = self.0.filled.notified();
            let waiting = std::mem::take(&mut *self.0.waiting());
            if waiting.overflowed {
                return Err(Overflowed);
            }
            if !waiting.hints.is_empty() {
                return Ok(waiting.hints);
            }
            filled.await;
        }
    }

    /// Sends hints as they come, through `send`, until it fails or some were lost.
    pub async fn drain<F: Future<Output = zbus::Result<()>>>(
        &self,
        properties: watch::Receiver<Properties>,
        sender: Option<&str>,
        send: impl Fn(Message) -> F,
    ) -> zbus::Result<Overflowed> {
        loop {
            let hints = match self.next().await {
                Ok(hints) => hints,
                Err(overflowed) => return Ok(overflowed),
            };
            for hint in hints {
                let message = message(hint, &properties, sender)?;
                send(message).await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The signal for a hint; property changes carry the value of this moment.
fn message(
    hint: Hint,
    properties: &watch::Receiver<Properties>,
    sender: Option<&str>,
) -> zbus::Result<Message> {
    let from = |interface: &'static str, member: &'static str| {
        let builder = Message::signal(OBJECT_PATH, interface, member);
        match sender {
            Some(sender) => builder.sender(sender),
            None => builder,
        }
    };
    let changed = |name: &'static str, value: Variant<'static>| {
        let changed = HashMap::from([(name, value)]);
        let gone: [&str; 0] = [];
        from("org.freedesktop.DBus.Properties", "PropertiesChanged").build(&(
            INTERFACE,
            changed,
            gone.as_slice(),
        ))
    };
    match hint {
        Hint::Task(task) => from(INTERFACE, "TaskChanged").build(&task.on_bus()),
        Hint::RunEnded(run) => from(INTERFACE, "RunEnded").build(&run.on_bus()),
        Hint::Draining => changed("Draining", properties.borrow().draining.into()),
        Hint::Degraded => changed("Degraded", properties.borrow().degraded.clone().into()),
    }
}

/// The match rules of one private peer: it hears what one of them matches.
#[derive(Debug, Default)]
pub struct Rules(Mutex<Vec<OwnedMatchRule>>);

/// Rules of one peer.
const RULES: usize = 256;

impl Rules {
    /// Adds a rule; false where there are too many.
    pub fn add(&self, rule: OwnedMatchRule) -> bool {
        let mut rules = self.rules();
        if rules.len() >= RULES {
            return false;
        }
        rules.push(rule);
        true
    }

    /// Removes a rule that was added; false where there is none.
    pub fn remove(&self, rule: &OwnedMatchRule) -> bool {
        let mut rules = self.rules();
        let place = rules.iter().position(|other| other == rule);
        place.map(|place| rules.swap_remove(place)).is_some()
    }

    /// Whether a message is asked for.
    pub fn want(&self, message: &Message) -> bool {
        self.rules().iter().any(|rule| rule.matches(message).unwrap_or(false))
    }

    fn rules(&self) -> MutexGuard<'_, Vec<OwnedMatchRule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: i64) -> Hint {
        Hint::Task(TaskId::new(number))
    }

    fn tell(signals: &Signals, task: i64) {
        signals.tell(&[Change::Task(TaskId::new(task)), Change::Ready, Change::Due]);
    }

    #[tokio::test]
    async fn a_listener_hears_each_thing_once_and_only_what_came_after_it_asked() {
        let signals = Signals::default();
        let outbox = signals.outbox();
        tell(&signals, 1);
        outbox.listen();
        for _ in 0..1_000 {
            tell(&signals, 2);
            tell(&signals, 3);
        }
        signals.tell(&[Change::RunEnded(RunId::new(2))]);
        let hints: Vec<Hint> = outbox.next().await.unwrap().into_iter().collect();
        assert_eq!(hints, [task(2), task(3), Hint::RunEnded(RunId::new(2))]);
    }

    #[tokio::test]
    async fn a_listener_that_never_looks_costs_bounded_memory_and_is_told_that_it_missed_something() {
        let signals = Signals::default();
        let outbox = signals.outbox();
        outbox.listen();
        for number in 0..2 * OUTBOX_HINTS as i64 {
            tell(&signals, number);
            assert!(outbox.0.waiting().hints.len() <= OUTBOX_HINTS);
        }
        assert_eq!(outbox.next().await, Err(Overflowed));
    }

    #[test]
    fn who_left_is_forgotten() {
        let signals = Signals::default();
        for _ in 0..1_000 {
            drop(signals.outbox());
        }
        assert!(signals.all().len() <= 1);
    }

    #[tokio::test]
    async fn changes_of_properties_are_hints_too() {
        let signals = Signals::default();
        let outbox = signals.outbox();
        outbox.listen();
        let (sender, receiver) = watch::channel(Properties::default());
        let follow = tokio::spawn({
            let signals = signals.clone();
            async move { signals.follow(receiver).await }
        });
        tokio::task::yield_now().await;
        sender.send_modify(|properties| properties.draining = true);
        assert_eq!(outbox.next().await.unwrap(), BTreeSet::from([Hint::Draining]));
        sender.send_modify(|properties| properties.degraded.push("wal".into()));
        assert_eq!(outbox.next().await.unwrap(), BTreeSet::from([Hint::Degraded]));
        drop(sender);
        follow.await.unwrap();
    }

    #[test]
    fn a_peer_hears_what_its_rules_match() {
        let (_sender, properties) = watch::channel(Properties::default());
        let message = message(task(4), &properties, Some(":1.0")).unwrap();
        let rules = Rules::default();
        assert!(!rules.want(&message));
        for (rule, wanted) in [
            ("type='signal',member='RunEnded'", false),
            (
                "type='signal',sender='org.tenured1',path='/org/tenured1',interface='org.tenured1.Manager'",
                true,
            ),
            ("type='signal',sender=':1.0',member='TaskChanged'", true),
            ("type='signal',sender=':1.9'", false),
            ("", true),
        ] {
            let rule = OwnedMatchRule::try_from(rule).unwrap();
            assert!(rules.add(rule.clone()));
            assert_eq!(rules.want(&message), wanted, "{rule:?}");
            assert!(rules.remove(&rule) && !rules.remove(&rule));
        }
    }
}
