//! What a run costs. `cargo test --lib measured -- --ignored --nocapture` prints the figures.

use crate::core::record::End;
use crate::core::retry::Exit;
use crate::linux::clock::HostClock;
use crate::linux::spawn::{Launched, Launcher};
use crate::linux::tests::support::{Field, ended};
use crate::ports::{Clock, Held};

/// Of one line of smaps_rollup, KiB. Source: proc_pid_smaps(5).
fn kib(rollup: &str, key: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn private_kib(rollup: &str) -> u64 {
    kib(rollup, "Private_Clean") + kib(rollup, "Private_Dirty")
}

fn rollup(launched: &Launched) -> String {
    std::fs::read_to_string(format!("/proc/{}/smaps_rollup", launched.supervisor.handle.pid())).unwrap()
}

#[test]
fn a_supervisor_stays_small_whatever_its_command_is_given() {
    let field = Field::new();
    let mut spec = field.spec(&["sh", "-c", "read line </dev/zero", &"x".repeat(100_000)]);
    spec.environment.push(format!("LARGE={}", "y".repeat(100_000)));
    let launched = field.launched(&spec);
    let rollup = rollup(&launched);
    launched.abandon(&field.host).unwrap();
    // Of this program, which is larger than the real one.
    assert!(kib(&rollup, "Private_Dirty") < 1_024, "{rollup}");
}

#[test]
#[ignore = "prints figures; they mean nothing on a busy host"]
fn figures() {
    /// Written by one command, to see how fast output is kept.
    const BYTES: i64 = 2_000_000_000;
    let mut field = Field::new();
    let real = std::env::current_exe().unwrap().parent().unwrap().join("../tenured-exec");
    if real.exists() {
        field.launcher = Launcher::with_program(field.host.clone(), &real).unwrap();
    }
    let now_usec = || HostClock::default().now().wall.0;
    let (mut to_gate, mut to_record) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let spec = field.spec(&["true"]);
        let begun = now_usec();
        let Launched { supervisor, gate, .. } = field.launched(&spec);
        gate.open().unwrap();
        to_gate.push(now_usec() - begun);
        ended("the supervisor", &supervisor.handle);
        to_record.push(now_usec() - begun);
        assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(0)));
        std::fs::remove_file(&spec.record).unwrap();
    }
    for (what, mut usec) in [("to the open gate", to_gate), ("to the record on the disk", to_record)] {
        usec.sort_unstable();
        eprintln!("{what}: p50 {} us, p99 {} us", usec[usec.len() / 2], usec[usec.len() * 99 / 100]);
    }
    let begun = now_usec();
    field.run(&field.spec(&["head", "-c", &BYTES.to_string(), "/dev/zero"]));
    eprintln!("output: {} MB/s", BYTES / (now_usec() - begun));
    std::fs::remove_file(field.path("record")).unwrap();
    let launched = field.shell("read line </dev/zero");
    let rollup = rollup(&launched);
    eprintln!(
        "supervisor: RSS {} KiB, PSS {} KiB, private {} KiB",
        kib(&rollup, "Rss"),
        kib(&rollup, "Pss"),
        private_kib(&rollup)
    );
    launched.abandon(&field.host).unwrap();
}
