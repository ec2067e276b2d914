//! Starts by way of the launcher: a real one, on a real socket that is passed to it as systemd does; killed at
//! every point, and asked things that it must refuse.

#![expect(unsafe_code, reason = "a thread that becomes another user has no safe call")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::libc;
use proptest::prelude::*;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, recv, socketpair};

use crate::core::ids::{Pid, RunId};
use crate::core::record::End;
use crate::core::retry::Exit;
use crate::linux::deadline::{left, now, readable_before};
use crate::linux::launcher_client::{Unanswered, ask};
use crate::linux::spawn::{LaunchError, Launched, Launcher, Reaped, launch, reap};
use crate::linux::supervisors;
use crate::linux::tests::support::{Field, ended, eventually, is_root};
use crate::linux::wire::{self, Answer, ForCommand, ForSupervisor};
use crate::ports::{Held, Processes, Target};

/// What systemd holds: the listening socket, whatever becomes of the launcher.
struct Socket {
    listener: OwnedFd,
    path: PathBuf,
}

impl Socket {
    fn bind(path: PathBuf) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 4_096).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self { listener, path }
    }

    /// Starts this very program as the launcher, by way of a shell in which `before` was said.
    fn serve(&self, before: &str) -> Serving {
        let script = format!(
            "{before}
            exec 3<&0 </dev/null
            LISTEN_FDS=1 LISTEN_PID=$$ NOTIFY_SOCKET=/nowhere exec -a tenured-exec \"$0\" --launcher"
        );
        let child = Command::new("bash")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .stdin(self.listener.try_clone().unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Serving { child }
    }

    fn connect(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path).unwrap()).unwrap();
        socket
    }

    /// Takes what a daemon asks, in the launcher's place.
    fn accept(&self) -> (OwnedFd, Vec<u8>, Vec<OwnedFd>) {
        let asker = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        let (bytes, fds) = wire::receive(&asker).unwrap();
        (asker, bytes, fds)
    }
}

struct Serving {
    child: Child,
}

impl Serving {
    fn pid(&self) -> Pid {
        Pid::new(i64::from(self.child.id())).unwrap()
    }

    fn signal(&self, signal: i32) {
        let host = crate::linux::pidfd::HostProcesses::default();
        // It may have ended, but nobody has taken its end.
        if let (_, Some(handle)) = host.open(Target::Pid(self.pid())) {
            host.signal(&handle, signal).unwrap();
        }
    }

    /// `kill -9`, and gone.
    fn end(mut self) {
        self.signal(libc::SIGKILL);
        self.child.wait().unwrap();
    }

    fn children(&self) -> String {
        let pid = self.pid();
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// A field whose starts go by way of a launcher at `socket`.
fn field() -> (Field, Socket) {
    let mut field = Field::new();
    let socket = Socket::bind(field.path("launcher"));
    field.launcher = Launcher::asking(field.host.clone(), socket.path.clone()).unwrap();
    (field, socket)
}

fn lines(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn runs_go_by_way_of_the_launcher_to_their_ends() {
    let (field, socket) = field();
    let serving = socket.serve("");
    for (script, end) in
        [("exit 0", Exit::Code(0)), ("exit 75", Exit::Code(75)), ("kill -9 $$", Exit::Signal(9))]
    {
        assert_eq!(field.run(&field.spec(&["sh", "-c", script])), End::Exited(end), "{script}");
        fs::remove_file(field.path("record")).unwrap();
    }
    let launched = field.shell("true");
    let supervisor = launched.supervisor.handle.duplicate().unwrap();
    launched.abandon(&field.host).unwrap();
    assert_eq!(field.record().end, End::GateClosed);
    let ended = || {
        let (looked, _) = field.host.open(Target::Fd(supervisor.try_clone().unwrap()));
        let children = serving.children();
        if children.is_empty() { Ok(()) } else { Err(format!("{looked:?}, children {children}")) }
    };
    eventually("the launcher to take the ends of its children", ended);
}

#[test]
fn the_end_of_a_supervisor_is_the_launchers_to_take() {
    let (field, socket) = field();
    let _serving = socket.serve("");
    let Launched { supervisor, gate, .. } = field.shell("exit 3");
    assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::NotOurs, "and no error");
    gate.open().unwrap();
    ended("the supervisor", &supervisor.handle);
    assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::NotOurs);
    assert_eq!(field.record().end, End::Exited(Exit::Code(3)));
}

#[test]
fn nothing_of_launcher_or_daemon_reaches_supervisor_and_command() {
    let (field, socket) = field();
    let _serving =
        socket.serve("trap '' PIPE HUP USR1 TERM CHLD; ulimit -Sn 777; export SECRET=yes; umask 0");
    let script =
        "grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -Sn; umask; cat /proc/$$/environ | tr '\\0' '\\n'
        ls -l /proc/self/fd | wc -l";
    let spec = field.spec(&["sh", "-c", script]);
    let launched = field.launched(&spec);
    let pid = launched.supervisor.handle.pid();
    let nonce = format!("TENURED_NONCE={}\0", spec.nonce);
    assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), nonce.as_bytes());
    assert_eq!(fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"tenured-exec\x007\0");
    launched.gate.open().unwrap();
    assert_eq!(field.finish(&launched.supervisor.handle), End::Exited(Exit::Code(0)));
    let environment = spec.environment.join("\n");
    let wanted =
        format!("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n777\n0022\n{environment}\n5\n");
    assert_eq!(field.text("7.log"), wanted);
}

