//! Every method of the interface, with input that is well and with input that is not.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;

use tenured::bus::proxy::Options;
use zbus::Variant;

use crate::options;
use crate::support::client::{Named, Row};
use crate::support::daemon::{QUIET, Setup};
use crate::support::{Client, Decoy, Host, Kind, eventually, is_root, kernel, skip};

/// A user who is nobody else on this host.
const MALLORY: u32 = 54_322;
/// A number that no task and no run of a new board has.
const NOBODY: u64 = 4_000_000;

fn none() -> Options<'static> {
    Options::new()
}

fn becomes(client: &Client, task: u64, status: &str) {
    eventually("the task's status", || {
        let row = client.task(task);
        if row.text("Status") == status { Ok(()) } else { Err(format!("{row:?}")) }
    });
}

/// Every method that takes options, called with a key that it does not know.
#[test]
fn an_unknown_option_is_refused_by_name_by_every_method() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("a task", &none());
    let run = client.claim(task, none());
    let odd: BTreeMap<&str, Variant<'_>> = BTreeMap::from([("Colour", Variant::from("red"))]);
    let on_a_run = ["Heartbeat", "SetWorker", "CompleteRun", "OpenOutput"];
    let on_a_task = [
        "ReclaimTask",
        "CancelTask",
        "RetryTask",
        "UnblockTask",
        "ArchiveTask",
        "UpdateTask",
        "ListRuns",
        "ListComments",
    ];
    let plain = ["ListTasks", "ListEvents", "ListQueues", "GetStats", "Sweep", "Reload"];

    let mut answers = vec![
        ("CreateTask", client.raw("CreateTask", &("t", &odd))),
        ("ClaimTask", client.raw("ClaimTask", &("", &odd))),
        ("FailRun", client.raw("FailRun", &(run, "e", &odd))),
        ("BlockRun", client.raw("BlockRun", &(run, "r", &odd))),
        ("ReleaseRun", client.raw("ReleaseRun", &(run, "r", &odd))),
        ("SignalTask", client.raw("SignalTask", &(task, 10_i32, &odd))),
        ("BlockTask", client.raw("BlockTask", &(task, "r", &odd))),
        ("LinkTasks", client.raw("LinkTasks", &(task, task, &odd))),
        ("UnlinkTasks", client.raw("UnlinkTasks", &(task, task, &odd))),
        ("AddComment", client.raw("AddComment", &(task, "text", &odd))),
        ("SetQueue", client.raw("SetQueue", &("q", &odd))),
        ("RemoveQueue", client.raw("RemoveQueue", &("q", &odd))),
        ("Drain", client.raw("Drain", &(true, &odd))),
        ("Backup", client.raw("Backup", &("b", &odd))),
    ];
    answers.extend(on_a_run.map(|method| (method, client.raw(method, &(run, &odd)))));
    answers.extend(on_a_task.map(|method| (method, client.raw(method, &(task, &odd)))));
    answers.extend(plain.map(|method| (method, client.raw(method, &(&odd,)))));
    assert_eq!(answers.len(), 32);
    for (method, answer) in answers {
        let refused = answer.expect_err(method);
        assert_eq!(refused.name, "InvalidArgument", "{method}: {refused:?}");
        assert!(refused.text.contains("Colour"), "{method} does not name the key: {}", refused.text);
    }
    assert_eq!(client.status(task), "running", "a refused call changes nothing");
    assert!(!client.ask(client.manager.draining()).unwrap());
}

#[test]
fn an_option_of_another_type_is_refused_by_name() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("a task", &none());
    let run = client.claim(task, none());
    let manager = &client.manager;
    let refusals = [
        ("Priority", client.try_create("t", &options! { "Priority" => "high" }).map(drop)),
        ("Command", client.try_create("t", &options! { "Command" => "/bin/true" }).map(drop)),
        ("Labels", client.try_create("t", &options! { "Labels" => vec![1_u32] }).map(drop)),
        ("MaxRuntimeUsec", client.try_create("t", &options! { "MaxRuntimeUsec" => 5_i32 }).map(drop)),
        ("Slots", client.try_create("t", &options! { "Slots" => vec!["gpu"] }).map(drop)),
        ("Pid", client.try_claim(task, options! { "Pid" => "1234" }).map(drop)),
        ("Note", client.ask(manager.heartbeat(run, &options! { "Note" => 4_u32 })).map(drop)),
        ("Retry", client.ask(manager.fail_run(run, "e", &options! { "Retry" => "no" })).map(drop)),
        ("Kill", client.ask(manager.cancel_task(task, &options! { "Kill" => 1_u32 })).map(drop)),
        ("Run", client.ask(manager.reclaim_task(task, &options! { "Run" => "1" })).map(drop)),
        ("Status", client.ask(manager.list_tasks(&options! { "Status" => "ready" })).map(drop)),
        ("Limit", client.ask(manager.list_tasks(&options! { "Limit" => "all" })).map(drop)),
        ("Passes", client.ask(manager.sweep(&options! { "Passes" => true })).map(drop)),
        ("Preview", client.ask(manager.sweep(&options! { "Preview" => "yes" })).map(drop)),
        ("MaxRunning", client.ask(manager.set_queue("q", &options! { "MaxRunning" => true })).map(drop)),
    ];
    for (key, answer) in refusals {
        let refused = answer.expect_err(key);
        assert_eq!(refused.name, "InvalidArgument", "{key}: {refused:?}");
        assert!(refused.text.contains(key), "{key} is not named: {}", refused.text);
    }
    // A wrong signature of the call itself does not reach our code.
    let refused = client.raw("GetTask", &("one",)).unwrap_err();
    assert_eq!(refused.name, "org.freedesktop.DBus.Error.InvalidArgs");
    assert_eq!(client.status(task), "running");
}

