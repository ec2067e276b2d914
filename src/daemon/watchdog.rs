//! Pings the manager's watchdog, and only while the loop and the board's writer get on.
//!
//! A loop that is stuck is no use to anybody: it gets no ping, and the manager starts another daemon in its
//! place. A slow disk is no fault of the loop, and another daemon would wait for the same disk: that is
//! degraded, and not dead, for as long as anybody could wish to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::core::time::MonoMs;
use crate::service::desk::Desk;
use crate::store::Health;
use crate::systemd::message_id::{self, Line};
use crate::systemd::notify::Notifier;

/// Whoever waits longer than this for the board is not waiting for the disk, milliseconds.
const DISK_PATIENCE_MS: i64 = 5 * 60 * 1_000;
/// A work that waits longer than this has a slow disk, milliseconds.
const SLOW_MS: u64 = 2_000;

/// How the loop gets on, as it notes itself.
#[derive(Debug, Default)]
pub struct Pulse {
    turns: AtomicU64,
    idle: AtomicBool,
}

impl Pulse {
    /// The loop waits for something to do.
    pub fn rests(&self) {
        self.idle.store(true, Ordering::Release);
    }

    /// The loop has something to do.
    pub fn turns(&self) {
        self.idle.store(false, Ordering::Release);
        self.turns.fetch_add(1, Ordering::AcqRel);
    }
}

/// What a tick sees.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    idle: bool,
    board: Health,
}

/// What a tick does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    /// Everything gets on.
    Ping,
    /// The disk is slow; the daemon is alive.
    PingSlow,
    /// Something is stuck.
    Silent,
}

/// What the ticks have seen so far.
struct Watch {
    /// Nothing before the first tick: there is nothing to compare with.
    last: Option<Seen>,
    moved: MonoMs,
}

impl Watch {
    fn tick(&mut self, seen: Seen, now: MonoMs) -> Tick {
        let last = self.last.replace(seen);
        let loop_moves = seen.idle || last.is_none_or(|last| seen.turns != last.turns);
        let writer_moves =
            seen.board.waiting == 0 || last.is_none_or(|last| seen.board.progress != last.board.progress);
        let slow = seen.board.oldest_ms > SLOW_MS;
        if loop_moves && writer_moves {
            self.moved = now;
            return if slow { Tick::PingSlow } else { Tick::Ping };
        }
        let waits_for_disk = seen.board.waiting > 0 || seen.board.reading > 0;
        if waits_for_disk && now.since(self.moved) < DISK_PATIENCE_MS {
            let since_last_tick = slow || seen.board.waiting == 0;
            return if since_last_tick { Tick::PingSlow } else { Tick::Ping };
        }
        Tick::Silent
    }
}

/// Pings for as long as it is let; never returns.
pub async fn watch(desk: Desk, pulse: Arc<Pulse>, notifier: Notifier, limit: Duration) {
    let look = || Seen {
        turns: pulse.turns.load(Ordering::Acquire),
        idle: pulse.idle.load(Ordering::Acquire),
        board: desk.store().health(),
    };
    let mut watch = Watch { last: None, moved: desk.when().now.mono };
    let mut ticks = tokio::time::interval(limit / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_silent = false;
    loop {
        ticks.tick().await;
        let tick = watch.tick(look(), desk.when().now.mono);
        desk.set_degraded("slow_disk", tick == Tick::PingSlow);
        match tick {
            Tick::Ping | Tick::PingSlow => notifier.ping(),
            Tick::Silent if !was_silent => {
                tracing::error!(
                    MESSAGE_ID = message_id::of(Line::Stuck).map(tracing::field::display),
                    "the daemon's loop is stuck; leaving the watchdog without a ping"
                );
            }
            Tick::Silent => {}
        }
        was_silent = tick == Tick::Silent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(waiting: u64, progress: u64, oldest_ms: u64, reading: u64) -> Health {
        Health { waiting, progress, oldest_ms, reading, ..Health::default() }
    }

    fn ticks(seen: &[(u64, bool, Health)]) -> Vec<Tick> {
        let mut watch = Watch { last: None, moved: MonoMs(0) };
        let seen = seen.iter().map(|&(turns, idle, board)| Seen { turns, idle, board });
        seen.zip(1..).map(|(seen, at)| watch.tick(seen, MonoMs(at * 10_000))).collect()
    }

    #[test]
    fn who_rests_or_turns_is_alive() {
        let still = board(0, 7, 0, 0);
        assert_eq!(ticks(&[(0, true, still), (0, true, still), (1, false, still)]), [Tick::Ping; 3]);
        assert_eq!(ticks(&[(1, false, still), (1, false, still)]), [Tick::Ping, Tick::Silent]);
    }

    #[test]
    fn a_writer_that_is_stuck_keeps_the_daemon_alive_as_long_as_a_disk_may_take() {
        let stuck = (1, false, board(3, 7, 9_000, 0));
        let mut seen = vec![(1, false, board(0, 7, 0, 0))];
        seen.extend([stuck; 31]);
        let ticks = ticks(&seen);
        assert_eq!(ticks[1], Tick::PingSlow);
        assert_eq!(ticks[29], Tick::PingSlow);
        assert_eq!(ticks[30], Tick::Silent, "five minutes after the last move");
    }

    #[test]
    fn a_writer_that_waits_for_another_process_gets_on_and_is_slow() {
        let seen = [(1, false, board(1, 1, 500, 0)), (2, false, board(1, 2, 2_500, 0))];
        assert_eq!(ticks(&seen), [Tick::Ping, Tick::PingSlow]);
    }

    #[test]
    fn a_read_that_takes_long_is_the_disks_fault_too() {
        let seen = [(1, false, board(0, 1, 0, 1)), (1, false, board(0, 1, 0, 1))];
        assert_eq!(ticks(&seen), [Tick::Ping, Tick::PingSlow]);
    }
}
