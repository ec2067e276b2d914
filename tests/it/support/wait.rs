//! The one place that waits for something to become so. Bounded; what it saw last is in the failure.

use std::time::{Duration, Instant};

/// Far longer than anything here takes on a loaded machine; only a broken product reaches it.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);

/// Looks until the look is `Ok`; panics with what was seen last when patience is over.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        let seen = match look() {
            Ok(value) => return value,
            Err(seen) => seen,
        };
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}; last seen: {seen}");
        std::thread::sleep(PAUSE);
    }
}