#[test]
fn values_that_cannot_be_are_refused_by_name() {
    let host = Host::start();
    let client = host.client();
    let refusals = [
        ("Title", client.try_create(" ", &none())),
        ("Launch", client.try_create("t", &options! { "Launch" => "sideways" })),
        ("Completion", client.try_create("t", &options! { "Completion" => "never" })),
        ("Output", client.try_create("t", &options! { "Output" => "printer" })),
        ("StopSignal", client.try_create("t", &options! { "StopSignal" => "SIGNOTHING" })),
        ("Environment", client.try_create("t", &options! { "Environment" => vec!["NOVALUE"] })),
        ("Environment", client.try_create("t", &options! { "Environment" => vec!["TENURED_RUN=1"] })),
        ("WorkingDirectory", client.try_create("t", &options! { "WorkingDirectory" => "tmp" })),
        ("Nice", client.try_create("t", &options! { "Nice" => 40_i32 })),
        ("LeaseUsec", client.try_create("t", &options! { "LeaseUsec" => 1_u64 })),
    ];
    for (key, answer) in refusals {
        let refused = answer.expect_err(key);
        assert_eq!(refused.name, "InvalidArgument", "{key}: {refused:?}");
        assert!(refused.text.contains(key), "{key} is not named: {}", refused.text);
    }
    let long = "x".repeat(100_000);
    let refused = client.try_create("t", &options! { "Body" => long.as_str() }).unwrap_err();
    assert_eq!(refused.name, "LimitExceeded");
    assert!(refused.text.contains("65536") && refused.text.contains("100000"), "{}", refused.text);
    let refused = client.try_create("t", &options! { "Parents" => vec![NOBODY] });
    assert_eq!(refused.refusal(), "NoSuchTask");
    let passes = options! { "Passes" => vec!["tidy_up"] };
    let refused = client.ask(client.manager.sweep(&passes)).unwrap_err();
    assert!(refused.name == "InvalidArgument" && refused.text.contains("tidy_up"), "{refused:?}");
    let statuses = options! { "Status" => vec!["asleep"] };
    assert_eq!(client.ask(client.manager.list_tasks(&statuses)).refusal(), "InvalidArgument");
    assert_eq!(host.board().number("SELECT count(*) FROM tasks", []), Some(0));
}

#[test]
fn a_task_or_run_that_is_not_there_is_said_by_every_method() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let task = client.create("a task", &none());
    let refusals = [
        client.try_claim(NOBODY, none()).refusal(),
        client.ask(manager.reclaim_task(NOBODY, &none())).refusal(),
        client.ask(manager.cancel_task(NOBODY, &none())).refusal(),
        client.ask(manager.signal_task(NOBODY, 10, &none())).refusal(),
        client.ask(manager.retry_task(NOBODY, &none())).refusal(),
        client.ask(manager.unblock_task(NOBODY, &none())).refusal(),
        client.ask(manager.archive_task(NOBODY, &none())).refusal(),
        client.ask(manager.block_task(NOBODY, "r", &none())).refusal(),
        client.ask(manager.update_task(NOBODY, &options! { "Title" => "t" })).refusal(),
        client.ask(manager.link_tasks(NOBODY, task, &none())).refusal(),
        client.ask(manager.link_tasks(task, NOBODY, &none())).refusal(),
        client.ask(manager.unlink_tasks(NOBODY, task, &none())).refusal(),
        client.ask(manager.add_comment(NOBODY, "t", &none())).refusal(),
        client.ask(manager.get_task(NOBODY)).refusal(),
        client.ask(manager.list_runs(NOBODY, &none())).refusal(),
        client.ask(manager.list_comments(NOBODY, &none())).refusal(),
    ];
    assert_eq!(refusals, ["NoSuchTask"; 16]);
    let refusals = [
        client.ask(manager.heartbeat(NOBODY, &none())).refusal(),
        client.ask(manager.set_worker(NOBODY, &options! { "Pid" => std::process::id() })).refusal(),
        client.ask(manager.complete_run(NOBODY, &none())).refusal(),
        client.ask(manager.fail_run(NOBODY, "e", &none())).refusal(),
        client.ask(manager.block_run(NOBODY, "r", &none())).refusal(),
        client.ask(manager.release_run(NOBODY, "r", &none())).refusal(),
        client.ask(manager.get_run(NOBODY)).refusal(),
        client.ask(manager.open_output(NOBODY, &none())).refusal(),
    ];
    assert_eq!(refusals, ["NoSuchRun"; 8]);
    assert_eq!(client.ask(manager.remove_queue("nowhere", &none())).refusal(), "NoSuchQueue");
    assert_eq!(client.try_claim(u64::MAX, none()).refusal(), "NoSuchTask");
}

