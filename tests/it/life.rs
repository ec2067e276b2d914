//! The daemon's own life, as its service manager sees it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::options;
use crate::support::daemon::{QUIET, Setup};
use crate::support::logind::Logind;
use crate::support::{Decoy, Host, Kind, eventually, is_root, kernel, skip};

fn managed() -> Host {
    let mut host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    host.manage();
    host
}

fn has_line(message: &str, line: &str) -> bool {
    message.lines().any(|said| said == line)
}

/// Lets one reader of the named pipe have this text.
fn feed(pipe: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(nix::libc::O_NONBLOCK);
    let mut pipe =
        eventually("a reader of the pipe", || options.open(pipe).map_err(|error| error.to_string()));
    pipe.write_all(text.as_bytes()).unwrap();
}

#[test]
fn it_is_ready_once_and_says_in_one_line_what_it_has_in_hand() {
    let mut host = managed();
    host.launch();
    let manager = host.manager();
    manager.hears("READY=1");
    manager.hears("STATUS=0 running, 0 ready");
    let heard = manager.heard().to_vec();
    assert_eq!(heard.iter().filter(|text| has_line(text, "READY=1")).count(), 1, "{heard:?}");
    let first = &heard[0];
    assert!(
        first.starts_with("EXTEND_TIMEOUT_USEC=") && has_line(first, "STATUS=opening the board"),
        "{heard:?}"
    );

    host.manager().forget();
    let client = host.client();
    for _ in 0..20 {
        client.create("waits", &options! {});
    }
    host.manager().hears("STATUS=0 running, 20 ready");
    let lines = host.manager().heard().len();
    assert!(lines <= 3, "{lines} lines for one burst: {:?}", host.manager().heard());

    host.stop();
    let manager = host.manager();
    manager.hears("STOPPING=1");
}

#[test]
fn a_reload_is_announced_with_its_moment_and_ended() {
    let mut host = managed();
    host.launch();
    host.manager().hears("READY=1");
    host.manager().forget();
    let now_usec = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
    };
    let before = now_usec();
    kernel::signal(host.pid(), Signal::HUP);
    let said = host.manager().hears("RELOADING=1");
    let stamp = said.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("a moment");
    let stamp: i64 = stamp.parse().unwrap();
    assert!(before <= stamp && stamp <= now_usec(), "{before} {stamp}");
    host.manager().hears("READY=1");

    // One that is refused ends as well.
    host.configure("nonsense = true\n");
    host.manager().forget();
    kernel::signal(host.pid(), Signal::HUP);
    host.manager().hears("RELOADING=1");
    host.manager().hears("READY=1");
}

#[test]
fn a_hang_up_before_it_is_ready_is_neither_deadly_nor_lost_nor_taken_for_readiness() {
    let mut host = managed();
    let config = host.path("tenured.toml");
    std::fs::remove_file(&config).unwrap();
    host.fifo("tenured.toml");
    host.spawn();
    // It has opened the pipe for reading: it is in the middle of its beginning.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).custom_flags(nix::libc::O_NONBLOCK);
    let mut pipe = eventually("the daemon to read its configuration", || {
        options.open(&config).map_err(|error| error.to_string())
    });
    kernel::signal(host.pid(), Signal::HUP);
    std::fs::rename(&config, host.path("pipe")).unwrap();
    host.configure(QUIET);
    pipe.write_all(QUIET.as_bytes()).unwrap();
    drop(pipe);
    host.manager().hears("READY=1");
    eventually("the reload", || {
        let log = host.log();
        if log.contains("read the configuration again") { Ok(()) } else { Err(log) }
    });
    let heard = host.manager().heard().to_vec();
    let position = |line: &str| heard.iter().position(|text| has_line(text, line));
    assert!(position("RELOADING=1").is_none_or(|at| position("READY=1").unwrap() < at), "{heard:?}");
}

