//! SIGHUP while the daemon begins: held back until somebody listens, so that it is neither lost nor deadly.
//!
//! Source: sigprocmask(2): what is blocked stays pending. Children get an empty mask (`exec/`).

use std::io;

use nix::sys::signal::{SigSet, Signal};

fn only() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGHUP);
    set
}

/// Holds it back in this thread and in those that it starts.
///
/// # Errors
/// What pthread_sigmask(3) said.
pub fn hold_back() -> io::Result<()> {
    Ok(only().thread_block()?)
}

/// Takes it from now on; one that was held back comes at once.
///
/// # Errors
/// What pthread_sigmask(3) said.
pub fn let_through() -> io::Result<()> {
    Ok(only().thread_unblock()?)
}