#[test]
fn a_task_is_as_it_was_asked_for() {
    let host = Host::start();
    let client = host.client();
    let parent = client.create("before", &none());
    let task = client.create(
        "all of it",
        &options! {
            "Body" => "more\nlines", "Queue" => "lane", "Priority" => -4_i32, "Labels" => vec!["b", "a"],
            "Parents" => vec![parent], "IdempotencyKey" => "k", "Command" => vec!["/bin/true", "x y"],
            "Environment" => vec!["A=1", "B=2=3"], "WorkingDirectory" => "/tmp", "Launch" => "direct",
            "MaxRuntimeUsec" => 7_000_000_u64, "StallUsec" => 8_000_000_u64, "LeaseUsec" => 9_000_000_u64,
            "StopSignal" => "SIGINT", "StopGraceUsec" => 1_500_000_u64, "FailureLimit" => 9_u32,
            "BackoffUsec" => 2_000_000_u64, "BackoffMaxUsec" => 3_000_000_u64, "Completion" => "explicit",
            "Nice" => 3_i32, "Stdin" => "/dev/null", "Output" => "file",
        },
    );
    let row = client.task(task);
    let texts =
        ["Title", "Body", "Queue", "Launch", "Completion", "WorkingDirectory", "Stdin", "Output", "Status"]
            .map(|key| row.text(key));
    let expected =
        ["all of it", "more\nlines", "lane", "direct", "explicit", "/tmp", "/dev/null", "file", "todo"];
    assert_eq!(texts, expected);
    assert!(row.text("StopSignal").ends_with("INT"), "{row:?}");
    assert_eq!(row.texts("Command"), ["/bin/true", "x y"]);
    assert_eq!(row.texts("Environment"), ["A=1", "B=2=3"]);
    let mut labels = row.texts("Labels");
    labels.sort();
    assert_eq!(labels, ["a", "b"]);
    assert_eq!(row.numbers("Parents"), [parent]);
    let numbers = ["Priority", "MaxRuntimeUsec", "StallUsec", "LeaseUsec", "StopGraceUsec", "FailureLimit"];
    assert_eq!(numbers.map(|key| row.number(key)), [-4, 7_000_000, 8_000_000, 9_000_000, 1_500_000, 9]);
    let numbers = ["BackoffUsec", "BackoffMaxUsec", "Nice", "OwnerUid", "Attempts", "Failures", "Task"];
    let uid = i64::from(rustix::process::getuid().as_raw());
    assert_eq!(numbers.map(|key| row.number(key)), [2_000_000, 3_000_000, 3, uid, 0, 0, task.cast_signed()]);
    assert!(row.number("CreatedUsec") > kernel::wall_usec() - 60_000_000);

    let again = options! { "IdempotencyKey" => "k" };
    assert_eq!(client.ask(client.manager.create_task("another title", &again)), Ok((task, false)));
    assert_eq!(client.task(task).text("Title"), "all of it", "the first one's properties win");
}

#[test]
fn claims_are_given_in_order_and_again_to_the_same_key() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    assert_eq!(client.ask(manager.claim_task("", &none())).map(drop).refusal(), "NothingReady");
    let low = client.create("low", &none());
    let high = client.create("high", &options! { "Priority" => 5_i32 });
    let commanded =
        client.create("not for claimants", &options! { "Command" => vec!["/bin/true"], "Queue" => "lane" });
    becomes(&client, commanded, "done");
    let keyed = options! { "ClaimKey" => "mine", "Claimant" => "pool 3", "LeaseUsec" => 60_000_000_u64 };
    let (task, run, properties) = client.ask(manager.claim_task("", &keyed)).unwrap();
    assert_eq!((task, Row(properties).text("Title")), (high, "high".to_owned()));
    let (again, same, _) = client.ask(manager.claim_task("", &keyed)).unwrap();
    assert_eq!((again, same), (task, run), "the same key gets the same claim again");
    let row = client.task(task);
    assert_eq!(
        (row.text("Claimant"), row.text("WorkerKind"), row.number("Run")),
        ("pool 3".into(), "lease-only".into(), run.cast_signed())
    );
    assert!((1..=60_000_000).contains(&row.number("LeaseRemainingUsec")), "{row:?}");
    assert_eq!(client.ask(manager.claim_task("lane", &none())).map(drop).refusal(), "NothingReady");
    let (task, _, _) = client.ask(manager.claim_task("default", &none())).unwrap();
    assert_eq!(task, low);
    let refused = client.try_claim(low, none()).unwrap_err();
    assert!(matches!(refused.name.as_str(), "InvalidTransition" | "Busy"), "{refused:?}");
}

