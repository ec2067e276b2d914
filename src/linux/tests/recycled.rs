//! A pid that is used again, for real: in a pid namespace of the test's own.

#![expect(unsafe_code, reason = "forks")]

use std::ffi::CStr;
use std::fs;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, fork};

use crate::core::fingerprint::{Fingerprint, Looked, Stored};
use crate::core::ids::Pid;
use crate::linux::clock::HostClock;
use crate::linux::pidfd::HostProcesses;
use crate::linux::tests::odd::say;
use crate::linux::tests::support::{Subject, is_root};
use crate::linux::wait::{self, Child, Waited};
use crate::ports::{Clock, Processes, Target};

/// The number that is used again and again.
const NUMBER: i32 = 100;
/// Tries until two processes begin in one tick of 10 ms.
const TRIES: usize = 200;

#[test]
fn c02_c04_a_recycled_pid_is_told_apart() {
    if !is_root("c02_c04_a_recycled_pid_is_told_apart") {
        return;
    }
    let mut subject = Subject::odd(&["recycle"]);
    assert_eq!(subject.line(), "held: Gone");
    assert_eq!(subject.line(), "same tick: true");
    let with_inodes = subject.line();
    assert!(matches!(with_inodes.as_str(), "with inodes: Other" | "no inodes here"), "{with_inodes}");
    // What is known of kernels without pidfs: same pid and same tick look the same.
    assert_eq!(subject.line(), "without inodes: Same");
}

/// The scene, in a process of its own.
pub(super) fn inside() {
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS).unwrap();
    // SAFETY: one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            as_first_process();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            while wait::take(Child::Pid(child.as_raw())).unwrap() == Waited::Running {}
        }
    }
}

fn as_first_process() {
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE);
    mount(c"proc", c"/proc", 0);
    let host = HostProcesses::default();
    let blind = HostProcesses::default().without_inodes();
    let epoch = HostClock::default().witnesses().unwrap().epoch;
    let print = |looked| match looked {
        Looked::Present { start_ticks, inode } => {
            Stored::Proven(Fingerprint { epoch: epoch.clone(), start_ticks, inode })
        }
        other => panic!("{other:?}"),
    };
    let open = |host: &HostProcesses| host.open(Target::Pid(Pid::new(i64::from(NUMBER)).unwrap()));
    for attempt in 1.. {
        make();
        let (first, handle) = open(&host);
        let first_blind = open(&blind).0;
        end(handle.as_ref().unwrap(), &host);
        make();
        let (second, newcomer) = open(&host);
        let second_blind = open(&blind).0;
        let same_tick = first_blind == second_blind;
        if same_tick || attempt == TRIES {
            say(&format!("held: {:?}", host.look(handle.as_ref().unwrap())));
            say(&format!("same tick: {same_tick}"));
            let has_inodes = matches!(first, Looked::Present { inode: Some(_), .. });
            say(&if has_inodes {
                format!("with inodes: {:?}", print(first).compare(second, true))
            } else {
                "no inodes here".to_owned()
            });
            say(&format!("without inodes: {:?}", print(first_blind).compare(second_blind, true)));
            break;
        }
        end(newcomer.as_ref().unwrap(), &host);
    }
}

fn mount(kind: &CStr, at: &CStr, flags: libc::c_ulong) {
    // SAFETY: the texts live through the call.
    let done = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Makes a process of the number.
fn make() {
    fs::write("/proc/sys/kernel/ns_last_pid", (NUMBER - 1).to_string()).unwrap();
    // SAFETY: one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            rustix::event::pause();
        },
        ForkResult::Parent { child } => assert_eq!(child.as_raw(), NUMBER),
    }
}

fn end(handle: &<HostProcesses as Processes>::Handle, host: &HostProcesses) {
    host.signal(handle, libc::SIGKILL).unwrap();
    while wait::take(Child::Pid(NUMBER)).unwrap() == Waited::Running {}
}
