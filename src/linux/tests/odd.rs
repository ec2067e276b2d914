//! Processes that are hard to look at. Started as `tenured-odd`, with one thread and nothing inherited.

#![expect(unsafe_code, reason = "does on purpose what no safe call does")]

use std::ffi::CStr;
use std::io::{Read, Write};

use nix::libc;
use nix::unistd::{ForkResult, fork};

use crate::core::ids::{Nonce, Pid};
use crate::linux::pidfd::HostProcesses;
use crate::linux::stat::Stat;
use crate::linux::tests::recycled;
use crate::linux::tests::support::{Field, Subject};
use crate::ports::{Held, Processes, Target};

pub(crate) fn main(words: &[&CStr]) -> u8 {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    match words.as_slice() {
        ["named", hex] => named(hex),
        ["leader-exits"] => leader_exits(),
        ["without-descriptors", pid] => without_descriptors(pid.parse().unwrap()),
        ["setsid-chain"] => setsid_chain(),
        ["setsid-bomb"] => setsid_bomb(),
        ["recycle"] => recycled::inside(),
        ["thread"] => thread(),
        ["daemon", directory] => daemon(directory),
        ["closed"] => closed(),
        ["scan", since] => scan_beside(since.parse().unwrap()),
        other => panic!("no odd process called {other:?}"),
    }
    0
}

pub(super) fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn until_stdin_ends() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Calls itself by any bytes.
fn named(hex: &str) {
    let mut name: Vec<u8> = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    name.push(0);
    rustix::thread::set_name(CStr::from_bytes_with_nul(&name).unwrap()).unwrap();
    say("named");
    until_stdin_ends();
}

/// Its first thread ends, another goes on: stat says Z.
fn leader_exits() {
    std::thread::spawn(|| {
        until_stdin_ends();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    });
    say("leaving");
    // SAFETY: ends this thread alone, without running anything.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// A process with a second thread, whose id it says.
fn thread() {
    std::thread::spawn(|| {
        say(&rustix::thread::gettid().as_raw_nonzero().to_string());
        until_stdin_ends();
    })
    .join()
    .unwrap();
}

/// Looks at a process when no descriptor is left.
fn without_descriptors(pid: i64) {
    let host = HostProcesses::default();
    let none = rustix::process::Rlimit { current: Some(3), maximum: Some(3) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
    let (looked, handle) = host.open(Target::Pid(Pid::new(pid).unwrap()));
    say(&format!("{looked:?} {}", handle.is_some()));
    until_stdin_ends();
}

/// Starts a command up to its gate and has other children beside it.
fn daemon(directory: &str) {
    let field = Field::at(directory.into());
    let launched = field.shell("echo ran");
    let mut beside = Subject::odd(&["named", "61"]);
    beside.line();
    say(&launched.supervisor.handle.pid().to_string());
    until_stdin_ends();
}

/// Cannot be looked into by its own user.
fn closed() {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).unwrap();
    say("closed");
    until_stdin_ends();
}

/// Scans as an unprivileged user, beside a process of that user that cannot be looked into.
fn scan_beside(closed: i32) {
    let host = HostProcesses::default();
    let nonce = Nonce::from_bytes([9; 16]);
    let began = Stat::read(host.proc_root(), closed).unwrap().start_ticks;
    let word = |found: std::io::Result<Vec<_>>| match found {
        Ok(found) => found.len().to_string(),
        Err(_) => "unknown".to_owned(),
    };
    say(&format!("any: {}", word(host.carriers(&nonce))));
    say(&format!("since it began: {}", word(host.carriers_since(&nonce, began))));
    say(&format!("since later: {}", word(host.carriers_since(&nonce, u64::MAX))));
    until_stdin_ends();
}

/// Forks in a loop: each generation leaves its session and its parent, and the parent ends.
fn setsid_chain() {
    say("looping");
    loop {
        next_generation();
    }
}

/// As the chain, and every generation leaves one behind that stays.
fn setsid_bomb() {
    say("looping");
    for _ in 0..200 {
        // SAFETY: one thread.
        if matches!(unsafe { fork() }.unwrap(), ForkResult::Child) {
            rustix::process::setsid().unwrap();
            loop {
                rustix::event::pause();
            }
        }
        next_generation();
    }
    loop {
        next_generation();
    }
}

fn next_generation() {
    // SAFETY: one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let _ = rustix::process::setsid();
        }
        // SAFETY: ends the process.
        Ok(ForkResult::Parent { .. }) => unsafe { libc::_exit(0) },
        Err(_) => {}
    }
}
