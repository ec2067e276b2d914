//! Starting commands: the gate, the record, and what a command finds around it.

#![expect(unsafe_code, reason = "keyctl has no safe call")]

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;

use nix::libc;

use crate::core::fingerprint::Looked;
use crate::core::record::{End, RECORD_BYTES, Record, Setup};
use crate::core::retry::Exit;
use crate::linux::launch_spec::{Credentials, OutputTo};
use crate::linux::spawn::{LaunchError, Launched, Reaped, launch, reap};
use crate::linux::tests::support::{Field, ended, eventually, is_root};
use crate::ports::{Held, Processes};

#[test]
fn a_closed_gate_lets_nothing_run_and_the_record_says_so() {
    let field = Field::new();
    let made = field.path("made");
    let launched = field.shell(&format!("touch {}", made.display()));
    let Launched { command, supervisor, gate } = launched;
    assert!(matches!(command.looked, Looked::Present { .. }));
    assert!(matches!(supervisor.looked, Looked::Present { .. }));
    drop(gate);
    assert_eq!(field.finish(&supervisor.handle), End::GateClosed);
    assert_eq!(field.host.look(&command.handle), Looked::Gone);
    assert!(!made.exists());
}

#[test]
fn an_abandoned_start_leaves_nothing() {
    let field = Field::new();
    let launched = field.shell("true");
    let supervisor = launched.supervisor.handle.duplicate().unwrap();
    launched.abandon(&field.host).unwrap();
    assert_eq!(field.record().end, End::GateClosed);
    let (looked, _) = field.host.open(crate::ports::Target::Fd(supervisor));
    assert_eq!(looked, Looked::Gone);
}

#[test]
fn the_record_says_how_the_command_ended() {
    for (script, end) in [
        ("exit 0", Exit::Code(0)),
        ("exit 75", Exit::Code(75)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -15 $$", Exit::Signal(15)),
        ("kill -35 $$", Exit::Signal(35)),
    ] {
        let field = Field::new();
        assert_eq!(field.run(&field.spec(&["sh", "-c", script])), End::Exited(end), "{script}");
        let record = field.record();
        assert!(!record.oom && record.killed_by_pid.is_none(), "{record:?}");
        assert!(record.max_rss_kib > 0 && record.ended_ms > 0 && record.ended_usec > 0, "{record:?}");
    }
}

#[test]
fn the_supervisor_ends_as_its_command_did() {
    for (script, end) in [("exit 3", Exit::Code(3)), ("kill -15 $$", Exit::Signal(15))] {
        let field = Field::new();
        let Launched { supervisor, gate, .. } = field.shell(script);
        gate.open().unwrap();
        ended("the supervisor", &supervisor.handle);
        assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::Ended(end));
        assert_eq!(reap(&supervisor.handle).unwrap(), Reaped::NotOurs, "taken once");
    }
}

