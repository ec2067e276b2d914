//! Claims that are broken, repeated, failing or many.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenured::bus::proxy::Options;

use crate::options;
use crate::support::board::HandMade;
use crate::support::daemon::{QUIET, Setup};
use crate::support::{Decoy, Host, Kind, kernel};

#[test]
fn c34_one_sweep_repairs_every_shape_of_broken_claim() {
    let host = Host::start();
    let (board, client) = (host.board(), host.client());

    let no_run = board.task("running");
    let missing = board.task("running");
    board.execute("UPDATE tasks SET run = 999999 WHERE task = ?1", [missing.cast_signed()]);
    let (no_lease, _) = board.running(HandMade { lease_expires_ms: None, ..HandMade::default() });
    let (no_claimant, _) = board.running(HandMade { claimant: None, ..HandMade::default() });
    let (two_runs, first) = board.running(HandMade::default());
    let second = board.run(two_runs, HandMade::default());

    // Its run has ended well, its worker is gone, and somebody set the task back.
    let mut worker = Decoy::start(Kind::Stubborn);
    let (ended, ended_run) = client.held_by(&worker, &Options::new());
    client.ask(client.manager.complete_run(ended_run, &Options::new())).unwrap();
    worker.end();
    board.execute(
        "UPDATE tasks SET status = 'running', run = ?1 WHERE task = ?2",
        [ended_run.cast_signed(), ended.cast_signed()],
    );
    // Its run belongs to another task.
    let (owner, borrowed) = board.running(HandMade::default());
    let borrower = board.task("running");
    let borrow = "UPDATE tasks SET run = ?1 WHERE task = ?2";
    board.execute(borrow, [borrowed.cast_signed(), borrower.cast_signed()]);
    // The mirror image: an open run of a task that is not running.
    let mirror = board.task("ready");
    let mirror_run = board.run(mirror, HandMade::default());

    let report = client.sweep_passes(&["reconcile_orphans"]);
    for (task, what) in [
        (no_run, "no run"),
        (missing, "a run that does not exist"),
        (no_lease, "no lease"),
        (no_claimant, "no claimant"),
        (two_runs, "two open runs"),
        (borrower, "the run of another task"),
        (mirror, "ready with an open run"),
    ] {
        assert!(report.of("reconciled").contains(&task), "{what}: {report:?}");
        assert_eq!((board.status(task), board.run_of(task)), ("ready".into(), None), "{what}");
        let runs = if task == two_runs { 2 } else { 1 };
        assert_eq!(board.events(task, "reconciled"), runs, "{what}: {:?}", board.history(task));
        assert!(!client.comments(task).is_empty(), "{what}: nothing is noted on the task");
    }
    assert_eq!(board.status(ended), "done", "its end is on record");
    for run in [first, second, mirror_run] {
        assert!(board.outcome(run).is_some(), "run {run} is still open");
    }
    assert_eq!((board.status(owner), board.outcome(borrowed)), ("running".into(), None), "a whole claim");

    let again = client.sweep_passes(&["reconcile_orphans"]);
    assert_eq!(again.of("reconciled"), [0; 0], "one sweep is enough");
}

#[test]
fn c35_one_idempotency_key_from_fifty_callers_makes_one_task() {
    let host = Host::start();
    let barrier = Barrier::new(50);
    let answers: Vec<(u64, bool)> = std::thread::scope(|threads| {
        let callers: Vec<_> = (0..50)
            .map(|index| {
                let (host, barrier) = (&host, &barrier);
                threads.spawn(move || {
                    let client = host.client();
                    barrier.wait();
                    let title = format!("from caller {index}");
                    let properties = options! { "IdempotencyKey" => "once" };
                    client.ask(client.manager.create_task(&title, &properties)).unwrap()
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|(task, _)| *task == answers[0].0), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, created)| *created).count(), 1);
    assert_eq!(host.board().number("SELECT count(*) FROM tasks", []), Some(1));
}

#[test]
fn c36_a_task_that_goes_down_with_its_host_again_and_again_is_blocked() {
    let mut host = Host::start();
    let task = host.client().create("takes the host down", &Options::new());
    let reboots = [(true, "ready"), (false, "ready"), (false, "ready"), (false, "blocked")];
    for (clean, status) in reboots {
        let mut worker = Decoy::start(Kind::Stubborn);
        let client = host.client();
        client.claim(task, options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) });
        drop(client);
        // What lives under the worker's number now is not the worker: it went down with its boot.
        host.reboot(clean);
        host.client().becomes(task, status);
        assert_eq!(worker.received(), [0; 0]);
    }
    let client = host.client();
    let row = client.task(task);
    assert_eq!((row.text("BlockCode"), row.number("Failures")), ("host".into(), 0));
    assert!(client.runs(task).iter().all(|run| run.text("Outcome") == "lost"));
}

