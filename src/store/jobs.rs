//! Works on their way to the writer's thread and back: what is done, how often, and who is answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::core::fault::{Error, Fault};
use crate::core::happening::Happening;
use crate::store::Tx;
use crate::store::sql::{fault, is_full};

#[derive(Default)]
pub(super) struct Gauges {
    pub(super) progress: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// When the oldest work of the batch came, by [`monotonic`]; 0: there is none.
    pub(super) oldest_ms: AtomicU64,
    pub(super) disk_full: AtomicBool,
    pub(super) wal_pages: Arc<AtomicU64>,
    pub(super) listener: Mutex<Option<Listener>>,
    pub(super) teller: Mutex<Option<Teller>>,
}

/// Told whether the disk is full.
pub(super) type Listener = Box<dyn Fn(bool) + Send>;

/// Told what has happened, after the commit.
pub(super) type Teller = Box<dyn Fn(Vec<Happening>) + Send>;

impl Gauges {
    pub(super) fn tell(&self, happened: Vec<Happening>) {
        if let Some(teller) = &*self.teller.lock().unwrap_or_else(PoisonError::into_inner)
            && !happened.is_empty()
        {
            teller(happened);
        }
    }

    pub(super) fn begin(&self, since: Duration) {
        self.oldest_ms.store(in_ms(since).max(1), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.oldest_ms.store(0, Ordering::Release);
    }

    /// How long the oldest work of the batch has waited, milliseconds.
    pub(super) fn age_ms(&self) -> u64 {
        match self.oldest_ms.load(Ordering::Acquire) {
            0 => 0,
            since => in_ms(monotonic()).saturating_sub(since),
        }
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.disk_full.store(is_full, Ordering::Release);
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            listener(is_full);
        }
    }
}

/// One work, with its answer.
pub(super) trait Job: Send {
    /// Does it; whether what it wrote is to be kept.
    fn attempt(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Whether the last attempt ended for want of space.
    fn is_full(&self) -> bool;
    /// Whether it may be attempted once more.
    fn is_repeatable(&self) -> bool;
    /// When it came.
    fn since(&self) -> Duration;
    /// Answers; `lost` says why nothing of it was kept.
    fn answer(self: Box<Self>, lost: Option<Error>);
}

pub(super) struct Work<T, F> {
    pub(super) doing: &'static str,
    pub(super) work: F,
    pub(super) is_repeatable: bool,
    pub(super) since: Duration,
    pub(super) said: Option<Result<T, Error>>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) _room: OwnedSemaphorePermit,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Result<T, Error> + Send> Job for Work<T, F> {
    fn attempt(&mut self, tx: &mut Tx<'_>) -> bool {
        // A panic ends this work, not the board; its savepoint is rolled back like that of any other.
        let said = catch_unwind(AssertUnwindSafe(|| (self.work)(tx)))
            .unwrap_or_else(|_| Err(fault(self.doing, "the work panicked")));
        let keep = said.is_ok();
        self.said = Some(said);
        keep
    }

    fn is_full(&self) -> bool {
        matches!(&self.said, Some(Err(error)) if is_full(error))
    }

    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn since(&self) -> Duration {
        self.since
    }

    fn answer(self: Box<Self>, lost: Option<Error>) {
        let answer = match (lost, self.said) {
            (Some(error), _) => Err(error),
            (None, Some(said)) => said,
            (None, None) => Err(Fault::Ended("the board").into()),
        };
        self.gauges.waiting.fetch_sub(1, Ordering::AcqRel);
        // Whoever asked may have gone; the board has changed all the same.
        let _ = self.reply.send(answer);
    }
}

/// CLOCK_MONOTONIC, for spans within this process only: nothing of it reaches the board.
pub(super) fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn in_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(super) type Batch = Vec<Box<dyn Job>>;

pub(super) fn answer_all(batch: Batch, lost: impl Fn() -> Option<Error>) {
    for job in batch {
        job.answer(lost());
    }
}