#[test]
fn a_launcher_that_dies_later_takes_nothing_with_it() {
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let (field, socket) = field();
        let mut serving = socket.serve("");
        let Launched { command, supervisor, gate } = field.shell("exit 5");
        serving.signal(signal);
        let status = serving.child.wait().unwrap();
        assert_eq!(status.code(), (signal == libc::SIGTERM).then_some(0), "TERM is a word, not an accident");
        assert!(!command.handle.has_ended().unwrap() && !supervisor.handle.has_ended().unwrap());
        gate.open().unwrap();
        assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(5)));
    }
}

#[test]
fn a_launcher_that_dies_before_it_makes_anything_is_asked_again() {
    let (field, socket) = field();
    let spec = field.spec(&["sh", "-c", "echo ran"]);
    let (launched, serving) = std::thread::scope(|scope| {
        let launching = scope.spawn(|| launch(&field.launcher, &spec).unwrap());
        let (asker, bytes, fds) = socket.accept();
        assert_eq!((bytes.as_slice(), fds.len()), (wire::LAUNCH, 2));
        drop((asker, fds));
        let serving = socket.serve("");
        (launching.join().unwrap(), serving)
    });
    launched.gate.open().unwrap();
    assert_eq!(field.finish(&launched.supervisor.handle), End::Exited(Exit::Code(0)));
    assert_eq!(field.text("7.log"), "ran\n");
    drop(serving);
}

/// What a launcher that dies in the worst moment leaves: a supervisor that nobody was told of.
fn make_and_die(socket: &Socket, run: RunId, nonce: &crate::core::ids::Nonce) -> Child {
    let (asker, _, fds) = socket.accept();
    let gate = fds.into_iter().next().unwrap();
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    let left = supervisors::start(program.as_fd(), run, nonce, gate).unwrap();
    drop(asker);
    left
}

#[test]
fn a_launcher_that_dies_before_it_answers_is_asked_again_and_one_command_runs() {
    let (field, socket) = field();
    let ran = field.path("ran");
    let spec = field.spec(&["sh", "-c", &format!("echo once >>{}", ran.display())]);
    let (launched, mut left, serving) = std::thread::scope(|scope| {
        let launching = scope.spawn(|| launch(&field.launcher, &spec).unwrap());
        let left = make_and_die(&socket, spec.run, &spec.nonce);
        let serving = socket.serve("");
        (launching.join().unwrap(), left, serving)
    });
    assert_eq!(left.wait().unwrap().code(), Some(125), "its gate has no other end any more");
    launched.gate.open().unwrap();
    assert_eq!(field.finish(&launched.supervisor.handle), End::Exited(Exit::Code(0)));
    assert_eq!(lines(&ran), 1);
    drop(serving);
}