#[test]
fn a_claimant_can_wait_for_work() {
    let host = Host::start();
    let client = host.client();
    let task = std::thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            let client = host.client();
            client.ask(client.manager.claim_task("", &options! { "WaitUsec" => 50_000_000_u64 }))
        });
        let task = client.create("late", &none());
        assert_eq!(waiter.join().unwrap().map(|(task, _, _)| task), Ok(task));
        task
    });
    assert_eq!(client.status(task), "running");
    let short = options! { "WaitUsec" => 20_000_u64 };
    assert_eq!(client.ask(client.manager.claim_task("", &short)).map(drop).refusal(), "NothingReady");
}

#[test]
fn a_worker_can_say_how_its_run_ended_and_say_it_twice() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let claimed = |title: &str| {
        let task = client.create(title, &none());
        (task, client.claim(task, none()))
    };

    let (task, run) = claimed("completes");
    let remaining = client.ask(manager.heartbeat(run, &options! { "Note" => "half" })).unwrap();
    assert!(remaining > 0);
    let result = options! { "Summary" => "well", "Result" => "{\"answer\": 42}" };
    assert_eq!(client.ask(manager.complete_run(run, &result)).as_deref(), Ok("done"));
    let row = client.task(task);
    assert_eq!((row.text("Status"), row.text("Result")), ("done".into(), "{\"answer\": 42}".into()));
    client
        .ask(manager.complete_run(run, &result))
        .expect("the same word again: the answer may have been lost");
    assert_eq!(client.ask(manager.fail_run(run, "e", &none())).refusal(), "StaleRun");
    assert_eq!(client.run(run).text("Outcome"), "completed");

    let (task, run) = claimed("bad result");
    let refused = client.ask(manager.complete_run(run, &options! { "Result" => "{broken" })).unwrap_err();
    assert!(refused.name == "InvalidArgument" && refused.text.contains("Result"), "{refused:?}");
    assert_eq!(client.status(task), "running");

    let (task, run) = claimed("fails");
    client.ask(manager.fail_run(run, "no luck", &none())).unwrap();
    let row = client.task(task);
    assert_eq!(
        (row.text("Status"), row.number("Failures"), row.text("LastError")),
        ("ready".into(), 1, "no luck".into())
    );
    let run = client.claim(task, none());
    client.ask(manager.fail_run(run, "for good", &options! { "Retry" => false })).unwrap();
    assert_eq!(
        (client.status(task), client.task(task).text("BlockCode")),
        ("blocked".into(), "failed".into())
    );

    let (task, run) = claimed("blocks");
    client.ask(manager.block_run(run, "needs a person", &none())).unwrap();
    let row = client.task(task);
    let said = ["Status", "BlockCode", "BlockReason"].map(|key| row.text(key));
    assert_eq!(said, ["blocked", "worker", "needs a person"]);

    let (task, run) = claimed("gives back");
    client.ask(manager.release_run(run, "not now", &none())).unwrap();
    assert_eq!((client.status(task), client.task(task).number("Failures")), ("ready".into(), 0));
    assert_eq!(client.run(run).text("Outcome"), "released");
}

#[test]
fn a_worker_is_registered_by_number_or_pidfd_and_holds_one_claim() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let mut worker = Decoy::start(Kind::Stubborn);
    let task = client.create("named", &options! { "MaxRuntimeUsec" => 1_000_u64 });
    let run = client.claim(task, none());
    assert_eq!(client.ask(manager.set_worker(run, &none())).refusal(), "InvalidArgument");
    client.ask(manager.set_worker(run, &options! { "Pid" => worker.pid })).unwrap();
    let row = client.task(task);
    assert_eq!((row.text("WorkerKind"), row.text("FingerprintKind")), ("registered".into(), "named".into()));
    assert_eq!(row.number("WorkerPid"), i64::from(worker.pid));

    // A bare number may have been another process already: liveness only, never a signal.
    let report = eventually("the claim to be held", || {
        let report = client.sweep();
        if report.held().is_empty() { Err(format!("{report:?}")) } else { Ok(report) }
    });
    assert_eq!(report.held(), [(task, "named".to_owned())]);
    assert_eq!(client.ask(manager.signal_task(task, 10, &none())).as_deref().unwrap_or("refused"), "held");
    assert_eq!(worker.received(), [0; 0]);

    let other = client.create("second", &none());
    let by_fd = || options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) };
    assert_eq!(client.try_claim(other, by_fd()).refusal(), "Busy", "one process, one claim");
    assert_eq!(client.status(other), "ready");
    let wrong = options! { "Pid" => worker.pid, "StartTicks" => kernel::start_ticks(worker.pid) + 1 };
    assert_eq!(client.try_claim(other, wrong).refusal(), "NotYourProcess", "a process of other start ticks");
    let both = options! { "Pid" => worker.pid, "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) };
    assert_eq!(client.try_claim(other, both).refusal(), "InvalidArgument");
    let alone = options! { "StartTicks" => 5_u64 };
    assert_eq!(client.try_claim(other, alone).refusal(), "InvalidArgument");

    let second = Decoy::start(Kind::Stubborn);
    let ticks = options! { "Pid" => second.pid, "StartTicks" => kernel::start_ticks(second.pid) };
    client.claim(other, ticks);
    assert_eq!(client.task(other).text("FingerprintKind"), "proven");
}

