//! A desk over a real board, with clocks and processes that a test sets.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use crate::core::boot::Witnesses;
use crate::core::fault::Error;
use crate::core::fingerprint::{Fingerprint, Stored};
use crate::core::ids::{BootId, RunId, TaskId};
use crate::core::policy::Policy;
use crate::core::spec::TaskSpec;
use crate::core::time::{MonoMs, Now, WallUsec};
use crate::core::view::TaskView;
use crate::ports::Clock;
use crate::service::desk::{Desk, ThisBoot};
use crate::service::types::{Ask, Caller, ClaimRequest, WorkerGiven};
use crate::service::worker::Registrar;
use crate::store::testing::{Board, WALL_USEC, epoch};

/// The clock of a test: stands still until it is set.
#[derive(Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    /// Goes on.
    pub fn advance(&self, span_ms: i64) {
        self.0.fetch_add(span_ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        let mono_ms = self.0.load(Ordering::SeqCst);
        Now { mono: MonoMs(mono_ms), wall: WallUsec(WALL_USEC + mono_ms * 1_000) }
    }

    fn witnesses(&self) -> std::io::Result<Witnesses> {
        Ok(Witnesses { epoch: epoch(), nonce: None, boottime_ms: self.0.load(Ordering::SeqCst) })
    }
}

/// Takes every process as proven; the gone are those in the list.
#[derive(Default)]
pub struct Trusting {
    /// Pids that are gone.
    pub gone: Mutex<Vec<i64>>,
}

impl Registrar for Trusting {
    fn identify(&self, _: &Caller, given: WorkerGiven) -> Result<Option<(i64, Stored)>, Error> {
        Ok(match given {
            WorkerGiven::Pid { pid, start_ticks } => {
                let start_ticks = start_ticks.unwrap_or(0);
                let print = Fingerprint { epoch: epoch(), start_ticks, inode: None };
                Some((i64::from(pid), Stored::Proven(print)))
            }
            WorkerGiven::None | WorkerGiven::PidFd(_) => None,
        })
    }

    fn is_gone(&self, pid: i64, _: &Stored) -> bool {
        self.gone.lock().unwrap().contains(&pid)
    }
}

/// A desk and what it stands on.
pub struct Office {
    /// The desk.
    pub desk: Desk,
    /// The board.
    pub board: Board,
    /// The clock.
    pub clock: Arc<TestClock>,
    /// The processes.
    pub processes: Arc<Trusting>,
    /// What the desk asks of the loop.
    pub asks: mpsc::Receiver<Ask>,
}

/// Root.
pub const ROOT: Caller = Caller { uid: 0, is_admin: true };
/// Somebody.
pub const ANNA: Caller = Caller { uid: 1_000, is_admin: false };
/// Somebody else.
pub const BERT: Caller = Caller { uid: 1_001, is_admin: false };

impl Office {
    /// A new one.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// One with another configuration.
    pub fn with(change: impl FnOnce(&mut Policy)) -> Self {
        let board = Board::new();
        let clock = Arc::new(TestClock::default());
        let processes = Arc::new(Trusting::default());
        let (sender, asks) = mpsc::channel(8);
        let mut policy = Policy::for_cpus(2);
        change(&mut policy);
        let boot = ThisBoot { epoch: epoch(), boot: BootId::new(1) };
        let state = board.state();
        let desk = Desk::new(
            board.store.clone(),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::clone(&processes) as Arc<dyn Registrar>,
            sender,
            policy,
            boot,
            state,
        );
        Self { desk, board, clock, processes, asks }
    }

    /// A task of somebody's, for external workers.
    pub async fn task(&self, caller: &Caller, title: &str) -> TaskId {
        self.desk.create_task(caller, spec(title)).await.unwrap().0
    }

    /// What the board says of a task.
    pub async fn view(&self, task: TaskId) -> TaskView {
        self.desk.get_task(&ROOT, task).await.unwrap()
    }

    /// A lease-only claim of any task.
    pub async fn claim(&self, caller: &Caller) -> (TaskId, RunId) {
        let claimed = self.desk.claim_task(caller, wanted()).await.unwrap();
        (claimed.task.task, claimed.run)
    }
}

/// A task that only has a title.
pub fn spec(title: &str) -> TaskSpec {
    TaskSpec { title: title.to_owned(), ..TaskSpec::default() }
}

/// A claim of any task, without a process.
pub fn wanted() -> ClaimRequest {
    ClaimRequest {
        queue: None,
        task: None,
        worker: WorkerGiven::None,
        lease_ms: None,
        claimant: None,
        claim_key: None,
        wait_ms: None,
    }
}

/// A claim of any task, for a process.
pub fn wanted_for(pid: u32) -> ClaimRequest {
    ClaimRequest { worker: WorkerGiven::Pid { pid, start_ticks: Some(7) }, ..wanted() }
}
