//! What a task is, and how it goes from state to state.

use std::collections::BTreeMap;

use zbus::Variant;

use super::none;
use crate::options;
use crate::support::client::Named;
use crate::support::{Host, kernel};

#[test]
fn a_task_is_as_it_was_asked_for() {
    let host = Host::start();
    let client = host.client();
    client.ask(client.manager.set_queue("lane", &none())).unwrap();
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
    client.becomes(child, "ready");

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
    client.becomes(task, "ready");
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
