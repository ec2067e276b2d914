//! Whose process is it?

use std::io::Read;
use std::process::Stdio;

use tenured::bus::proxy::Options;

use crate::options;
use crate::support::board::{Cell, HandMade};
use crate::support::client::Named;
use crate::support::daemon::{QUIET, Setup};
use crate::support::decoy::Shape;
use crate::support::{Decoy, Host, Kind, eventually, is_root, kernel, skip};

const TERM: i32 = 15;
const CONT: i32 = 18;

#[test]
fn c01_a_pid_of_another_boot_that_is_a_strangers_now() {
    let mut host = Host::start();
    let mut stranger = Decoy::start(Kind::Stubborn);
    host.kill();
    let board = host.board();
    let other = kernel::other_epoch();
    let text = kernel::fingerprint_in(&other, stranger.pid);
    let row = HandMade { epoch: Some(other), ..HandMade::default().worker(stranger.pid, Cell::Text(text)) };
    let (task, run) = board.running(row.overrun().lease_expired());
    host.launch();

    host.client().becomes(task, "ready");
    assert_eq!(board.outcome(run).as_deref(), Some("lost"));
    assert_eq!(stranger.received(), [0; 0]);
}

#[test]
fn c02_a_pid_recycled_within_this_boot_while_the_daemon_was_down() {
    if !is_root() {
        return skip("c02", "only root may choose the number of a process");
    }
    let mut host = Host::start();
    let mut worker = Decoy::start(Kind::Stubborn);
    let (task, run) = host.client().held_by(&worker, &options! { "MaxRuntimeUsec" => 1_000_000_u64 });
    host.kill();
    worker.end();
    let mut newcomer = Decoy::shaped(Shape { pid: Some(worker.pid), ..Shape::default() }).unwrap();
    let board = host.board();
    board.execute("UPDATE runs SET lease_expires_ms = ?1, started_ms = ?1", [kernel::mono_ms() - 60_000]);
    host.launch();

    let client = host.client();
    client.becomes(task, "ready");
    client.sweep();
    assert_eq!(client.runs(task).len(), 1);
    assert!(!client.run(run).word("Outcome").is_empty());
    assert_eq!(newcomer.received(), [0; 0]);
}

