//! The confused deputy, on a hand-written model of processes.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::fault::Error;
use crate::core::fingerprint::{Epoch, Fingerprint, Looked, Stored};
use crate::core::ids::{Nonce, Pid};
use crate::core::refusal::Refusal;
use crate::ports::{Held, Owner, Processes, Target};
use crate::service::testing::{ANNA, ROOT};
use crate::service::types::WorkerGiven;
use crate::service::worker::{Deputy, Registrar};
use crate::store::testing::{epoch, other_epoch};

/// A table of processes; a pidfd stands for process 4000.
#[derive(Default)]
struct Model {
    processes: HashMap<i32, (u64, Owner)>,
    /// Looks through a handle after which the process has ended.
    ends_after: Option<u64>,
    looks: AtomicU64,
    blind: bool,
}

struct Handle(Pid);

impl Held for Handle {
    fn pid(&self) -> Pid {
        self.0
    }
}

impl Processes for Model {
    type Handle = Handle;

    fn open(&self, target: Target) -> (Looked, Option<Handle>) {
        let pid = match target {
            Target::Pid(pid) => pid,
            Target::Fd(_) => Pid::new(4_000).unwrap(),
        };
        if self.blind {
            return (Looked::Unknown, None);
        }
        match self.processes.get(&pid.get()) {
            Some((start_ticks, _)) => {
                (Looked::Present { start_ticks: *start_ticks, inode: Some(1) }, Some(Handle(pid)))
            }
            None => (Looked::Gone, None),
        }
    }

    fn look(&self, handle: &Handle) -> Looked {
        if self.ends_after.is_some_and(|looks| self.looks.fetch_add(1, Ordering::SeqCst) >= looks) {
            return Looked::Gone;
        }
        let start_ticks = self.processes[&handle.0.get()].0;
        Looked::Present { start_ticks, inode: Some(1) }
    }

    fn signal(&self, _: &Handle, _: i32) -> io::Result<()> {
        panic!("registering signals nobody");
    }

    fn owner(&self, handle: &Handle) -> io::Result<Owner> {
        Ok(self.processes[&handle.0.get()].1)
    }

    fn carriers(&self, _: &Nonce) -> io::Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

fn of(uid: u32) -> Owner {
    Owner { real: uid, effective: uid, saved: uid, fs: uid, our_namespaces: true, kernel_thread: false }
}

fn deputy(owner: Owner) -> Deputy<Model> {
    let processes = HashMap::from([(4_000, (77, owner))]);
    let never = vec![Pid::new(50).unwrap()];
    Deputy { processes: Model { processes, ..Model::default() }, epoch: epoch(), never }
}

fn given(pid: u32, start_ticks: Option<u64>) -> WorkerGiven {
    WorkerGiven::Pid { pid, start_ticks }
}

fn why<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    match answer {
        Err(Error::Refused(Refusal::NotYourProcess { why, .. })) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn print(epoch: Epoch) -> Fingerprint {
    Fingerprint { epoch, start_ticks: 77, inode: Some(1) }
}

#[test]
fn how_a_process_is_pointed_at_decides_what_is_proven() {
    let deputy = deputy(of(ANNA.uid));
    let identify = |given| deputy.identify(&ANNA, given).unwrap();
    assert_eq!(identify(WorkerGiven::None), None);
    assert_eq!(identify(given(4_000, None)), Some((4_000, Stored::Named(print(epoch())))));
    assert_eq!(identify(given(4_000, Some(77))), Some((4_000, Stored::Proven(print(epoch())))));
    let fd = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    assert_eq!(identify(WorkerGiven::PidFd(fd)), Some((4_000, Stored::Proven(print(epoch())))));
}

#[test]
fn c12_what_is_not_wholly_the_callers_is_refused() {
    let other = ANNA.uid + 1;
    let mine = of(ANNA.uid);
    for owner in [
        of(0),
        of(other),
        Owner { real: other, ..mine },
        Owner { effective: other, ..mine },
        Owner { saved: other, ..mine },
        Owner { fs: other, ..mine },
        Owner { our_namespaces: false, ..mine },
        Owner { kernel_thread: true, ..mine },
    ] {
        why(deputy(owner).identify(&ANNA, given(4_000, Some(77))));
    }
    deputy(of(other)).identify(&ROOT, given(4_000, Some(77))).expect("root may name anybody's");
    why(deputy(Owner { kernel_thread: true, ..of(0) }).identify(&ROOT, given(4_000, Some(77))));
}

#[test]
fn c12_numbers_that_are_no_worker_never_reach_the_host() {
    let mut deputy = deputy(of(ANNA.uid));
    for pid in [0, 1, u32::MAX, 4_194_305] {
        assert_eq!(why(deputy.identify(&ROOT, given(pid, None))), "it is no process of anybody's");
    }
    deputy.processes.processes.insert(50, (1, of(0)));
    assert_eq!(why(deputy.identify(&ROOT, given(50, None))), "it belongs to the daemon itself");
    assert_eq!(why(deputy.identify(&ANNA, given(51, None))), "it has ended");
    why(deputy.identify(&ANNA, given(4_000, Some(78))));
}

#[test]
fn a_process_that_ends_during_the_look_is_refused() {
    let mut deputy = deputy(of(ANNA.uid));
    deputy.processes.ends_after = Some(0);
    assert_eq!(why(deputy.identify(&ANNA, given(4_000, None))), "it ended while it was looked at");
    deputy.processes.blind = true;
    assert_eq!(why(deputy.identify(&ANNA, given(4_000, None))), "it cannot be looked at");
}

#[test]
fn only_what_was_seen_gone_is_gone() {
    let mut deputy = deputy(of(ANNA.uid));
    assert!(!deputy.is_gone(4_000, &Stored::Proven(print(epoch()))));
    assert!(deputy.is_gone(4_000, &Stored::Proven(Fingerprint { start_ticks: 1, ..print(epoch()) })));
    assert!(deputy.is_gone(4_001, &Stored::Proven(print(epoch()))));
    assert!(
        !deputy.is_gone(4_001, &Stored::Proven(print(other_epoch()))),
        "ticks of two boots are not compared"
    );
    assert!(!deputy.is_gone(4_000, &Stored::Unverified));
    assert!(deputy.is_gone(0, &Stored::Absent));
    deputy.processes.blind = true;
    assert!(!deputy.is_gone(4_001, &Stored::Proven(print(epoch()))), "an error while looking is unknown");
}
