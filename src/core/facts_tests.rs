//! The comparisons, one by one.

use super::*;
use crate::core::fingerprint::{Epoch, Fingerprint};
use crate::core::ids::{Nonce, RunId, TaskId};
use crate::core::retry::{Exit, Outcome};
use crate::core::verdict::{StopCause, Urgency};

const NOW: MonoMs = MonoMs(1_000_000);

fn epoch() -> Epoch {
    Epoch {
        boot_id: "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(),
        pid_namespace: 1,
        time_namespace: 2,
        init_start_ticks: 3,
    }
}

fn proven() -> Stored {
    Stored::Proven(Fingerprint { epoch: epoch(), start_ticks: 7, inode: None })
}

fn row() -> ClaimRow {
    ClaimRow {
        task: Some(TaskPart {
            task: TaskId::new(1),
            status: Status::Running,
            run: Some(RunId::new(2)),
            owner_uid: 0,
            max_runtime_ms: Some(60_000),
            stall_ms: None,
            lease_ms: None,
            stop_grace_ms: None,
            stop_signal: None,
            version: 1,
        }),
        run: Some(RunPart {
            run: RunId::new(2),
            task: TaskId::new(1),
            claimant: Some("c".into()),
            claimant_uid: Some(0),
            lease_expires_ms: Some(NOW.plus(1_000)),
            epoch: Some(epoch()),
            boot: None,
            worker_pid: Some(77),
            worker: proven(),
            supervisor_pid: None,
            supervisor: Stored::None,
            nonce: None,
            launched: false,
            unit: None,
            cgroup: None,
            stage: RunStage::Running,
            stop_cause: None,
            stop_urgency: Urgency::Normal,
            started_ms: Some(NOW.plus(-1_000)),
            claimed_ms: Some(NOW.plus(-1_000)),
            progress_ms: None,
            term_ms: None,
            kill_ms: None,
            leader_gone_ms: None,
            ended: false,
            outcome: None,
            survivor: false,
            held: None,
            version: 1,
        }),
        open_runs: 1,
    }
}

fn context() -> Context {
    Context {
        now: NOW,
        identity: Boot::Same,
        stamps: Boot::Same,
        late: false,
        in_hand: false,
        shutdown: None,
        linger_ms: 120_000,
        stall_ms: None,
        stop_grace_ms: 10_000,
    }
}

fn seen(process: Seen) -> Observed {
    Observed { process: Some(process), tree: Tree::Empty, record: None, unread: false, objection: None }
}

fn record(ended_ms: i64, end: record::End) -> Record {
    Record {
        run: RunId::new(2),
        nonce: Nonce::from_bytes([1; 16]),
        end,
        oom: false,
        ended_ms,
        ended_usec: 0,
        killed_by_pid: None,
        user_usec: 0,
        system_usec: 0,
        manager_asked: false,
        max_rss_kib: 0,
    }
}

fn run(row: &mut ClaimRow) -> &mut RunPart {
    row.run.as_mut().unwrap()
}

const SEEN: [Option<Seen>; 6] =
    [None, Some(Seen::Same), Some(Seen::Other), Some(Seen::Present), Some(Seen::Gone), Some(Seen::Unknown)];
const TREES: [Tree; 4] = [Tree::Populated, Tree::Unproven, Tree::Empty, Tree::Unknown];
const DOUBTS: [Doubt; 5] = [Doubt::BootId, Doubt::Nonce, Doubt::Init, Doubt::Boottime, Doubt::Namespace];

#[test]
fn invariant_10_another_boots_pids_are_never_compared() {
    for process in SEEN {
        for tree in TREES {
            for launched in [false, true] {
                assert_eq!(worker(Boot::Other, &proven(), launched, process, tree), Worker::Gone);
                for doubt in DOUBTS {
                    let judged = worker(Boot::Unknown(doubt), &proven(), launched, process, tree);
                    assert!(matches!(judged, Worker::Unknown | Worker::Gone), "{judged:?}");
                }
            }
        }
    }
    let namespace = Boot::Unknown(Doubt::Namespace);
    assert_eq!(worker(namespace, &proven(), false, Some(Seen::Gone), Tree::Empty), Worker::Unknown);
}

#[test]
fn invariant_10_another_boots_stamps_are_never_compared() {
    let mut row = row();
    run(&mut row).lease_expires_ms = Some(MonoMs(i64::MIN));
    run(&mut row).started_ms = Some(MonoMs(i64::MIN));
    for stamps in [Boot::Other, Boot::Unknown(Doubt::Init), Boot::Absent] {
        let facts = facts(&row, &seen(Seen::Same), &Context { stamps, ..context() });
        assert!(!facts.lease_expired && !facts.max_runtime_passed && !facts.stalled, "{stamps:?}");
    }
    assert!(facts(&row, &seen(Seen::Same), &context()).lease_expired);
}

