//! Looking at processes.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::core::fingerprint::{Looked, Seen, Stored};
use crate::core::ids::Pid;
use crate::core::retry::Exit;
use crate::linux::exit_info::exit_of;
use crate::linux::pidfd::{HostProcesses, open_own_child};
use crate::linux::stat::Stat;
use crate::linux::tests::support::{Subject, ended, eventually, is_root};
use crate::linux::wait;
use crate::ports::{Held, Processes, Target};

fn start_of(pid: Pid) -> u64 {
    let Looked::Present { start_ticks, .. } = HostProcesses::default().open(Target::Pid(pid)).0 else {
        panic!("process {pid} could not be seen")
    };
    start_ticks
}

/// Field 22 as a reader finds it that knows how long the name is.
fn start_by_length(pid: Pid, name_bytes: usize) -> u64 {
    let line = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
    let rest = &line[pid.to_string().len() + 2 + name_bytes + 2..];
    str::from_utf8(rest).unwrap().split(' ').nth(22 - 3).unwrap().parse().unwrap()
}

#[test]
fn c05_the_name_of_a_process_does_not_matter() {
    let names: [&[u8]; 6] = [b"a) R 1 (b", b"two words", b"x\ny", b"\xff\xfe", b")", b") Z 1 1 1 1 1 1"];
    for name in names {
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut subject = Subject::odd(&["named", &hex]);
        assert_eq!(subject.line(), "named");
        let shown = std::fs::read(format!("/proc/{}/comm", subject.pid())).unwrap();
        assert_eq!(shown, [name, b"\n"].concat(), "the name took");
        assert_eq!(start_of(subject.pid()), start_by_length(subject.pid(), name.len()), "{name:?}");
    }
}

#[test]
fn c05_a_program_of_such_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let name = b"a) R 1 \xff(b";
    let program = directory.path().join(std::ffi::OsStr::from_bytes(name));
    std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
    let subject = Subject::start(Command::new(&program));
    eventually("the exec", || {
        let comm = std::fs::read(format!("/proc/{}/comm", subject.pid())).unwrap();
        if comm.starts_with(b"a) R") { Ok(()) } else { Err(format!("{comm:?}")) }
    });
    assert_eq!(start_of(subject.pid()), start_by_length(subject.pid(), name.len()));
}

#[test]
fn c13_a_zombie_whose_parent_never_reaps_is_gone_at_once() {
    let host = HostProcesses::default();
    let mut subject = Subject::odd(&["named", "61"]);
    subject.line();
    let (looked, handle) = host.open(Target::Pid(subject.pid()));
    let handle = handle.unwrap();
    assert!(matches!(looked, Looked::Present { .. }));
    subject.close_stdin();
    ended("the subject", &handle);
    assert_eq!(Stat::read(host.proc_root(), subject.pid().get()).unwrap().state, b'Z');
    assert_eq!(host.look(&handle), Looked::Gone);
    assert_eq!(host.open(Target::Pid(subject.pid())).0, Looked::Gone, "also for who never held it");
    assert!(host.signal(&handle, nix::libc::SIGTERM).is_ok(), "which a signal does not show");
}

