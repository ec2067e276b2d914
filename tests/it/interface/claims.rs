//! ClaimTask, SetWorker, and what a worker or an operator says of a run.

use tenured::bus::proxy::Options;

use super::none;
use crate::options;
use crate::support::client::{Named, Refused, Row};
use crate::support::{Client, Decoy, Host, Kind, eventually, kernel};

#[test]
fn claims_are_given_in_order_and_again_to_the_same_key() {
    let host = Host::start();
    let client = host.client();
    let manager = &client.manager;
    assert_eq!(client.ask(manager.claim_task("", &none())).map(drop).refusal(), "NothingReady");
    let low = client.create("low", &none());
    let high = client.create("high", &options! { "Priority" => 5_i32 });
    client.ask(manager.set_queue("lane", &none())).unwrap();
    let commanded =
        client.create("not for claimants", &options! { "Command" => vec!["/bin/true"], "Queue" => "lane" });
    client.becomes(commanded, "done");
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
    let task = client.create("named", &none());
    let run = client.claim(task, none());
    assert_eq!(client.ask(manager.set_worker(run, &none())).refusal(), "InvalidArgument");
    client.ask(manager.set_worker(run, &options! { "Pid" => worker.pid })).unwrap();
    let row = client.task(task);
    assert_eq!((row.text("WorkerKind"), row.text("FingerprintKind")), ("registered".into(), "named".into()));
    assert_eq!(row.number("WorkerPid"), i64::from(worker.pid));

    // A bare number may have been another process already: liveness only, never a signal.
    client.ask(manager.update_task(task, &options! { "MaxRuntimeUsec" => 1_000_u64 })).unwrap();
    let report = eventually("the claim to be held", || {
        let report = client.sweep();
        if report.held().is_empty() { Err(format!("{report:?}")) } else { Ok(report) }
    });
    assert_eq!(report.held(), [(task, "named".to_owned())]);
    let answer = client.ask(manager.signal_task(task, 10, &none()));
    assert!(answer.as_deref() != Ok("done"), "{answer:?}");
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
    client.becomes(task, "ready");
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

fn manager_reclaim(client: &Client, task: u64, options: &Options<'_>) -> Result<String, Refused> {
    client.ask(client.manager.reclaim_task(task, options))
}

fn manager_cancel(client: &Client, task: u64, options: &Options<'_>) -> Result<String, Refused> {
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
