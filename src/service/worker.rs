//! The confused deputy: whoever registers a process as a worker asks the daemon to signal it one day, so it
//! must belong wholly to the one who asks.

use crate::core::fault::Error;
use crate::core::fingerprint::{Epoch, Stored};
use crate::core::ids::Pid;
use crate::ports::Processes;
use crate::service::types::{Caller, WorkerGiven};

/// Looks at a process that a claimant names, and says what proves it.
pub trait Registrar: Send + Sync {
    /// The pid and what proves it; `None` for a lease-only claim.
    ///
    /// # Errors
    /// [`crate::core::refusal::Refusal::NotYourProcess`], or a fault while looking.
    fn identify(&self, caller: &Caller, given: WorkerGiven) -> Result<Option<(i64, Stored)>, Error>;
}

/// The real one, over any [`Processes`].
pub struct Deputy<P> {
    /// Where to look.
    pub processes: P,
    /// The epoch of what is captured.
    pub epoch: Epoch,
    /// The daemon, its launcher: never a worker.
    pub never: Vec<Pid>,
}

impl<P: Processes> Registrar for Deputy<P> {
    fn identify(&self, _caller: &Caller, _given: WorkerGiven) -> Result<Option<(i64, Stored)>, Error> {
        todo!()
    }
}
