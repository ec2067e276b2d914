//! Who may do what, by which way, and what the daemon tells of itself.

use super::{MALLORY, none};
use crate::options;
use crate::support::client::{Named, Row};
use crate::support::daemon::Setup;
use crate::support::decoy::Shape;
use crate::support::{Client, Decoy, Host, Kind, eventually, is_root, kernel, skip};

#[test]
fn another_user_sees_and_acts_on_his_own_tasks_only() {
    if !is_root() {
        return skip("another user", "needs a second user");
    }
    let host = Host::start();
    let (root, mallory) = (host.client(), host.client_as(MALLORY));
    let manager = &mallory.manager;
    let theirs = root.create("root's", &none());
    let run = root.claim(theirs, none());
    let his = mallory.create("his", &none());

    let hidden = [
        mallory.ask(manager.get_task(theirs)).refusal(),
        mallory.ask(manager.cancel_task(theirs, &none())).refusal(),
        mallory.ask(manager.reclaim_task(theirs, &options! { "Force" => true })).refusal(),
        mallory.ask(manager.signal_task(theirs, 9, &none())).refusal(),
        mallory.ask(manager.update_task(theirs, &options! { "Title" => "t" })).refusal(),
        mallory.ask(manager.add_comment(theirs, "t", &none())).refusal(),
        mallory.ask(manager.link_tasks(theirs, his, &none())).refusal(),
        mallory.ask(manager.list_runs(theirs, &none())).refusal(),
        mallory.try_claim(theirs, none()).refusal(),
        mallory.try_create("t", &options! { "Parents" => vec![theirs] }).refusal(),
    ];
    assert_eq!(hidden, ["NoSuchTask"; 10]);
    let own = Decoy::shaped(Shape { uid: Some(MALLORY), ..Shape::default() }).unwrap();
    let hidden = [
        mallory.ask(manager.heartbeat(run, &none())).refusal(),
        mallory.ask(manager.complete_run(run, &none())).refusal(),
        mallory.ask(manager.fail_run(run, "e", &none())).refusal(),
        mallory.ask(manager.set_worker(run, &options! { "Pid" => own.pid })).refusal(),
        mallory.ask(manager.get_run(run)).refusal(),
        mallory.ask(manager.open_output(run, &none())).refusal(),
    ];
    assert_eq!(hidden, ["NoSuchRun"; 6]);
    let forbidden = [
        mallory.ask(manager.sweep(&none())).map(drop).refusal(),
        mallory.ask(manager.drain(true, &none())).refusal(),
        mallory.ask(manager.backup("b", &none())).refusal(),
        mallory.ask(manager.reload(&none())).refusal(),
        mallory.ask(manager.set_queue("q", &none())).refusal(),
        mallory.ask(manager.remove_queue("q", &none())).refusal(),
        mallory.try_create("t", &options! { "User" => "root" }).map(drop).refusal(),
        mallory.try_create("t", &options! { "Group" => "0" }).map(drop).refusal(),
        mallory.ask(manager.update_task(his, &options! { "User" => "root" })).refusal(),
    ];
    assert_eq!(forbidden, ["NotAuthorized"; 9]);

    let seen = mallory.rows(mallory.ask(manager.list_tasks(&none())));
    assert_eq!(seen.iter().map(|row| row.number("Task").cast_unsigned()).collect::<Vec<_>>(), [his]);
    let events = mallory.rows(mallory.ask(manager.list_events(&none())));
    assert!(events.iter().all(|event| event.number("Task").cast_unsigned() == his), "{events:?}");
    assert_eq!(mallory.ask(manager.claim_task("", &none())).map(|(task, _, _)| task), Ok(his));
    assert_eq!(root.status(theirs), "running", "nothing of it did anything");

    // His commands run as he does, without root's groups.
    let task = mallory.create("whoami", &options! { "Command" => vec!["/usr/bin/id"] });
    mallory.becomes(task, "done");
    let text = mallory.output(task);
    assert!(text.contains(&format!("uid={MALLORY}")) && !text.contains("(root)"), "{text}");
    // The same key of another owner is another task.
    let keyed = options! { "IdempotencyKey" => "shared" };
    assert_ne!(mallory.create("a", &keyed), root.create("b", &keyed));
}

#[test]
fn the_private_socket_knows_its_callers_and_serves_the_same() {
    let host = Host::start_with(Setup { with_bus: false, ..Setup::default() });
    let client = host.client();
    let task = client.create("without a bus", &options! { "Command" => vec!["/bin/true"] });
    client.becomes(task, "done");
    if !is_root() {
        return skip("the private socket's callers", "needs a second user");
    }
    let mallory = host.client_as(MALLORY);
    assert_eq!(mallory.ask(mallory.manager.get_task(task)).refusal(), "NoSuchTask");
    let his = mallory.create("his", &none());
    assert_eq!(client.task(his).number("OwnerUid"), i64::from(MALLORY));
    assert_eq!(mallory.ask(mallory.manager.drain(true, &none())).refusal(), "NotAuthorized");
}

