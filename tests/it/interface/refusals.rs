//! What is refused, and by which name.

use std::collections::BTreeMap;

use zbus::Variant;

use super::{NOBODY, none};
use crate::options;
use crate::support::Host;
use crate::support::client::Named;

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
