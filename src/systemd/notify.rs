//! Tells the service manager how the daemon's life goes. Source: sd_notify(3), systemd.service(5).
//!
//! Never fails and never waits: where nobody listens there is nothing to tell, and a manager that does not
//! read (it may be executing itself anew) must not hold up the loop. So one thread speaks, in order, and
//! sleeps while there is nothing to say; what it cannot hold is dropped.

#![expect(clippy::disallowed_methods, reason = "the manager names its socket in the environment")]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sd_notify::NotifyState;

/// Messages that may wait for the manager to read.
const WAITING: usize = 1_024;
/// Between two requests for more time.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
/// What each of them asks for.
const EXTENSION: Duration = Duration::from_secs(60);
/// No more than this is asked for in one go: a check of 100 GB on a slow disk takes that long, and whoever
/// is stuck does not hide behind it for ever.
const EXTENSIONS_MAX: u32 = 360;
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The line to the service manager. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    line: Option<Arc<Line>>,
}

#[derive(Debug)]
struct Line {
    queue: SyncSender<Word>,
    is_ready: AtomicBool,
}

#[derive(Debug)]
enum Word {
    Ready,
    Status(String),
    Reloading,
    Stopping(String),
    Ping,
    /// More time is asked for until something else is said that ends the phase.
    Lengthy(String),
    Keep(String, OwnedFd),
    Drop(String),
    Last(SyncSender<()>),
}

impl Notifier {
    /// To the manager that the environment names, if it names one.
    ///
    /// # Errors
    /// Where its thread could not be started.
    pub fn from_environment() -> io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Self::default());
        }
        let (queue, words) = sync_channel(WAITING);
        std::thread::Builder::new().name("notify".to_owned()).spawn(move || speak(&words))?;
        Ok(Self { line: Some(Arc::new(Line { queue, is_ready: AtomicBool::new(false) })) })
    }

    /// Whether there is a manager that listens.
    pub const fn listens(&self) -> bool {
        self.line.is_some()
    }

    fn say(&self, word: Word) -> bool {
        self.line.as_ref().is_some_and(|line| line.queue.try_send(word).is_ok())
    }

    fn is_ready(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_ready.load(Ordering::Acquire))
    }

    /// Something takes its time, as opening the board may: more of it is asked for until [`Notifier::ready`].
    pub fn lengthy(&self, status: &str) {
        self.say(Word::Lengthy(one_line(status)));
    }

    /// The board is open, everything was looked at, and callers are served.
    pub fn ready(&self) {
        if let Some(line) = &self.line {
            line.is_ready.store(true, Ordering::Release);
        }
        self.say(Word::Ready);
    }

    /// One line for people.
    pub fn status(&self, status: &str) {
        self.say(Word::Status(one_line(status)));
    }

    /// The configuration is read again; [`Notifier::reloaded`] follows. Before the daemon is ready nobody
    /// waits for it, and nothing is said.
    pub fn reloading(&self) {
        if self.is_ready() {
            self.say(Word::Reloading);
        }
    }

    /// The configuration was read, or refused: the daemon goes on.
    pub fn reloaded(&self) {
        if self.is_ready() {
            self.say(Word::Ready);
        }
    }

    /// The daemon is alive and gets on.
    pub fn ping(&self) {
        self.say(Word::Ping);
    }

    /// Hands a descriptor to the manager, which gives it back to the daemon's next life. Whether it was
    /// taken on its way.
    pub(super) fn keep(&self, name: String, descriptor: OwnedFd) -> bool {
        self.say(Word::Keep(name, descriptor))
    }

    /// What the manager keeps under this name is needed no more. Whether that was taken on its way.
    pub(super) fn drop_kept(&self, name: String) -> bool {
        self.say(Word::Drop(name))
    }

    /// The daemon ends; its workers go on.
    pub fn stopping(&self, status: &str) {
        self.say(Word::Stopping(one_line(status)));
    }

    /// Waits, within bounds, until everything was said. Blocks.
    pub fn finish(&self) {
        let (said, heard) = sync_channel(1);
        if self.say(Word::Last(said)) {
            // Either way the daemon ends now.
            let _ = heard.recv_timeout(LAST_WORDS);
        }
    }
}

fn speak(words: &Receiver<Word>) {
    let mut extensions_left = 0;
    loop {
        let next = if extensions_left > 0 {
            words.recv_timeout(EXTEND_EVERY)
        } else {
            words.recv().map_err(RecvTimeoutError::from)
        };
        match next {
            Ok(word) => {
                match word {
                    Word::Lengthy(_) => extensions_left = EXTENSIONS_MAX,
                    Word::Ready => extensions_left = 0,
                    _ => {}
                }
                carry(word);
            }
            Err(RecvTimeoutError::Timeout) => {
                extensions_left -= 1;
                tell(&[extension()]);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn carry(word: Word) {
    match word {
        Word::Ready => tell(&[NotifyState::Ready]),
        Word::Status(status) => tell(&[NotifyState::Status(&status)]),
        // To the microsecond: a stamp below that of the manager's own signal counts as an older reload's.
        Word::Reloading => match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "no clock to reload by"),
        },
        Word::Stopping(status) => tell(&[NotifyState::Stopping, NotifyState::Status(&status)]),
        Word::Ping => tell(&[NotifyState::Watchdog]),
        Word::Lengthy(status) => tell(&[extension(), NotifyState::Status(&status)]),
        Word::Keep(name, descriptor) => {
            // Without FDPOLL=0 the manager would drop it as soon as the process ends.
            let states = [NotifyState::FdStore, NotifyState::FdName(&name), NotifyState::Custom("FDPOLL=0")];
            note(sd_notify::notify_with_fds(&states, &[descriptor.as_fd()]));
        }
        Word::Drop(name) => tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]),
        Word::Last(said) => drop(said.send(())),
    }
}

fn extension() -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX))
}

fn tell(states: &[NotifyState<'_>]) {
    note(sd_notify::notify(states));
}

fn note(told: io::Result<()>) {
    if let Err(error) = told {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// How long the watchdog waits for a ping, if there is one.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
}

/// A line for people, without control characters: a newline would inject an assignment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
impl Notifier {
    /// To a manager that reads nothing, past this many words; the second keeps the line open.
    pub(super) fn unread(waiting: usize) -> (Self, impl FnMut() -> usize) {
        let (queue, words) = sync_channel(waiting);
        let line = Line { queue, is_ready: AtomicBool::new(false) };
        (Self { line: Some(Arc::new(line)) }, move || words.try_iter().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_cannot_speak_to_the_manager() {
        assert_eq!(one_line("3 running\nFDSTOREREMOVE=1"), "3 running FDSTOREREMOVE=1");
    }

    #[test]
    fn where_nobody_listens_nothing_is_said_and_nothing_fails() {
        let silent = Notifier::default();
        silent.lengthy("opening the board");
        silent.ready();
        silent.reloading();
        silent.stopping("bye");
        silent.finish();
        assert!(!silent.listens());
    }
}
