//! The log: to the journal where it is the daemon's standard error, else to standard error itself.
//!
//! Whoever reads the log may hang, and the daemon must not hang with it. So one thread writes, in order, and
//! sleeps while there is nothing to write; what it cannot hold is left out, and it says how much that was.
//!
//! Source: systemd.exec(5), `JOURNAL_STREAM`: device and inode of the stream that the manager connected.

#![expect(clippy::disallowed_methods, reason = "the manager names the stream in the environment")]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::core::happening::{Happening, Weight};
use crate::systemd::entry::Entry;
use crate::systemd::message_id::{self, Line};

/// Entries, and commits with all their lines, that may wait for a journal that is slow.
const WAITING: usize = 4_096;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The name under which `journalctl -t` finds the lines.
const IDENTIFIER: &str = "tenured";

/// The way to the thread that writes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    queue: SyncSender<Told>,
    left_out: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Told {
    Said(Entry),
    Happened(Vec<Happening>),
    Last(SyncSender<()>),
}

impl Log {
    /// Starts it: from now on, whatever is said in this process goes there.
    ///
    /// # Errors
    /// Where the system has no thread left, or a log was started before.
    pub fn start() -> io::Result<Self> {
        let log = Self::to(sink, WAITING)?;
        let all = tracing_subscriber::registry().with(LevelFilter::INFO).with(log.clone());
        all.try_init().map_err(io::Error::other)?;
        Ok(log)
    }

    /// The sink is made by the thread that writes: to make it may take long, too.
    fn to(sink: impl FnOnce() -> Dispatch + Send + 'static, waiting: usize) -> io::Result<Self> {
        let (queue, told) = sync_channel(waiting);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&left_out);
        let write = move || tracing::dispatcher::with_default(&sink(), || write_all(&told, &counted));
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Self { queue, left_out })
    }

    /// Tells what has happened to tasks: one line each, after the commit, from one place. What is left out
    /// is on the board.
    pub fn tell(&self, happened: Vec<Happening>) {
        self.say(Told::Happened(happened));
    }

    fn say(&self, told: Told) {
        let lines = match self.queue.try_send(told) {
            Err(TrySendError::Full(Told::Happened(happened))) => happened.len(),
            Err(TrySendError::Full(Told::Said(_))) => 1,
            Err(TrySendError::Full(Told::Last(_)) | TrySendError::Disconnected(_)) | Ok(()) => return,
        };
        self.left_out.fetch_add(u64::try_from(lines).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Waits, within bounds, until everything was written. Blocks.
    pub fn finish(&self) {
        let (said, heard) = sync_channel(1);
        let queue = self.queue.clone();
        // The queue may be full, and the wait for room in it has no bound of its own.
        let last = std::thread::Builder::new().spawn(move || queue.send(Told::Last(said)));
        if last.is_ok() {
            // Either way the daemon ends now.
            let _ = heard.recv_timeout(LAST_LINES);
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.say(Told::Said(Entry::of(event)));
    }
}

fn write_all(told: &Receiver<Told>, left_out: &AtomicU64) {
    loop {
        let next = told.try_recv().or_else(|error| match error {
            TryRecvError::Empty => {
                say_left_out(left_out);
                told.recv().map_err(|_| TryRecvError::Disconnected)
            }
            TryRecvError::Disconnected => Err(error),
        });
        match next {
            Ok(Told::Said(entry)) => entry.write(),
            Ok(Told::Happened(happened)) => happened.iter().for_each(write),
            Ok(Told::Last(said)) => {
                say_left_out(left_out);
                // Whoever waits no longer does not mind.
                let _ = said.send(());
            }
            Err(_) => return,
        }
    }
}

/// Once all was written that waited, so that it stands where the lines are missing.
fn say_left_out(left_out: &AtomicU64) {
    let lines = left_out.swap(0, Ordering::AcqRel);
    if lines > 0 {
        tracing::warn!(lines, "the log was not read for a while; left out up to {lines} lines");
    }
}

/// Where the lines go.
fn sink() -> Dispatch {
    let registry = tracing_subscriber::registry().with(LevelFilter::INFO);
    let stream = std::env::var("JOURNAL_STREAM").ok();
    // Without a journald to reach, standard error is as good.
    let journal = stream.filter(|stream| is_stream(stream, io::stderr())).and_then(|_| journal());
    match journal {
        Some(journal) => Dispatch::new(registry.with(journal)),
        None => Dispatch::new(registry.with(plain(io::stderr))),
    }
}

/// Field names as they stand in the code, and priorities as systemd's own services use them.
fn journal() -> Option<tracing_journald::Layer> {
    let priorities = PriorityMappings {
        info: Priority::Informational,
        debug: Priority::Debug,
        ..PriorityMappings::default()
    };
    let layer = tracing_journald::layer().ok()?.with_field_prefix(None);
    Some(layer.with_priority_mappings(priorities).with_syslog_identifier(IDENTIFIER.to_owned()))
}

/// For people alone: an id of the journal's catalog says nothing to them.
fn plain<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
    W: for<'writer> tracing_subscriber::fmt::MakeWriter<'writer> + 'static,
{
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{value:?}"),
        "MESSAGE_ID" => Ok(()),
        name => write!(writer, " {name}={value:?}"),
    });
    tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_target(false)
        .with_ansi(false)
        .fmt_fields(fields)
}

