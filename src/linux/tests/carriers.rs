//! Finding what carries a nonce.

use std::process::Command;

use crate::core::ids::Nonce;
use crate::linux::pidfd::PidFd;
use crate::linux::stat::Stat;
use crate::linux::tests::support::{Field, Subject, eventually, is_root};
use crate::ports::{Held, Processes};

fn nonce() -> Nonce {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    Nonce::from_bytes(bytes)
}

fn pids(found: &[PidFd]) -> Vec<i32> {
    found.iter().map(|process| process.pid().get()).collect()
}

fn carrier(program: &str, words: &[&str], nonce: &Nonce) -> Subject {
    let mut command = Command::new(program);
    command.args(words).env("TENURED_NONCE", nonce.as_str());
    Subject::start(command)
}

#[test]
fn only_who_carries_the_very_nonce_is_found() {
    let field = Field::new();
    let (ours, other) = (nonce(), nonce());
    let subject = carrier("cat", &[], &ours);
    let _other = carrier("cat", &[], &other);
    let mut longer = Command::new("cat");
    longer.env("NOT_TENURED_NONCE", ours.as_str()).env("TENURED_NONCES", ours.as_str());
    let _longer = Subject::start(longer);
    let wanted = vec![subject.pid().get()];
    eventually("the carrier", || {
        let found = pids(&field.carriers(&ours));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn c14_a_carrier_whose_leader_exited_is_found() {
    let field = Field::new();
    let ours = nonce();
    let mut command = Command::new("/proc/self/exe");
    std::os::unix::process::CommandExt::arg0(&mut command, "tenured-odd");
    command.arg("leader-exits").env("TENURED_NONCE", ours.as_str());
    let mut subject = Subject::start(command);
    assert_eq!(subject.line(), "leaving");
    eventually("the end of the leader", || match Stat::read(field.host.proc_root(), subject.pid().get()) {
        Ok(stat) if stat.state == b'Z' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(pids(&field.carriers(&ours)), [subject.pid().get()]);
}

#[test]
fn a_zombie_carries_nothing_and_an_empty_environment_is_one() {
    let field = Field::new();
    let ours = nonce();
    let mut empty = Command::new("cat");
    empty.env_clear();
    let _empty = Subject::start(empty);
    let mut subject = carrier("cat", &[], &ours);
    subject.close_stdin();
    eventually("the end", || match Stat::read(field.host.proc_root(), subject.pid().get()) {
        Ok(stat) if stat.state == b'Z' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(field.carriers(&ours).is_empty());
}

#[test]
fn a_carrier_that_became_another_user_is_found() {
    if !is_root("a_carrier_that_became_another_user_is_found") {
        return;
    }
    let field = Field::new();
    let ours = nonce();
    let mut command = Command::new("cat");
    std::os::unix::process::CommandExt::uid(&mut command, 65_533);
    command.env("TENURED_NONCE", ours.as_str());
    let subject = Subject::start(command);
    eventually("the carrier", || {
        let found = pids(&field.carriers(&ours));
        if found == [subject.pid().get()] { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn what_cannot_be_read_makes_the_scan_an_error_unless_it_is_older() {
    // A procfs of fixtures: PID 1, this process, and one that cannot be read as an environment.
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let own = std::process::id().to_string();
    std::os::unix::fs::symlink(&own, root.join("self")).unwrap();
    for name in ["1", own.as_str()] {
        std::fs::create_dir(root.join(name)).unwrap();
        std::fs::write(root.join(name).join("environ"), "A=b\0").unwrap();
    }
    let host = crate::linux::pidfd::HostProcesses::with_proc(crate::linux::proc::ProcRoot::at(root));
    assert!(host.carriers(&nonce()).unwrap().is_empty());
    let ours = nonce();
    let subject = carrier("cat", &[], &ours);
    let shown = root.join(subject.pid().to_string());
    std::fs::create_dir(&shown).unwrap();
    // A directory in place of the file: read(2) says EISDIR, and the process lives.
    std::fs::create_dir(shown.join("environ")).unwrap();
    assert!(host.carriers(&ours).is_err());
    std::fs::remove_dir(root.join("1").join("environ")).unwrap_err();
    std::fs::remove_dir_all(&shown).unwrap();
    std::fs::remove_dir_all(root.join("1")).unwrap();
    assert!(host.carriers(&ours).is_err(), "not every process is shown");
}

#[test]
fn an_unprivileged_scan_passes_over_older_processes_that_it_may_not_read() {
    if !is_root("an_unprivileged_scan_passes_over_older_processes_that_it_may_not_read") {
        return;
    }
    // One process of the user that cannot be looked into, as ssh-agent is.
    let mut closed = Command::new("/proc/self/exe");
    std::os::unix::process::CommandExt::arg0(&mut closed, "tenured-odd");
    std::os::unix::process::CommandExt::uid(&mut closed, 65_529);
    closed.arg("closed");
    let mut closed = Subject::start(closed);
    assert_eq!(closed.line(), "closed");
    let mut scan = Command::new("/proc/self/exe");
    std::os::unix::process::CommandExt::arg0(&mut scan, "tenured-odd");
    std::os::unix::process::CommandExt::uid(&mut scan, 65_529);
    scan.args(["scan", &closed.pid().to_string()]);
    let mut scan = Subject::start(scan);
    assert_eq!(scan.line(), "any: unknown");
    assert_eq!(scan.line(), "since it began: unknown");
    assert_eq!(scan.line(), "since later: 0");
}
