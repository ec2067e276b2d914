//! The one door to the use cases, for the bus, the private socket and the daemon.
//!
//! Checks what can be checked without the board, does the rest in one transaction, and asks the daemon's loop
//! where something has to be looked at or done to a process.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::{mpsc, oneshot, watch};

use crate::core::fault::{Error, Fault};
use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;
use crate::core::policy::Policy;
use crate::core::view::SweepReport;
use crate::ports::Clock;
use crate::service::types::{Ask, Caller, Reply, StateDir, WorkerGiven};
use crate::service::waiting::Waiting;
use crate::service::worker::Registrar;
use crate::store::{Store, When, queues};

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    registrar: Arc<dyn Registrar>,
    asks: mpsc::Sender<Ask>,
    policy: RwLock<Arc<Policy>>,
    boot: ThisBoot,
    state: StateDir,
    properties: watch::Sender<Properties>,
    workers: AtomicU32,
    starts: AtomicBool,
    waiting: Waiting,
    last_sweep: Mutex<Option<SweepReport>>,
}

/// The boot of this life of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThisBoot {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its row on the board.
    pub boot: BootId,
}

/// What announces its changes on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Nothing new is started.
    pub draining: bool,
    /// Why the daemon is not well, sorted.
    pub degraded: Vec<String>,
}

impl Desk {
    /// Opens the desk.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        registrar: Arc<dyn Registrar>,
        asks: mpsc::Sender<Ask>,
        policy: Policy,
        boot: ThisBoot,
        state: StateDir,
    ) -> Self {
        let first = Properties { draining: store.was_draining(), degraded: Vec::new() };
        let inner = Arc::new(Inner {
            store,
            clock,
            registrar,
            asks,
            policy: RwLock::new(Arc::new(policy)),
            boot,
            state,
            properties: watch::Sender::new(first),
            workers: AtomicU32::new(0),
            starts: AtomicBool::new(true),
            waiting: Waiting::default(),
            last_sweep: Mutex::new(None),
        });
        let weak = Arc::downgrade(&inner);
        inner.store.on_disk_full(move |is_full| {
            if let Some(inner) = weak.upgrade() {
                inner.set_degraded("disk_full", is_full);
            }
        });
        Self { inner }
    }

    /// The board.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Where the files are.
    pub fn state(&self) -> &StateDir {
        &self.inner.state
    }

    /// The moment, with the circumstances of a use case.
    pub fn when(&self) -> When {
        When {
            now: self.inner.clock.now(),
            epoch: self.inner.boot.epoch.clone(),
            boot: self.inner.boot.boot,
            policy: self.policy(),
            // Jitter alone hangs on it: without randomness it is the same every time, and does no harm.
            seed: getrandom::u64().unwrap_or_default(),
        }
    }

    /// The configuration.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.inner.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another configuration from now on; queues that are missing are made.
    ///
    /// # Errors
    /// A fault of the board; then the old configuration stays.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let missing = policy.queues.clone();
        if !missing.is_empty() {
            let make = move |tx: &mut crate::store::Tx<'_>| {
                missing.iter().try_for_each(|(queue, policy)| queues::make_missing(tx, queue, policy))
            };
            self.inner.store.write("making the queues of the configuration", make).await?;
        }
        *self.inner.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        Ok(())
    }

    /// The claims that wait for work.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.inner.waiting
    }

    pub(super) async fn identify(
        &self,
        caller: &Caller,
        given: WorkerGiven,
    ) -> Result<Option<(i64, crate::core::fingerprint::Stored)>, Error> {
        if matches!(given, WorkerGiven::None) {
            return Ok(None);
        }
        let (registrar, caller) = (Arc::clone(&self.inner.registrar), *caller);
        let looked = tokio::task::spawn_blocking(move || registrar.identify(&caller, given)).await;
        looked.unwrap_or(Err(Fault::Ended("the look at a process").into()))
    }

    pub(super) async fn is_gone(&self, pid: i64, worker: crate::core::fingerprint::Stored) -> bool {
        let registrar = Arc::clone(&self.inner.registrar);
        tokio::task::spawn_blocking(move || registrar.is_gone(pid, &worker)).await.unwrap_or(false)
    }

    /// Asks the daemon's loop. `None`: it has ended, or did not answer.
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> Option<Result<T, Error>> {
        let (reply, answer) = oneshot::channel();
        self.inner.asks.send(ask(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Whether nothing new is started.
    pub fn draining(&self) -> bool {
        self.inner.properties.borrow().draining
    }

    /// Why the daemon is not well.
    pub fn degraded(&self) -> Vec<String> {
        self.inner.properties.borrow().degraded.clone()
    }

    /// Announces changes of [`Properties`].
    pub fn properties(&self) -> watch::Receiver<Properties> {
        self.inner.properties.subscribe()
    }

    /// Workers that the daemon watches.
    pub fn workers(&self) -> u32 {
        self.inner.workers.load(Ordering::Relaxed)
    }

    /// Whether ready tasks are started in this life of the daemon, where the board is not draining.
    pub fn starts(&self) -> bool {
        self.inner.starts.load(Ordering::Relaxed)
    }

    /// Starts tasks from now on, or no longer; says whether that was otherwise.
    pub fn set_starts(&self, starts: bool) -> bool {
        self.inner.starts.swap(starts, Ordering::Relaxed) != starts
    }

    /// The last sweep that was asked for or did something.
    pub fn last_sweep(&self) -> Option<SweepReport> {
        self.inner.last_sweep.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The epoch's text.
    pub fn epoch(&self) -> String {
        self.inner.boot.epoch.to_string()
    }

    /// The boot_id alone.
    pub fn boot_id(&self) -> String {
        self.inner.boot.epoch.boot_id.clone()
    }

    /// For the daemon: one reason more, or one less.
    pub fn set_degraded(&self, reason: &str, on: bool) {
        self.inner.set_degraded(reason, on);
    }

    /// For the daemon.
    pub fn set_workers(&self, workers: u32) {
        self.inner.workers.store(workers, Ordering::Relaxed);
    }

    /// For the daemon.
    pub fn set_last_sweep(&self, report: SweepReport) {
        *self.inner.last_sweep.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    pub(super) fn set_draining(&self, on: bool) {
        self.inner.properties.send_if_modified(|properties| {
            let changed = properties.draining != on;
            properties.draining = on;
            changed
        });
    }
}

impl Inner {
    fn set_degraded(&self, reason: &str, on: bool) {
        self.properties.send_if_modified(|properties| {
            let at = properties.degraded.binary_search_by(|there| there.as_str().cmp(reason));
            match (at, on) {
                (Err(at), true) => properties.degraded.insert(at, reason.to_owned()),
                (Ok(at), false) => drop(properties.degraded.remove(at)),
                (Ok(_), true) | (Err(_), false) => return false,
            }
            true
        });
    }
}
