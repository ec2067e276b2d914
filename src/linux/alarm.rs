//! One alarm clock for the daemon's loop: nearest due time of both clocks, and nothing between.
//!
//! CLOCK_MONOTONIC through tokio; CLOCK_REALTIME through a timerfd that also wakes when the clock is
//! stepped, so that `not_before` is honoured across a step. Source: timerfd_create(2),
//! `TFD_TIMER_CANCEL_ON_SET`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::core::time::WallUsec;
use crate::linux::readable::{Kept, readable};

/// See the module.
#[derive(Debug)]
pub struct WallAlarm {
    timer: AsyncFd<Kept<OwnedFd>>,
}

impl WallAlarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// Where the kernel has no timerfd left for us.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        Ok(Self { timer: readable(timer)? })
    }

    /// Sets it; `None` puts it out.
    ///
    /// # Errors
    /// What timerfd_settime(2) said.
    pub fn set(&self, at: Option<WallUsec>) -> io::Result<()> {
        // A moment of 0 would put it out; everything before 1970 is due at once.
        let usec = at.map_or(0, |at| at.0.max(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            Timespec { tv_sec: usec.div_euclid(1_000_000), tv_nsec: usec.rem_euclid(1_000_000) * 1_000 };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(
            self.timer.get_ref().inner(),
            flags,
            &Itimerspec { it_interval: zero, it_value: value },
        )?;
        Ok(())
    }

    /// Waits until it rings, or the wall clock was stepped.
    ///
    /// # Errors
    /// Where the event loop is gone.
    pub async fn rung(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut count = [0; 8];
            match rustix::io::read(self.timer.get_ref().inner(), &mut count) {
                // ECANCELED: the clock was set.
                Ok(_) | Err(rustix::io::Errno::CANCELED) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_moment_that_has_passed_rings_at_once() {
        let alarm = WallAlarm::new().unwrap();
        alarm.set(Some(WallUsec(-5))).unwrap();
        alarm.rung().await.unwrap();
        alarm.set(Some(WallUsec(1))).unwrap();
        alarm.rung().await.unwrap();
    }
}