#[test]
fn the_private_socket_is_there_beside_the_bus() {
    let host = Host::start();
    let (by_bus, by_socket) = (host.client(), Client::connect(&host.private_address()).unwrap());
    let task = by_bus.create("seen from both sides", &none());
    assert_eq!(by_socket.task(task).text("Title"), "seen from both sides");
}

#[test]
fn a_daemon_of_one_user_serves_the_session_bus() {
    let host = Host::start_with(Setup { user: true, ..Setup::default() });
    let client = host.client();
    let task = client.create("for this user", &options! { "Command" => vec!["/bin/true"] });
    client.becomes(task, "done");
    client.ask(client.manager.drain(true, &none())).expect("whoever owns the daemon may do everything");
}

#[test]
fn properties_say_what_daemon_this_is_and_how_it_is() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    assert_eq!(client.ask(manager.version()).as_deref(), Ok(env!("CARGO_PKG_VERSION")));
    assert_eq!(client.ask(manager.boot_id()), Ok(kernel::boot_id()));
    assert_eq!(client.ask(manager.epoch()), Ok(kernel::epoch()));
    assert_eq!(client.ask(manager.degraded()), Ok(Vec::new()));
    assert_eq!(client.ask(manager.workers()), Ok(0));
    let worker = Decoy::start(Kind::Stubborn);
    let task = client.create("held", &none());
    client.claim(task, options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) });
    eventually("the worker to be counted", || {
        let workers = client.ask(manager.workers()).unwrap();
        if workers == 1 { Ok(()) } else { Err(workers.to_string()) }
    });
    client.sweep();
    let last = Row(client.ask(manager.last_sweep()).unwrap());
    assert!(last.has("rows"), "{last:?}");
}

#[test]
fn a_change_is_told_after_it_is_on_the_board() {
    use futures_util::StreamExt;
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    client
        .ask(async {
            let mut changes = manager.receive_task_changed().await?;
            let mut ends = manager.receive_run_ended().await?;
            let (task, _) = manager.create_task("told", &none()).await?;
            let told = changes.next().await.unwrap();
            assert_eq!(told.args()?.task, task);
            let (_, run, _) = manager.claim_task("", &none()).await?;
            manager.complete_run(run, &none()).await?;
            assert_eq!(ends.next().await.unwrap().args()?.run, run);
            assert_eq!(Row(manager.get_run(run).await?).text("Outcome"), "completed");
            Ok(())
        })
        .unwrap();
}

#[test]
fn busctl_can_drive_it() {
    let host = Host::start();
    let call = |arguments: &[&str]| {
        let mut command = std::process::Command::new("busctl");
        command.arg(format!("--address={}", host.address())).args(["--json=short", "call", "org.tenured1"]);
        command.args(["/org/tenured1", "org.tenured1.Manager"]).args(arguments);
        let done = command.output().expect("busctl; tests/run installs it");
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (created, problem) =
        call(&["CreateTask", "sa{sv}", "from a shell", "2", "Priority", "i", "3", "Labels", "as", "1", "x"]);
    assert_eq!(created.trim(), r#"{"type":"tb","data":[1,true]}"#, "{problem}");
    let (row, _) = call(&["GetTask", "t", "1"]);
    let row: serde_json::Value = serde_json::from_str(&row).unwrap();
    assert_eq!(row["data"][0]["Priority"]["data"], 3);
    let (report, problem) = call(&["Sweep", "a{sv}", "1", "Dispatch", "b", "false"]);
    assert!(report.contains("took_usec"), "{report}{problem}");
    let (_, problem) = call(&["GetTask", "t", "77"]);
    assert!(problem.contains("there is no task 77"), "{problem}");
}

#[test]
fn an_orderly_stop_leaves_workers_alone_and_answers_no_more() {
    let mut host = Host::start();
    let client = host.client();
    let mut worker = Decoy::start(Kind::Stubborn);
    let held = client.create("held", &none());
    client.claim(held, options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) });
    let launched = client.create("launched", &options! { "Command" => vec!["/bin/sleep", "1000"] });
    let pid = host.worker_of(&client, launched);
    drop(client);
    assert!(host.stop().success());
    assert!(kernel::lives(pid) && worker.lives());
    assert_eq!(worker.received(), [0; 0]);
    host.launch();
    let client = host.client();
    let row = client.task(launched);
    assert_eq!((row.text("Status"), row.number("WorkerPid")), ("running".into(), i64::from(pid)));
    client.ask(client.manager.cancel_task(launched, &none())).unwrap();
    client.becomes(launched, "cancelled");
    eventually("the worker to be gone", || if kernel::lives(pid) { Err("it lives".into()) } else { Ok(()) });
}
