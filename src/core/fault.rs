//! Two kinds of error: refusals are the caller's matter and have a name on the bus; faults are ours, carry
//! their chain, and become `Internal` with an id that is in the log.

use crate::core::refusal::Refusal;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's matter: nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Ours. Logged once, with its chain, where it is turned into `Internal`.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A fault of the daemon or its host.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// SQLite.
    #[error("the board failed while doing {doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system.
    #[error("the host failed while doing {doing}")]
    Host {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Something ended that others still need: only at the end of the daemon's life.
    #[error("{0} has ended")]
    Ended(&'static str),
    /// A row holds what it cannot hold.
    #[error("the board holds {0}")]
    Corrupt(&'static str),
}