#[test]
fn a_command_that_is_not_there_or_cannot_be_executed() {
    let field = Field::new();
    let end = field.run(&field.spec(&["no-such-command-anywhere"]));
    assert_eq!(end, End::ExecFailed { errno: libc::ENOENT, code: 127 });

    let field = Field::new();
    let text = field.path("text");
    fs::write(&text, "no program").unwrap();
    let end = field.run(&field.spec(&[text.to_str().unwrap()]));
    assert_eq!(end, End::ExecFailed { errno: libc::EACCES, code: 126 });

    let field = Field::new();
    fs::set_permissions(field.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    let text = field.path("text");
    fs::write(&text, "\x7fELF but not really").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    let end = field.run(&field.spec(&[text.to_str().unwrap()]));
    assert_eq!(end, End::ExecFailed { errno: libc::ENOEXEC, code: 126 });
}

#[test]
fn the_commands_own_path_is_searched() {
    let field = Field::new();
    let (empty, full) = (field.path("empty"), field.path("full"));
    fs::create_dir(&empty).unwrap();
    fs::create_dir(&full).unwrap();
    std::os::unix::fs::symlink("/bin/echo", full.join("speak")).unwrap();
    let mut spec = field.spec(&["speak", "found"]);
    spec.environment[0] = format!("PATH={}:/nowhere:{}", empty.display(), full.display());
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    assert_eq!(field.text("7.log"), "found\n");
}

#[test]
fn what_cannot_be_set_up_is_the_tasks_matter() {
    for wanted in [Setup::Directory, Setup::Stdin] {
        let field = Field::new();
        let mut spec = field.spec(&["true"]);
        if wanted == Setup::Stdin {
            spec.stdin = Some("/nowhere/at/all".into());
        } else {
            spec.working_directory = "/nowhere/at/all".into();
        }
        match launch(&field.launcher, &spec) {
            Err(LaunchError::Setup { step, source }) => {
                assert_eq!((step, source.raw_os_error()), (wanted, Some(libc::ENOENT)));
            }
            other => panic!("{wanted:?}: {other:?}"),
        }
        assert_eq!(field.record().end, End::SetupFailed { step: wanted, errno: libc::ENOENT });
    }
}

#[test]
fn the_hosts_trouble_leaves_no_record() {
    let field = Field::new();
    let mut spec = field.spec(&["true"]);
    spec.output = OutputTo::File { path: field.path("no/such/7.log"), cap_bytes: 1 };
    assert!(matches!(launch(&field.launcher, &spec), Err(LaunchError::Host { .. })));
    assert!(!field.path("record").exists());
    let mut spec = field.spec(&["true"]);
    spec.environment.retain(|entry| !entry.starts_with("TENURED_NONCE="));
    assert!(matches!(launch(&field.launcher, &spec), Err(LaunchError::Host { .. })));
    assert!(!field.path("record").exists());
    fs::write(field.path("record"), "of another run").unwrap();
    let spec = field.spec(&["true"]);
    assert!(matches!(launch(&field.launcher, &spec), Err(LaunchError::Host { .. })));
}

#[test]
fn the_record_has_its_space_before_anything_runs() {
    let field = Field::new();
    let launched = field.shell("true");
    let file = fs::metadata(field.path("record")).unwrap();
    assert_eq!((file.len(), file.permissions().mode() & 0o777), (RECORD_BYTES as u64, 0o600));
    assert!(Record::parse(&fs::read(field.path("record")).unwrap()).is_err(), "nothing is said yet");
    assert_eq!(fs::metadata(field.path("7.log")).unwrap().permissions().mode() & 0o777, 0o640);
    launched.abandon(&field.host).unwrap();
}

#[test]
fn the_command_finds_nothing_of_ours() {
    let field = Field::new();
    let script =
        "cat /proc/self/status; echo --; ls -l /proc/self/fd; echo --; cat /proc/$$/environ | tr '\\0' '\\n'
        echo --; cat /proc/self/oom_score_adj; umask; pwd; cat";
    let mut spec = field.spec(&["sh", "-c", script]);
    spec.working_directory = field.directory().to_owned();
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    let text = field.text("7.log");
    let parts: Vec<&str> = text.split("--\n").collect();
    let [status, fds, environment, rest] = parts.as_slice() else { panic!("{text}") };

    for set in ["SigBlk", "SigIgn", "SigPnd", "ShdPnd"] {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    let fds: Vec<&str> = fds.lines().filter_map(|line| line.split_once(" -> ")).map(|(_, to)| to).collect();
    // The fourth is the directory that ls itself has open.
    assert_eq!(fds.len(), 4, "{fds:?}");
    assert_eq!(fds[0], "/dev/null");
    assert!(fds[1].starts_with("pipe:") && fds[1] == fds[2], "{fds:?}");
    assert_eq!(environment.lines().count(), spec.environment.len(), "{environment}");
    assert_eq!(*rest, format!("0\n0022\n{}\n", field.directory().display()));
}

#[test]
fn the_supervisor_finds_nothing_of_ours() {
    let field = Field::new();
    let spec = field.spec(&["true"]);
    let launched = field.launched(&spec);
    let pid = launched.supervisor.handle.pid();
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap();
    let nonce = format!("TENURED_NONCE={}\0", spec.nonce);
    assert_eq!(read("environ"), nonce.as_bytes());
    assert_eq!(read("cmdline"), b"tenured-exec\x007\0");
    assert_eq!(read("comm"), b"tenured-exec\n");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    let directory = field.directory().display().to_string();
    let mut wanted = vec![
        "/dev/null".to_owned(),
        "/dev/null".to_owned(),
        "/dev/null".to_owned(),
        directory.clone(),
        format!("{directory}/7.log"),
        format!("{directory}/record"),
        "anon_inode".to_owned(),
        "pipe".to_owned(),
        "pipe".to_owned(),
    ];
    wanted.sort();
    // Right after its answer it still closes what the answer took.
    eventually("the descriptors that it keeps", || {
        let mut open: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
            .map(|name| name.display().to_string().split(':').next().unwrap_or_default().to_owned())
            .collect();
        open.sort();
        if open == wanted { Ok(()) } else { Err(format!("{open:?}")) }
    });
    launched.abandon(&field.host).unwrap();
}

#[test]
fn the_gate_is_in_this_process_alone() {
    let field = Field::new();
    let launched = field.shell("true");
    let socket = fs::read_link(format!("/proc/self/fd/{}", launched.gate.as_fd().as_raw_fd())).unwrap();
    for member in [&launched.command, &launched.supervisor] {
        let directory = format!("/proc/{}/fd", member.handle.pid());
        for fd in fs::read_dir(directory).unwrap() {
            assert_ne!(fs::read_link(fd.unwrap().path()).unwrap(), socket);
        }
    }
    let flags = rustix::io::fcntl_getfd(&launched.gate).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    launched.abandon(&field.host).unwrap();
}

#[test]
fn a_command_of_another_user_is_wholly_that_user() {
    if !is_root("a_command_of_another_user_is_wholly_that_user") {
        return;
    }
    let field = Field::new();
    let script =
        "grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapEff|SigIgn):' /proc/self/status; echo again > /dev/stdout";
    let mut spec = field.spec(&["sh", "-c", script]);
    spec.credentials = Some(Credentials { uid: 65_533, gid: 65_532, groups: vec![65_531, 65_530] });
    spec.no_new_privileges = true;
    spec.nice = Some(5);
    let Launched { command, supervisor, gate } = field.launched(&spec);
    let owner = field.host.owner(&command.handle).unwrap();
    assert!(owner.is_wholly(65_533) && owner.our_namespaces, "before the gate: {owner:?}");
    assert!(field.host.owner(&supervisor.handle).unwrap().is_wholly(0));
    gate.open().unwrap();
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Code(0)));
    assert_eq!(
        field.text("7.log"),
        "Uid:\t65533\t65533\t65533\t65533\nGid:\t65532\t65532\t65532\t65532\n\
         Groups:\t65530 65531 \nSigIgn:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nagain\n"
    );
}

