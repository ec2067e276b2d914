//! A daemon of our own, for as long as a command needs it: no root, no systemd, no bus.
//!
//! It is this very program started again as `tenured`, on a private socket, with its state under the XDG
//! state directory; it ends when we do, because the pipe that is its standard input closes. Workers outlive
//! it: the next daemon on that board finds them. Never touches the board itself.

#![expect(clippy::disallowed_methods, reason = "an adapter: makes directories, starts the daemon")]

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::net::unix::pipe;

use crate::bus::proxy::{Endpoint, ManagerProxy};
use crate::cli::connect::{socket, try_hello};
use crate::cli::failure::Failure;

/// A daemon that is not ready after this will not be: its first sweep looks at every running row.
const READY: Duration = Duration::from_secs(30);
/// A daemon that has not closed its board after this is left to do so alone.
const CLOSE: Duration = Duration::from_secs(10);
/// How often a daemon is started before we give up: another's may be closing the same board just now.
const ATTEMPTS: u32 = 20;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// Whether a daemon of our own may start tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// It only looks and edits.
    Nothing,
    /// It starts what is ready.
    Tasks,
}

/// Where a daemon of our own keeps its things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// The board and what belongs to it.
    pub state: PathBuf,
    /// The socket.
    pub runtime: PathBuf,
    /// The configuration, where it is not the user's own.
    pub config: Option<PathBuf>,
}

impl Dirs {
    /// Those of this user: the same as of `tenured --user`, so that each finds the other's daemon.
    ///
    /// # Errors
    /// Where no directory for state is known.
    pub fn of_user() -> Result<Self, Failure> {
        Self::from_environment(rustix::process::getuid().as_raw(), |name| std::env::var_os(name))
    }

    /// As [`Dirs::of_user`], from any environment. Source: XDG Base Directory Specification.
    fn from_environment(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state =
            absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::usage(
                "neither XDG_STATE_HOME nor HOME is set",
                "Set one of them: the board is kept there.",
            )
        })?;
        let state = state.join("tenured");
        let run_user = PathBuf::from(format!("/run/user/{uid}"));
        let runtime = absolute("XDG_RUNTIME_DIR").or_else(|| run_user.is_dir().then_some(run_user));
        let runtime = runtime.map_or_else(|| state.join("run"), |runtime| runtime.join("tenured"));
        Ok(Self { state, runtime, config: None })
    }

    /// Those under one directory, for a board that does not last.
    pub fn under(directory: &Path) -> Self {
        Self { state: directory.join("state"), runtime: directory.join("run"), config: None }
    }

    /// The private socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("private")
    }

    /// Makes both, for their owner alone, and refuses one that is somebody else's.
    fn make(&self) -> Result<(), Failure> {
        for directory in [&self.state, &self.runtime] {
            make_private(directory)?;
        }
        Ok(())
    }
}

fn make_private(directory: &Path) -> Result<(), Failure> {
    let fail = |what: String| {
        Failure::own(
            format!("{}: {what}", directory.display()),
            "A daemon of your own needs a directory that is yours alone.",
        )
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| fail(error.to_string()))?;
    let seen = std::fs::symlink_metadata(directory).map_err(|error| fail(error.to_string()))?;
    if !seen.is_dir() || seen.uid() != rustix::process::getuid().as_raw() {
        return Err(fail("is not a directory of yours".to_owned()));
    }
    if seen.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))
            .map_err(|error| fail(error.to_string()))?;
    }
    Ok(())
}

/// A daemon that is our child.
#[derive(Debug)]
pub struct Embedded {
    child: Child,
    /// Its pidfd: readable when it has ended.
    ended: pipe::Receiver,
    /// Its end tells the daemon to end.
    leash: Option<ChildStdin>,
}