#[test]
fn c14_a_leader_that_exited_beside_other_threads_is_alive() {
    let host = HostProcesses::default();
    let mut subject = Subject::odd(&["leader-exits"]);
    assert_eq!(subject.line(), "leaving");
    eventually("the end of the leader", || match Stat::read(host.proc_root(), subject.pid().get()) {
        Ok(stat) if stat.state == b'Z' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (looked, handle) = host.open(Target::Pid(subject.pid()));
    assert!(matches!(looked, Looked::Present { .. }), "{looked:?}");
    let handle = handle.unwrap();
    subject.close_stdin();
    ended("the other thread", &handle);
    assert_eq!(host.look(&handle), Looked::Gone);
}

#[test]
fn c07_no_free_descriptor_is_unknown() {
    let subject = Subject::odd(&["named", "61"]);
    let mut looker = Subject::odd(&["without-descriptors", &subject.pid().to_string()]);
    assert_eq!(looker.line(), "Unknown false");
}

#[test]
fn the_id_of_a_thread_is_no_process() {
    let host = HostProcesses::default();
    let mut subject = Subject::odd(&["thread"]);
    let thread: i64 = subject.line().parse().unwrap();
    assert_ne!(thread, i64::from(subject.pid().get()));
    assert!(std::fs::exists(format!("/proc/{thread}/stat")).unwrap(), "which /proc does not show");
    let (looked, handle) = host.open(Target::Pid(Pid::new(thread).unwrap()));
    assert!(handle.is_none());
    assert_eq!(looked, Looked::Gone, "no process has this number");
}

#[test]
fn a_passed_pidfd_is_adopted_with_what_it_stands_for() {
    let host = HostProcesses::default();
    let mut subject = Subject::odd(&["named", "61"]);
    let fd = open_own_child(subject.pid().get()).unwrap();
    let (looked, handle) = host.open(Target::Fd(fd.try_clone().unwrap()));
    assert_eq!(handle.as_ref().map(Held::pid), Some(subject.pid()));
    assert_eq!(looked, host.open(Target::Pid(subject.pid())).0);
    subject.reap();
    assert_eq!(host.open(Target::Fd(fd)).0, Looked::Gone);
    assert_eq!(host.look(&handle.unwrap()), Looked::Gone);
}

#[test]
fn other_descriptors_are_no_process() {
    let host = HostProcesses::default();
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let (own, other) = rustix::pipe::pipe().unwrap();
    for fd in [file.into(), own, other] {
        let (looked, handle) = host.open(Target::Fd(fd));
        assert!(looked == Looked::Unknown && handle.is_none(), "{looked:?}");
    }
}

#[test]
fn a_pidfd_of_one_thread_is_refused() {
    let mut subject = Subject::odd(&["thread"]);
    let thread: i32 = subject.line().parse().unwrap();
    let flags = rustix::process::PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
    let Ok(fd) = rustix::process::pidfd_open(rustix::process::Pid::from_raw(thread).unwrap(), flags) else {
        eprintln!("SKIPPED: this kernel has no pidfds of threads");
        return;
    };
    let (looked, handle) = HostProcesses::default().open(Target::Fd(fd));
    assert!(looked == Looked::Unknown && handle.is_none(), "{looked:?}");
}

#[test]
fn without_pidfs_start_and_boot_must_do() {
    let subject = Subject::odd(&["named", "61"]);
    let with = HostProcesses::default().open(Target::Pid(subject.pid())).0;
    let without = HostProcesses::default().without_inodes().open(Target::Pid(subject.pid())).0;
    let (Looked::Present { start_ticks, .. }, Looked::Present { start_ticks: same, inode }) = (with, without)
    else {
        panic!("{with:?} {without:?}")
    };
    assert_eq!((start_ticks, None), (same, inode));
}

#[test]
fn proc_of_another_view_is_unknown() {
    // A directory of fixtures shows another process as the reader.
    let directory = tempfile::tempdir().unwrap();
    let subject = Subject::odd(&["named", "61"]);
    let shown = directory.path().join(subject.pid().to_string());
    std::fs::create_dir(&shown).unwrap();
    std::fs::copy(format!("/proc/{}/stat", subject.pid()), shown.join("stat")).unwrap();
    std::os::unix::fs::symlink("1", directory.path().join("self")).unwrap();
    let host = HostProcesses::with_proc(crate::linux::proc::ProcRoot::at(directory.path()));
    assert_eq!(host.open(Target::Pid(subject.pid())).0, Looked::Unknown);
    std::fs::remove_file(directory.path().join("self")).unwrap();
    std::os::unix::fs::symlink(std::process::id().to_string(), directory.path().join("self")).unwrap();
    assert!(matches!(host.open(Target::Pid(subject.pid())).0, Looked::Present { .. }));
    std::fs::remove_file(shown.join("stat")).unwrap();
    assert_eq!(host.open(Target::Pid(subject.pid())).0, Looked::Unknown, "a missing file is no end");
}

#[test]
fn the_end_of_a_process_that_is_not_our_child() {
    let host = HostProcesses::default();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3<&0; sh -c 'read line; exit 7' <&3 & echo $!; wait"]);
    let mut subject = Subject::start(shell);
    let grandchild: i64 = subject.line().parse().unwrap();
    let (_, handle) = host.open(Target::Pid(Pid::new(grandchild).unwrap()));
    let handle = handle.unwrap();
    assert_eq!(exit_of(&handle), None, "it lives");
    subject.close_stdin();
    ended("the grandchild", &handle);
    subject.reap();
    match exit_of(&handle) {
        Some(exit) => assert_eq!(exit, Exit::Code(7)),
        None => eprintln!("SKIPPED: this kernel does not say how others' children ended"),
    }
}

#[test]
fn the_owner_is_read_with_all_its_ids() {
    let host = HostProcesses::default();
    let subject = Subject::odd(&["named", "61"]);
    let (_, handle) = host.open(Target::Pid(subject.pid()));
    let owner = host.owner(&handle.unwrap()).unwrap();
    assert!(owner.is_wholly(nix::unistd::Uid::current().as_raw()));
    assert!(owner.our_namespaces && !owner.kernel_thread);
    if is_root("the owner of a kernel thread") {
        let (_, handle) = host.open(Target::Pid(Pid::new(2).unwrap()));
        let Some(handle) = handle else { return };
        assert!(host.owner(&handle).is_ok_and(|owner| owner.kernel_thread) || !is_kthreadd());
    }
}

fn is_kthreadd() -> bool {
    std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd")
}

#[test]
fn who_has_ended_has_no_owner() {
    let host = HostProcesses::default();
    let mut subject = Subject::odd(&["named", "61"]);
    let (_, handle) = host.open(Target::Pid(subject.pid()));
    let handle = handle.unwrap();
    subject.reap();
    assert_eq!(host.owner(&handle).unwrap_err().raw_os_error(), Some(nix::libc::ESRCH));
    assert_eq!(host.signal(&handle, nix::libc::SIGTERM).unwrap_err().raw_os_error(), Some(nix::libc::ESRCH));
}

#[test]
fn numbers_that_are_no_signal_are_not_sent() {
    let host = HostProcesses::default();
    let subject = Subject::odd(&["named", "61"]);
    let (_, handle) = host.open(Target::Pid(subject.pid()));
    for signal in [i32::MIN, -9, 0, 65, i32::MAX] {
        assert_eq!(host.signal(handle.as_ref().unwrap(), signal).unwrap_err().raw_os_error(), Some(22));
    }
}

#[test]
fn a_fingerprint_is_the_same_for_as_long_as_the_process_lives() {
    use crate::core::fingerprint::Fingerprint;
    use crate::linux::clock::HostClock;
    use crate::ports::Clock;
    let host = HostProcesses::default();
    let subject = Subject::odd(&["named", "61"]);
    let (Looked::Present { start_ticks, inode }, Some(handle)) = host.open(Target::Pid(subject.pid())) else {
        panic!("the subject could not be seen")
    };
    let epoch = HostClock::default().witnesses().unwrap().epoch;
    let stored = Stored::Proven(Fingerprint { epoch, start_ticks, inode });
    assert_eq!(stored.compare(host.look(&handle), true), Seen::Same);
    let own = host.open(Target::Pid(Pid::new(i64::from(std::process::id())).unwrap())).0;
    assert_eq!(stored.compare(own, true), Seen::Other);
    let taken = wait::take(wait::Child::PidFd(handle.as_fd())).unwrap();
    assert_eq!(taken, wait::Waited::Running);
}
