//! The harness shown to work: a witness that cannot tell is no witness.

use rustix::process::Signal;

use crate::support::decoy::Shape;
use crate::support::{Decoy, Kind, is_root, kernel, skip};

#[test]
fn a_decoy_tells_every_signal_in_order() {
    let mut decoy = Decoy::start(Kind::Stubborn);
    assert_eq!(decoy.received(), [0; 0]);
    for signal in [Signal::TERM, Signal::CONT, Signal::HUP] {
        kernel::signal(decoy.pid, signal);
        crate::support::eventually("the signal", || {
            let seen = decoy.received();
            seen.contains(&signal.as_raw()).then_some(()).ok_or_else(|| format!("{seen:?}"))
        });
    }
    assert!(decoy.lives());
    kernel::signal(decoy.pid, Signal::KILL);
    decoy.wait();
    assert_eq!(decoy.received(), [15, 18, 1, 9]);

    let mut obedient = Decoy::start(Kind::Obedient);
    kernel::signal(obedient.pid, Signal::TERM);
    obedient.wait();
    assert_eq!(obedient.received(), [15]);
}

#[test]
fn a_decoy_can_lose_its_first_thread_and_live() {
    let mut decoy = Decoy::shaped(Shape { leaderless: true, ..Shape::default() }).unwrap();
    crate::support::eventually("the leader to exit", || {
        let state = kernel::stat_field(decoy.pid, 3);
        (state == "Z").then_some(()).ok_or(state)
    });
    assert!(kernel::lives(decoy.pid) && decoy.lives());
    kernel::signal(decoy.pid, Signal::USR1);
    crate::support::eventually("the second thread to take a signal", || {
        let seen = decoy.received();
        (seen == [10]).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
}

#[test]
fn a_decoy_can_take_over_a_pid_and_then_has_another_fingerprint() {
    if !is_root() {
        return skip("a_decoy_can_take_over_a_pid", "only root may choose the number of a process");
    }
    let mut first = Decoy::start(Kind::Stubborn);
    let print = kernel::fingerprint(first.pid);
    assert_eq!(print, kernel::fingerprint(first.pid), "the same process reads the same, time and again");
    first.end();
    let second = Decoy::shaped(Shape { pid: Some(first.pid), ..Shape::default() }).unwrap();
    assert_eq!(second.pid, first.pid);
    assert_ne!(print, kernel::fingerprint(second.pid));
}