#[test]
fn the_watchdog_is_pinged_while_the_loop_gets_on_and_not_when_it_is_stuck() {
    let mut host = managed();
    host.manager().variables.push(("WATCHDOG_USEC", "400000".to_owned()));
    host.launch();
    host.manager().hears("WATCHDOG=1");

    // A board that somebody else holds is slow, and not dead.
    let client = host.client();
    let board = host.board();
    board.execute("BEGIN IMMEDIATE", []);
    let waits = std::thread::scope(|scope| {
        let second = host.client();
        let waiting = scope.spawn(move || second.try_create("has to wait", &options! {}));
        eventually("the daemon to notice", || {
            let degraded = client.ask(client.manager.degraded()).unwrap();
            if degraded == ["slow_disk"] { Ok(()) } else { Err(format!("{degraded:?}")) }
        });
        host.manager.as_mut().unwrap().forget();
        host.manager.as_mut().unwrap().hears("WATCHDOG=1");
        board.execute("COMMIT", []);
        waiting.join().unwrap()
    });
    waits.unwrap();
    eventually("the daemon to be well", || {
        let degraded = client.ask(client.manager.degraded()).unwrap();
        if degraded.is_empty() { Ok(()) } else { Err(format!("{degraded:?}")) }
    });

    // A configuration that does not end holds up the loop.
    let config = host.path("tenured.toml");
    std::fs::remove_file(&config).unwrap();
    host.fifo("tenured.toml");
    kernel::signal(host.pid(), Signal::HUP);
    host.manager().hears("RELOADING=1");
    host.manager().forget();
    assert!(
        !host.manager().hears_within(Duration::from_millis(1_500), "WATCHDOG=1"),
        "it pinged though it was stuck"
    );
    feed(&config, QUIET);
    host.manager().hears("WATCHDOG=1");
}

/// A worker that waits on a pipe and then ends with this status.
fn waiting_task(host: &Host, pipe: &Path, status: u8) -> (u64, u32) {
    let client = host.client();
    let script = format!("read x <{}; exit {status}", pipe.display());
    let command = vec!["/bin/sh", "-c", script.as_str()];
    let task = client.create("waits", &options! { "Command" => command, "FailureLimit" => 1_u32 });
    let pid = host.worker_of(&client, task);
    (task, pid)
}

#[test]
fn what_the_manager_keeps_tells_how_a_worker_ended_while_no_daemon_was_there() {
    let mut host = managed();
    host.launch();
    let pipe = host.fifo("go");
    let (task, pid) = waiting_task(&host, &pipe, 7);
    let names = eventually("worker and supervisor to be kept", || {
        let names = host.manager().names();
        if names.len() == 2 { Ok(names) } else { Err(format!("{names:?}")) }
    });
    assert!(names[0].starts_with("run-1-") && names[0].ends_with("-supervisor"), "{names:?}");
    assert!(names[1].starts_with("run-1-") && names[1].ends_with("-worker"), "{names:?}");

    host.kill();
    host.open_fifo(&pipe);
    eventually("the worker to end", || if kernel::lives(pid) { Err("it lives".to_owned()) } else { Ok(()) });
    // Its record is lost: the kernel alone still knows.
    let records = host.state().join("exits");
    eventually("the record", || {
        let mut there = std::fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path());
        let record = there.next().ok_or("no record")?;
        if std::fs::read(&record).unwrap().is_empty() { Err("an empty record".to_owned()) } else { Ok(()) }
    });
    let supervisor =
        host.manager().kept.iter().find(|(name, _)| name.ends_with("-supervisor")).unwrap().1.try_clone();
    eventually("the supervisor to be gone", || {
        let fd = supervisor.as_ref().unwrap();
        let mut polled = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1 {
            Ok(())
        } else {
            Err("it lives".to_owned())
        }
    });
    for entry in std::fs::read_dir(&records).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }

    host.launch();
    let client = host.client();
    client.becomes(task, "blocked");
    let run = client.runs(task).pop().unwrap();
    if kernel::tells_exits() {
        assert_eq!((run.text("Outcome").as_str(), run.number("ExitCode")), ("failed", 7), "{run:?}");
    } else {
        assert_eq!(run.text("Outcome"), "crashed", "{run:?}");
    }
    eventually("the store to be empty", || {
        let names = host.manager().names();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    });
}

