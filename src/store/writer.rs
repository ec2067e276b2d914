//! The one thread that writes: group commit.
//!
//! What is waiting is done in one transaction, each work in a savepoint of its own, and answered after the
//! commit. If the last batch held more than one work, the next one gathers for a moment first: otherwise a
//! slow disk makes a convoy of small batches. Works are bounded in number; whoever brings one more waits.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::core::fault::{Error, Fault};
use crate::core::happening::Happening;
use crate::core::refusal::Refusal;
use crate::core::view::Change;
use crate::store::jobs::{Batch, Gauges, Job, Listener, Teller, Work, answer_all, monotonic};
use crate::store::lock::Memory;
use crate::store::look::last_event;
use crate::store::open::Board;
use crate::store::sql::{Trouble, fault, trouble};
use crate::store::{Health, OnCommit, OpenError, Tx};

/// Works that may wait.
const WAITING: usize = 4_096;

/// Works of one transaction.
const BATCH: usize = 512;

/// The longest gather window.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// How long a work waits for another process that holds the write lock.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// How often a full disk is looked at again.
const FULL_LOOK: Duration = Duration::from_secs(1);

/// The write-ahead log is emptied when it holds more than this and nothing waits.
const WAL_IDLE_BYTES: u64 = 4 * 1_024 * 1_024;

/// The write-ahead log is emptied when it holds more than this, whatever waits.
pub(super) const WAL_BUSY_BYTES: u64 = 16 * 1_024 * 1_024;

/// A page and its frame header.
const FRAME_BYTES: u64 = 4_096 + 24;

/// Hands works to the writer's thread.
pub(super) struct Writer {
    queue: Sender<Message>,
    room: Arc<Semaphore>,
    gauges: Arc<Gauges>,
    ready: watch::Receiver<u64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    Work(Box<dyn Job>),
    Close,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(mut board: Board, on_commit: OnCommit) -> Result<Self, OpenError> {
        let gauges = Arc::new(Gauges::default());
        let pages = Arc::clone(&gauges.wal_pages);
        let path = board.connection.path().unwrap_or_default().into();
        board
            .connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, held: std::ffi::c_int| {
                pages.store(u64::try_from(held).unwrap_or(0), Ordering::Release);
                Ok(())
            }))
            .map_err(|source| OpenError::Sqlite { path, doing: "watching its log", source })?;
        gauges.set_full(!board.reserve.is_there());
        let (queue, works) = mpsc::channel();
        let (ready_tx, ready) = watch::channel(0);
        let path = board.connection.path().unwrap_or_default().into();
        let mut state = State {
            board,
            on_commit,
            ready: ready_tx,
            gauges: Arc::clone(&gauges),
            last: Last { works: 0, took: Duration::ZERO, checkpointed_pages: 0 },
        };
        let thread = thread::Builder::new()
            .name("board".to_owned())
            .spawn(move || state.serve(&works))
            .map_err(|source| OpenError::Io { path, doing: "starting its thread", source })?;
        let room = Arc::new(Semaphore::new(WAITING));
        Ok(Self { queue, room, gauges, ready, thread: Mutex::new(Some(thread)) })
    }

    /// A work that can be done once only.
    pub(super) async fn once<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut work = Some(work);
        let work = move |tx: &mut Tx<'_>| match work.take() {
            Some(work) => work(tx),
            None => Err(Refusal::ReadOnly.into()),
        };
        self.hand_in(doing, work, false).await
    }

    /// A work that is done once more if the disk was full.
    pub(super) async fn again<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.hand_in(doing, work, true).await
    }

    async fn hand_in<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
        is_repeatable: bool,
    ) -> Result<T, Error> {
        const ENDED: Fault = Fault::Ended("the board");
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| ENDED)?;
        let (reply, answer) = oneshot::channel();
        let gauges = Arc::clone(&self.gauges);
        let job =
            Work { doing, work, is_repeatable, since: monotonic(), said: None, reply, gauges, _room: room };
        self.gauges.waiting.fetch_add(1, Ordering::AcqRel);
        self.queue.send(Message::Work(Box::new(job))).map_err(|_| ENDED)?;
        answer.await.map_err(|_| ENDED)?
    }

    pub(super) fn health(&self) -> Health {
        Health {
            progress: self.gauges.progress.load(Ordering::Acquire),
            waiting: self.gauges.waiting.load(Ordering::Acquire),
            oldest_ms: self.gauges.age_ms(),
            reading: 0,
            disk_full: self.gauges.disk_full.load(Ordering::Acquire),
            wal_bytes: self.gauges.wal_pages.load(Ordering::Acquire).saturating_mul(FRAME_BYTES),
        }
    }

    pub(super) fn on_disk_full(&self, tell: Listener) {
        tell(self.gauges.disk_full.load(Ordering::Acquire));
        *self.gauges.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }

    pub(super) fn on_happened(&self, tell: Teller) {
        *self.gauges.teller.lock().unwrap_or_else(PoisonError::into_inner) = Some(tell);
    }

    pub(super) fn ready(&self) -> watch::Receiver<u64> {
        self.ready.clone()
    }

    /// Lets the thread finish what it has, and waits for it.
    pub(super) fn close(&self) {
        // Where the thread has ended already there is nobody to tell.
        let _ = self.queue.send(Message::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It catches what works do; its own panic would have nothing to add here.
            let _ = thread.join();
        }
    }
}

