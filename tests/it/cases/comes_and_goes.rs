//! The daemon comes and goes.

use std::collections::BTreeMap;

use crate::options;
use crate::support::daemon::{QUIET, Setup};
use crate::support::{Host, eventually};

/// Moments of a run, as the board counts them: claimed, known, over.
const MOMENTS: [&str; 3] = [
    "SELECT count(*) FROM runs",
    "SELECT count(*) FROM events WHERE kind = 'started'",
    "SELECT count(*) FROM runs WHERE ended_usec IS NOT NULL",
];

#[test]
fn c24_killed_between_claim_and_gate_the_daemon_leaves_nothing_unrecorded_and_nothing_twice() {
    killed_between_claim_and_gate(false);
}

#[test]
fn c24_the_same_where_a_launcher_starts_them_and_is_killed_as_often() {
    killed_between_claim_and_gate(true);
}

fn killed_between_claim_and_gate(with_launcher: bool) {
    const KILLS: u64 = 24;
    const TASKS_PER_KILL: u64 = 4;
    let config = format!("{QUIET}max_running = 8\n");
    let mut host = Host::start_with(Setup { config, with_bus: false, with_launcher, ..Setup::default() });
    let trace = host.path("trace");
    let script = format!(
        "echo $TENURED_TASK $TENURED_RUN begin >>{0}; echo $TENURED_TASK $TENURED_RUN end >>{0}",
        trace.display()
    );
    let mut tasks = Vec::new();
    for kill in 0..KILLS {
        let client = host.client();
        let board = host.board();
        let moment = MOMENTS[usize::try_from(kill).unwrap() % MOMENTS.len()];
        let before = board.number(moment, []).unwrap();
        for _ in 0..TASKS_PER_KILL {
            let command = vec!["/bin/sh", "-c", script.as_str()];
            tasks.push(client.create("traced", &options! { "Command" => command, "FailureLimit" => 0_u32 }));
        }
        // Another run of the batch each time, so that the blow falls early, late and between.
        let wanted = before + 1 + i64::try_from(kill / 3 % TASKS_PER_KILL).unwrap();
        eventually("some of the batch to have come so far", || {
            let now = board.number(moment, []).unwrap();
            if now >= wanted { Ok(()) } else { Err(format!("{now} of {wanted}")) }
        });
        drop((client, board));
        if with_launcher {
            host.restart_launcher_hard();
        }
        host.restart_hard();
    }
    let client = host.client();
    for task in &tasks {
        client.becomes(*task, "done");
    }

    let lines = std::fs::read_to_string(&trace).unwrap();
    let mut ran: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for line in lines.lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let key = (number(), number());
        ran.entry(key).or_default().push(words.next().unwrap());
    }
    for task in &tasks {
        let runs = client.runs(*task);
        let ended = runs.iter().all(|run| !run.word("Outcome").is_empty());
        assert!(ended, "a run without an end: {runs:?}");
        for run in &runs {
            let lines = ran.remove(&(*task, run.number("Run").cast_unsigned()));
            match run.text("Outcome").as_str() {
                "completed" => assert_eq!(lines.as_deref(), Some(&["begin", "end"][..]), "{run:?}"),
                "not_started" => {
                    assert_eq!(lines, None, "it ran, and the board says that it did not: {run:?}")
                }
                other => panic!("nothing ended it, and yet it is {other}: {runs:?}"),
            }
        }
        let completed = runs.iter().filter(|run| run.text("Outcome") == "completed").count();
        assert_eq!(completed, 1, "{runs:?}");
    }
    assert!(ran.is_empty(), "commands ran that no run knows of: {ran:?}");
}

#[test]
fn a_second_daemon_does_not_take_the_name() {
    let host = Host::start();
    // A board of its own, and the same bus.
    let ended = host.command_on(&host.path("second"), &host.path("second-run")).output().unwrap();
    assert!(!ended.status.success(), "it said that all is well");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("org.tenured1"), "it does not say what is taken: {said}");
    let client = host.client();
    client.create("the first one serves", &options! {});
}
