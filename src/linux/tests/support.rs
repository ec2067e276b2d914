//! What the tests here share: waiting within bounds, odd processes, a directory to launch in.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::core::ids::{Nonce, Pid, RunId};
use crate::core::record::{End, Record};
use crate::linux::clock::HostClock;
use crate::linux::launch_spec::{LaunchSpec, OutputTo};
use crate::linux::pidfd::{HostProcesses, PidFd};
use crate::linux::spawn::{Launched, Launcher, Reaped, end_tree, launch, reap};
use crate::linux::wait::{self, Waited};
use crate::ports::{Clock, Held, Processes, Target};

/// No test waits longer for anything.
const LIMIT_MS: i64 = 20_000;

/// Waits until `look` says yes; its no says what it saw.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = HostClock::default().now().mono.plus(LIMIT_MS);
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(last) if HostClock::default().now().mono > end => panic!("{what}: last seen: {last}"),
            Err(_) => {
                let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
            }
        }
    }
}

/// Waits for the end of a held process.
pub(super) fn ended(what: &str, process: &PidFd) {
    let limit = Timespec { tv_sec: LIMIT_MS / 1_000, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut polled, Some(&limit))).unwrap();
    assert_eq!(ready, 1, "{what}: process {} still lives", process.pid());
}

/// A child that the test looks at. Ends when it is dropped, because its standard input does.
pub(super) struct Subject {
    pub(super) child: Child,
    output: BufReader<ChildStdout>,
}

impl Subject {
    /// A process of `odd.rs`.
    pub(super) fn odd(words: &[&str]) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tenured-odd").args(words);
        Self::start(command)
    }

    /// Any program that reads its standard input.
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::new(i64::from(self.child.id())).unwrap()
    }

    /// The next line that it says.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(super) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Takes its end.
    pub(super) fn reap(&mut self) {
        self.close_stdin();
        let pid = self.pid().get();
        eventually("the end of a subject", || match wait::take(wait::Child::Pid(pid)) {
            Ok(Waited::Ended(_) | Waited::NoChild) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.reap();
        }
    }
}

/// A directory, and a launcher whose `tenured-exec` is this very program.
pub(super) struct Field {
    directory: PathBuf,
    /// Removes the directory.
    guard: Option<tempfile::TempDir>,
    pub(super) host: HostProcesses,
    pub(super) launcher: Launcher,
    /// What was launched; a test that fails leaves none of it behind.
    supervisors: RefCell<Vec<OwnedFd>>,
}

impl Drop for Field {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for supervisor in self.supervisors.take() {
                if let (_, Some(handle)) = self.host.open(Target::Fd(supervisor)) {
                    let _ = end_tree(&self.host, &handle, true);
                }
            }
        }
    }
}

impl Field {
    pub(super) fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        // Other users get at what is for them.
        fs::set_permissions(guard.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut field = Self::at(guard.path().to_owned());
        field.guard = Some(guard);
        field
    }

    /// In a directory that another process looks after.
    pub(super) fn at(directory: PathBuf) -> Self {
        let host = HostProcesses::default();
        let launcher = Launcher::find(host.clone()).unwrap();
        Self { directory, guard: None, host, launcher, supervisors: RefCell::default() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// With a journal of the test's own.
    pub(super) fn set_journal(&mut self, socket: PathBuf) {
        self.launcher = Launcher::find(self.host.clone()).unwrap().with_journal(socket);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned()
    }

    /// A start of a command with output in `7.log`.
    pub(super) fn spec(&self, argv: &[&str]) -> LaunchSpec {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).unwrap();
        let nonce = Nonce::from_bytes(bytes);
        LaunchSpec {
            run: RunId::new(7),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            environment: vec![
                "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
                format!("TENURED_NONCE={nonce}"),
                "TENURED_RUN=7".to_owned(),
            ],
            nonce,
            credentials: None,
            working_directory: PathBuf::from("/"),
            stdin: None,
            nice: None,
            no_new_privileges: false,
            record: self.path("record"),
            output: OutputTo::File { path: self.path("7.log"), cap_bytes: 1 << 20 },
        }
    }

    /// Starts a shell command up to its gate.
    pub(super) fn shell(&self, script: &str) -> Launched {
        self.launched(&self.spec(&["sh", "-c", script]))
    }

    pub(super) fn launched(&self, spec: &LaunchSpec) -> Launched {
        let launched = launch(&self.launcher, spec).unwrap();
        self.supervisors.borrow_mut().push(launched.supervisor.handle.duplicate().unwrap());
        launched
    }

    pub(super) fn record(&self) -> Record {
        Record::parse(&fs::read(self.path("record")).unwrap()).unwrap()
    }

    /// Opens the gate, and waits for the record.
    pub(super) fn run(&self, spec: &LaunchSpec) -> End {
        let Launched { supervisor, gate, .. } = self.launched(spec);
        gate.open().unwrap();
        self.finish(&supervisor.handle)
    }

    /// Waits for the end of a supervisor and reads its record.
    pub(super) fn finish(&self, supervisor: &PidFd) -> End {
        ended("a supervisor", supervisor);
        // Not ours where a launcher has made it.
        assert!(matches!(reap(supervisor).unwrap(), Reaped::Ended(_) | Reaped::NotOurs));
        self.record().end
    }

    /// Waits until the output holds a line.
    pub(super) fn said(&self, line: &str) {
        eventually("a line of the output", || {
            let text = self.text("7.log");
            if text.lines().any(|said| said == line) { Ok(()) } else { Err(text) }
        });
    }

    /// Processes that carry the nonce of a run.
    pub(super) fn carriers(&self, nonce: &Nonce) -> Vec<PidFd> {
        // Processes of other tests come and go: a look at one that is ending may find nothing out.
        eventually("a scan", || self.host.carriers(nonce).map_err(|error| error.to_string()))
    }
}

/// Whether a test that needs root can run; says it loudly where it cannot.
pub(super) fn is_root(test: &str) -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        eprintln!("SKIPPED {test}: it needs root");
    }
    root
}
