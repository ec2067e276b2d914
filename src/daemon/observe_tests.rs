//! The observer over a small model of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;

use super::*;
use crate::core::fingerprint::{Epoch, Fingerprint};
use crate::core::ids::TaskId;
use crate::core::record::{End, Record};
use crate::core::retry::Exit;
use crate::core::row::RunStage;
use crate::core::verdict::Urgency;
use crate::ports::Owner;

/// A process of the model: never the same number for two that live at once.
#[derive(Clone, Copy, Debug)]
struct Process {
    serial: u64,
    start_ticks: u64,
    uid: u32,
    nonce: Option<u8>,
}

#[derive(Default)]
struct Model {
    live: Mutex<BTreeMap<i32, Process>>,
    /// Looking fails.
    broken: Mutex<bool>,
    /// Cgroups in which something lives, by their ids.
    populated: Mutex<BTreeSet<u64>>,
    signals: Mutex<Vec<(u64, i32)>>,
}

struct Handle {
    pid: Pid,
    serial: u64,
}

impl Held for Handle {
    fn pid(&self) -> Pid {
        self.pid
    }
}

impl Model {
    fn put(&self, pid: i32, process: Process) {
        self.live.lock().unwrap().insert(pid, process);
    }

    fn end(&self, pid: i32) {
        self.live.lock().unwrap().remove(&pid);
    }

    fn breaks(&self, broken: bool) {
        *self.broken.lock().unwrap() = broken;
    }

    fn of(&self, handle: &Handle) -> Option<Process> {
        let live = self.live.lock().unwrap();
        live.get(&handle.pid.get()).copied().filter(|process| process.serial == handle.serial)
    }
}

const fn present(process: Process) -> Looked {
    Looked::Present { start_ticks: process.start_ticks, inode: Some(process.serial) }
}

impl Processes for Model {
    type Handle = Handle;

    fn open(&self, target: Target) -> (Looked, Option<Handle>) {
        let Target::Pid(pid) = target else {
            return (Looked::Unknown, None);
        };
        if *self.broken.lock().unwrap() {
            return (Looked::Unknown, None);
        }
        match self.live.lock().unwrap().get(&pid.get()) {
            Some(process) => (present(*process), Some(Handle { pid, serial: process.serial })),
            None => (Looked::Gone, None),
        }
    }

    fn look(&self, handle: &Handle) -> Looked {
        self.of(handle).map_or(Looked::Gone, present)
    }

    fn signal(&self, handle: &Handle, signal: i32) -> io::Result<()> {
        self.signals.lock().unwrap().push((handle.serial, signal));
        Ok(())
    }

    fn owner(&self, handle: &Handle) -> io::Result<Owner> {
        let uid = self.of(handle).ok_or(io::ErrorKind::NotFound)?.uid;
        Ok(Owner {
            real: uid,
            effective: uid,
            saved: uid,
            fs: uid,
            our_namespaces: true,
            kernel_thread: false,
        })
    }

    fn carriers(&self, nonce: &Nonce) -> io::Result<Vec<Handle>> {
        if *self.broken.lock().unwrap() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let live = self.live.lock().unwrap();
        let carries =
            |process: &Process| process.nonce.is_some_and(|byte| *nonce == Nonce::from_bytes([byte; 16]));
        let found = live.iter().filter(|(_, process)| carries(process));
        Ok(found
            .filter_map(|(pid, process)| {
                Some(Handle { pid: Pid::new(i64::from(*pid))?, serial: process.serial })
            })
            .collect())
    }
}

impl Cgroups for Model {
    type Handle = Handle;

    fn is_populated(&self, cgroup: &Cgroup) -> io::Result<bool> {
        if *self.broken.lock().unwrap() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(self.populated.lock().unwrap().contains(&cgroup.id))
    }

    fn members(&self, _: &Cgroup) -> io::Result<Vec<Handle>> {
        Ok(Vec::new())
    }

    fn kill_all(&self, cgroup: &Cgroup) -> io::Result<bool> {
        Ok(self.populated.lock().unwrap().remove(&cgroup.id))
    }
}

#[derive(Default)]
struct Shelf(Mutex<Option<Record>>, Mutex<bool>);