#[test]
fn what_came_back_under_a_right_name_and_is_somebody_else_is_thrown_away() {
    let mut host = managed();
    host.launch();
    let pipe = host.fifo("go");
    let (task, pid) = waiting_task(&host, &pipe, 0);
    eventually("worker and supervisor to be kept", || {
        let names = host.manager().names();
        if names.len() == 2 { Ok(()) } else { Err(format!("{names:?}")) }
    });
    host.kill();
    let mut stranger = Decoy::start(Kind::Stubborn);
    let manager = host.manager();
    for (name, fd) in &mut manager.kept {
        if name.ends_with("-worker") {
            *fd = kernel::pidfd(stranger.pid);
        }
    }
    let other_nonce = "run-1-00000000000000000000000000000000-worker";
    manager.kept.push((other_nonce.to_owned(), kernel::pidfd(pid)));
    manager.kept.push(("stored".to_owned(), std::fs::File::open("/dev/null").unwrap().into()));
    host.launch();
    eventually("the strangers to be gone", || {
        let names = host.manager().names();
        if names.len() == 1 && names[0].ends_with("-supervisor") { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let client = host.client();
    assert_eq!(client.status(task), "running");
    client.ask(client.manager.cancel_task(task, &options! {})).unwrap();
    client.becomes(task, "cancelled");
    assert_eq!(stranger.received(), [0; 0]);
    assert!(!kernel::lives(pid));
    eventually("the store to be empty", || {
        let names = host.manager().names();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    });
}

#[test]
fn the_log_has_one_line_for_each_thing_that_happens_to_a_task() {
    let host = Host::start_with(Setup { with_bus: false, ..Setup::default() });
    let client = host.client();
    let command = vec!["/bin/sh", "-c", "exit 3"];
    let properties = options! { "Command" => command, "FailureLimit" => 1_u32 };
    let task = client.create("fails", &properties);
    client.becomes(task, "blocked");
    client.ask(client.manager.cancel_task(task, &options! { "Reason" => "over" })).unwrap();
    let log = eventually("the log", || {
        let log = host.log();
        if log.contains("is cancelled") { Ok(log) } else { Err(log) }
    });
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("TENURED_TASK=1")).collect();
    let expected = [
        "INFO run 1 of task 1 has started: process ",
        "WARN run 1 of task 1 has ended: failed, exit 3 ",
        "WARN task 1 is blocked after 1 failures: exit 3 ",
        "INFO task 1 is cancelled: over ",
    ];
    assert_eq!(lines.len(), expected.len(), "{log}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(expected) && line.contains("TENURED_QUEUE=\"default\""), "{expected}: {log}");
    }
}

/// As `journalctl --update-catalog` takes it in on a host where it was installed.
#[test]
fn the_catalog_is_one_that_journalctl_takes() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("usr/lib/systemd/catalog");
    std::fs::create_dir_all(&place).unwrap();
    let ours = crate::support::source::root().join("dist/systemd/catalog/tenured.catalog");
    std::fs::copy(&ours, place.join("tenured.catalog")).unwrap();
    let journalctl = |argument: &str| {
        let mut command = std::process::Command::new("journalctl");
        command.arg(format!("--root={}", root.path().display())).arg(argument).output()
    };
    let Ok(updated) = journalctl("--update-catalog") else {
        return skip("the catalog", "there is no journalctl");
    };
    let said = String::from_utf8_lossy(&updated.stderr).into_owned();
    assert!(updated.status.success() && said.is_empty(), "{said}");
    let listed = journalctl("--list-catalog").unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let entries =
        std::fs::read_to_string(ours).unwrap().lines().filter(|line| line.starts_with("-- ")).count();
    assert_eq!(listed.lines().count(), entries, "{listed}");
}

