//! Is it really over?

use rustix::process::Signal;
use tenured::bus::proxy::Options;

use crate::options;
use crate::support::daemon::{QUIET, Setup};
use crate::support::decoy::Shape;
use crate::support::{Decoy, Host, Kind, eventually, kernel};

const TERM: i32 = 15;
const CONT: i32 = 18;
const KILL: i32 = 9;

#[test]
fn c13_a_zombie_is_dead_whether_its_parent_reaps_it_or_not() {
    let host = Host::start();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let (task, run) = client.held_by(&worker, &Options::new());
    worker.end_unreaped();
    client.becomes(task, "ready");
    assert_eq!(client.run(run).text("Outcome"), "crashed");
    assert_eq!(kernel::stat_field(worker.pid, 3), "Z", "nobody has reaped it meanwhile");
}

#[test]
fn c14_a_process_lives_while_any_of_its_threads_does() {
    let host = Host::start();
    let client = host.client();
    let mut worker = Decoy::shaped(Shape { leaderless: true, ..Shape::default() }).unwrap();
    eventually("the first thread to exit", || {
        let state = kernel::stat_field(worker.pid, 3);
        (state == "Z").then_some(()).ok_or(state)
    });
    let (task, _) = client.held_by(&worker, &Options::new());
    host.board().execute("UPDATE runs SET lease_expires_ms = ?1", [kernel::mono_ms() - 60_000]);
    let report = client.sweep();
    assert_eq!(report.of("extended"), [task]);
    assert_eq!((client.status(task), worker.lives()), ("running".into(), true));
    worker.end();
    client.becomes(task, "ready");
}

/// Processes of a run, by what is in their environment.
fn tree_of(host: &Host, run: u64) -> Vec<String> {
    let mine = host.path("").as_os_str().as_encoded_bytes().to_vec();
    let mark = format!("TENURED_RUN={run}\0").into_bytes();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let has = |text: &[u8]| environment.windows(text.len()).any(|window| window == text);
        if has(&mark) && has(mine.trim_ascii_end().strip_suffix(b"/").unwrap_or(&mine)) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn c15_grandchildren_in_sessions_of_their_own_are_gone_before_the_task_goes_on() {
    grandchildren_are_gone(&Host::start());
}

#[test]
fn c15_also_where_a_launcher_has_started_the_worker() {
    grandchildren_are_gone(&Host::start_with(Setup { with_launcher: true, ..Setup::default() }));
}

fn grandchildren_are_gone(host: &Host) {
    let client = host.client();
    let script = "trap '' TERM; while :; do setsid sleep 300 & sleep 0.02; done";
    let task = client.create(
        "forks without end",
        &options! {
            "Command" => vec!["/bin/sh", "-c", script], "FailureLimit" => 1_u32,
            "MaxRuntimeUsec" => 600_000_u64, "StopGraceUsec" => 300_000_u64,
        },
    );
    host.worker_of(&client, task);
    let run = client.task(task).number("Run").cast_unsigned();
    eventually("some grandchildren", || {
        let tree = tree_of(host, run);
        if tree.len() > 5 { Ok(()) } else { Err(format!("{tree:?}")) }
    });
    client.becomes(task, "blocked");
    assert_eq!(tree_of(host, run), [""; 0]);
    assert_eq!(client.run(run).text("Outcome"), "timed_out");
}

#[test]
fn c18_a_stopped_worker_is_let_go_on_so_that_it_can_take_its_term() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("asleep", &options! { "Command" => vec!["/bin/sleep", "1000"] });
    let pid = host.worker_of(&client, task);
    let run = client.task(task).number("Run").cast_unsigned();
    kernel::signal(pid, Signal::STOP);
    eventually("the worker to be stopped", || {
        let state = kernel::stat_field(pid, 3);
        (state == "T").then_some(()).ok_or(state)
    });
    client.ask(client.manager.cancel_task(task, &Options::new())).unwrap();
    client.becomes(task, "cancelled");
    let row = client.run(run);
    assert_eq!((row.text("Outcome"), row.number("Signal")), ("cancelled".into(), i64::from(TERM)));
}

#[test]
fn c18_a_stopped_worker_that_ignores_term_is_killed_when_its_grace_is_over() {
    let host = Host::start();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let (task, _) = client.held_by(&worker, &options! { "StopGraceUsec" => 500_000_u64 });
    kernel::signal(worker.pid, Signal::STOP);
    eventually("the worker to be stopped", || {
        let state = kernel::stat_field(worker.pid, 3);
        (state == "T").then_some(()).ok_or(state)
    });
    assert_eq!(client.ask(client.manager.cancel_task(task, &Options::new())).as_deref(), Ok("stopping"));
    client.becomes(task, "cancelled");
    assert_eq!(worker.received(), [TERM, CONT, KILL]);
}

#[test]
fn c19_a_second_harder_stop_does_not_wait_for_the_grace() {
    let host = Host::start();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let (task, run) = client.held_by(&worker, &options! { "StopGraceUsec" => 3_600_000_000_u64 });
    assert_eq!(client.ask(client.manager.cancel_task(task, &Options::new())).as_deref(), Ok("stopping"));
    assert_eq!(worker.received(), [TERM, CONT]);
    let hard = options! { "Kill" => true };
    client.ask(client.manager.cancel_task(task, &hard)).unwrap();
    client.becomes(task, "cancelled");
    assert_eq!(worker.received(), [TERM, CONT, KILL]);
    assert_eq!(client.run(run).text("Outcome"), "cancelled");
    assert_eq!(client.ask(client.manager.cancel_task(task, &hard)).as_deref(), Ok("unchanged"));
}

#[test]
fn c20_when_the_supervisor_is_killed_the_tree_is_stopped_and_the_run_ends_once() {
    let config = QUIET.replace("[sweep]\n", "[sweep]\nlinger = \"1s\"\n");
    let host =
        Host::start_with(Setup { config: format!("{config}stop_grace = \"1s\"\n"), ..Setup::default() });
    let client = host.client();
    let script = "setsid sleep 1000 & sleep 1000 & wait";
    let command = vec!["/bin/sh", "-c", script];
    let task = client.create("orphaned", &options! { "Command" => command, "FailureLimit" => 1_u32 });
    let pid = host.worker_of(&client, task);
    let run = client.task(task).number("Run").cast_unsigned();
    eventually("the whole tree", || {
        let tree = tree_of(&host, run);
        if tree.len() == 3 { Ok(()) } else { Err(format!("{tree:?}")) }
    });
    let supervisor: u32 = kernel::stat_field(pid, 4).parse().unwrap();
    kernel::signal(supervisor, Signal::KILL);

    eventually("the run to end", || {
        client.sweep();
        let row = client.run(run);
        let over = !row.word("Outcome").is_empty() && row.number("EndedUsec") > 0;
        assert!(!over || tree_of(&host, run).is_empty(), "the run has ended and its tree lives: {row:?}");
        if over { Ok(()) } else { Err(format!("{row:?}")) }
    });
    let row = client.run(run);
    assert_eq!(row.text("Outcome"), "crashed");
    assert_eq!((row.number("ExitCode"), client.runs(task).len()), (0, 1));
    assert_eq!(client.status(task), "blocked");
    assert_eq!(host.board().events(task, "crashed"), 1);
}