impl Records for Shelf {
    fn read(&self, run: RunId, nonce: &Nonce) -> io::Result<Option<Record>> {
        if *self.1.lock().unwrap() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(self.0.lock().unwrap().clone().filter(|record| record.run == run && record.nonce == *nonce))
    }
}

fn epoch() -> Epoch {
    Epoch {
        boot_id: "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(),
        pid_namespace: 1,
        time_namespace: 2,
        init_start_ticks: 3,
    }
}

fn print_of(process: Process) -> Stored {
    Stored::Proven(Fingerprint {
        epoch: epoch(),
        start_ticks: process.start_ticks,
        inode: Some(process.serial),
    })
}

const WORKER: Process = Process { serial: 100, start_ticks: 7, uid: 5, nonce: Some(1) };
const SUPERVISOR: Process = Process { serial: 101, start_ticks: 7, uid: 0, nonce: Some(1) };
const STRANGER: Process = Process { serial: 102, start_ticks: 7, uid: 5, nonce: None };

fn registered(pid: i64, worker: Stored) -> RunPart {
    RunPart {
        run: RunId::new(4),
        task: TaskId::new(1),
        claimant: Some("c".into()),
        claimant_uid: Some(5),
        lease_expires_ms: Some(MonoMs(1)),
        epoch: Some(epoch()),
        boot: None,
        worker_pid: Some(pid),
        worker,
        supervisor_pid: None,
        supervisor: Stored::None,
        nonce: None,
        launched: false,
        unit: None,
        cgroup: None,
        stage: RunStage::Running,
        stop_cause: None,
        stop_urgency: Urgency::Normal,
        started_ms: None,
        claimed_ms: None,
        progress_ms: None,
        term_ms: None,
        kill_ms: None,
        leader_gone_ms: None,
        ended: false,
        outcome: None,
        survivor: false,
        held: None,
        version: 1,
    }
}

fn launched() -> RunPart {
    RunPart {
        supervisor_pid: Some(51),
        supervisor: print_of(SUPERVISOR),
        nonce: Some(Nonce::from_bytes([1; 16])),
        launched: true,
        ..registered(50, print_of(WORKER))
    }
}

fn record() -> Record {
    Record {
        run: RunId::new(4),
        nonce: Nonce::from_bytes([1; 16]),
        end: End::Exited(Exit::Code(0)),
        oom: false,
        ended_ms: 0,
        ended_usec: 0,
        killed_by_pid: None,
        user_usec: 0,
        system_usec: 0,
        manager_asked: false,
        max_rss_kib: 0,
    }
}

fn observer() -> (Arc<Model>, Arc<Shelf>, Observer<Model>) {
    let (model, shelf) = (Arc::new(Model::default()), Arc::new(Shelf::default()));
    let observer = Observer::new(
        Arc::clone(&model),
        Arc::clone(&model) as Arc<_>,
        Arc::clone(&shelf) as Arc<dyn Records>,
    );
    (model, shelf, observer)
}

fn look(observer: &mut Observer<Model>, run: &RunPart, at_ms: i64) -> (Option<Seen>, Tree) {
    let observed = observer.observe(run, Boot::Same, MonoMs(at_ms));
    (observed.process, observed.tree)
}

#[test]
fn c02_a_recycled_pid_is_another_process_also_through_a_held_handle() {
    let (model, _, mut observer) = observer();
    let run = registered(50, print_of(WORKER));
    model.put(50, WORKER);
    assert_eq!(look(&mut observer, &run, 0).0, Some(Seen::Same));
    model.put(50, STRANGER);
    assert_eq!(look(&mut observer, &run, 0).0, Some(Seen::Gone), "the held process has ended");
    observer.forget(run.run);
    assert_eq!(look(&mut observer, &run, 0).0, Some(Seen::Other), "and the number is another's");
    assert!(observer.handle(run.run, Part::Worker).is_none(), "whom nobody can reach through this run");
}

#[test]
fn a_row_that_was_rewritten_is_looked_at_anew() {
    let (model, _, mut observer) = observer();
    model.put(50, WORKER);
    assert_eq!(look(&mut observer, &registered(50, print_of(WORKER)), 0).0, Some(Seen::Same));
    assert_eq!(look(&mut observer, &registered(50, print_of(STRANGER)), 0).0, Some(Seen::Other));
    assert_eq!(look(&mut observer, &registered(60, print_of(WORKER)), 0).0, Some(Seen::Gone));
}