#[test]
fn an_error_while_looking_never_makes_a_worker_gone() {
    for tree in [Tree::Empty, Tree::Unknown] {
        for stored in [proven(), Stored::Unverified, Stored::Absent, Stored::StartOnly(3)] {
            let judged = worker(Boot::Same, &stored, false, Some(Seen::Unknown), tree);
            assert_eq!(judged, Worker::Unknown);
        }
    }
    for process in [Seen::Gone, Seen::Other] {
        assert_eq!(worker(Boot::Same, &proven(), true, Some(process), Tree::Unknown), Worker::Unknown);
    }
}

#[test]
fn another_process_is_no_proof_of_death_while_the_tree_lives() {
    let judged = worker(Boot::Same, &proven(), true, Some(Seen::Other), Tree::Populated);
    assert_eq!(judged, Worker::Alive(Proof::Proven));
    assert_eq!(worker(Boot::Same, &proven(), true, Some(Seen::Other), Tree::Empty), Worker::Gone);
}

#[test]
fn start_ticks_alone_prove_with_an_epoch_and_only_name_without() {
    let ticks = Stored::StartOnly(7);
    let alive = |boot| worker(boot, &ticks, false, Some(Seen::Same), Tree::Empty);
    assert_eq!(alive(Boot::Same), Worker::Alive(Proof::Proven));
    assert_eq!(alive(Boot::Absent), Worker::Alive(Proof::Named));
}

#[test]
fn without_a_process_the_claim_is_lease_only_unless_it_was_launched() {
    assert_eq!(worker(Boot::Same, &Stored::None, false, None, Tree::Empty), Worker::LeaseOnly);
    assert_eq!(worker(Boot::Same, &Stored::None, true, None, Tree::Empty), Worker::Gone);
    assert_eq!(worker(Boot::Same, &Stored::None, true, None, Tree::Unknown), Worker::Unknown);
}

#[test]
fn c34_every_broken_shape_is_broken() {
    let shapes: [fn(&mut ClaimRow); 9] = [
        |row| row.run = None,
        |row| row.task = None,
        |row| run(row).claimant = None,
        |row| run(row).lease_expires_ms = None,
        |row| run(row).ended = true,
        |row| run(row).task = TaskId::new(9),
        |row| row.open_runs = 2,
        |row| row.task.as_mut().unwrap().status = Status::Ready,
        |row| row.task.as_mut().unwrap().run = None,
    ];
    assert_eq!(claim(&row()), Claim::Whole);
    for (at, shape) in shapes.into_iter().enumerate() {
        let mut row = row();
        shape(&mut row);
        assert_eq!(claim(&row), Claim::Broken, "shape {at}");
    }
}

#[test]
fn a_late_look_gives_one_fresh_period() {
    let mut row = row();
    run(&mut row).lease_expires_ms = Some(NOW.plus(-5));
    row.task.as_mut().unwrap().stall_ms = Some(10);
    let late = Context { late: true, ..context() };
    let judged = facts(&row, &seen(Seen::Same), &late);
    assert_eq!((judged.fresh, judged.stalled), (Fresh::Due, false));
    run(&mut row).lease_expires_ms = Some(NOW.plus(900_000));
    run(&mut row).progress_ms = Some(NOW);
    assert_eq!(facts(&row, &seen(Seen::Same), &late).fresh, Fresh::Given);
    assert_eq!(facts(&row, &seen(Seen::Same), &context()).fresh, Fresh::No);
}

#[test]
fn times_pass_at_their_instant() {
    let mut row = row();
    row.task.as_mut().unwrap().stall_ms = Some(1_000);
    let judged = facts(&row, &seen(Seen::Same), &context());
    assert!(judged.stalled && !judged.max_runtime_passed && !judged.lease_expired);
    run(&mut row).started_ms = Some(NOW.plus(-60_000));
    run(&mut row).progress_ms = Some(NOW.plus(-999));
    run(&mut row).lease_expires_ms = Some(NOW);
    let judged = facts(&row, &seen(Seen::Same), &context());
    assert!(!judged.stalled && judged.max_runtime_passed && judged.lease_expired);
}

#[test]
fn the_ladder_follows_its_stamps() {
    let mut row = row();
    let ladder = |row: &ClaimRow| facts(row, &seen(Seen::Same), &context()).stop.map(|stop| stop.ladder);
    assert_eq!(ladder(&row), None);
    run(&mut row).stop_cause = Some(StopCause::TimedOut);
    assert_eq!(ladder(&row), Some(Ladder::Asked));
    run(&mut row).term_ms = Some(NOW.plus(-9_999));
    assert_eq!(ladder(&row), Some(Ladder::Term));
    run(&mut row).term_ms = Some(NOW.plus(-10_000));
    assert_eq!(ladder(&row), Some(Ladder::GraceOver));
    run(&mut row).kill_ms = Some(NOW.plus(-4_999));
    assert_eq!(ladder(&row), Some(Ladder::Kill));
    run(&mut row).kill_ms = Some(NOW.plus(-5_000));
    assert_eq!(ladder(&row), Some(Ladder::Stuck));
}

