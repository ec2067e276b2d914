//! Ending trees: what the supervisor does when it is told to, and what happens when it is killed itself.

use nix::libc;

use crate::core::fingerprint::Looked;
use crate::core::ids::Pid;
use crate::core::record::{BadRecord, End, Record};
use crate::core::retry::Exit;
use crate::linux::spawn::{Launched, Reaped, end_tree, reap};
use crate::linux::stat::Stat;
use crate::linux::tests::support::{Field, Subject, ended, eventually};
use crate::ports::{Held, Processes, Target};

/// A second name of this very program, for shells.
const ODD: &str = "exec -a tenured-odd /proc/self/exe";

fn our_program(words: &str) -> String {
    let program = std::fs::read_link("/proc/self/exe").unwrap();
    ODD.replace("/proc/self/exe", &program.display().to_string()) + " " + words
}

#[test]
fn the_supervisor_does_not_hear_what_is_meant_for_others() {
    let field = Field::new();
    let Launched { command, supervisor, gate } = field.shell("echo up; read nothing </dev/zero");
    gate.open().unwrap();
    field.said("up");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGALRM] {
        field.host.signal(&supervisor.handle, signal).unwrap();
    }
    end_tree(&field.host, &supervisor.handle, true).unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Signal(libc::SIGKILL)));
    assert_eq!(field.host.look(&command.handle), Looked::Gone);
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(field.record().killed_by_pid, Some(own), "who told it to");
    assert!(!field.record().manager_asked, "only the service manager's own TERM says that");
}

#[test]
fn c18_a_stopped_command_takes_term_when_it_is_asked() {
    let field = Field::new();
    let Launched { command, supervisor, gate } =
        field.shell("trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.01; done");
    gate.open().unwrap();
    field.said("up");
    field.host.signal(&command.handle, libc::SIGSTOP).unwrap();
    eventually("the stop", || {
        let state = Stat::read(field.host.proc_root(), command.handle.pid().get()).unwrap().state;
        if state == b'T' { Ok(()) } else { Err(char::from(state).to_string()) }
    });
    end_tree(&field.host, &supervisor.handle, false).unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(3)));
    field.said("term");
}

#[test]
fn asking_reaches_every_descendant() {
    let field = Field::new();
    let Launched { supervisor, gate, .. } = field.shell(
        "trap 'echo outer' TERM
         setsid sh -c 'trap \"echo inner; exit\" TERM; echo up; while :; do sleep 0.01; done' &
         wait; wait; exit 4",
    );
    gate.open().unwrap();
    field.said("up");
    end_tree(&field.host, &supervisor.handle, false).unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(4)));
    field.said("inner");
    field.said("outer");
}

#[test]
fn c15_a_chain_of_setsid_forks_is_caught_up_with() {
    let many = format!("for i in 1 2 3 4 5 6 7 8; do ({}) & done; wait", our_program("setsid-chain"));
    for words in [our_program("setsid-chain"), our_program("setsid-bomb"), many] {
        let field = Field::new();
        let spec = field.spec(&["bash", "-c", &words]);
        let Launched { supervisor, gate, .. } = field.launched(&spec);
        gate.open().unwrap();
        field.said("looping");
        end_tree(&field.host, &supervisor.handle, true).unwrap();
        let end = field.finish(&supervisor.handle);
        // The command itself is only the first of the chain.
        assert!(matches!(end, End::Exited(Exit::Code(0) | Exit::Signal(libc::SIGKILL))), "{words}: {end:?}");
        assert_eq!(field.carriers(&spec.nonce).len(), 0, "{words}");
    }
}