#[test]
fn a_proven_worker_can_be_signalled_and_a_claim_taken_back() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let mut worker = Decoy::start(Kind::Obedient);
    let task = client.create("held", &none());
    assert_eq!(client.ask(manager.reclaim_task(task, &none())).as_deref(), Ok("unchanged"));
    let run = client.claim(task, options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) });
    client.ask(manager.signal_task(task, 10, &none())).unwrap();
    assert_eq!(worker.received(), [10]);
    assert_eq!(client.ask(manager.signal_task(task, 4_000, &none())).refusal(), "InvalidArgument");
    let stale = options! { "Run" => run + 7 };
    for answer in [manager_reclaim(&client, task, &stale), manager_cancel(&client, task, &stale)] {
        assert_eq!(answer.refusal(), "StaleRun");
    }
    let outcome =
        client.ask(manager.reclaim_task(task, &options! { "Reason" => "wanted", "Run" => run })).unwrap();
    assert!(matches!(outcome.as_str(), "stopping" | "released"), "{outcome}");
    becomes(&client, task, "ready");
    assert_eq!(worker.received()[..2], [10, 15]);
    assert_eq!(
        (client.run(run).text("Outcome"), client.task(task).number("Failures")),
        ("operator".into(), 0)
    );

    let lease_only = client.create("lease-only", &none());
    client.claim(lease_only, none());
    assert_eq!(client.ask(manager.reclaim_task(lease_only, &none())).as_deref(), Ok("released"));
    client.claim(lease_only, none());
    assert_eq!(client.ask(manager.cancel_task(lease_only, &none())).as_deref(), Ok("released"));
    assert_eq!(client.status(lease_only), "cancelled");
    assert_eq!(client.ask(manager.cancel_task(lease_only, &none())).as_deref(), Ok("unchanged"));
}

fn manager_reclaim(
    client: &Client,
    task: u64,
    options: &Options<'_>,
) -> Result<String, crate::support::client::Refused> {
    client.ask(client.manager.reclaim_task(task, options))
}

fn manager_cancel(
    client: &Client,
    task: u64,
    options: &Options<'_>,
) -> Result<String, crate::support::client::Refused> {
    client.ask(client.manager.cancel_task(task, options))
}

#[test]
fn force_lets_a_live_worker_go_and_keeps_it_in_sight() {
    let host = Host::start();
    let (board, client) = (host.board(), host.client());
    let mut worker = Decoy::start(Kind::Stubborn);
    let task = client.create("held", &none());
    client.claim(task, options! { "PidFD" => zbus::Fd::from(kernel::pidfd(worker.pid)) });
    let force = options! { "Force" => true, "Reason" => "I know" };
    assert_eq!(client.ask(client.manager.reclaim_task(task, &force)).as_deref(), Ok("released"));
    assert_eq!((client.status(task), board.events(task, "forced")), ("ready".into(), 1));
    assert_eq!(client.task(task).number("Survivors"), 1);
    assert_eq!(worker.received(), [0; 0]);
    worker.end();
    eventually("the survivor to be forgotten", || {
        client.sweep();
        let survivors = client.task(task).number("Survivors");
        if survivors == 0 { Ok(()) } else { Err(survivors.to_string()) }
    });
}

#[test]
fn tasks_go_from_state_to_state_as_the_table_says() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let task = client.create("walks", &none());
    assert_eq!(client.ask(manager.unblock_task(task, &none())).as_deref(), Ok("unchanged"));
    assert_eq!(client.ask(manager.archive_task(task, &none())).refusal(), "InvalidTransition");
    client.ask(manager.block_task(task, "wait for the others", &none())).unwrap();
    let row = client.task(task);
    let said = ["Status", "BlockCode", "BlockReason"].map(|key| row.text(key));
    assert_eq!(said, ["blocked", "operator", "wait for the others"]);
    client.ask(manager.unblock_task(task, &none())).unwrap();
    assert_eq!(client.status(task), "ready");
    let run = client.claim(task, none());
    let refused = client.ask(manager.block_task(task, "now", &none())).unwrap_err();
    assert_eq!(refused.name, "InvalidTransition");
    assert!(refused.text.contains("running") && refused.text.contains("blocked"), "{}", refused.text);
    for answer in
        [client.ask(manager.retry_task(task, &none())), client.ask(manager.archive_task(task, &none()))]
    {
        assert_eq!(answer.refusal(), "InvalidTransition");
    }
    client.ask(manager.complete_run(run, &none())).unwrap();
    client.ask(manager.retry_task(task, &none())).unwrap();
    assert_eq!(client.status(task), "ready");
    client.ask(manager.cancel_task(task, &none())).unwrap();
    assert_eq!(client.status(task), "cancelled");
    client.ask(manager.archive_task(task, &none())).unwrap();
    assert_eq!(client.status(task), "archived");
    assert_eq!(client.ask(manager.archive_task(task, &none())).as_deref(), Ok("unchanged"));
    for answer in
        [client.ask(manager.retry_task(task, &none())), client.ask(manager.cancel_task(task, &none()))]
    {
        assert_eq!(answer.refusal(), "InvalidTransition");
    }
}