#[test]
fn a_launcher_that_dies_twice_is_the_hosts_trouble_and_nothing_runs() {
    let (field, socket) = field();
    let ran = field.path("ran");
    let spec = field.spec(&["sh", "-c", &format!("echo once >>{}", ran.display())]);
    let (failed, left) = std::thread::scope(|scope| {
        let launching = scope.spawn(|| launch(&field.launcher, &spec));
        let left = [(); 2].map(|()| make_and_die(&socket, spec.run, &spec.nonce));
        (launching.join().unwrap(), left)
    });
    assert!(matches!(&failed, Err(LaunchError::Host { doing, .. }) if doing.contains("twice")), "{failed:?}");
    for mut left in left {
        assert_eq!(left.wait().unwrap().code(), Some(125));
    }
    assert!(!ran.exists() && !field.path("record").exists());
    assert!(field.carriers(&spec.nonce).is_empty());
}

#[test]
fn no_launcher_and_a_silent_one_are_the_hosts_trouble() {
    let (field, socket) = field();
    let soon = || now().plus(50);
    let gate = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let null = File::open("/dev/null").unwrap();
    let failed = ask(&socket.path, gate().0, null.as_fd(), soon());
    assert!(is_failed(&failed, ErrorKind::TimedOut), "it does not answer: {failed:?}");

    let full = field.path("full");
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&full).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let first = ask(&full, gate().0, null.as_fd(), soon());
    assert!(is_failed(&first, ErrorKind::TimedOut), "{first:?}");
    let failed = ask(&full, gate().0, null.as_fd(), soon());
    assert!(is_failed(&failed, ErrorKind::TimedOut), "its queue is full: {failed:?}");

    drop(listener);
    let failed = ask(&full, gate().0, null.as_fd(), soon());
    assert!(is_failed(&failed, ErrorKind::ConnectionRefused), "{failed:?}");
    let failed = ask(&field.path("nowhere"), gate().0, null.as_fd(), soon());
    assert!(is_failed(&failed, ErrorKind::NotFound), "{failed:?}");

    let nowhere = Launcher::asking(field.host.clone(), field.path("nowhere")).unwrap();
    assert!(matches!(launch(&nowhere, &field.spec(&["true"])), Err(LaunchError::Host { .. })));
    assert!(!field.path("record").exists());
    assert!(Launcher::asking(field.host.clone(), "x".repeat(200).into()).is_err());
}

fn is_failed(answer: &Result<OwnedFd, Unanswered>, kind: ErrorKind) -> bool {
    matches!(answer, Err(Unanswered::Failed { error, .. }) if error.kind() == kind)
}

#[test]
fn idle_connections_hold_nobody_up_for_long() {
    let (field, socket) = field();
    let _serving = socket.serve("");
    let idle: Vec<OwnedFd> = (0..100).map(|_| socket.connect()).collect();
    assert_eq!(field.run(&field.spec(&["true"])), End::Exited(Exit::Code(0)));
    for socket in idle {
        assert!(readable_before(socket.as_fd(), now().plus(20_000)).unwrap(), "it is closed");
        let mut byte = [0];
        assert_eq!(recv(&socket, &mut byte, RecvFlags::empty()).unwrap().0, 0, "without a word");
    }
}

#[test]
fn kills_at_any_time_lose_nothing_and_double_nothing() {
    const STARTS: usize = 40;
    let (field, socket) = field();
    let path = socket.path.clone();
    let at_work = std::sync::atomic::AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (directory, path, at_work) = (field.directory(), &path, &at_work);
            scope.spawn(move || {
                for start in 0..STARTS / 4 {
                    start_once(&directory.join(format!("{worker}-{start}")), path);
                }
                at_work.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        let mut round = 0_u64;
        while at_work.load(std::sync::atomic::Ordering::SeqCst) > 0 {
            let serving = socket.serve("");
            // Now and then before it has even begun, now and then after some starts.
            let far = now().plus(i64::try_from(round * 7 % 90).unwrap());
            let _ = rustix::event::poll(&mut [], Some(&left(far)));
            serving.end();
            round += 1;
        }
        assert!(round > 0);
    });
}