#[test]
fn c16_the_record_waits_for_the_last_descendant_and_keeps_the_commands_end() {
    let field = Field::new();
    let fifo = field.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!("setsid sh -c 'read line <{}; echo late' & exit 5", fifo.display());
    let Launched { command, supervisor, gate } = field.shell(&script);
    gate.open().unwrap();
    ended("the command", &command.handle);
    assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::Running);
    let bytes = std::fs::read(field.path("record")).unwrap();
    assert_eq!(Record::parse(&bytes), Err(BadRecord::Empty));
    std::fs::write(&fifo, "go\n").unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(5)));
    assert_eq!(field.text("7.log"), "late\n");
}

#[test]
fn ending_the_tree_at_the_gate_lets_nothing_run() {
    let field = Field::new();
    let Launched { supervisor, gate, .. } = field.shell("echo ran");
    end_tree(&field.host, &supervisor.handle, true).unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::GateClosed);
    assert!(gate.open().is_err(), "nobody is behind it");
    assert_eq!(field.text("7.log"), "");
}

#[test]
fn c20_the_command_dies_with_its_supervisor_and_what_is_left_is_found() {
    let field = Field::new();
    let spec = field.spec(&[
        "sh",
        "-c",
        "setsid sh -c 'trap \"\" PIPE; echo up; exec cat /dev/zero >/dev/null' & wait",
    ]);
    let Launched { command, supervisor, gate } = field.launched(&spec);
    gate.open().unwrap();
    field.said("up");
    assert!(field.carriers(&spec.nonce).len() >= 3, "supervisor, command, grandchild");
    field.host.signal(&supervisor.handle, libc::SIGKILL).unwrap();
    ended("the supervisor", &supervisor.handle);
    assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::Ended(Exit::Signal(libc::SIGKILL)));
    ended("the command", &command.handle);
    let left = eventually("what is left", || {
        let left = field.carriers(&spec.nonce);
        if left.len() == 1 { Ok(left) } else { Err(format!("{left:?}")) }
    });
    let bytes = std::fs::read(field.path("record")).unwrap();
    assert_eq!(Record::parse(&bytes), Err(BadRecord::Empty));
    field.host.signal(&left[0], libc::SIGKILL).unwrap();
    ended("the grandchild", &left[0]);
    eventually("nothing", || {
        let left = field.carriers(&spec.nonce);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

#[test]
fn c24_a_daemon_that_is_killed_closes_the_gate() {
    let field = Field::new();
    let mut daemon = Subject::odd(&["daemon", field.directory().to_str().unwrap()]);
    let supervisor: i64 = daemon.line().parse().unwrap();
    let (_, supervisor) = field.host.open(Target::Pid(Pid::new(supervisor).unwrap()));
    let (_, held) = field.host.open(Target::Pid(daemon.pid()));
    field.host.signal(&held.unwrap(), libc::SIGKILL).unwrap();
    ended("the supervisor", &supervisor.unwrap());
    assert_eq!(field.record().end, End::GateClosed);
    assert_eq!(field.text("7.log"), "");
}

#[test]
fn a_command_at_its_gate_dies_with_its_supervisor() {
    let field = Field::new();
    let Launched { command, supervisor, gate } = field.shell("echo ran");
    field.host.signal(&supervisor.handle, libc::SIGKILL).unwrap();
    ended("the supervisor", &supervisor.handle);
    reap(&supervisor.handle).unwrap();
    ended("the command's side", &command.handle);
    let _ = gate.open();
    assert_eq!(field.text("7.log"), "");
}

#[test]
fn a_supervisor_cannot_be_taken_for_its_command() {
    let field = Field::new();
    let launched = field.shell("true");
    let parent = Stat::read(field.host.proc_root(), launched.command.handle.pid().get()).unwrap().parent_pid;
    assert_eq!(parent, launched.supervisor.handle.pid().get());
    let stranger = Pid::new(i64::from(parent)).unwrap();
    let (looked, _) = field.host.open(Target::Pid(stranger));
    assert_eq!(looked, launched.supervisor.looked);
    assert_ne!(looked, launched.command.looked);
    launched.abandon(&field.host).unwrap();
}