#[test]
fn a_back_off_keeps_a_task_from_being_given_out_until_a_retry_is_asked_for() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let task = client.create(
        "tired",
        &options! { "BackoffUsec" => 3_600_000_000_u64, "BackoffMaxUsec" => 7_200_000_000_u64 },
    );
    let run = client.claim(task, none());
    client.ask(manager.fail_run(run, "no", &none())).unwrap();
    let row = client.task(task);
    assert_eq!(row.text("Status"), "ready");
    assert!(row.number("RetryInUsec") > 3_500_000_000, "{row:?}");
    assert_eq!(client.ask(manager.claim_task("", &none())).map(drop).refusal(), "NothingReady");
    client.ask(manager.retry_task(task, &none())).unwrap();
    assert_eq!(client.task(task).number("RetryInUsec"), 0);
    assert_eq!(client.ask(manager.claim_task("", &none())).map(|(task, _, _)| task), Ok(task));
}

#[test]
fn children_wait_for_their_parents_and_circles_are_refused() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let (first, second) = (client.create("first", &none()), client.create("second", &none()));
    let child = client.create("child", &options! { "Parents" => vec![first] });
    assert_eq!(client.status(child), "todo");
    client.ask(manager.link_tasks(second, child, &none())).unwrap();
    let refused = client.ask(manager.link_tasks(child, first, &none())).unwrap_err();
    assert_eq!(refused.name, "Cycle");
    assert!(
        refused.text.contains(&format!("{first} -> {child}"))
            || refused.text.contains(&format!("{child} -> {first}")),
        "{}",
        refused.text
    );
    assert_eq!(client.ask(manager.link_tasks(child, child, &none())).refusal(), "Cycle");
    let complete = |task| {
        let run = client.claim(task, none());
        client.ask(manager.complete_run(run, &none())).unwrap();
    };
    complete(first);
    assert_eq!(client.status(child), "todo", "one parent is still open");
    client.ask(manager.unlink_tasks(second, child, &none())).unwrap();
    becomes(&client, child, "ready");

    let parent = client.create("given up", &none());
    let orphan = client.create("orphan", &options! { "Parents" => vec![parent] });
    client.ask(manager.cancel_task(parent, &none())).unwrap();
    let row = client.task(orphan);
    assert_eq!((row.text("Status"), row.text("BlockCode")), ("blocked".into(), "parent".into()));
    assert!(row.text("BlockReason").contains(&parent.to_string()), "{row:?}");
}

#[test]
fn a_task_waits_for_its_time_and_is_then_promoted() {
    let host = Host::start();
    let client = host.client();
    let soon = u64::try_from(kernel::wall_usec()).unwrap() + 300_000;
    let task = client.create("soon", &options! { "NotBeforeUsec" => soon });
    let later = client.create("later", &options! { "NotBeforeUsec" => soon + 3_600_000_000 });
    assert_eq!(client.status(later), "todo");
    becomes(&client, task, "ready");
    assert!(kernel::wall_usec().cast_unsigned() >= soon, "it was promoted too early");
    assert_eq!(client.status(later), "todo");
}

#[test]
fn a_running_task_can_be_changed_only_where_that_means_something() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let task = client.create("before", &none());
    let everything =
        options! { "Title" => "after", "Priority" => 3_i32, "Nice" => 5_i32, "Labels" => vec!["x"] };
    client.ask(manager.update_task(task, &everything)).unwrap();
    client.claim(task, none());
    let allowed = options! {
        "MaxRuntimeUsec" => 60_000_000_u64, "StallUsec" => 50_000_000_u64, "Priority" => 4_i32,
        "Title" => "running", "Body" => "b", "Labels" => vec!["y"],
    };
    client.ask(manager.update_task(task, &allowed)).unwrap();
    let row = client.task(task);
    assert_eq!(
        (row.text("Title"), row.number("MaxRuntimeUsec"), row.number("Nice")),
        ("running".into(), 60_000_000, 5)
    );
    for (key, value) in
        [("Queue", Variant::from("q")), ("Command", Variant::from(vec!["x"])), ("Nice", Variant::from(1_i32))]
    {
        let refused = client.ask(manager.update_task(task, &BTreeMap::from([(key, value)]))).unwrap_err();
        assert!(refused.text.contains(key), "{refused:?}");
        assert!(
            matches!(refused.name.as_str(), "InvalidArgument" | "InvalidTransition" | "Busy"),
            "{refused:?}"
        );
    }
}

