//! The real daemon: started as a person would start it, on a private bus or with its socket alone.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit};

use super::board::Board;
use super::bus::PrivateBus;
use super::client::Client;
use super::kernel;
use super::launcher::Launcher;
use super::service_manager::ServiceManager;
use super::wait::eventually;

/// How the host under test is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub with_bus: bool,
    /// `--user`: the session bus.
    pub user: bool,
    /// Workers are started by a launcher, and not by the daemon itself.
    pub with_launcher: bool,
    pub config: String,
}

impl Default for Setup {
    fn default() -> Self {
        Self { with_bus: true, user: !super::is_root(), with_launcher: false, config: QUIET.to_owned() }
    }
}

/// Nothing happens by itself within a test's time but what events bring about; failed tasks are ready again
/// at once.
pub const QUIET: &str = "[sweep]\ninterval = \"1h\"\n[run]\nlaunch = \"direct\"\nbackoff = \"0s\"\n";

/// A state directory, a bus, and a daemon on them.
pub struct Host {
    directory: tempfile::TempDir,
    bus: Option<PrivateBus>,
    launcher: Option<Launcher>,
    daemon: Option<Child>,
    /// Who the daemon reports to.
    pub manager: Option<ServiceManager>,
    user: bool,
    wrapped: bool,
    lives: u32,
}

impl Host {
    /// With a bus, and a daemon that is ready.
    pub fn start() -> Self {
        Self::start_with(Setup::default())
    }

    pub fn start_with(setup: Setup) -> Self {
        let mut host = Self::prepare(setup);
        host.launch();
        host
    }

    /// Without a daemon so far.
    pub fn prepare(setup: Setup) -> Self {
        let directory = tempfile::Builder::new().prefix("tenured-it-").tempdir().unwrap();
        // Other users have to reach the sockets inside.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(directory.path().join("tenured.toml"), &setup.config).unwrap();
        let bus = setup.with_bus.then(|| PrivateBus::start(directory.path()));
        let launcher = setup.with_launcher.then(|| Launcher::start(directory.path()));
        Self {
            directory,
            bus,
            launcher,
            daemon: None,
            manager: None,
            user: setup.user,
            wrapped: false,
            lives: 0,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("tenured.toml"), config).unwrap();
    }

    /// The command that starts a daemon here.
    pub fn command(&self) -> Command {
        self.command_on(&self.state(), &self.path("run"))
    }

    /// The same with directories of its own.
    pub fn command_on(&self, state: &Path, runtime: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenured"));
        command.arg("--config").arg(self.path("tenured.toml"));
        command.arg("--state-dir").arg(state).arg("--runtime-dir").arg(runtime);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").env_remove("WATCHDOG_USEC");
        if let Some(launcher) = &self.launcher {
            command.arg("--launcher").arg(launcher.path());
        }
        match &self.bus {
            Some(bus) if !self.user => command.env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address),
            Some(bus) => command.arg("--user").env("DBUS_SESSION_BUS_ADDRESS", &bus.address),
            None if self.user => command.args(["--user", "--no-bus"]),
            None => command.arg("--no-bus"),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts a daemon and waits until it answers.
    pub fn launch(&mut self) {
        self.launch_under(&[]);
    }

    /// The same by way of a program that changes how the daemon sees its host.
    pub fn launch_under(&mut self, wrapper: &[&str]) {
        self.spawn_under(wrapper);
        eventually("the daemon to answer", || {
            if let Some(status) = self.daemon.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!("the daemon ended at once: {status}\n{}", self.log());
            }
            let client = Client::connect(&self.address()).map_err(|refused| format!("{refused:?}"))?;
            client.ask(client.manager.version()).map(drop).map_err(|refused| format!("{refused:?}"))
        });
    }

    /// From now on a service manager starts it.
    pub fn manage(&mut self) -> &mut ServiceManager {
        self.manager.insert(ServiceManager::start(self.directory.path()))
    }

    /// That manager.
    pub fn manager(&mut self) -> &mut ServiceManager {
        self.manager.as_mut().expect("a service manager")
    }

    /// Starts a daemon, and does not wait for anything.
    pub fn spawn(&mut self) {
        self.spawn_under(&[]);
    }

