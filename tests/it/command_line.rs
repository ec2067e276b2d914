//! `tenurectl` on the real daemon, by way of its exit codes and what it prints: following through thick and
//! thin, Ctrl-C, a shared embedded daemon, the demo.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::programs::{run, tenurectl};
use crate::support::daemon::Setup;
use crate::support::{Host, eventually, kernel};

fn without_bus() -> Setup {
    Setup { with_bus: false, ..Setup::default() }
}

fn at(host: &Host) -> Command {
    let mut command = tenurectl(host);
    command.args(["--address", &host.private_address()]);
    command
}

/// A `tenurectl` that is still at it.
struct Going {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Going {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn interrupt(&self) {
        kernel::signal(self.child.id(), Signal::INT);
    }

    /// Exit code, the rest of standard output, standard error.
    fn end(mut self) -> (i32, String, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code().expect("an exit code"), rest, said)
    }
}

#[test]
fn run_follows_its_task_through_the_death_of_the_daemon() {
    let mut host = Host::start_with(without_bus());
    let gate = host.fifo("gate");
    let script = format!("echo one; read word < {}; echo two; exit 4", gate.display());
    let mut going = Going::start(at(&host).args(["run", "--", "sh", "-c", &script]));
    assert_eq!(going.line(), "one\n");
    host.restart_hard();
    host.open_fifo(&gate);
    let (code, rest, said) = going.end();
    assert_eq!((code, rest.as_str()), (4, "two\n"), "{said}");
    assert!(said.contains("the daemon has gone"), "{said}");
}

#[test]
fn ctrl_c_cancels_and_a_second_one_lets_go() {
    let host = Host::start_with(without_bus());
    let client = host.client();
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut going = Going::start(at(&host).args(["run", "--stop-grace", "1h", "--", "sh", "-c", script]));
    assert_eq!(going.line(), "ready\n");
    going.interrupt();
    eventually("the cancel", || match client.task(1).text("StopCause").as_str() {
        "cancelled" => Ok(()),
        other => Err(other.to_owned()),
    });
    going.interrupt();
    let (code, _, said) = going.end();
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("logs -f 1") && said.contains("wait 1"), "{said}");
    assert_eq!(client.status(1), "running");
    assert_eq!(run(at(&host).args(["cancel", "--kill", "1"])).0, 0);
    assert_eq!(run(at(&host).args(["wait", "1"])).0, 137);
}

#[test]
fn following_stays_byte_exact_where_the_output_fills_its_file() {
    let host = Host::start_with(without_bus());
    let output = at(&host).args(["run", "--", "seq", "1", "10000000"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let mut lines = output.stdout.split(|byte| *byte == b'\n');
    for number in 1..=10_000_000_u32 {
        assert_eq!(lines.next(), Some(number.to_string().as_bytes()), "{said}");
    }
    assert_eq!((lines.next(), lines.next()), (Some(&b""[..]), None));
    let again = at(&host).args(["logs", "1"]).output().unwrap();
    assert!(again.stdout == output.stdout, "{} and {} bytes", again.stdout.len(), output.stdout.len());
}

#[test]
fn several_tasks_are_waited_for_and_the_first_that_is_not_done_says_how_it_ended() {
    let host = Host::start_with(without_bus());
    for script in ["exit 0", "exit 7", "exit 8"] {
        assert_eq!(run(at(&host).args(["add", "--retries", "0", "--", "sh", "-c", script])).0, 0);
    }
    let (code, stdout, _) = run(at(&host).args(["wait", "1,2", "3"]));
    assert_eq!(code, 7, "{stdout}");
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    assert_eq!(run(at(&host).args(["wait", "--any", "1", "2"])).0, 0);
    let (code, _, stderr) = run(at(&host).args(["archive", "1", "2"]));
    assert!(
        code == 1 && stderr.contains("task 2 is blocked"),
        "one is refused, the other archived: {stderr}"
    );
    assert_eq!(host.client().status(1), "archived");
}

#[test]
fn what_others_wrote_does_not_act_on_a_terminal() {
    let host = Host::start_with(without_bus());
    let nasty = "red \u{1b}[31m, home \u{9b}H, bell \u{7}, back \u{202e}";
    assert_eq!(run(at(&host).args(["add", "for somebody", "--body", nasty])).0, 0);
    assert_eq!(run(at(&host).args(["comment", "1", nasty])).0, 0);
    assert_eq!(run(at(&host).args(["block", "1", "--reason", nasty])).0, 0);
    for verb in [&["show", "1"][..], &["list"], &["events"]] {
        let (code, stdout, stderr) = run(at(&host).args(verb));
        assert_eq!(code, 0, "{stderr}");
        let acting =
            |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
        assert!(!stdout.contains(acting), "{verb:?}: {stdout:?}");
    }
}

#[test]
fn an_embedded_daemon_that_somebody_looks_through_starts_what_another_one_runs() {
    let host = Host::prepare(without_bus());
    std::fs::create_dir(host.path("home")).unwrap();
    let embedded = |arguments: &[&str]| {
        let mut command = tenurectl(&host);
        command.arg("--embedded").args(arguments);
        command
    };
    assert_eq!(run(&mut embedded(&["add", "--", "echo", "first"])).0, 0);
    let mut looking = Going::start(&mut embedded(&["events", "-f"]));
    assert!(looking.line().contains("created"));
    assert!(run(&mut embedded(&["list"])).1.contains("ready"), "nobody has asked for it to be started");
    let (code, stdout, stderr) = run(&mut embedded(&["run", "--", "echo", "second"]));
    assert_eq!((code, stdout.as_str()), (0, "second\n"), "{stderr}");
    assert_eq!(run(&mut embedded(&["add", "--", "echo", "third"])).0, 0);
    let (_, stdout, _) = run(&mut embedded(&["--json", "list", "--status", "ready"]));
    assert!(stdout.contains("third") && stdout.lines().count() == 1, "{stdout}");
    looking.interrupt();
    looking.child.wait().unwrap();
    eventually("the embedded daemon to end with its command", || {
        let left = kernel::mentioning(&host.path(""));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

#[test]
fn the_demo_proves_what_it_claims_and_leaves_nothing() {
    let host = Host::prepare(without_bus());
    for directory in ["home", "tmp"] {
        std::fs::create_dir(host.path(directory)).unwrap();
    }
    let (code, stdout, stderr) = run(tenurectl(&host).arg("demo").env("TMPDIR", host.path("tmp")));
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("  ok  ")).count(), 9, "{stdout}");
    assert_eq!(std::fs::read_dir(host.path("tmp")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(host.path("home")).unwrap().count(), 0);
    assert!(kernel::mentioning(&host.path("")).is_empty());
}