#[test]
fn lists_are_paged_and_filtered() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    let tasks: Vec<u64> = (0..7)
        .map(|index| {
            let labels = if index % 2 == 0 { vec!["even"] } else { vec!["odd"] };
            client.create(&format!("task number {index}"), &options! { "Labels" => labels })
        })
        .collect();
    let list = |filter: Options<'_>| -> Vec<u64> {
        let rows = client.rows(client.ask(manager.list_tasks(&filter)));
        rows.iter().map(|row| row.number("Task").cast_unsigned()).collect()
    };
    assert_eq!(list(none()), tasks);
    assert_eq!(list(options! { "Limit" => 3_u32 }), tasks[..3]);
    assert_eq!(list(options! { "Limit" => 3_u32, "AfterTask" => tasks[2] }), tasks[3..6]);
    assert_eq!(list(options! { "Label" => "odd" }), [tasks[1], tasks[3], tasks[5]]);
    assert_eq!(list(options! { "Text" => "number 4" }), [tasks[4]]);
    assert_eq!(list(options! { "Queue" => "elsewhere" }), [0; 0]);
    assert_eq!(list(options! { "Owner" => MALLORY }), [0; 0]);
    client.claim(tasks[0], none());
    assert_eq!(list(options! { "Status" => vec!["running", "done"] }), [tasks[0]]);
    let too_many = options! { "Limit" => 1_001_u32 };
    let answer = client.ask(manager.list_tasks(&too_many));
    assert!(
        answer.is_ok_and(|rows| rows.len() == 7)
            || client.ask(manager.list_tasks(&too_many)).refusal() != "Internal"
    );

    let comment = client.ask(manager.add_comment(tasks[1], "first", &none())).unwrap();
    client.ask(manager.add_comment(tasks[1], "second\nline", &none())).unwrap();
    let page = options! { "After" => comment, "Limit" => 5_u32 };
    let comments = client.rows(client.ask(manager.list_comments(tasks[1], &page)));
    assert_eq!(comments.len(), 1);
    assert_eq!(comments[0].text("Text"), "second\nline");
    assert!(
        comments[0].text("Author").contains(&rustix::process::getuid().as_raw().to_string()),
        "{comments:?}"
    );

    let events = client.rows(client.ask(manager.list_events(&options! { "Task" => tasks[0] })));
    let kinds: Vec<String> = events.iter().map(|row| row.text("Kind")).collect();
    assert_eq!((kinds[0].as_str(), kinds.contains(&"claimed".to_owned())), ("created", true), "{kinds:?}");
    assert!(events.windows(2).all(|pair| pair[0].number("Event") < pair[1].number("Event")), "oldest first");
    let last = events.last().unwrap().number("Event").cast_unsigned();
    let rest =
        client.rows(client.ask(manager.list_events(&options! { "Task" => tasks[0], "AfterEvent" => last })));
    assert!(rest.is_empty(), "{rest:?}");
    for event in &events {
        let payload = event.text("Payload");
        serde_json::from_str::<serde_json::Value>(&payload)
            .unwrap_or_else(|error| panic!("{payload}: {error}"));
    }

    let runs = client.runs(tasks[0]);
    assert_eq!((runs.len(), runs[0].number("Attempt")), (1, 1));
    let stats = Row(client.ask(manager.get_stats(&none())).unwrap());
    assert!(!stats.0.is_empty(), "{stats:?}");
}

#[test]
fn queues_bound_what_runs_and_can_be_paused() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    client.ask(manager.set_queue("narrow", &options! { "MaxRunning" => 1_u32 })).unwrap();
    let narrow = options! { "Queue" => "narrow" };
    let (first, second) = (client.create("first", &narrow), client.create("second", &narrow));
    let run = client.claim(first, none());
    assert_eq!(client.ask(manager.claim_task("narrow", &none())).map(drop).refusal(), "NothingReady");
    client.ask(manager.complete_run(run, &none())).unwrap();
    client.ask(manager.set_queue("narrow", &options! { "Paused" => true })).unwrap();
    assert_eq!(client.ask(manager.claim_task("narrow", &none())).map(drop).refusal(), "NothingReady");
    let queues = client.rows(client.ask(manager.list_queues(&none())));
    let row = queues.iter().find(|row| row.text("Queue") == "narrow").unwrap();
    assert_eq!(["MaxRunning", "Ready", "Running"].map(|key| row.number(key)), [1, 1, 0]);
    assert_eq!(client.ask(manager.remove_queue("narrow", &none())).refusal(), "Busy", "it has open work");
    client.ask(manager.set_queue("narrow", &options! { "Paused" => false })).unwrap();
    let run = client.claim(second, none());
    client.ask(manager.complete_run(run, &none())).unwrap();
    client.ask(manager.remove_queue("narrow", &none())).unwrap();
    assert_eq!(client.ask(manager.remove_queue("narrow", &none())).refusal(), "NoSuchQueue");

    let defaults: BTreeMap<&str, Variant<'_>> =
        BTreeMap::from([("Environment", Variant::from(vec!["FROM=queue"]))]);
    client.ask(manager.set_queue("lane", &options! { "LaunchDefaults" => defaults })).unwrap();
    let command = vec!["/bin/sh", "-c", "echo $FROM"];
    let task = client.create("defaults", &options! { "Queue" => "lane", "Command" => command });
    becomes(&client, task, "done");
    assert_eq!(output(&client, task), "queue\n");
}

