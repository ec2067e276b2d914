//! The one place that waits for something to become so. Bounded; what it saw last is in the failure.

use std::time::{Duration, Instant};

/// Far longer than anything here takes on a loaded machine; only a broken product reaches it.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);

/// Looks until the look is `Ok`; panics with what was seen last when patience is over.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    match until(PATIENCE, look) {
        Ok(value) => value,
        Err(seen) => panic!("waited {PATIENCE:?} for {what}; last seen: {seen}"),
    }
}

/// Looks until the look is `Ok` or the time is over, whichever comes first.
pub fn until<T>(bound: Duration, mut look: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    loop {
        let seen = match look() {
            Ok(value) => return Ok(value),
            Err(seen) => seen,
        };
        if start.elapsed() >= bound {
            return Err(seen);
        }
        std::thread::sleep(PAUSE);
    }
}
