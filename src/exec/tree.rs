//! The descendants of this process, and how they are ended.
//!
//! As a child subreaper this process becomes the parent of every orphan below it, so a process without living
//! descendants has no children. Every signal goes through a pidfd of a process that is shown to descend from
//! this one: its parent is this process, or a shown descendant that still lived when it was read.
//!
//! Source: proc_tid_children(5), proc_pid_stat(5) field 4, prctl(2) PR_SET_CHILD_SUBREAPER.

#![expect(clippy::disallowed_methods, reason = "an adapter: reads /proc")]

use std::fs;
use std::io;
use std::path::Path;

use nix::libc;

use crate::core::ids::Pid;
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::proc::numbers;
use crate::linux::stat::Stat;
use crate::ports::{Held, Processes};

/// How deep one walk goes, because it holds a descriptor for each level. What lies deeper becomes a child of
/// this process as soon as what lies above has ended.
const DEPTH: usize = 128;
/// Walks that stop what moves, before all of it is killed. A process that cannot be stopped now (state D)
/// must not hold the others back for ever.
const STOP_WALKS: usize = 32;

/// The tree below this process.
#[derive(Debug)]
pub(super) struct Tree {
    host: HostProcesses,
    own_pid: i32,
    has_children_files: bool,
}

impl Tree {
    pub(super) fn below_us() -> io::Result<Self> {
        let own_pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let has_children_files = fs::exists(format!("/proc/{own_pid}/task/{own_pid}/children"))?;
        Ok(Self { host: HostProcesses::default(), own_pid, has_children_files })
    }

    /// Sends TERM to every descendant, and CONT so that a stopped one takes it.
    pub(super) fn ask(&self) {
        self.walk(&mut |process, _| {
            self.signal(process, libc::SIGTERM);
            self.signal(process, libc::SIGCONT);
        });
    }

    /// Stops every descendant, then kills all of them. What was stopped forks no more and keeps its place in
    /// the tree, so that the walks catch up also with one that forks and ends in a loop. Called again until
    /// no child is left.
    pub(super) fn end(&self) {
        for walk in 0..STOP_WALKS {
            let mut moving = 0_u32;
            self.walk(&mut |process, stat| {
                // Whoever waits for the kernel was told once; telling it again does not make it hear.
                let is_told = walk > 0 && stat.state == b'D';
                if !is_told && !matches!(stat.state, b'T' | b't' | b'Z' | b'X') {
                    moving += 1;
                    self.signal(process, libc::SIGSTOP);
                }
            });
            if moving == 0 {
                break;
            }
        }
        self.walk(&mut |process, _| self.signal(process, libc::SIGKILL));
    }

    /// One that has ended meanwhile needs no signal, and one that may not be signalled (it took another
    /// user's ids) is met again at the next walk.
    fn signal(&self, process: &PidFd, signal: i32) {
        let _ = self.host.signal(process, signal);
    }

    fn walk(&self, act: &mut dyn FnMut(&PidFd, &Stat)) {
        self.walk_below(self.own_pid, None, DEPTH, act);
    }

    /// Visits the children of `parent`, each before its own. What cannot be seen now is met at a later walk.
    fn walk_below(
        &self,
        parent_pid: i32,
        parent: Option<&PidFd>,
        depth: usize,
        act: &mut dyn FnMut(&PidFd, &Stat),
    ) {
        for pid in self.children(parent_pid) {
            let Ok(Some((child, stat))) = self.host.open_child(pid, parent_pid) else { continue };
            if parent.is_some_and(|parent| !matches!(parent.has_ended(), Ok(false))) {
                // The number of the parent may be another process by now: what was read shows nothing.
                return;
            }
            act(&child, &stat);
            if depth > 0 {
                self.walk_below(child.pid().get(), Some(&child), depth - 1, act);
            }
        }
    }

    fn children(&self, pid: i32) -> Vec<Pid> {
        if !self.has_children_files {
            return numbers_in("/proc").into_iter().filter(|child| self.is_parent_of(pid, *child)).collect();
        }
        let tasks = numbers_in(&format!("/proc/{pid}/task"));
        let of_task = |task: Pid| fs::read_to_string(format!("/proc/{pid}/task/{task}/children"));
        tasks.into_iter().filter_map(|task| of_task(task).ok()).flat_map(|text| pids(&text)).collect()
    }

    fn is_parent_of(&self, parent: i32, child: Pid) -> bool {
        Stat::read(self.host.proc_root(), child.get()).is_ok_and(|stat| stat.parent_pid == parent)
    }
}

fn pids(text: &str) -> Vec<Pid> {
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok().and_then(Pid::new)).collect()
}

fn numbers_in(directory: &str) -> Vec<Pid> {
    let numbers = numbers(Path::new(directory)).into_iter().flatten();
    numbers.filter_map(|number| Pid::new(i64::from(number))).collect()
}
