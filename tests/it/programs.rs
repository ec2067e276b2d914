//! The programs as a person types them: exit codes, and what the README shows.

use std::process::{Command, Output};

use crate::support::daemon::Setup;
use crate::support::{Host, eventually, kernel};

/// `tenurectl` with a home of its own, and nothing of ours.
pub fn tenurectl(host: &Host) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenurectl"));
    for directory in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"] {
        command.env(directory, host.path("home"));
    }
    command.env_remove("TENURED_BUS_ADDRESS");
    command
}

/// Exit code, standard output, standard error.
pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

#[test]
fn the_readme_s_first_task_works_without_root_systemd_or_bus() {
    let host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    std::fs::create_dir(host.path("home")).unwrap();
    let mut command = tenurectl(&host);
    command.args(["--embedded", "run", "--", "sh", "-c", "echo hello; exit 3"]);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stdout.as_str()), (3, "hello\n"), "{stderr}");
}

#[test]
fn exit_codes_are_as_documented() {
    let host = Host::start_with(Setup { with_bus: false, ..Setup::default() });
    let address = host.private_address();
    let at = |arguments: &[&str]| run(tenurectl(&host).args(["--address", &address]).args(arguments));
    assert_eq!(at(&["add", "well", "--", "/bin/true"]).0, 0);
    assert_eq!(at(&["wait", "1"]).0, 0);
    let (code, _, stderr) = at(&["show", "77"]);
    assert!(code == 1 && stderr.contains("there is no task 77"), "{code}: {stderr}");
    assert_eq!(at(&["paint"]).0, 2);
    assert_eq!(at(&["run", "--", "sh", "-c", "exit 42"]).0, 42);
    let nowhere = format!("unix:path={}", host.path("nowhere").display());
    let (code, _, stderr) = run(tenurectl(&host).args(["--address", &nowhere, "list"]));
    assert_eq!(code, 3, "{stderr}");

    let (code, stdout, _) = at(&["--json", "list"]);
    assert_eq!(code, 0);
    for line in stdout.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(row["Task"].is_u64(), "{line}");
    }
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    let (code, _, stderr) = run(host.command().arg("--check-config"));
    assert_eq!(code, 0, "{stderr}");
    host.configure("[sweep]\ninterval = \"1h\"\n[run]\nlaunch = \"sideways\"\n");
    let (code, stdout, stderr) = run(host.command().arg("--check-config"));
    let said = stdout + &stderr;
    assert_eq!(code, 78);
    for part in ["tenured.toml", ":4", "launch", "sideways"] {
        assert!(said.contains(part), "it does not say {part}: {said}");
    }
    let (code, _, _) = run(&mut host.command());
    assert_eq!(code, 78, "a daemon started with it");
    assert!(!host.state().join("board.db").exists());
}

#[test]
fn a_board_that_is_none_ends_the_daemon_for_good() {
    let host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    std::fs::create_dir_all(host.state()).unwrap();
    std::fs::write(host.state().join("board.db"), vec![b'x'; 8_192]).unwrap();
    let (code, _, stderr) = run(&mut host.command());
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("board.db"), "{stderr}");
}

#[test]
fn a_pipe_gets_neither_colour_nor_a_daemon_that_outlives_it() {
    let host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    std::fs::create_dir(host.path("home")).unwrap();
    let mut command = tenurectl(&host);
    let (code, stdout, stderr) = run(command.args(["--embedded", "add", "kept", "--", "/bin/true"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains('\u{1b}'), "{stdout:?}");
    eventually("the embedded daemon to end with its command", || {
        let left = kernel::mentioning(&host.path(""));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    let (code, stdout, stderr) = run(tenurectl(&host).args(["--embedded", "list"]));
    assert!(code == 0 && stdout.contains("kept"), "{stdout}{stderr}");
}
