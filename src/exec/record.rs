//! The exit record: collected while the run goes on, written once when nothing of its tree is left.
//!
//! Source: getrusage(2) RUSAGE_CHILDREN; `memory.events` of the cgroup, kernel documentation
//! admin-guide/cgroup-v2.

#![expect(clippy::disallowed_methods, reason = "an adapter: reads its own cgroup")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use nix::sys::resource::{UsageWho, getrusage};

use crate::core::ids::{Nonce, RunId};
use crate::core::record::{End, Record};
use crate::core::retry::Exit;
use crate::core::time::Now;

/// How often the kernel has killed for memory in a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OomKills {
    cgroup: String,
    count: u64,
}

impl OomKills {
    /// Of the cgroup that this process is in; none where that is not readable.
    pub(super) fn read() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let cgroup = own.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
        let events = fs::read_to_string(format!("/sys/fs/cgroup{cgroup}/memory.events")).ok()?;
        let count = parse_events(&events)?;
        Some(Self { cgroup, count })
    }

    /// Whether the kernel killed something of this run since `before`.
    ///
    /// A scope of the run's own holds nobody else. In a cgroup that is shared with others, a kill counts only
    /// where the command itself ended by a KILL that nobody asked for.
    fn concern(before: Option<&Self>, after: Option<&Self>, nonce: &str, killed_unasked: bool) -> bool {
        let Some(after) = after else { return false };
        let count_before =
            before.filter(|before| before.cgroup == after.cgroup).map_or(0, |before| before.count);
        let own = after.cgroup.contains(nonce);
        let known_before = own || before.is_some_and(|before| before.cgroup == after.cgroup);
        after.count > count_before && known_before && (own || killed_unasked)
    }
}

fn parse_events(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// What is known of the end by now.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) run: RunId,
    pub(super) nonce: Nonce,
    /// Before the command ran.
    pub(super) oom_before: Option<OomKills>,
    /// How it ended, and when that was seen.
    pub(super) end: Option<(End, Now)>,
    /// Who asked for the end of the tree while the command still ran.
    pub(super) asked_by: Option<i32>,
    /// Whether the service manager did, by then.
    pub(super) manager_asked: bool,
}

impl Ending {
    /// Writes the record into its preallocated file and waits until it is on the disk.
    ///
    /// # Errors
    /// What pwrite(2) or fsync(2) said.
    pub(super) fn write(&self, file: &File, end: End, at: Now) -> io::Result<()> {
        let killed = matches!(end, End::Exited(Exit::Signal(_)));
        let killed_unasked = self.asked_by.is_none() && end == End::Exited(Exit::Signal(nix::libc::SIGKILL));
        let after = OomKills::read();
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let usec = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
        let record = Record {
            run: self.run,
            nonce: self.nonce.clone(),
            end,
            oom: OomKills::concern(
                self.oom_before.as_ref(),
                after.as_ref(),
                self.nonce.as_str(),
                killed_unasked,
            ),
            ended_ms: at.mono.0,
            ended_usec: at.wall.0,
            killed_by_pid: self.asked_by.filter(|_| killed),
            manager_asked: self.manager_asked,
            user_usec: usec(usage.user_time()),
            system_usec: usec(usage.system_time()),
            max_rss_kib: usage.max_rss(),
        };
        file.write_all_at(record.to_text().as_bytes(), 0)?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kills(cgroup: &str, count: u64) -> OomKills {
        OomKills { cgroup: cgroup.to_owned(), count }
    }

    #[test]
    fn the_count_is_found_among_the_others() {
        assert_eq!(parse_events("low 0\nhigh 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(parse_events("oom 3\n"), None);
    }

    #[test]
    fn a_kill_in_a_shared_cgroup_is_not_taken_for_ours() {
        let concern = |before: &OomKills, after: &OomKills, killed| {
            OomKills::concern(Some(before), Some(after), "abcd", killed)
        };
        let own = "/tenured.slice/tenured-1-run-2-abcd.scope";
        assert!(concern(&kills(own, 0), &kills(own, 1), false));
        assert!(!concern(&kills(own, 1), &kills(own, 1), true));
        assert!(!concern(&kills("/shared", 3), &kills("/shared", 4), false));
        assert!(concern(&kills("/shared", 3), &kills("/shared", 4), true));
        // Moved into its scope after the first look: the scope's count began at 0.
        assert!(concern(&kills("/shared", 3), &kills(own, 1), false));
        assert!(!concern(&kills("/shared", 3), &kills("/elsewhere", 9), true));
        assert!(!OomKills::concern(None, Some(&kills("/shared", 9)), "abcd", true));
        assert!(!OomKills::concern(Some(&kills(own, 0)), None, "abcd", true));
    }
}
