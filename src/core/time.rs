//! The two clocks of the product, as two types that do not mix.
//!
//! Leases, deadlines, stall limits, back-off and signal grace run on CLOCK_MONOTONIC of one boot, which
//! no step of the wall clock moves and which stands still while the host sleeps. Wall clock is for
//! people, for `not_before` and for retention. The only conversion between the two is for display, and
//! it is made in `bus/`.

use std::fmt;

/// Milliseconds of CLOCK_MONOTONIC of one boot. Means nothing without the epoch it was read in; negative
/// values are legal, because a time namespace may shift the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoMs(pub i64);

impl MonoMs {
    /// The moment `span_ms` later; saturates at the ends of the clock.
    pub const fn plus(self, span_ms: i64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to this moment; negative if it lies before.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Microseconds of the wall clock since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallUsec(pub i64);

impl fmt::Display for MonoMs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ms", self.0)
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_MONOTONIC.
    pub mono: MonoMs,
    /// CLOCK_REALTIME.
    pub wall: WallUsec,
}

/// A span of the bus (microseconds) in milliseconds, rounded up so that nothing ends too early; a span
/// that does not fit becomes the longest one.
pub fn usec_to_ms(usec: u64) -> i64 {
    i64::try_from(usec.div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// A span in milliseconds as the bus carries it (microseconds); a negative one is 0.
pub fn ms_to_usec(span_ms: i64) -> u64 {
    u64::try_from(span_ms).unwrap_or(0).saturating_mul(1_000)
}