fn output(client: &Client, task: u64) -> String {
    let run = client.runs(task).last().expect("a run").number("Run").cast_unsigned();
    let fd = OwnedFd::from(client.ask(client.manager.open_output(run, &none())).unwrap());
    let mut text = String::new();
    std::fs::File::from(fd).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_worker_has_a_clean_environment_and_its_output_is_kept() {
    let host = Host::start();
    let client = host.client();
    let command = vec!["/bin/sh", "-c", "env; echo to stderr >&2; pwd; cat"];
    let task = client.create(
        "speaks",
        &options! { "Command" => command, "Environment" => vec!["OWN=1"], "WorkingDirectory" => "/usr" },
    );
    becomes(&client, task, "done");
    let text = output(&client, task);
    let lines: Vec<&str> = text.lines().collect();
    for line in [
        format!("TENURED_TASK={task}").as_str(),
        "TENURED_ATTEMPT=1",
        "TENURED_QUEUE=default",
        "OWN=1",
        "to stderr",
        "/usr",
    ] {
        assert!(lines.contains(&line), "no {line} in {text}");
    }
    for key in [
        "TENURED_RUN=",
        "TENURED_NONCE=",
        "TENURED_BUS_ADDRESS=",
        "PATH=",
        "HOME=",
        "USER=",
        "LOGNAME=",
        "SHELL=",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(key)), "no {key} in {text}");
    }
    assert!(!text.contains("CARGO"), "something of the daemon's own environment: {text}");
}

#[test]
fn a_drained_daemon_starts_nothing_and_remembers_it() {
    let mut host = Host::start();
    let client = host.client();
    assert!(!client.ask(client.manager.draining()).unwrap());
    client.ask(client.manager.drain(true, &none())).unwrap();
    assert_eq!(client.ask(client.manager.drain(true, &none())).as_deref(), Ok("unchanged"));
    let task = client.create("waits", &options! { "Command" => vec!["/bin/true"] });
    let external = client.create("waits too", &none());
    assert_eq!(client.try_claim(external, none()).map(drop).unwrap_err().name.is_empty(), false);
    drop(client);
    host.restart_hard();
    let client = host.client();
    assert!(client.ask(client.manager.draining()).unwrap());
    client.sweep_with(&none());
    assert_eq!(client.status(task), "ready");
    client.ask(client.manager.drain(false, &none())).unwrap();
    becomes(&client, task, "done");
}

#[test]
fn a_backup_is_a_whole_board() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("kept", &none());
    let path = client.ask(client.manager.backup("before-the-change", &none())).unwrap();
    let copy = crate::support::Board::open(std::path::Path::new(&path));
    assert_eq!(copy.status(task), "ready");
    assert_eq!(copy.text("PRAGMA integrity_check", []).as_deref(), Some("ok"));
    assert!(std::path::Path::new(&path).starts_with(host.state()), "{path}");
    for name in ["../escape", "a/b", "", "board.db", "."] {
        let refused = client.ask(client.manager.backup(name, &none())).unwrap_err();
        assert_ne!(refused.name, "Internal", "{name}: {refused:?}");
    }
}

#[test]
fn a_bad_configuration_is_refused_whole_and_the_old_one_stays() {
    let host = Host::start();
    let client = host.client();
    host.configure(&format!("{QUIET}failure_limit = 1\n"));
    client.ask(client.manager.reload(&none())).unwrap();
    let task = client.create("fails once", &none());
    let run = client.claim(task, none());
    client.ask(client.manager.fail_run(run, "e", &none())).unwrap();
    assert_eq!(client.status(task), "blocked");

    host.configure(&format!("{QUIET}failure_limit = 5\nfailure_limitt = 3\n"));
    let refused = client.ask(client.manager.reload(&none())).unwrap_err();
    assert!(
        refused.text.contains("failure_limitt") && refused.text.contains("tenured.toml"),
        "{}",
        refused.text
    );
    let task = client.create("still once", &none());
    let run = client.claim(task, none());
    client.ask(client.manager.fail_run(run, "e", &none())).unwrap();
    assert_eq!(client.status(task), "blocked", "the old configuration stays");

    host.configure(&format!("{QUIET}failure_limit = 2\n"));
    kernel::signal(host.pid(), rustix::process::Signal::HUP);
    eventually("SIGHUP to be obeyed", || {
        let task = client.create("by signal", &none());
        let run = client.claim(task, none());
        client.ask(client.manager.fail_run(run, "e", &none())).unwrap();
        let status = client.status(task);
        if status == "ready" { Ok(()) } else { Err(status) }
    });
}

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
    let hidden = [
        mallory.ask(manager.heartbeat(run, &none())).refusal(),
        mallory.ask(manager.complete_run(run, &none())).refusal(),
        mallory.ask(manager.fail_run(run, "e", &none())).refusal(),
        mallory.ask(manager.set_worker(run, &options! { "Pid" => 4_u32 })).refusal(),
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
    becomes(&mallory, task, "done");
    let text = output(&mallory, task);
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
    becomes(&client, task, "done");
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
    becomes(&client, launched, "cancelled");
    eventually("the worker to be gone", || if kernel::lives(pid) { Err("it lives".into()) } else { Ok(()) });
}
