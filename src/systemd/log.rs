//! The log: to the journal where it is the daemon's standard error, else to standard error itself.
//!
//! Source: systemd.exec(5), `JOURNAL_STREAM`: device and inode of the stream that the manager connected.

#![expect(clippy::disallowed_methods, reason = "the manager names the stream in the environment")]

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::core::happening::{Happening, Weight};
use crate::systemd::message_id::{self, Line};

/// Commits whose lines may wait for a journal that is slow.
const WAITING: usize = 4_096;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The name under which `journalctl -t` finds the lines.
const IDENTIFIER: &str = "tenured";

/// Starts it.
///
/// # Errors
/// Where a log was started before.
pub fn start() -> Result<(), TryInitError> {
    let registry = tracing_subscriber::registry().with(LevelFilter::INFO);
    let stream = std::env::var("JOURNAL_STREAM").ok();
    // Without a journald to reach, standard error is as good.
    let journal = stream.filter(|stream| is_stream(stream, io::stderr())).and_then(|_| journal());
    match journal {
        Some(journal) => registry.with(journal).try_init(),
        None => registry.with(plain(io::stderr)).try_init(),
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
fn plain<S, W>(writer: W) -> impl tracing_subscriber::Layer<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
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

/// Writes what has happened to tasks: one line each, after the commit, from one place.
///
/// On a thread of its own: a journal that does not take lines must hold up neither the board nor the loop.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Teller {
    queue: SyncSender<Told>,
}

#[derive(Debug)]
enum Told {
    Happened(Vec<Happening>),
    Last(SyncSender<()>),
}

impl Teller {
    /// Starts its thread.
    ///
    /// # Errors
    /// Where the system has none left.
    pub fn start() -> io::Result<Self> {
        let (queue, told) = sync_channel(WAITING);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&told))?;
        Ok(Self { queue })
    }

    /// Tells; where nothing has been taken for long, what is too much is left out: it is on the board.
    pub fn tell(&self, happened: Vec<Happening>) {
        if let Err(TrySendError::Full(Told::Happened(lost))) = self.queue.try_send(Told::Happened(happened)) {
            tracing::debug!(lines = lost.len(), "the journal takes no lines; leaving some out");
        }
    }

    /// Waits, within bounds, until everything was written. Blocks.
    pub fn finish(&self) {
        let (said, heard) = sync_channel(1);
        if self.queue.try_send(Told::Last(said)).is_ok() {
            // Either way the daemon ends now.
            let _ = heard.recv_timeout(LAST_LINES);
        }
    }
}

fn write_all(told: &Receiver<Told>) {
    while let Ok(told) = told.recv() {
        match told {
            Told::Happened(happened) => happened.iter().for_each(write),
            Told::Last(said) => drop(said.send(())),
        }
    }
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
    use std::sync::{Arc, Mutex};

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

    #[test]
    fn only_the_stream_itself_is_the_journal() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert!(is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino), &file));
        assert!(!is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino + 1), &file));
        assert!(!is_stream("nonsense", &file));
    }
}