fn start_once(ran: &Path, path: &Path) {
    let field = {
        let mut field = Field::new();
        field.launcher = Launcher::asking(field.host.clone(), path.to_owned()).unwrap();
        field
    };
    let spec = field.spec(&["sh", "-c", &format!("echo once >>{}", ran.display())]);
    match launch(&field.launcher, &spec) {
        Ok(Launched { supervisor, gate, .. }) => {
            gate.open().unwrap();
            assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(0)));
            assert_eq!(lines(ran), 1, "{}", ran.display());
        }
        Err(LaunchError::Host { .. }) => assert_eq!(lines(ran), 0, "{}", ran.display()),
        other => panic!("{}: {other:?}", ran.display()),
    }
    eventually("whatever was made to end", || {
        let left = field.carriers(&spec.nonce);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// A descriptor that is passed to the launcher.
#[derive(Clone, Copy, Debug)]
enum Passed {
    Gate,
    Stream,
    Pipe,
    Null,
    Spec,
    Unsealed,
    NotJson,
    NoNonce,
    NoRun,
}

fn passed(kind: Passed) -> OwnedFd {
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap().0;
    let spec = |run, nonce: &str| {
        let supervisor = ForSupervisor { run, nonce: nonce.to_owned(), output_file: None };
        let command = ForCommand {
            argv: vec!["true".to_owned()],
            environment: Vec::new(),
            credentials: None,
            working_directory: "/".to_owned(),
            stdin: None,
            nice: None,
            no_new_privileges: false,
            limits: Vec::new(),
            journal: None,
        };
        wire::seal(&supervisor, &command).unwrap()
    };
    let memfd = |text: &str, seals| {
        use rustix::fs::MemfdFlags;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("spec", flags).unwrap();
        rustix::io::write(&file, text.as_bytes()).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let sealed = {
        use rustix::fs::SealFlags;
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL
    };
    let nonce = "0123456789abcdef0123456789abcdef";
    match kind {
        Passed::Gate => pair(SocketType::SEQPACKET),
        Passed::Stream => pair(SocketType::STREAM),
        Passed::Pipe => rustix::pipe::pipe().unwrap().0,
        Passed::Null => File::open("/dev/null").unwrap().into(),
        Passed::Spec => spec(7, nonce),
        Passed::Unsealed => memfd("{}", rustix::fs::SealFlags::empty()),
        Passed::NotJson => memfd("{\"supervisor\": 5", sealed),
        Passed::NoNonce => spec(7, "../../etc"),
        Passed::NoRun => spec(0, nonce),
    }
}

/// What comes back: an answer, or nothing where it has hung up.
fn answer_to(socket: &Socket, bytes: &[u8], kinds: &[Passed]) -> Option<Answer> {
    let asker = socket.connect();
    let fds: Vec<OwnedFd> = kinds.iter().map(|kind| passed(*kind)).collect();
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    wire::send(&asker, bytes, &fds).unwrap();
    assert!(readable_before(asker.as_fd(), now().plus(20_000)).unwrap(), "it answers or hangs up");
    let answer = wire::receive(&asker).ok().and_then(|(bytes, _)| Answer::parse(&bytes));
    if answer.is_some() {
        assert!(readable_before(asker.as_fd(), now().plus(20_000)).unwrap(), "and hangs up then");
    }
    answer
}

#[test]
fn anything_but_a_whole_request_makes_nothing() {
    let (_field, socket) = field();
    let serving = socket.serve("");
    let long = [wire::LAUNCH, &[b'x'; 1_000]].concat();
    let refused: &[(&[u8], &[Passed])] = &[
        (b"tenured-launcher 2", &[Passed::Gate, Passed::Spec]),
        (wire::HELLO, &[Passed::Gate, Passed::Spec]),
        (&wire::LAUNCH[..5], &[Passed::Gate, Passed::Spec]),
        (&long, &[Passed::Gate, Passed::Spec]),
        (wire::LAUNCH, &[]),
        (wire::LAUNCH, &[Passed::Gate]),
        (wire::LAUNCH, &[Passed::Gate, Passed::Spec, Passed::Spec]),
        (wire::LAUNCH, &[Passed::Spec, Passed::Gate]),
        (wire::LAUNCH, &[Passed::Stream, Passed::Spec]),
        (wire::LAUNCH, &[Passed::Pipe, Passed::Spec]),
        (wire::LAUNCH, &[Passed::Gate, Passed::Null]),
        (wire::LAUNCH, &[Passed::Gate, Passed::Unsealed]),
        (wire::LAUNCH, &[Passed::Gate, Passed::NotJson]),
        (wire::LAUNCH, &[Passed::Gate, Passed::NoNonce]),
        (wire::LAUNCH, &[Passed::Gate, Passed::NoRun]),
    ];
    for (bytes, kinds) in refused {
        let answer = answer_to(&socket, bytes, kinds);
        assert!(matches!(answer, Some(Answer::Fault { .. })), "{kinds:?}: {answer:?}");
        assert_eq!(serving.children(), "", "{kinds:?}");
    }
    let answer = answer_to(&socket, wire::LAUNCH, &[Passed::Gate, Passed::Spec]);
    assert_eq!(answer, Some(Answer::Ready), "and this is one");
}

#[test]
fn packets_of_chance_make_nothing_and_the_launcher_lives() {
    let (field, socket) = field();
    let serving = socket.serve("");
    let kinds = prop::sample::select(vec![
        Passed::Gate,
        Passed::Stream,
        Passed::Pipe,
        Passed::Null,
        Passed::Spec,
        Passed::Unsealed,
        Passed::NotJson,
    ]);
    let cut = (0..=wire::LAUNCH.len()).prop_map(|at| wire::LAUNCH[..at].to_vec());
    let bytes = prop_oneof![prop::collection::vec(any::<u8>(), 0..300), cut, Just(wire::LAUNCH.to_vec())];
    let packet = (bytes, prop::collection::vec(kinds, 0..=4));
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((bytes, kinds) in packet)| {
        let whole = bytes == wire::LAUNCH && matches!(kinds.as_slice(), [Passed::Gate, Passed::Spec]);
        let answer = answer_to(&socket, &bytes, &kinds);
        prop_assert_eq!(answer == Some(Answer::Ready), whole, "{:?}", kinds);
    });
    eventually("what was whole to end", || {
        let children = serving.children();
        if children.is_empty() { Ok(()) } else { Err(children) }
    });
    assert_eq!(field.run(&field.spec(&["true"])), End::Exited(Exit::Code(0)));
}

#[test]
fn another_user_is_not_listened_to() {
    if !is_root("another_user_is_not_listened_to") {
        return;
    }
    let (_field, socket) = field();
    let serving = socket.serve("");
    let heard = std::thread::scope(|scope| {
        let as_another = scope.spawn(|| {
            // SAFETY: takes numbers only. The system call, and not the C library's function, changes this
            // thread alone, which ends with the scope.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, 65_533, 65_533, 65_533) };
            assert_eq!(done, 0);
            let asker = socket.connect();
            let fds = [passed(Passed::Gate), passed(Passed::Spec)];
            // It may have hung up already.
            let _ = wire::send(&asker, wire::LAUNCH, &[fds[0].as_fd(), fds[1].as_fd()]);
            assert!(readable_before(asker.as_fd(), now().plus(20_000)).unwrap());
            wire::receive(&asker).map_or(Vec::new(), |(bytes, _)| bytes)
        });
        as_another.join().unwrap()
    });
    assert_eq!(heard, b"", "not even an answer");
    assert_eq!(serving.children(), "");
    assert_eq!(answer_to(&socket, wire::LAUNCH, &[Passed::Gate, Passed::Spec]), Some(Answer::Ready));
}

#[test]
fn without_its_socket_there_is_no_launcher() {
    for script in [
        "exec -a tenured-exec \"$0\" --launcher",
        "LISTEN_PID=1 LISTEN_FDS=1 exec -a tenured-exec \"$0\" --launcher",
        "LISTEN_PID=$$ LISTEN_FDS=1 exec -a tenured-exec \"$0\" --launcher 3</dev/null",
        "LISTEN_PID=$$ LISTEN_FDS=2 exec -a tenured-exec \"$0\" --launcher 3</dev/null 4</dev/null",
    ] {
        let mut child = Command::new("bash")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{script}");
        assert!(said.starts_with("tenured-exec: the launcher ends: "), "{said}");
    }
}
