//! From the writer's thread to the loop: what commits have changed, told once, in any number.
//!
//! Hints add up while nobody looks, so a flood of commits costs one wake-up and a bounded set.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::core::ids::RunId;
use crate::core::view::Change;

/// What has changed since the loop last asked.
#[derive(Debug, Default)]
pub struct Hints {
    /// Runs to look at.
    pub look: HashSet<RunId>,
    /// Something may have become ready, or room was made.
    pub ready: bool,
    /// Some due time may have become nearer.
    pub due: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    hints: Arc<Mutex<Hints>>,
    woken: Arc<Notify>,
    any: Arc<Notify>,
}

impl Hub {
    /// Told by the writer after each commit.
    pub fn committed(&self, changes: &[Change]) {
        let mut wake = false;
        {
            let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                match change {
                    // For the bus alone.
                    Change::Task(_) => continue,
                    Change::Ready => hints.ready = true,
                    // What has ended is let go of, also where its worker said so and no sweep did.
                    Change::Look(run) | Change::RunEnded(run) => drop(hints.look.insert(*run)),
                    Change::Due => hints.due = true,
                }
                wake = true;
            }
        }
        if wake {
            self.woken.notify_one();
        }
        self.any.notify_one();
    }

    /// Woken by every commit, whatever it changed; for one who waits.
    pub fn any(&self) -> Arc<Notify> {
        Arc::clone(&self.any)
    }

    /// Waits until something has changed, and takes it.
    pub async fn changed(&self) -> Hints {
        self.woken.notified().await;
        std::mem::take(&mut *self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