    fn spawn_under(&mut self, wrapper: &[&str]) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        self.lives += 1;
        self.wrapped = !wrapper.is_empty();
        let log = std::fs::File::create(self.path(&format!("log.{}", self.lives))).unwrap();
        let mut plain = self.command();
        plain.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("FDSTORE");
        let mut command = match wrapper.split_first() {
            None => match &self.manager {
                Some(manager) => manager.command(&plain),
                None => plain,
            },
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(plain.get_program()).args(plain.get_args());
                command.stdin(Stdio::null()).stdout(Stdio::null());
                command
            }
        };
        self.daemon = Some(command.stderr(log).spawn().unwrap());
    }

    /// The bus goes, as at `systemctl stop dbus`.
    pub fn stop_bus(&mut self) {
        self.bus.as_mut().expect("a bus").stop();
    }

    /// The bus comes back, at the same address.
    pub fn start_bus(&mut self) {
        self.bus = Some(PrivateBus::start(self.directory.path()));
    }

    /// Where clients talk to it: the bus, or the private socket.
    pub fn address(&self) -> String {
        self.bus.as_ref().map_or_else(|| self.private_address(), |bus| bus.address.clone())
    }

    pub fn private_address(&self) -> String {
        format!("unix:path={}", self.path("run").join("private").display())
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.address()).unwrap()
    }

    /// A client of another user.
    pub fn client_as(&self, uid: u32) -> Client {
        Client::connect_as(uid, &self.address()).unwrap()
    }

    pub fn board(&self) -> Board {
        Board::open(&self.state().join("board.db"))
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon").id()
    }

    /// `kill -9`, and gone.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("a daemon");
        let behind = if self.wrapped { kernel::children(daemon.id()) } else { Vec::new() };
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        for pid in behind {
            eventually("the daemon behind its wrapper to end", || {
                if kernel::lives(pid) { Err(format!("{pid} lives")) } else { Ok(()) }
            });
        }
    }

    /// As `systemctl stop` does; how it ended.
    pub fn stop(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().expect("a daemon");
        kernel::signal(daemon.id(), rustix::process::Signal::TERM);
        eventually("the daemon to stop", || {
            daemon.try_wait().unwrap().ok_or_else(|| "still there".to_owned())
        })
    }

    /// `kill -9`, and a new one.
    pub fn restart_hard(&mut self) {
        self.kill();
        self.launch();
    }

    /// `kill -9` of the launcher, and a new one.
    pub fn restart_launcher_hard(&mut self) {
        self.launcher.as_mut().expect("a launcher").restart_hard();
    }

    /// Takes from the daemon the room for one more descriptor: whatever it opens now fails with EMFILE.
    pub fn exhaust_descriptors(&self) -> Rlimit {
        let taken: Vec<u64> = std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        let lowest_free = (0..).find(|number| !taken.contains(number)).unwrap();
        let limit = rustix::process::prlimit(
            self.process(),
            Resource::Nofile,
            Rlimit {
                current: Some(lowest_free),
                maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
            },
        );
        limit.unwrap()
    }

    pub fn restore_descriptors(&self, limit: Rlimit) {
        rustix::process::prlimit(self.process(), Resource::Nofile, limit).unwrap();
    }

    fn process(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.pid()).unwrap())
    }

    /// The board as bytes. Nobody of this process may have it open: closing a plain descriptor would drop
    /// SQLite's locks.
    pub fn bytes_of_board(&self) -> [Vec<u8>; 2] {
        ["board.db", "board.db-wal"].map(|name| std::fs::read(self.state().join(name)).unwrap())
    }

    /// A named pipe on which a worker waits.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        path
    }

    /// Lets the worker go on that waits on this pipe.
    pub fn open_fifo(&self, path: &Path) {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(nix::libc::O_NONBLOCK);
        let mut pipe = eventually("the worker to wait on its pipe", || {
            options.open(path).map_err(|error| error.to_string())
        });
        pipe.write_all(b"go\n").unwrap();
    }

    /// The pid of a task's launched worker, once its command runs: its gate is open and it has become the
    /// command.
    pub fn worker_of(&self, client: &Client, task: u64) -> u32 {
        eventually("the worker to run", || {
            let row = client.task(task);
            let pid = u32::try_from(row.number("WorkerPid")).unwrap();
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let program = row.texts("Command")[0].clone().into_bytes();
            let runs = row.word("Stage") == "running" && pid > 1 && arguments.starts_with(&program);
            if runs { Ok(pid) } else { Err(format!("{row:?} {arguments:?}")) }
        })
    }

    /// As far as the board can tell, another boot: the runtime directory went with its tmpfs, and
    /// CLOCK_BOOTTIME lies below what was read before. A clean one was announced to the daemon.
    pub fn reboot(&mut self, clean: bool) {
        self.kill();
        std::fs::remove_dir_all(self.path("run")).unwrap();
        let board = self.board();
        board.execute("UPDATE boots SET boottime_ms = boottime_ms + 1000000000", []);
        if clean {
            board.execute("UPDATE boots SET shutdown_ms = 0", []);
        }
        self.launch();
    }

    /// What the daemons said.
    pub fn log(&self) -> String {
        (1..=self.lives)
            .map(|life| std::fs::read_to_string(self.path(&format!("log.{life}"))).unwrap_or_default())
            .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        end_all_that_mention(self.directory.path());
        if std::thread::panicking() {
            eprintln!("--- what the daemon said ---\n{}", self.log());
        }
    }
}

/// Workers outlive their daemon, so they are ended by what is in their environment or arguments.
fn end_all_that_mention(directory: &Path) {
    for pid in kernel::mentioning(directory) {
        let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { continue };
        if let Ok(fd) = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()) {
            let _ = rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL);
        }
    }
}