#[test]
fn c07_a_look_that_fails_is_unknown_and_the_next_one_is_fine() {
    let (model, _, mut observer) = observer();
    let run = registered(50, print_of(WORKER));
    model.put(50, WORKER);
    model.breaks(true);
    assert_eq!(look(&mut observer, &run, 0).0, Some(Seen::Unknown));
    model.breaks(false);
    assert_eq!(look(&mut observer, &run, 0).0, Some(Seen::Same));
}

#[test]
fn numbers_that_are_no_process_are_gone_and_nobody_looks() {
    let (model, _, mut observer) = observer();
    model.breaks(true);
    for number in [i64::MIN, -1, 0, 1, Pid::MAX + 1] {
        assert_eq!(look(&mut observer, &registered(number, Stored::Unverified), 0).0, Some(Seen::Gone));
    }
}

#[test]
fn c01_another_boots_pid_is_not_looked_at() {
    let (model, _, mut observer) = observer();
    model.put(50, WORKER);
    model.breaks(true);
    let observed = observer.observe(&registered(50, print_of(WORKER)), Boot::Other, MonoMs(0));
    assert_eq!((observed.process, observed.tree), (Some(Seen::Gone), Tree::Empty));
}

#[test]
fn in_doubt_about_the_boot_only_a_missing_process_says_something() {
    let (model, _, mut observer) = observer();
    let run = registered(50, print_of(WORKER));
    let doubt = Boot::Unknown(Doubt::BootId);
    model.put(50, WORKER);
    assert_eq!(observer.observe(&run, doubt, MonoMs(0)).process, Some(Seen::Unknown));
    model.end(50);
    assert_eq!(observer.observe(&run, doubt, MonoMs(0)).process, Some(Seen::Gone));
    let elsewhere = Boot::Unknown(Doubt::Namespace);
    assert_eq!(observer.observe(&run, elsewhere, MonoMs(0)).process, Some(Seen::Unknown));
}

#[test]
fn a_tree_lives_for_as_long_as_its_supervisor() {
    let (model, shelf, mut observer) = observer();
    model.put(50, WORKER);
    model.put(51, SUPERVISOR);
    assert_eq!(look(&mut observer, &launched(), 0), (Some(Seen::Same), Tree::Populated));
    model.end(50);
    assert_eq!(look(&mut observer, &launched(), 0), (Some(Seen::Gone), Tree::Populated));
    *shelf.0.lock().unwrap() = Some(record());
    model.end(51);
    assert_eq!(look(&mut observer, &launched(), 0), (Some(Seen::Gone), Tree::Empty));
}

#[test]
fn c20_without_a_record_two_scans_a_second_apart_must_find_nothing() {
    let (model, _, mut observer) = observer();
    let orphan = Process { serial: 103, start_ticks: 8, uid: 5, nonce: Some(1) };
    model.put(70, orphan);
    assert_eq!(look(&mut observer, &launched(), 0).1, Tree::Populated);
    assert_eq!(observer.carriers(RunId::new(4)).len(), 1);
    model.end(70);
    assert_eq!(look(&mut observer, &launched(), 0).1, Tree::Unknown);
    assert!(observer.owes_scan(RunId::new(4)));
    assert_eq!(look(&mut observer, &launched(), 999).1, Tree::Unknown);
    model.put(70, orphan);
    assert_eq!(look(&mut observer, &launched(), 1_000).1, Tree::Populated, "it was only hiding");
    model.end(70);
    assert_eq!(look(&mut observer, &launched(), 1_500).1, Tree::Unknown, "the second begins anew");
    assert_eq!(look(&mut observer, &launched(), 2_500).1, Tree::Empty);
}

#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_none() {
    let (_model, shelf, mut observer) = observer();
    *shelf.0.lock().unwrap() = Some(record());
    *shelf.1.lock().unwrap() = true;
    for at_ms in [0, 2_000, 4_000] {
        assert_eq!(look(&mut observer, &launched(), at_ms).1, Tree::Unknown);
    }
    *shelf.1.lock().unwrap() = false;
    assert_eq!(look(&mut observer, &launched(), 5_000).1, Tree::Empty);
}