/// A host with a login manager that was there before the daemon.
fn with_logind() -> (Host, Logind) {
    let mut host = Host::prepare(Setup::default());
    let logind = Logind::start(&host.address());
    host.launch();
    eventually("both locks", || {
        let locks = (logind.count("shutdown"), logind.count("sleep"));
        if locks == ((1, 0), (1, 0)) { Ok(()) } else { Err(format!("{locks:?}")) }
    });
    for lock in logind.locks.lock().unwrap().iter() {
        assert_eq!((lock.who.as_str(), lock.mode.as_str()), ("tenured", "delay"));
    }
    (host, logind)
}

#[test]
fn a_shutdown_is_on_the_board_before_its_lock_is_let_go_and_what_ends_then_is_lost() {
    if !is_root() {
        return skip("shutdown", "the system bus is root's");
    }
    let (host, logind) = with_logind();
    let client = host.client();
    let pipe = host.fifo("go");
    let (task, pid) = waiting_task(&host, &pipe, 0);
    logind.announce("PrepareForShutdown", true);
    eventually("the lock to be let go", || {
        let locks = logind.count("shutdown");
        if locks == (0, 1) { Ok(()) } else { Err(format!("{locks:?}")) }
    });
    let stamped = "SELECT count(*) FROM boots WHERE shutdown_ms IS NOT NULL";
    assert_eq!(host.board().number(stamped, []), Some(1));
    // As the service manager ends it.
    kernel::signal(pid, Signal::TERM);
    client.becomes(task, "ready");
    let run = client.runs(task).pop().unwrap();
    assert_eq!(run.text("Outcome"), "lost", "{run:?}");
    assert_eq!(client.task(task).number("Failures"), 0);
    let late = client.create("late", &options! { "Command" => vec!["/bin/true"] });
    client.sweep_with(&options! { "Dispatch" => true });
    assert_eq!((client.status(late).as_str(), client.status(task).as_str()), ("ready", "ready"));

    logind.announce("PrepareForShutdown", false);
    client.becomes(late, "done");
    assert_eq!(host.board().number(stamped, []), Some(0));
    eventually("a new lock", || {
        let locks = logind.count("shutdown");
        if locks == (1, 1) { Ok(()) } else { Err(format!("{locks:?}")) }
    });
}

#[test]
fn a_shutdown_that_the_board_could_not_take_at_once_is_on_it_soon_after() {
    if !is_root() {
        return skip("shutdown", "the system bus is root's");
    }
    let (host, logind) = with_logind();
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF shutdown_ms ON boots
                  BEGIN SELECT RAISE(ABORT, 'not now'); END";
    host.board().execute(refuse, []);
    logind.announce("PrepareForShutdown", true);
    eventually("the board to refuse the stamp", || {
        let log = host.log();
        if log.contains("the board did not take it") { Ok(()) } else { Err(log) }
    });
    host.board().execute("DROP TRIGGER refuse", []);
    let stamped = "SELECT count(*) FROM boots WHERE shutdown_ms IS NOT NULL";
    eventually("the stamp", || match host.board().number(stamped, []) {
        Some(1) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_sleep_has_its_lock_let_go_and_taken_again() {
    if !is_root() {
        return skip("sleep", "the system bus is root's");
    }
    let (host, logind) = with_logind();
    logind.announce("PrepareForSleep", true);
    eventually("the lock to be let go", || {
        let locks = logind.count("sleep");
        if locks == (0, 1) { Ok(()) } else { Err(format!("{locks:?}")) }
    });
    logind.announce("PrepareForSleep", false);
    eventually("a new lock", || {
        let locks = logind.count("sleep");
        if locks == (1, 1) { Ok(()) } else { Err(format!("{locks:?}")) }
    });
    let client = host.client();
    let task = client.create("after", &options! { "Command" => vec!["/bin/true"] });
    client.becomes(task, "done");
}

#[test]
fn a_stamp_of_a_shutdown_that_did_not_come_is_taken_back() {
    if !is_root() {
        return skip("shutdown", "the system bus is root's");
    }
    let (mut host, _logind) = with_logind();
    host.kill();
    host.board().execute("UPDATE boots SET shutdown_ms = 1", []);
    host.launch();
    let client = host.client();
    let task = client.create("goes on", &options! { "Command" => vec!["/bin/true"] });
    client.becomes(task, "done");
}