impl Embedded {
    /// A daemon that serves the board of these directories: the one that does already, else one of our own.
    ///
    /// # Errors
    /// Where none can be started; with what it said.
    pub async fn ensure(
        dirs: &Dirs,
        starts: Starts,
    ) -> Result<(Option<Self>, ManagerProxy<'static>, Endpoint), Failure> {
        dirs.make()?;
        let path = dirs.socket();
        let endpoint = socket(path.to_str().ok_or_else(|| no_utf8(&path))?);
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            if path.exists()
                && let Ok(manager) = try_hello(&endpoint).await
            {
                if serves(&manager, dirs, starts).await {
                    return Ok((None, manager, endpoint));
                }
            } else {
                match Self::start(dirs, starts).await {
                    Ok(embedded) => {
                        let manager = try_hello(&endpoint).await.map_err(|why| no_start(dirs, &why))?;
                        return Ok((Some(embedded), manager, endpoint));
                    }
                    Err(Start::Impossible(why)) => return Err(no_start(dirs, &why)),
                    Err(Start::Ended(why)) => last = why,
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(no_start(dirs, &last))
    }

    /// Starts one, and waits until it is ready.
    async fn start(dirs: &Dirs, starts: Starts) -> Result<Self, Start> {
        let impossible = |error: io::Error| Start::Impossible(error.to_string());
        let notify = dirs.runtime.join(format!("ready-{}", std::process::id()));
        let _ = std::fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).map_err(impossible)?;
        let log = File::create(dirs.runtime.join("daemon.log")).map_err(impossible)?;
        let mut embedded = Self::spawn(dirs, starts, &notify, log).map_err(impossible)?;
        let outcome = tokio::select! {
            said = said_ready(&ready) => said.map_err(impossible),
            _ = embedded.ended.readable() => Err(Start::Ended(last_words(dirs))),
            () = tokio::time::sleep(READY) => Err(Start::Impossible(format!("not ready after {} s", READY.as_secs()))),
        };
        let _ = std::fs::remove_file(&notify);
        match outcome {
            Ok(()) => Ok(embedded),
            Err(why) => {
                embedded.leash = None;
                embedded.close().await;
                Err(why)
            }
        }
    }

    fn spawn(dirs: &Dirs, starts: Starts, notify: &Path, log: File) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tenured").args(["--user", "--no-bus", "--exit-with-stdin"]);
        command.arg("--state-dir").arg(&dirs.state).arg("--runtime-dir").arg(&dirs.runtime);
        if let Some(config) = &dirs.config {
            command.arg("--config").arg(config);
        }
        if starts == Starts::Nothing {
            command.arg("--no-dispatch");
        }
        // Its own process group: Ctrl-C is for us to hear, and we tell it what follows.
        command.process_group(0).env("NOTIFY_SOCKET", notify);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn()?;
        let leash = child.stdin.take();
        // Our own child, not yet reaped: the number cannot be another's.
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the daemon has no number"))?;
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        // Waited for like a pipe, never read, and no pipe: hence unchecked.
        Ok(Self { child, ended: pipe::Receiver::from_owned_fd_unchecked(pidfd)?, leash })
    }

    /// Tells it to end, and waits until its board is closed.
    pub async fn close(mut self) {
        drop(self.leash.take());
        if let Ok(Ok(())) = tokio::time::timeout(CLOSE, self.ended.readable()).await {
            // It has ended: this does not wait.
            let _ = self.child.wait();
        }
    }
}

enum Start {
    /// It ended before it was ready: perhaps another one holds the board for a moment.
    Ended(String),
    /// It will not get better.
    Impossible(String),
}

/// Reads sd_notify(3) messages until one says that the daemon is ready.
async fn said_ready(socket: &UnixDatagram) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let said = buffer.get(..length).unwrap_or_default();
        if said.split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
            return Ok(());
        }
    }
}

/// Whether the daemon that answers serves this board, in the way that is needed.
async fn serves(manager: &ManagerProxy<'static>, dirs: &Dirs, starts: Starts) -> bool {
    let _ = (manager, dirs, starts);
    true
}

/// The last line that the daemon wrote to its log.
fn last_words(dirs: &Dirs) -> String {
    let log = std::fs::read(dirs.runtime.join("daemon.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}

fn no_start(dirs: &Dirs, why: &str) -> Failure {
    Failure::NoDaemon {
        what: format!("no daemon could be started on {}: {why}", dirs.state.display()),
        remedy: format!("Its log is in {}.", dirs.runtime.join("daemon.log").display()),
    }
}

fn no_utf8(path: &Path) -> Failure {
    Failure::usage(
        format!("{}: is not UTF-8", path.display()),
        "Set XDG_RUNTIME_DIR to a directory whose name is.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_for_their_owner_alone() {
        let base = tempfile::tempdir().unwrap();
        let dirs = Dirs::under(base.path());
        dirs.make().unwrap();
        std::fs::set_permissions(&dirs.runtime, Permissions::from_mode(0o755)).unwrap();
        dirs.make().unwrap();
        for directory in [&dirs.state, &dirs.runtime] {
            assert_eq!(std::fs::metadata(directory).unwrap().mode() & 0o777, 0o700);
        }
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&dirs.state, &link).unwrap();
        assert!(make_private(&link).is_err(), "a link may lead anywhere");
    }

    #[tokio::test]
    async fn ready_is_one_line_among_others() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let sender = std::os::unix::net::UnixDatagram::unbound().unwrap();
        for message in ["STATUS=NOT READY=1 yet", "EXTEND_TIMEOUT_USEC=1", "STATUS=x\nREADY=1\n"] {
            sender.send_to(message.as_bytes(), &path).unwrap();
        }
        tokio::time::timeout(Duration::from_secs(5), said_ready(&socket)).await.unwrap().unwrap();
    }
}