#[test]
fn a_scan_that_fails_proves_nothing() {
    let (model, _, mut observer) = observer();
    assert_eq!(look(&mut observer, &launched(), 0).1, Tree::Unknown);
    model.breaks(true);
    assert_eq!(look(&mut observer, &launched(), 2_000).1, Tree::Unknown);
}

#[test]
fn c12_a_worker_must_belong_wholly_to_its_claimant_at_each_signal() {
    let (model, _, mut observer) = observer();
    let run = registered(50, print_of(WORKER));
    model.put(50, WORKER);
    look(&mut observer, &run, 0);
    assert_eq!(observer.objection(&run), None);
    // It ran a set-user-ID program: the same process, and no longer the claimant's.
    model.put(50, Process { uid: 0, ..WORKER });
    assert_eq!(observer.objection(&run), Some(Objection::NotYours));
    let by_root = RunPart { claimant_uid: Some(0), ..run };
    assert_eq!(observer.objection(&by_root), None);
}

#[test]
fn a_process_with_two_open_claims_is_shared() {
    let (model, _, mut observer) = observer();
    model.put(50, WORKER);
    let first = registered(50, print_of(WORKER));
    let second = RunPart { run: RunId::new(5), ..registered(50, print_of(WORKER)) };
    look(&mut observer, &first, 0);
    look(&mut observer, &second, 0);
    assert_eq!(observer.objection(&first), Some(Objection::Shared));
    look(&mut observer, &RunPart { ended: true, survivor: true, ..second }, 0);
    assert_eq!(observer.objection(&first), None, "an ended run holds no claim");
}

fn scoped() -> RunPart {
    let cgroup = Cgroup { path: "/tenured.slice/a.scope".into(), id: 9, invocation: "i".into() };
    RunPart { cgroup: Some(cgroup), ..launched() }
}

#[test]
fn a_scope_lives_for_as_long_as_its_cgroup_is_populated() {
    let (model, shelf, mut observer) = observer();
    *shelf.0.lock().unwrap() = Some(record());
    model.populated.lock().unwrap().insert(9);
    assert_eq!(
        look(&mut observer, &scoped(), 0),
        (Some(Seen::Gone), Tree::Populated),
        "whatever the record says"
    );
    assert!(observer.is_unsupervised(scoped().run));
    model.populated.lock().unwrap().clear();
    assert_eq!(look(&mut observer, &scoped(), 1), (Some(Seen::Gone), Tree::Empty));
    assert!(!observer.is_unsupervised(scoped().run));
}

#[test]
fn an_empty_scope_without_a_record_may_have_something_elsewhere() {
    let (model, shelf, mut observer) = observer();
    model.put(60, Process { nonce: Some(1), ..STRANGER });
    assert_eq!(look(&mut observer, &scoped(), 0).1, Tree::Populated, "it was moved, and carries the nonce");
    model.end(60);
    assert_eq!(look(&mut observer, &scoped(), 1).1, Tree::Unknown, "one empty scan proves nothing");
    assert!(observer.owes_scan(scoped().run));
    assert_eq!(look(&mut observer, &scoped(), 1_002).1, Tree::Empty);
    model.put(60, Process { nonce: Some(1), ..STRANGER });
    *shelf.0.lock().unwrap() = Some(record());
    assert_eq!(look(&mut observer, &scoped(), 2_000).1, Tree::Empty, "the supervisor saw all of it end");
}

#[test]
fn a_cgroup_that_cannot_be_read_is_unknown() {
    let (model, _, mut observer) = observer();
    let run = RunPart { supervisor_pid: None, supervisor: Stored::None, ..scoped() };
    model.breaks(true);
    assert_eq!(look(&mut observer, &run, 0).1, Tree::Unknown);
}

#[test]
fn a_supervisor_that_lives_speaks_for_what_was_moved_out_of_the_scope() {
    let (model, _, mut observer) = observer();
    model.put(51, SUPERVISOR);
    assert_eq!(look(&mut observer, &scoped(), 0).1, Tree::Populated);
}
