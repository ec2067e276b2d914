//! A daemon of our own, for as long as a command needs it: no root, no systemd, no bus.
//!
//! It is this very program started again as `tenured`, on a private socket, with its state under the XDG
//! state directory; it ends when we do, because the pipe that is its standard input closes. Workers outlive
//! it: the next daemon on that board finds them. Never touches the board itself.

#![expect(clippy::disallowed_methods, reason = "an adapter: starts the daemon, reads its log")]

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::net::unix::pipe;

use crate::bus::proxy::{Endpoint, ManagerProxy, Options};
use crate::cli::connect::try_hello;
use crate::cli::dirs::Dirs;
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
    pub async fn ensure(dirs: &Dirs, starts: Starts) -> Result<Serving, Failure> {
        let mut dirs = dirs.clone();
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            dirs.make()?;
            let endpoint = dirs.endpoint()?;
            match there(&dirs, &endpoint).await {
                There::Board(manager) => return Serving::shared(manager, endpoint, starts).await,
                There::OtherBoard => dirs = dirs.beside(),
                There::Nobody => match Self::start(&dirs, starts).await {
                    Ok(embedded) => return Serving::own(embedded, &dirs, endpoint).await,
                    Err(Start::Impossible(why)) => return Err(no_start(&dirs, &why)),
                    Err(Start::Ended(why)) => {
                        last = why;
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
        Err(no_start(&dirs, &last))
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

    /// Ends it as a fault would, without a word: for the demo, which shows what that does not do.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn crash(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.ended, rustix::process::Signal::KILL)?)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
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

/// A daemon that serves the board.
#[derive(Debug)]
pub struct Serving {
    /// The interface.
    pub manager: ManagerProxy<'static>,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Our child, where it is that.
    pub embedded: Option<Embedded>,
    /// Whether we have switched on that it starts tasks, and are to switch that off again.
    pub switched: bool,
}

impl Serving {
    async fn own(embedded: Embedded, dirs: &Dirs, endpoint: Endpoint) -> Result<Self, Failure> {
        let manager = try_hello(&endpoint).await.map_err(|why| no_start(dirs, &why))?;
        Ok(Self { manager, endpoint, embedded: Some(embedded), switched: false })
    }

    /// Somebody else's: a daemon that only looks and edits is made to start tasks for as long as we need it.
    async fn shared(
        manager: ManagerProxy<'static>,
        endpoint: Endpoint,
        starts: Starts,
    ) -> Result<Self, Failure> {
        let mut switched = false;
        if starts == Starts::Tasks {
            switched = switch(&manager, true).await? == "done";
            let passes = Options::from([("Passes", vec!["promote", "dispatch"].into())]);
            manager.sweep(&passes).await?;
        }
        Ok(Self { manager, endpoint, embedded: None, switched })
    }
}

/// Switches whether this life of a daemon starts tasks; what an operator said durably stays as it is.
///
/// # Errors
/// Refusals, and where it does not answer.
pub async fn switch(manager: &ManagerProxy<'static>, starts: bool) -> Result<String, Failure> {
    Ok(manager.drain(!starts, &Options::from([("Durable", false.into())])).await?)
}

/// Who is at a socket.
enum There {
    Board(ManagerProxy<'static>),
    OtherBoard,
    Nobody,
}

async fn there(dirs: &Dirs, endpoint: &Endpoint) -> There {
    if !dirs.socket().exists() {
        return There::Nobody;
    }
    let Ok(manager) = try_hello(endpoint).await else { return There::Nobody };
    let same = |state: &str| match (std::fs::canonicalize(state), std::fs::canonicalize(&dirs.state)) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    };
    match manager.state_directory().await {
        Ok(state) if same(&state) => There::Board(manager),
        Ok(_) => There::OtherBoard,
        Err(_) => There::Nobody,
    }
}

/// What the daemon said at its end, from its log.
fn last_words(dirs: &Dirs) -> String {
    let log = std::fs::read(dirs.runtime.join("daemon.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let last = |wanted: &dyn Fn(&&str) -> bool| text.lines().rev().find(wanted).map(str::to_owned);
    last(&|line| line.starts_with("tenured: "))
        .or_else(|| last(&|line| line.contains("panicked at")))
        .or_else(|| last(&|line| !line.trim().is_empty()))
        .unwrap_or_else(|| "it said nothing".to_owned())
}

fn no_start(dirs: &Dirs, why: &str) -> Failure {
    Failure::NoDaemon {
        what: format!("no daemon could be started on {}: {why}", dirs.state.display()),
        remedy: format!("Its log is in {}.", dirs.runtime.join("daemon.log").display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