#[test]
fn leftovers_linger_from_the_moment_the_leader_was_seen_gone() {
    let mut row = row();
    run(&mut row).launched = true;
    let observed = Observed { tree: Tree::Populated, ..seen(Seen::Gone) };
    let leftover = |row: &ClaimRow| facts(row, &observed, &context()).leftover;
    assert_eq!(leftover(&row), Leftover::Lingering);
    run(&mut row).leader_gone_ms = Some(NOW.plus(-119_999));
    assert_eq!(leftover(&row), Leftover::Lingering);
    run(&mut row).leader_gone_ms = Some(NOW.plus(-120_000));
    assert_eq!(leftover(&row), Leftover::Overdue);
}

#[test]
fn an_end_on_record_before_a_reboot_is_an_end() {
    let mut row = row();
    run(&mut row).launched = true;
    let reboot = Context { identity: Boot::Other, stamps: Boot::Other, ..context() };
    let with = |record| Observed { record, ..seen(Seen::Gone) };
    assert!(facts(&row, &with(None), &reboot).lost);
    let completed = record(5, record::End::Exited(Exit::Code(0)));
    assert!(!facts(&row, &with(Some(completed.clone())), &reboot).lost);
    // What ended in the course of that shutdown went with the host, also where nobody saw it then.
    let stamped = |at| Context { shutdown: Some(MonoMs(at)), ..reboot };
    assert!(facts(&row, &with(Some(completed.clone())), &stamped(5)).lost);
    assert!(!facts(&row, &with(Some(completed.clone())), &stamped(6)).lost);
    // No daemon was there to stamp that shutdown: the manager's word in the record stands for it. So it does
    // after a soft reboot, which leaves the boot the same; a daemon that was there could ask.
    let asked = with(Some(Record { manager_asked: true, ..completed }));
    assert!(facts(&row, &asked, &reboot).lost);
    assert!(facts(&row, &asked, &Context { late: true, ..context() }).lost);
    assert!(!facts(&row, &asked, &context()).lost);
}

#[test]
fn an_end_that_cannot_be_read_is_not_known_in_any_boot() {
    for identity in [Boot::Same, Boot::Other] {
        let unread = Observed { unread: true, ..seen(Seen::Gone) };
        let judged = facts(&row(), &unread, &Context { identity, ..context() });
        assert_eq!(judged.worker, Worker::Unknown, "{identity:?}");
    }
}

#[test]
fn what_ends_after_the_host_began_to_go_down_is_lost() {
    let row = row();
    let shutting = Context { shutdown: Some(NOW.plus(-10)), ..context() };
    let with = |ended_ms| Observed {
        record: Some(record(ended_ms, record::End::Exited(Exit::Signal(15)))),
        ..seen(Seen::Gone)
    };
    assert!(facts(&row, &with(NOW.0), &shutting).lost);
    assert!(!facts(&row, &with(NOW.0 - 11), &shutting).lost);
}

#[test]
fn who_ended_before_the_signal_was_not_ended_by_it() {
    let mut row = row();
    run(&mut row).stop_cause = Some(StopCause::TimedOut);
    run(&mut row).term_ms = Some(NOW.plus(-10));
    let ended = |ended_ms| {
        let record = Some(record(ended_ms, record::End::Exited(Exit::Code(0))));
        facts(&row, &Observed { record, ..seen(Seen::Gone) }, &context()).ended_before_term
    };
    assert!(ended(NOW.0 - 11));
    assert!(!ended(NOW.0 - 10));
    assert!(!facts(&row, &seen(Seen::Gone), &context()).ended_before_term);
}

#[test]
fn a_start_is_in_hand_for_thirty_seconds() {
    let mut row = row();
    run(&mut row).stage = RunStage::Starting;
    let stage =
        |row: &ClaimRow, in_hand| facts(row, &seen(Seen::Gone), &Context { in_hand, ..context() }).stage;
    assert_eq!(stage(&row, true), Stage::InHand);
    assert_eq!(stage(&row, false), Stage::Starting);
    run(&mut row).stage = RunStage::Running;
    assert_eq!(stage(&row, true), Stage::InHand, "its gate is open and its starter still has it");
    assert_eq!(stage(&row, false), Stage::Running);
    run(&mut row).stage = RunStage::Starting;
    run(&mut row).claimed_ms = Some(NOW.plus(-30_000));
    assert_eq!(stage(&row, true), Stage::Starting);
}

#[test]
fn a_word_is_an_end_and_a_survivor_is_no_broken_claim() {
    let mut row = row();
    run(&mut row).stage = RunStage::Ending;
    run(&mut row).outcome = Some(Outcome::Completed);
    assert_eq!(facts(&row, &seen(Seen::Same), &context()).end, End::Word);
    run(&mut row).ended = true;
    run(&mut row).survivor = true;
    let judged = facts(&row, &seen(Seen::Same), &context());
    assert_eq!((judged.stage, judged.claim), (Stage::Survivor, Claim::Whole));
}

#[test]
fn an_ended_run_has_no_worker_any_more() {
    let mut row = row();
    run(&mut row).ended = true;
    let nobody = Observed { process: None, ..seen(Seen::Gone) };
    let judged = facts(&row, &nobody, &context());
    assert_eq!((judged.worker, judged.claim, judged.end), (Worker::Gone, Claim::Broken, End::Record));
}
