//! Lists, queues, output, and the care of the board.

use std::collections::BTreeMap;

use tenured::bus::proxy::Options;
use zbus::Variant;

use super::none;
use crate::options;
use crate::support::client::{Named, Row};
use crate::support::daemon::QUIET;
use crate::support::{Board, Host, eventually, kernel};

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
    assert_eq!(list(options! { "Owner" => rustix::process::getuid().as_raw() + 1 }), [0; 0]);
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
    client.becomes(task, "done");
    assert_eq!(client.output(task), "queue\n");
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
    client.becomes(task, "done");
    let text = client.output(task);
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
    assert!(!client.try_claim(external, none()).map(drop).unwrap_err().name.is_empty());
    drop(client);
    host.restart_hard();
    let client = host.client();
    assert!(client.ask(client.manager.draining()).unwrap());
    client.sweep_with(&none());
    assert_eq!(client.status(task), "ready");
    client.ask(client.manager.drain(false, &none())).unwrap();
    client.becomes(task, "done");
}

#[test]
fn a_backup_is_a_whole_board() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("kept", &none());
    let path = client.ask(client.manager.backup("before-the-change", &none())).unwrap();
    let copy = Board::open(std::path::Path::new(&path));
    assert_eq!(copy.status(task), "ready");
    assert_eq!(copy.text("PRAGMA integrity_check", []).as_deref(), Some("ok"));
    assert!(std::path::Path::new(&path).starts_with(host.state()), "{path}");
    for name in ["../escape", "a/b", "", ".."] {
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