/// Gives this thread, and what it starts, a session keyring; its serial number, as /proc/keys writes it.
fn join_keyring() -> Option<String> {
    const JOIN_SESSION_KEYRING: u32 = 1;
    // SAFETY: no name is given, so nothing is read or written.
    let serial =
        unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    (serial > 0).then(|| format!("{serial:08x}"))
}

#[test]
fn a_command_shares_no_keyring_with_us() {
    let Some(ours) = join_keyring().filter(|_| is_root("a_command_shares_no_keyring_with_us")) else {
        return;
    };
    let field = Field::new();
    let mut spec = field.spec(&["cut", "-d ", "-f1", "/proc/keys"]);
    spec.credentials = Some(Credentials { uid: 65_533, gid: 65_533, groups: vec![] });
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    let keys = field.text("7.log");
    assert!(keys.lines().count() > 0 && !keys.contains(&ours), "ours is {ours}; it sees {keys}");
}

#[test]
fn what_the_user_may_not_read_is_not_read_for_them() {
    if !is_root("what_the_user_may_not_read_is_not_read_for_them") {
        return;
    }
    let field = Field::new();
    let secret = field.path("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let mut spec = field.spec(&["cat"]);
    spec.credentials = Some(Credentials { uid: 65_533, gid: 65_533, groups: vec![] });
    spec.stdin = Some(secret);
    match launch(&field.launcher, &spec) {
        Err(LaunchError::Setup { step: Setup::Stdin, source }) => {
            assert_eq!(source.raw_os_error(), Some(libc::EACCES));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn standard_input_is_a_file_where_one_is_given() {
    let field = Field::new();
    fs::write(field.path("input"), "asked for\n").unwrap();
    let mut spec = field.spec(&["cat"]);
    spec.stdin = Some(field.path("input"));
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    assert_eq!(field.text("7.log"), "asked for\n");
}

#[test]
fn the_journal_gets_a_stream_from_the_command_itself() {
    let mut field = Field::new();
    let socket = field.path("journal");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    field.set_journal(socket);
    let mut spec = field.spec(&["sh", "-c", "echo hello"]);
    spec.output =
        OutputTo::Journal { identifier: "tenured-4".to_owned(), unit: Some("tenured-4.scope".to_owned()) };
    let launched = field.launched(&spec);
    let (mut stream, _) = listener.accept().unwrap();
    let peer = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials).unwrap();
    assert_eq!(peer.pid(), launched.command.handle.pid().get());
    launched.gate.open().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "tenured-4\ntenured-4.scope\n6\n1\n0\n0\n0\nhello\n");
    assert_eq!(field.finish(&launched.supervisor.handle), End::Exited(Exit::Code(0)));
}

#[test]
fn many_starts_at_once_do_not_share_anything() {
    std::thread::scope(|scope| {
        for round in 0..8 {
            scope.spawn(move || {
                for attempt in 0..5 {
                    let field = Field::new();
                    let spec = field.spec(&["sh", "-c", "ls /proc/self/fd | wc -l"]);
                    if (round + attempt) % 2 == 0 {
                        assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
                        assert_eq!(field.text("7.log").trim(), "4");
                    } else {
                        field.launched(&spec).abandon(&field.host).unwrap();
                        assert_eq!(field.record().end, End::GateClosed);
                    }
                }
            });
        }
    });
}