#[test]
fn c37_what_always_fails_backs_off_and_then_stops_and_others_go_on() {
    let host = Host::start();
    let client = host.client();
    let properties = |command: &'static str| {
        options! {
            "Command" => vec![command], "BackoffUsec" => 100_000_u64, "BackoffMaxUsec" => 10_000_000_u64,
            "FailureLimit" => 3_u32,
        }
    };
    let failing = [("/does/not/exist", 127), ("/bin/false", 1)];
    let failing = failing.map(|(command, code)| (client.create(command, &properties(command)), code));
    let others: Vec<u64> =
        (0..10).map(|_| client.create("well", &options! { "Command" => vec!["/bin/true"] })).collect();
    for task in others {
        client.becomes(task, "done");
    }
    for (task, code) in failing {
        client.becomes(task, "blocked");
        let row = client.task(task);
        assert_eq!((row.text("BlockCode"), row.number("Attempts")), ("failures".into(), 3), "{row:?}");
        let runs = client.runs(task);
        assert!(runs.iter().all(|run| run.number("ExitCode") == code), "{runs:?}");
        let starts: Vec<i64> = runs.iter().map(|run| run.number("StartedUsec")).collect();
        let gaps: Vec<i64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] >= 100_000 && gaps[1] >= 200_000, "started too soon again: {gaps:?} us");
    }
}

#[test]
fn c38_no_caller_starves_and_memory_stays_bounded_when_many_call_at_once() {
    const CLIENTS: usize = 200;
    const ADDS: usize = 20;
    let host = Host::start_with(Setup { config: QUIET.to_owned(), ..Setup::default() });
    let client = host.client();
    let flooded = client.create("flooded", &Options::new());
    let run = client.claim(flooded, Options::new());
    let before = resident_kib(host.pid());
    let (barrier, over) = (Barrier::new(CLIENTS + 1), AtomicBool::new(false));
    let mut waits: Vec<Duration> = std::thread::scope(|threads| {
        let flood = threads.spawn(|| {
            let flooder = host.client();
            barrier.wait();
            let mut beats = 0;
            while !over.load(Ordering::Relaxed) {
                flooder.ask(flooder.manager.heartbeat(run, &Options::new())).unwrap();
                beats += 1;
            }
            beats
        });
        let callers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                threads.spawn(|| {
                    let caller = host.client();
                    barrier.wait();
                    let add = |_| {
                        let start = Instant::now();
                        caller.create("one of many", &Options::new());
                        start.elapsed()
                    };
                    (0..ADDS).map(add).collect::<Vec<Duration>>()
                })
            })
            .collect();
        let waits = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(flood.join().unwrap() > 0, "the one who floods is served too");
        waits
    });
    waits.sort();
    let (p99, worst) = (waits[waits.len() * 99 / 100], waits[waits.len() - 1]);
    let grown = resident_kib(host.pid()) - before;
    println!("{} adds by {CLIENTS} clients: p99 {p99:?}, worst {worst:?}, {grown} KiB more", waits.len());
    assert_eq!(host.board().number("SELECT count(*) FROM tasks", []), Some(1 + (CLIENTS * ADDS) as i64));
    assert!(p99 < Duration::from_secs(5), "p99 {p99:?}");
    assert!(grown < 64 * 1_024, "the daemon grew by {grown} KiB");
}

fn resident_kib(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn c39_a_preview_of_a_board_full_of_due_rows_changes_not_one_byte() {
    let host = Host::start();
    let client = host.client();
    client.ask(client.manager.drain(true, &Options::new())).unwrap();
    let mut worker = Decoy::start(Kind::Stubborn);
    let mut extended = Decoy::start(Kind::Stubborn);
    let mut stranger = Decoy::start(Kind::Stubborn);
    let foreign = crate::support::board::Cell::Text(kernel::strangers_fingerprint(stranger.pid));
    let ready = client.create("ready", &options! { "Command" => vec!["/bin/true"] });
    let board = host.board();
    let (overrun, _) = board.running(HandMade::default().own(worker.pid).overrun());
    let (expired, _) = board.running(HandMade::default().own(extended.pid).lease_expired());
    let row = HandMade::default().worker(stranger.pid, foreign);
    let (reclaimed, _) = board.running(row.lease_expired());
    let (lease_only, _) = board.running(HandMade::default().lease_expired());
    let orphan = board.task("running");
    let (held, _) = board.running(HandMade { claimant: None, ..HandMade::default().own(extended.pid) });
    let dump = board.dump(&["tasks", "runs", "events", "comments"]);
    drop(board);

    let before = host.bytes_of_board();
    for _ in 0..3 {
        let report = client.sweep_with(&options! { "Preview" => true });
        assert_eq!(report.signalled().iter().filter(|(task, _)| *task == overrun).count(), 1, "{report:?}");
        assert!(report.of("extended").contains(&expired), "{report:?}");
        assert!(report.of("reclaimed").contains(&reclaimed), "{report:?}");
        assert!(report.of("reclaimed").contains(&lease_only), "{report:?}");
        assert_eq!(report.of("reconciled"), [orphan], "{report:?}");
        assert!(report.held().iter().any(|(task, _)| *task == held), "{report:?}");
    }
    assert!(before == host.bytes_of_board(), "a preview wrote to the board");
    assert_eq!(host.board().dump(&["tasks", "runs", "events", "comments"]), dump);
    assert_eq!(client.status(ready), "ready");
    for decoy in [&mut worker, &mut extended, &mut stranger] {
        assert_eq!(decoy.received(), [0; 0]);
    }
}