#[test]
fn c03_a_pid_recycled_between_term_and_kill_gets_no_kill() {
    if !is_root() {
        return skip("c03", "only root may choose the number of a process");
    }
    let mut host = Host::start();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let properties = options! { "MaxRuntimeUsec" => 1_000_u64, "StopGraceUsec" => 60_000_000_u64 };
    let (task, run) = client.held_by(&worker, &properties);
    eventually("TERM", || {
        client.sweep();
        let seen = worker.received();
        (seen == [TERM, CONT]).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    drop(client);
    // The daemon dies in the grace, the worker after it, and the number is given out again.
    host.kill();
    worker.end();
    let mut newcomer = Decoy::shaped(Shape { pid: Some(worker.pid), ..Shape::default() }).unwrap();
    let board = host.board();
    board.execute("UPDATE runs SET term_ms = ?1 WHERE term_ms IS NOT NULL", [kernel::mono_ms() - 120_000]);
    host.launch();

    let client = host.client();
    client.becomes(task, "ready");
    client.sweep();
    assert_eq!(board.outcome(run).as_deref(), Some("timed_out"), "it was stopped, and then it was gone");
    assert_eq!(newcomer.received(), [0; 0]);
}

#[test]
fn c04_a_pid_recycled_within_the_same_tick() {
    if !is_root() {
        return skip("c04", "only root may choose the number of a process");
    }
    if kernel::inode(std::process::id()).is_none() {
        return skip("c04", "this kernel has no pidfs, so two processes of one tick cannot be told apart");
    }
    let host = Host::start();
    let (board, client) = (host.board(), host.client());
    // Steered: the number is taken again at once, until both processes started in the same 10 ms.
    let (text, mut newcomer) = eventually("two processes with one pid in one tick", || {
        let mut first = Decoy::start(Kind::Stubborn);
        let (ticks, text) = (kernel::start_ticks(first.pid), kernel::fingerprint(first.pid));
        first.end();
        let second = Decoy::shaped(Shape { pid: Some(first.pid), ..Shape::default() })
            .map_err(|error| error.to_string())?;
        let again = kernel::start_ticks(second.pid);
        if again == ticks { Ok((text, second)) } else { Err(format!("{ticks} and {again}")) }
    });
    let (task, _) = board.running(HandMade::default().worker(newcomer.pid, Cell::Text(text)).overrun());
    let report = client.sweep();
    assert_eq!(report.of("timed_out"), [task]);
    assert_eq!(newcomer.received(), [0; 0]);
}

#[test]
fn c05_names_that_look_like_other_fields_do_not_change_the_fingerprint() {
    let host = Host::start();
    let client = host.client();
    for name in [&b"a) R 1 (b"[..], b"two words", b"line\nbreak", b"\xff\xfe)\xfd", b") 1 2 3 4 5 6"] {
        let decoy = Decoy::shaped(Shape { name: Some(name), ..Shape::default() }).unwrap();
        let (task, _) = client.held_by(&decoy, &Options::new());
        assert_eq!(client.task(task).text("Fingerprint"), kernel::fingerprint(decoy.pid), "{name:?}");
        let report = client.sweep();
        assert_eq!(report.held(), [], "{name:?}");
    }
}

#[test]
fn c06_of_two_daemons_on_one_board_exactly_one_owns_it() {
    const ROUNDS: usize = 100;
    let mut host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    for _ in 0..ROUNDS {
        let mut daemons = [(); 2].map(|()| host.command().stderr(Stdio::piped()).spawn().unwrap());
        let loser = eventually("one of the two to give way", || {
            let ended: Vec<usize> =
                (0..2).filter(|index| daemons[*index].try_wait().unwrap().is_some()).collect();
            ended.first().copied().ok_or_else(|| "both run".to_owned())
        });
        let status = daemons[loser].wait().unwrap();
        let mut said = String::new();
        daemons[loser].stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let winner = &mut daemons[1 - loser];
        assert!(!status.success(), "the loser said that all is well");
        assert!(
            said.contains(&winner.id().to_string()),
            "it does not say who holds the board:\n{said}{:?}",
            std::fs::read_dir(host.state())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        );
        assert!(winner.try_wait().unwrap().is_none(), "neither of the two owns the board");
        winner.kill().unwrap();
        winner.wait().unwrap();
    }
    // What they left behind stops nobody.
    host.launch();
}

#[test]
fn c07_what_cannot_be_seen_at_the_moment_is_held_and_fine_at_the_next_sweep() {
    let host = Host::start();
    let (board, client) = (host.board(), host.client());
    let mut worker = Decoy::start(Kind::Stubborn);
    let mut stranger = Decoy::start(Kind::Stubborn);
    let (task, _) = board.running(HandMade::default().own(worker.pid).overrun().lease_expired());
    let foreign = Cell::Text(kernel::strangers_fingerprint(stranger.pid));
    let (other, _) =
        board.running(HandMade::default().worker(stranger.pid, foreign).overrun().lease_expired());

    let limit = host.exhaust_descriptors();
    let report = client.sweep();
    host.restore_descriptors(limit);
    assert_eq!(report.held(), [(task, "unknown".to_owned()), (other, "unknown".to_owned())]);
    assert_eq!((board.status(task), board.status(other)), ("running".into(), "running".into()));
    assert_eq!((worker.received(), stranger.received()), (vec![], vec![]));

    let report = client.sweep();
    assert_eq!(report.held(), []);
    assert_eq!(report.of("timed_out"), [other]);
    assert_eq!(report.signalled(), [(task, TERM)]);
    assert_eq!(stranger.received(), [0; 0]);
}

/// A daemon under `unshare`, on a board with a claim of a live worker and one of a dead one; both must be
/// held there, and the daemon must say why.
fn held_in_another_view(unshare: &[&str]) {
    let mut host = Host::start_with(Setup { with_bus: false, ..Setup::default() });
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let mut gone = Decoy::start(Kind::Stubborn);
    let (task, _) = client.held_by(&worker, &Options::new());
    let (other, _) = client.held_by(&gone, &Options::new());
    drop(client);
    host.kill();
    gone.end();
    host.board().execute("UPDATE tasks SET max_runtime_ms = 1000", []);

    host.launch_under(unshare);
    let client = host.client();
    let report = client.sweep();
    assert_eq!(report.held(), [(task, "unknown".to_owned()), (other, "unknown".to_owned())]);
    assert_eq!((client.status(task), client.status(other)), ("running".into(), "running".into()));
    let degraded = client.ask(client.manager.degraded()).unwrap();
    assert!(degraded.iter().any(|why| why.contains("epoch")), "{degraded:?}");
    assert_eq!(worker.received(), [0; 0]);
    drop(client);
    host.kill();

    host.launch();
    let client = host.client();
    client.becomes(other, "ready");
    eventually("TERM for the worker that is overdue", || {
        client.sweep();
        let seen = worker.received();
        (seen == [TERM, CONT]).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    assert_eq!(client.ask(client.manager.degraded()).unwrap(), [""; 0]);
}

#[test]
fn c08_a_daemon_in_another_time_namespace_knows_nothing_of_the_old_rows() {
    if !is_root() {
        return skip("c08 (time namespace)", "only root may make one");
    }
    held_in_another_view(&[
        "unshare",
        "--time",
        "--fork",
        "--kill-child",
        "--boottime",
        "100000",
        "--monotonic",
        "100000",
    ]);
}

#[test]
fn c08_a_daemon_in_another_pid_namespace_knows_nothing_of_the_old_rows() {
    if !is_root() {
        return skip("c08 (pid namespace)", "only root may make one");
    }
    held_in_another_view(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
}

#[test]
fn c09_a_reboot_behind_the_same_boot_id_is_a_reboot() {
    let mut host = Host::start();
    let mut stranger = Decoy::start(Kind::Stubborn);
    let (task, run) = host.client().held_by(&stranger, &Options::new());
    // boot_id, pid and ticks coincide; the nonce and CLOCK_BOOTTIME do not.
    host.reboot(false);
    let board = host.board();

    host.client().becomes(task, "ready");
    assert_eq!(board.outcome(run).as_deref(), Some("lost"));
    assert_eq!(stranger.received(), [0; 0]);
}

#[test]
fn c10_another_boot_id_alone_is_no_reboot() {
    if !is_root() {
        return skip("c10", "only root may mount over /proc");
    }
    let mut host = Host::prepare(Setup { with_bus: false, ..Setup::default() });
    let fake = host.path("boot_id");
    std::fs::write(&fake, "0b9d3c1e-5f7a-4d2b-8c6e-a1b2c3d4e5f6\n").unwrap();
    host.launch();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let (task, _) = client.held_by(&worker, &Options::new());
    drop(client);
    host.kill();
    host.board().execute("UPDATE tasks SET max_runtime_ms = 1000", []);

    let mount = format!("mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"", fake.display());
    host.launch_under(&["unshare", "--mount", "/bin/sh", "-c", &mount, "sh"]);
    let client = host.client();
    assert_eq!(client.sweep().held(), [(task, "unknown".to_owned())]);
    assert_eq!(client.status(task), "running");
    assert!(!client.ask(client.manager.degraded()).unwrap().is_empty());
    assert_eq!(worker.received(), [0; 0]);
}

/// Two users that every host has (a bus lets nobody in whom it does not know): daemon and nobody.
const ALICE: u32 = 1;
const MALLORY: u32 = 65_534;

#[test]
fn c12_nobody_makes_the_daemon_signal_a_process_that_is_not_his() {
    if !is_root() {
        return skip("c12", "needs processes of several users");
    }
    let host = Host::start();
    let mallory = host.client_as(MALLORY);
    let as_user = |uid| Decoy::shaped(Shape { uid: Some(uid), ..Shape::default() }).unwrap();
    let mut roots = Decoy::start(Kind::Stubborn);
    let mut alices = as_user(ALICE);
    let mut his = as_user(MALLORY);
    let threaded = Decoy::shaped(Shape { uid: Some(MALLORY), leaderless: true, ..Shape::default() }).unwrap();
    let thread = std::fs::read_dir(format!("/proc/{}/task", threaded.pid))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u32>().unwrap())
        .find(|thread| *thread != threaded.pid)
        .expect("a second thread");

    let task = mallory.create("a trap", &options! { "MaxRuntimeUsec" => 1_000_000_u64 });
    let kernel_thread = std::fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n").then_some(2);
    for pid in [roots.pid, alices.pid, host.pid(), 1, thread].into_iter().chain(kernel_thread) {
        let refused = mallory.try_claim(task, options! { "Pid" => pid }).unwrap_err();
        assert!(matches!(refused.name.as_str(), "NotYourProcess" | "InvalidArgument"), "{pid}: {refused:?}");
        let ticks = if pid == thread { 1 } else { kernel::start_ticks(pid) };
        let refused = mallory.try_claim(task, options! { "Pid" => pid, "StartTicks" => ticks }).unwrap_err();
        assert!(matches!(refused.name.as_str(), "NotYourProcess" | "InvalidArgument"), "{pid}: {refused:?}");
    }
    for pid in [roots.pid, alices.pid, host.pid(), 1] {
        let fd = zbus::Fd::from(kernel::pidfd(pid));
        let refused = mallory.try_claim(task, options! { "PidFD" => fd });
        assert_eq!(refused.refusal(), "NotYourProcess", "{pid} by pidfd");
    }
    assert_eq!(mallory.status(task), "ready", "a refused claim leaves nothing behind");
    assert_eq!(mallory.runs(task).len(), 0);

    // The same by SetWorker, on a claim that he has.
    let run = mallory.claim(task, Options::new());
    for pid in [roots.pid, alices.pid, 1] {
        let options = options! { "Pid" => pid, "StartTicks" => kernel::start_ticks(pid) };
        let refused = mallory.ask(mallory.manager.set_worker(run, &options));
        assert_eq!(refused.refusal(), "NotYourProcess", "{pid} by SetWorker");
    }
    let own = options! { "PidFD" => zbus::Fd::from(kernel::pidfd(his.pid)) };
    mallory.ask(mallory.manager.set_worker(run, &own)).unwrap();

    // Root may name anybody's process, but not the daemon itself, nor what is no process of user space.
    let root = host.client();
    let other = root.create("root's", &Options::new());
    for pid in [host.pid(), 1].into_iter().chain(kernel_thread) {
        let options = options! { "Pid" => pid, "StartTicks" => kernel::start_ticks(pid) };
        let refused = root.try_claim(other, options).unwrap_err();
        assert!(matches!(refused.name.as_str(), "NotYourProcess" | "InvalidArgument"), "{pid}: {refused:?}");
    }
    root.sweep();
    assert_eq!((roots.received(), alices.received()), (vec![], vec![]));
    assert!(his.lives());
}

#[test]
fn c12_a_worker_that_is_somebody_elses_by_now_is_held_not_signalled() {
    if !is_root() {
        return skip("c12 (later)", "needs processes of several users");
    }
    let host =
        Host::start_with(Setup { config: format!("{QUIET}stop_grace = \"1s\"\n"), ..Setup::default() });
    let (board, mallory) = (host.board(), host.client_as(MALLORY));
    let mut his = Decoy::shaped(Shape { uid: Some(MALLORY), ..Shape::default() }).unwrap();
    let (task, _) = mallory.held_by(&his, &Options::new());
    // As if his process had become root's since: the row points to a process of root.
    let mut roots = Decoy::start(Kind::Stubborn);
    board.execute(
        "UPDATE runs SET worker_pid = ?1, worker_fingerprint = ?2 WHERE task = ?3",
        rusqlite::params![roots.pid, kernel::fingerprint(roots.pid), task.cast_signed()],
    );
    board.execute("UPDATE tasks SET max_runtime_ms = 1", []);
    let client = host.client();
    let report = client.sweep();
    assert_eq!(report.held(), [(task, "not_yours".to_owned())]);
    assert_eq!(roots.received(), [0; 0]);
    assert_eq!(client.status(task), "running");
    assert!(his.lives());
}
