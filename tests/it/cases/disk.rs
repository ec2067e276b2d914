//! The board's file in the hands of others.

use std::time::{Duration, Instant};

use tenured::bus::proxy::Options;

use crate::support::Host;

#[test]
fn c41_another_process_that_locks_the_board_costs_patience_and_nothing_else() {
    let host = Host::start();
    let client = host.client();
    let task = client.create("held before", &Options::new());
    let run = client.claim(task, Options::new());
    let board = host.board();
    board.connection.execute_batch("BEGIN IMMEDIATE").unwrap();

    // The lock is kept for 30 s, or until every caller has its answer.
    let start = Instant::now();
    let (added, beat) = std::thread::scope(|threads| {
        let add = threads.spawn(|| {
            let caller = host.client();
            caller.try_create("meanwhile", &Options::new())
        });
        let beat = threads.spawn(|| {
            let caller = host.client();
            caller.ask(caller.manager.heartbeat(run, &Options::new()))
        });
        let answered = crate::support::wait::until(Duration::from_secs(30), || {
            // Reading goes on: the rows as they were before.
            assert_eq!(client.status(task), "running");
            if add.is_finished() && beat.is_finished() { Ok(()) } else { Err("none yet".to_owned()) }
        });
        drop(answered);
        board.connection.execute_batch("ROLLBACK").unwrap();
        (add.join().unwrap(), beat.join().unwrap())
    });
    let waited = start.elapsed();
    println!("after {waited:?}: CreateTask {added:?}, Heartbeat {beat:?}");
    for refused in [added.as_ref().err(), beat.as_ref().err()].into_iter().flatten() {
        assert!(matches!(refused.name.as_str(), "Busy" | "Internal"), "{refused:?}");
    }

    // Nothing was lost, and what was refused left nothing behind.
    assert_eq!(client.status(task), "running");
    let tasks = host.board().number("SELECT count(*) FROM tasks", []);
    assert_eq!(tasks, Some(1 + i64::from(added.is_ok())));
    client.ask(client.manager.heartbeat(run, &Options::new())).unwrap();
    client.ask(client.manager.complete_run(run, &Options::new())).unwrap();
    assert_eq!(client.status(task), "done");
}