/// What a commit has to tell.
#[derive(Default)]
struct Told {
    changes: Vec<Change>,
    happened: Vec<Happening>,
}

struct Last {
    works: usize,
    took: Duration,
    checkpointed_pages: u64,
}

struct State {
    board: Board,
    on_commit: OnCommit,
    ready: watch::Sender<u64>,
    gauges: Arc<Gauges>,
    last: Last,
}

impl State {
    fn serve(&mut self, works: &Receiver<Message>) {
        while let Some((batch, is_last)) = self.gather(works) {
            if !batch.is_empty() {
                self.last.works = batch.len();
                if let Some(first) = batch.first() {
                    self.gauges.begin(first.since());
                }
                self.commit(batch, true);
                self.gauges.end();
            }
            self.look_after(works_wait(&self.gauges));
            if is_last {
                break;
            }
        }
        // The log is emptied so that the file alone is the whole board; a reader may stand in the way, and
        // then the log stays beside it.
        let _ = self.board.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Waits for works; the second says that there will be no more.
    fn gather(&self, works: &Receiver<Message>) -> Option<(Batch, bool)> {
        let mut batch = Batch::new();
        let is_full = self.gauges.disk_full.load(Ordering::Acquire);
        let first = if is_full {
            match works.recv_timeout(FULL_LOOK) {
                Err(RecvTimeoutError::Timeout) => return Some((batch, false)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Ok(message) => message,
            }
        } else {
            works.recv().ok()?
        };
        let Message::Work(job) = first else { return Some((batch, true)) };
        batch.push(job);
        self.tick();
        let window = if self.last.works > 1 { (self.last.took / 2).min(GATHER_MAX) } else { Duration::ZERO };
        let until = monotonic() + window;
        while batch.len() < BATCH {
            let next = match works.try_recv() {
                Ok(message) => message,
                Err(mpsc::TryRecvError::Disconnected) => return Some((batch, true)),
                Err(mpsc::TryRecvError::Empty) => {
                    let left = until.saturating_sub(monotonic());
                    if left.is_zero() || batch.len() >= self.last.works {
                        break;
                    }
                    match works.recv_timeout(left) {
                        Ok(message) => message,
                        Err(_) => break,
                    }
                }
            };
            match next {
                Message::Work(job) => batch.push(job),
                Message::Close => return Some((batch, true)),
            }
        }
        Some((batch, false))
    }

    /// Does a batch in one transaction. If the disk is full the repeatable works are done once more, on the
    /// reserve.
    fn commit(&mut self, batch: Batch, may_repeat: bool) {
        let Some(mut batch) = self.begin(batch, may_repeat) else { return };
        let mut told = Told::default();
        let mut failed = None;
        for job in &mut batch {
            if let Err(error) = attempt(&self.board.connection, job.as_mut(), &self.gauges, &mut told) {
                failed = Some(error);
                break;
            }
        }
        let began = monotonic();
        let outcome = match failed {
            Some(error) => Err(error),
            None if batch.iter().any(|job| job.is_full()) => Err(full_error()),
            None => execute(&self.board.connection, "COMMIT"),
        };
        self.last.took = monotonic().saturating_sub(began);
        match outcome {
            Ok(()) => {
                self.tell(&told.changes);
                answer_all(batch, || None);
                self.gauges.tell(told.happened);
            }
            Err(error) => self.lose(batch, &error, may_repeat),
        }
        self.tick();
    }

    /// `BEGIN IMMEDIATE`, waiting for another process in bounded steps; works that have waited too long are
    /// answered meanwhile.
    fn begin(&mut self, mut batch: Batch, may_repeat: bool) -> Option<Batch> {
        loop {
            match execute(&self.board.connection, "BEGIN IMMEDIATE") {
                Ok(()) => return Some(batch),
                Err(error) if trouble(&error) == Trouble::Busy => {
                    self.tick();
                    let now = monotonic();
                    let (late, rest): (Batch, Batch) =
                        batch.into_iter().partition(|job| now.saturating_sub(job.since()) >= BUSY_WAIT);
                    answer_all(late, || Some(busy()));
                    if rest.is_empty() {
                        return None;
                    }
                    batch = rest;
                }
                Err(error) => {
                    self.lose(batch, &error, may_repeat);
                    return None;
                }
            }
        }
    }

    /// Nothing of the batch was kept.
    fn lose(&mut self, batch: Batch, error: &rusqlite::Error, may_repeat: bool) {
        if !self.board.connection.is_autocommit() {
            // What failed may have ended the transaction already, and then there is nothing to roll back.
            let _ = execute(&self.board.connection, "ROLLBACK");
        }
        if trouble(error) != Trouble::Full {
            tracing::error!(error = %error, works = batch.len(), "a commit failed; its works were refused");
            answer_all(batch, || Some(fault("committing", error.to_string())));
            return;
        }
        self.fill_up();
        let (again, rest): (Batch, Batch) =
            batch.into_iter().partition(|job| may_repeat && job.is_repeatable());
        answer_all(rest, || Some(Refusal::ReadOnly.into()));
        if !again.is_empty() {
            self.commit(again, false);
        }
    }

    /// The disk is full: the reserve is given back, and new work is refused from now on.
    fn fill_up(&mut self) {
        if !self.gauges.disk_full.load(Ordering::Acquire) {
            tracing::warn!("the disk of the board is full; new work is refused until there is space");
            self.gauges.set_full(true);
        }
        self.board.reserve.release();
    }

    fn tell(&mut self, changes: &[Change]) {
        if let Ok(last_event) = last_event(&self.board.connection) {
            // Losing this memory errs on the harmless side, and the commit stands.
            let _ = self.board.lock.remember(Memory { existed: true, last_event });
        }
        (self.on_commit)(changes);
        if changes.contains(&Change::Ready) {
            self.ready.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Between batches: a full disk, a long log.
    fn look_after(&mut self, is_busy: bool) {
        if self.gauges.disk_full.load(Ordering::Acquire) && self.board.reserve.restore() {
            self.gauges.set_full(false);
            tracing::info!("the disk of the board has space again; new work is accepted");
        }
        let pages = self.gauges.wal_pages.load(Ordering::Acquire);
        let limit = if is_busy { WAL_BUSY_BYTES } else { WAL_IDLE_BYTES } / FRAME_BYTES;
        if pages < self.last.checkpointed_pages {
            self.last.checkpointed_pages = 0;
        }
        if pages.saturating_sub(self.last.checkpointed_pages) >= limit {
            self.checkpoint(pages);
        }
    }

    /// Moves the log into the board; the log starts over with the next commit unless a reader still needs it.
    fn checkpoint(&mut self, pages: u64) {
        self.tick();
        let moved = self.board.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        match moved {
            Ok((held, done)) if held == done => self.gauges.wal_pages.store(0, Ordering::Release),
            // Somebody holds an older snapshot: tried again when the log has grown once more.
            Ok(_) => self.last.checkpointed_pages = pages,
            Err(error) => {
                self.last.checkpointed_pages = pages;
                tracing::warn!(error = %error, "the board's log could not be emptied; it will be tried again");
            }
        }
        self.tick();
    }

    fn tick(&self) {
        self.gauges.progress.fetch_add(1, Ordering::AcqRel);
    }
}

fn works_wait(gauges: &Gauges) -> bool {
    gauges.waiting.load(Ordering::Acquire) > 0
}

/// One work in its savepoint.
fn attempt(
    connection: &Connection,
    job: &mut dyn Job,
    gauges: &Gauges,
    told: &mut Told,
) -> rusqlite::Result<()> {
    execute(connection, "SAVEPOINT work")?;
    let mut tx = Tx::new(connection, gauges.disk_full.load(Ordering::Acquire));
    if job.attempt(&mut tx) {
        execute(connection, "RELEASE work")?;
        let (changes, happened) = tx.into_told();
        told.happened.extend(happened);
        for change in changes {
            let is_general = matches!(change, Change::Ready | Change::Due);
            if !(is_general && told.changes.contains(&change)) {
                told.changes.push(change);
            }
        }
        return Ok(());
    }
    if connection.is_autocommit() {
        // SQLite has rolled the whole transaction back by itself: sqlite.org/lang_transaction.html.
        return Err(if job.is_full() { full_error() } else { lost_error() });
    }
    execute(connection, "ROLLBACK TO work")?;
    execute(connection, "RELEASE work")
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn full_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None)
}

fn lost_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK), None)
}

fn busy() -> Error {
    Refusal::Busy("another process holds the write lock of the board; try again".to_owned()).into()
}
