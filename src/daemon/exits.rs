//! Waits for the end of watched processes, each by its pidfd in the event loop: an end is seen at once and
//! costs nothing until then.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::core::ids::RunId;
use crate::daemon::engine::Event;
use crate::daemon::observe::Part;
use crate::linux::pidfd::PidFd;
use crate::linux::readable::readable;

/// A process whose end is waited for, or has come.
#[derive(Debug)]
pub struct Ended {
    /// Its run.
    pub run: RunId,
    /// Which process of the run.
    pub part: Part,
    /// The process.
    pub handle: Arc<PidFd>,
}

/// Waits in the background. Nothing where the event loop cannot take the pidfd: the safety sweep looks.
pub fn watch(ended: Ended, events: mpsc::Sender<Event>) -> Option<AbortHandle> {
    let watched = match readable(Arc::clone(&ended.handle)) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::warn!(TENURED_RUN = ended.run.get(), %error, "cannot wait for the end of a process; the next sweep looks");
            return None;
        }
    };
    let waiting = tokio::spawn(async move {
        if watched.readable().await.is_ok() {
            drop(watched);
            // A loop that has ended needs no news.
            let _ = events.send(Event::Ended(ended)).await;
        }
    });
    Some(waiting.abort_handle())
}
