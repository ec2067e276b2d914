//! Descriptors in the event loop: owned, so that they stay what they are for as long as they are waited for.

#![expect(unsafe_code, reason = "tokio cannot see that an owned descriptor stays open; the types here can")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::linux::pidfd::PidFd;

/// A descriptor that is owned by the one who waits.
#[derive(Debug)]
pub struct Kept<T>(T);

impl AsRawFd for Kept<OwnedFd> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsRawFd for Kept<Arc<PidFd>> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<T> Kept<T> {
    /// What is kept.
    pub const fn inner(&self) -> &T {
        &self.0
    }
}

/// Puts a descriptor into the event loop of the caller's runtime.
///
/// # Errors
/// Where epoll cannot take it.
pub fn readable<T>(descriptor: T) -> io::Result<AsyncFd<Kept<T>>>
where
    Kept<T>: AsRawFd,
{
    // SAFETY: `Kept` owns its descriptor (or a share in its owner), gives out nothing by which it could be
    // closed, and names the same number at every call; `AsyncFd` keeps the `Kept` until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(Kept(descriptor), Interest::READABLE) };
    registered.map_err(|error| io::Error::other(error.to_string()))
}