macro_rules! line {
    ($level:ident, $happening:expr) => {
        tracing::$level!(
            MESSAGE_ID = message_id::of(Line::Event($happening.kind)).map(tracing::field::display),
            TENURED_TASK = $happening.task.map(|task| task.get()),
            TENURED_RUN = $happening.run.map(|run| run.get()),
            TENURED_QUEUE = $happening.queue.as_deref(),
            TENURED_CAUSE = $happening.cause(),
            "{}",
            $happening.line()
        )
    };
}

fn write(happening: &Happening) {
    match happening.kind.weight() {
        Weight::Silent => {}
        Weight::Info => line!(info, happening),
        Weight::Warning => line!(warn, happening),
    }
}

fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(descriptor) else {
        return false;
    };
    stream
        .split_once(':')
        .is_some_and(|(device, inode)| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::core::happening::Kind;
    use crate::core::ids::{RunId, TaskId};
    use crate::core::retry::Outcome;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_for_people_has_the_fields_and_not_the_id() {
        let page = Page::default();
        let writer = page.clone();
        let log = tracing_subscriber::registry().with(plain(move || writer.clone()));
        let happening = Happening {
            kind: Kind::Ended(Outcome::Failed),
            task: Some(TaskId::new(42)),
            run: Some(RunId::new(57)),
            queue: Some("default".to_owned()),
            payload: json!({ "exit_code": 3 }),
        };
        tracing::subscriber::with_default(log, || write(&happening));
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let line = "WARN run 57 of task 42 has ended: failed, exit 3 TENURED_TASK=42 TENURED_RUN=57 \
                    TENURED_QUEUE=\"default\" TENURED_CAUSE=\"failed\"";
        assert!(text.contains(line), "{text}");
    }

    /// Takes bytes only when it is let; says when it has been asked to.
    struct Stuck {
        asked: SyncSender<()>,
        let_go: Arc<Mutex<()>>,
        page: Page,
    }

    impl io::Write for &Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.asked.try_send(());
            let _let_go = self.let_go.lock().unwrap();
            self.page.clone().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_journal_that_hangs_holds_up_nobody_and_hears_how_much_it_missed() {
        let page = Page::default();
        let let_go = Arc::new(Mutex::new(()));
        let (asked, is_asked) = sync_channel(1);
        let stuck = Stuck { asked, let_go: Arc::clone(&let_go), page: page.clone() };
        let sink = move || Dispatch::new(tracing_subscriber::registry().with(plain(Arc::new(stuck))));
        let log = Log::to(sink, 3).unwrap();
        let stays = let_go.lock().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log.clone()), || {
            tracing::info!("the first is being written");
            is_asked.recv_timeout(LAST_LINES).expect("the thread to write");
            for line in 1..=10 {
                tracing::info!(MESSAGE_ID = "hidden", line, word = "a \"b\"", "waits");
            }
        });
        drop(stays);
        log.finish();
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("INFO waits line=3 word=\"a \\\"b\\\"\"\n"), "{text}");
        assert!(!text.contains("line=4") && !text.contains("hidden"), "{text}");
        assert!(text.contains("left out up to 7 lines"), "{text}");
    }

    #[test]
    fn only_the_stream_itself_is_the_journal() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert!(is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino), &file));
        assert!(!is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino + 1), &file));
        assert!(!is_stream("nonsense", &file));
    }
}
