//! The moment of a use case: time and identity are arguments.

use std::sync::Arc;

use crate::core::fingerprint::Epoch;
use crate::core::ids::{BootId, RunId};
use crate::core::policy::Policy;
use crate::core::time::Now;

/// The moment and the circumstances of a use case.
#[derive(Clone, Debug)]
pub struct When {
    /// Both clocks.
    pub now: Now,
    /// The epoch of the monotonic one.
    pub epoch: Epoch,
    /// The boot, as the board remembers it.
    pub boot: BootId,
    /// The configuration.
    pub policy: Arc<Policy>,
    /// Random; jitter is made of it and of the run's number.
    pub seed: u64,
}

impl When {
    /// Jitter of a run's back-off, 0 to 999: tasks that failed in one sweep do not come back together.
    pub(super) fn jitter_thousandths(&self, run: RunId) -> i64 {
        // The mixing steps of splitmix64, which spread neighbouring run numbers over the whole range.
        let mut mixed = self.seed ^ run.on_bus().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        i64::try_from((mixed ^ (mixed >> 31)) % 1_000).unwrap_or(0)
    }
}
